"""On over many periods of telemetry in compiled code, where nothing in between needs Python.

Gateways exchange messages up to a moment of telemetry; streams that they bound begin to send; requests,
streams, links and workers go on up to there; then it is measured, counted or heard. At one time all comes in
the order in which `Simulation` takes it, which goes on by itself where this loop ends.
Forbidden here: rules; they are the core's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.policy import Batch
from edgewise.core.dispatch.state import QUEUE, Ways, reserve_elsewhere
from edgewise.core.dispatch.views import DECLARED, LEFT as LEFT_BPS, UNSENT
from edgewise.core.grant_rules import averaged
from edgewise.core.world import CLUSTER
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.sim.links.advance import links_now
from edgewise.sim.links.riders import OnWire
from edgewise.sim.requests.riding import ride
from edgewise.sim.requests.state import RequestRun, Stop
from edgewise.sim.streams.desk_steps import state_of
from edgewise.sim.streams.gateways import exchange
from edgewise.sim.streams.guests import Visits
from edgewise.sim.streams.lines import OnLinks, waiting
from edgewise.sim.streams.periods import (
    COUNTED,
    COUNTED_TO,
    HEARD_OF,
    NEWS,
    SAMPLE,
    Periods,
    measure,
    next_period,
)
from edgewise.sim.streams.queues import drop_until
from edgewise.sim.streams.shared import attach
from edgewise.sim.streams.site_arrays import (
    BOUND,
    CARRIED,
    LEFT,
    PLAYED,
    REFUSED,
    UNDECIDED,
    WRITTEN,
    SiteArrays,
)
from edgewise.sim.streams.state import REJECTED, Streams, Tally, Workers

ALL_TAKEN, GATEWAYS, REQUESTS = range(3)  # why the loop ends: nothing is left; or one of both needs Python
THROUGH, PLAY, PLAY_CLOSINGS, SERVE = range(4)  # what it does
THERE = int(Stop.THERE)


class Whole(NamedTuple):
    """All that goes on: N streams, W workers, S gateways.

    Attributes:
        periods: of telemetry.
        site: gateways.
        requests, on, visits: services.
        streams, carried, workers, ways, seed, tally: as `serve_on` takes them.
        bound, reason, last: (N,) of `Simulation`, see there.
        load_qps: (S, W) of requests at workers, as gateways measure it.
        share: of a period in that average.
    """

    periods: Periods
    site: SiteArrays
    requests: RequestRun
    on: OnWire
    visits: Visits
    streams: Streams
    carried: OnLinks
    workers: Workers
    ways: Ways
    seed: np.uint64
    tally: Tally
    bound: Ints
    reason: NDArray[np.int8]
    last: Ints
    load_qps: Floats
    share: float


@kernel
def go_through(
    scores: Any, whole: Whole, events: Batch, played: int, how: int, to_s: float, given: int
) -> tuple[int, int, int]:
    """Let all happen up to the last moment of telemetry before `to_s`, or a part of it up to `to_s`.

    Args:
        scores, events, played, given: see `exchange`.
        how: all of it (THROUGH); only what gateways exchange before `to_s` (PLAY), or closings at that very
            time, too (PLAY_CLOSINGS); only the others (SERVE).
    Returns:
        ALL_TAKEN, or who needs Python; why, as `exchange` or `ride` says it; so many events have been played.
    """
    x, e, decided = held(whole), played, given
    serves = (x.streams, x.carried, x.workers, x.ways, x.seed, x.tally)
    while True:
        at_s, what = next_period(x.periods)
        if how != THROUGH:
            at_s, what = to_s, COUNTED
        elif not at_s < to_s:
            return ALL_TAKEN, PLAYED, e
        if how != SERVE:
            why, e = exchange(
                scores, x.site, events, e, at_s, what != COUNTED or how == PLAY_CLOSINGS, decided
            )
            decided = UNDECIDED
            if not carry(x) or why != PLAYED or how != THROUGH:
                return GATEWAYS, why, e
        if what == NEWS:
            hear(x)
            continue
        stop = ride(x.requests, x.on, x.visits, at_s, serves)
        if stop != THERE or how == SERVE:
            return REQUESTS, stop, e
        if what == SAMPLE:
            queue = waiting(at_s, x.carried.lines, x.workers)
            links = links_now(x.carried.net.links, at_s)
            measure(x.periods, queue, links, x.site.cores.link[:, DECLARED], x.workers)
        else:
            x.requests.clock[0].now_s = at_s
            count(x)


@kernel
def carry(x: Whole) -> bool:
    """Let streams send to where they were bound; whether none has left its worker, which Python sees to."""
    d = x.site.desks
    while d.figures[CARRIED] < d.figures[WRITTEN]:
        k = d.figures[CARRIED]
        what, i, w = d.what[0, k], d.what[2, k], d.what[3, k]
        if what == LEFT:
            return False
        if what == REFUSED:
            x.bound[i], x.reason[i] = w, d.what[4, k]
        elif what == BOUND:
            x.bound[i] = x.last[i] = w
            if x.ways[x.site.rows.site[i], x.site.cores.whole[0, CLUSTER, w]].delay_s < np.inf:
                row, at_s, to = d.what[2, k : k + 1], d.time_s[k : k + 1], d.what[3, k : k + 1]
                attach(row, at_s, to, x.streams, x.carried.senders, x.seed, x.tally)
            else:
                drop_until(x.streams, i, d.time_s[k], REJECTED, x.seed, x.tally)
        d.figures[CARRIED] = k + 1
    return True


@inner
def hear(x: Whole) -> None:
    """Gateways hear of the next period."""
    p, cores = x.periods, x.site.cores
    number = p.many[HEARD_OF]
    row = number % len(p.told)
    for s in range(len(cores.real)):
        for k in range(len(p.told[row])):
            for w in range(cores.real.shape[2]):
                cores.real[s, QUEUE + k, w] = p.told[row, k, w]
        for j in range(cores.link.shape[2]):
            cores.link[s, LEFT_BPS, j], cores.link[s, UNSENT, j] = (
                p.left_bps[row, s, j],
                p.unsent_bits[row, j],
            )
        cores.measured_s[s] = (number + 1) * p.period_s
    p.many[HEARD_OF] = number + 1


@inner
def count(x: Whole) -> None:
    """Gateways measure the load of their requests at workers; that much less is left."""
    sent_qps, d, period_s = x.requests.sent_qps, x.site.desks, x.periods.period_s
    for s in range(len(sent_qps)):
        for w in range(sent_qps.shape[1]):
            before_qps = x.load_qps[s, w]
            found_qps = averaged(before_qps, sent_qps[s, w] / period_s, x.share)
            x.load_qps[s, w], sent_qps[s, w] = found_qps, 0.0
            if found_qps != d.requests_qps[s, w]:
                d.requests_qps[s, w] = found_qps
                reserve_elsewhere(held(state_of(x.site.cores, s)), w, d.others_qps[s, w] + found_qps)
    x.periods.many[COUNTED_TO] += 1
