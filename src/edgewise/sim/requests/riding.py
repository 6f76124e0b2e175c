"""Requests and streams over the links of one run, where nobody else waits for messages: one compiled loop."""

from __future__ import annotations

import numpy as np

from edgewise.core.dispatch.state import Ways
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.sim.links.riders import OnWire
from edgewise.sim.requests.loop import LINKS, ROOM, THERE, go
from edgewise.sim.requests.news import next_news_s
from edgewise.sim.requests.replicas import WORKER, asks, left
from edgewise.sim.requests.state import NONE, RequestRun
from edgewise.sim.streams.guests import (
    FREE,
    GONE,
    LOOK,
    NOW,
    SOONEST,
    THERE as AT_WORKERS,
    Visits,
    come,
    ended,
    tidy,
    to_be_dropped,
)
from edgewise.sim.streams.lines import OnLinks, waiting_at
from edgewise.sim.streams.shared import serve_on
from edgewise.sim.streams.shared_leaving import join
from edgewise.sim.streams.state import Streams, Tally, Workers


@kernel
def ride(
    x: RequestRun, on: OnWire, v: Visits, to_s: float,
    given: tuple[Streams, OnLinks, Workers, Ways, np.uint64, Tally],
) -> int:  # fmt: skip
    """`go_on` to `to_s`; streams send, links pass on and workers serve as it needs that, and last to `to_s`.

    Args:
        v: requests at streams' workers.
        given: what `serve_on` works on.
    """
    s, carried, workers, ways, seed, tally = given
    x, on, v, carried, workers = held(x), held(on), held(v), held(carried), held(workers)
    carried.lines.wakes_s[:] = -np.inf
    while True:
        stop = go(x, on, min(to_s, v.times_s[SOONEST], v.times_s[LOOK]))
        if stop == WORKER and share(x, v, s, carried, workers):
            continue
        if stop != THERE:
            return stop
        next_s = min(x.clock[0].next_s, v.times_s[SOONEST], v.times_s[LOOK])
        pass_s = max(to_s, on.now_s[0])
        if next_s < to_s:
            pass_s = np.nextafter(max(next_s, on.now_s[0]), np.inf)
        on.now_s[0] = pass_s
        if not serve_on(pass_s, s, carried, workers, ways, seed, tally):
            return LINKS
        if not settle(x, v, pass_s, s, carried, workers):
            return ROOM
        if next_s >= to_s:
            return THERE


@inner
def share(x: RequestRun, v: Visits, s: Streams, carried: OnLinks, workers: Workers) -> bool:
    """The request that the loop stopped at waits among the queries of streams; whether there was room."""
    if v.many[FREE] == 0:
        return False
    i, row = x.clock[0].head, v.rows[v.many[FREE] - 1]
    worker, took_s, begin_by_s = asks(x, i)
    if not join(row, worker, x.clock[0].now_s, took_s, begin_by_s, s, carried):
        return False
    come(v, i, worker, took_s, begin_by_s, s, workers)
    return True


@inner
def settle(x: RequestRun, v: Visits, now_s: float, s: Streams, carried: OnLinks, workers: Workers) -> bool:
    """`Guests.settle`, when all that starts before `now_s` is served; whether there was room."""
    c, at = x.clock[0], -1
    c.lacks = v.many[AT_WORKERS]
    if c.events + c.lacks > x.events.size:
        return False
    v.times_s[NOW] = now_s
    if v.times_s[LOOK] <= now_s:
        look_s = v.times_s[LOOK]
        for j in range(c.servers):
            one = x.server[x.alive[j]]
            if one.worker != NONE:
                one.waiting = queue_at(one.worker, look_s, v, s, carried, workers)
        v.times_s[LOOK] = next_news_s(look_s, c.period_s) if look_s < c.end_s else np.inf
    if now_s <= v.times_s[SOONEST]:
        return True
    while True:
        at = ended(v, at + 1, s)
        if at < 0:
            tidy(v, s, workers)
            return True
        visit = v.each[at]
        q, worker = s[visit.row], visit.worker
        visit.worker = GONE
        queued = queue_at(worker, q.delay_max_s, v, s, carried, workers)
        left(x, visit.request, q.delay_max_s, q.rejected != 0, queued)


@inner
def queue_at(k: int, now_s: float, v: Visits, s: Streams, carried: OnLinks, workers: Workers) -> int:
    """Queries and requests at worker `k`, of which some are known to be dropped later."""
    return waiting_at(k, now_s, carried.lines, workers) + to_be_dropped(v, k, now_s, s)
