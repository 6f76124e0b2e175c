"""What a site knows of its requests and of replicas, as arrays; the rules by which that changes, compiled.

A *desk* is a site's; all that is known of several sites lies in the same arrays. Live gateways call these
rules one by one, through `RequestCore`; the simulation calls them from its own compiled loop. Index d is the
desk, i the request, r the replica (a row that stays the same while it is known), s the service.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints, Records, records
from edgewise.core.compiled import held, kernel
from edgewise.core.dispatch.request_rules import CLOUD, TRIES, in_time, least_way_s, too_late
from edgewise.core.orchestrate import HOLD, ReplicaView, new_view
from edgewise.core.orchestrate.counting import (
    READY,
    REMOVING,
    STARTING,
    add_up,
    clear,
    count_replica,
    request_cores,
)
from edgewise.model.orchestration import System
from edgewise.model.services import Services

OUTCOMES = ("in_time", "late", "dropped", "failed")
IN_TIME, LATE = range(2)
JUDGED = -1  # an outcome: by its deadline
ASK, LOST, NOBODY, TOO_LATE = range(4)  # what a look at a request finds
WEIGHT = 0.2  # of a new measurement in a moving mean
FREE = -1  # as a service: the row is nobody's

DESK = np.dtype([("site", "i8"), ("replicas", "i8"), ("undecided", "i8")])
# mine: the site's own requests there; others: those of others. serves: requests that it works on at once.
REPLICA = np.dtype(
    [(name, "i8") for name in ("service", "station", "wanted", "up", "mine", "others", "serves")]
)
# stated: whether it says itself what it needs (`Needs`). lost: replicas, with it. alone: nobody else was at
# its replica when it was sent, so that it takes its service time. replica: -1 while it is undecided.
ASKED = np.dtype(
    [
        (name, "f8")
        for name in ("deadline_s", "size_bytes", "service_s", "cpu_cores", "memory_bytes", "sent_s")
    ]
    + [(name, "i8") for name in ("desk", "service", "stated", "known", "replica", "lost", "alone")]
)


class Desks(NamedTuple):
    """D desks.

    seen: what their policies see, a world for each. desk: (D,) DESK. replica: (D, P) REPLICA. order: (D, P)
    rows of replicas that are known, as they came to be. asked: (A,) ASKED. service_s: (D, S) measured mean
    time of a request on a replica. arrived: (D, S) and ended: (D, outcomes, S) requests. asks_cores: (S,)
    whether a request holds cores beside its replica's.
    """

    system: System
    seen: ReplicaView
    desk: Records
    replica: Records
    order: Ints
    asked: Records
    service_s: Floats
    arrived: Ints
    ended: Ints
    asks_cores: Bools


def new_desks(services: Services, sites: Ints, seed: int, requests: int = 16) -> Desks:
    """Desks of sites that know nobody.

    Args:
        seed: of policies' own draws.
        requests: places for them.
    """
    system, count, kinds = services.system, sites.size, len(services.names)
    view = new_view(system, count, np.full(count, seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64))
    view.cloud_delay_s[:] = system.delay_s[sites, CLOUD]
    desk, asked = records((count,), DESK), records((requests,), ASKED)
    desk["site"], asked["replica"] = sites, -1
    asks = np.array([request_cores(system, s, 1.0) for s in range(kinds)]) > 0.0
    service_s = np.tile(services.service_s, (count, 1))
    arrived, ended = np.zeros((count, kinds), np.int64), np.zeros((count, len(OUTCOMES), kinds), np.int64)
    none, nobody = np.zeros((count, 0), dtype=np.int64), records((count, 0), REPLICA)
    found = Desks(system, view, desk, nobody, none, asked, service_s, arrived, ended, asks)
    return with_replicas(found, 8)


def with_replicas(x: Desks, more: int) -> Desks:
    """The same with room for so many more replicas."""
    longer, order = (
        np.concatenate([each, np.zeros_like(each, shape=(len(each), more))], axis=1)
        for each in (x.replica, x.order)
    )
    longer["service"][:, x.order.shape[1] :] = FREE
    return x._replace(replica=longer.view(np.recarray), order=order)


@kernel
def arrive(
    x: Desks,
    i: int,
    place: tuple[int, int],
    deadline_s: float,
    size_bytes: float,
    stated: bool,
    needs: tuple[float, float, float],
) -> None:
    """A request comes: a row of `asked` that was nobody's.

    Args:
        place: desk and service. stated: whether it says itself what it needs. needs: as `needs_of`.
    """
    a, (d, s) = x.asked[i], place
    a.desk, a.service, a.deadline_s, a.size_bytes, a.stated = d, s, deadline_s, size_bytes, stated
    a.service_s, a.cpu_cores, a.memory_bytes = needs
    a.known, a.replica, a.lost, a.alone = 1, -1, 0, 0
    x.desk[d].undecided += 1
    x.arrived[d, s] += 1


@kernel
def count_all(x: Desks, d: int, now_s: float) -> None:
    """Write what is known of replicas into the view, without a head."""
    x = held(x)
    system, view = x.system, x.seen
    view.world[d].clock_s = now_s
    clear_head(x, d)
    clear(system, view, d)
    for k in range(x.desk[d].replicas):
        r = x.replica[d, x.order[d, k]]
        if r.up or r.wanted:
            state = REMOVING if not r.wanted else READY if r.up else STARTING
            count_replica(system, view, d, r.station, r.service, r.mine + r.others, state, r.serves)
    add_up(system, view, d, x.service_s[d])


@kernel
def clear_head(x: Desks, d: int) -> None:
    """The site has nothing to decide."""
    head = x.seen.site[d, x.desk[d].site]
    head.head, head.head_service, head.site_queue = -1, -1, 0
    head.head_deadline_s = head.head_service_s = head.head_cpu_cores = 0.0
    head.head_memory_bytes = head.head_payload_bytes = 0.0


@kernel
def look(x: Desks, i: int, now_s: float) -> int:
    """Whether a policy is to be asked for a request, which is then the head of its view; else why not."""
    x = held(x)
    a = x.asked[i]
    d, s, found = a.desk, a.service, False
    if a.lost == TRIES:
        return LOST
    for k in range(x.desk[d].replicas):
        r = x.replica[d, x.order[d, k]]
        found = found or (r.service == s and r.up and r.wanted)
    if not found:
        return NOBODY
    count_all(x, d, now_s)
    service_s, cores, memory_bytes = needs_of(x, i)
    if too_late(x.system.drops, now_s + way_of(x, i), service_s, a.deadline_s):
        return TOO_LATE
    head = x.seen.site[d, x.desk[d].site]
    head.head, head.head_service, head.site_queue = 0, s, x.desk[d].undecided
    head.head_deadline_s, head.head_service_s = a.deadline_s, service_s
    head.head_cpu_cores = cores if x.asks_cores[s] else 0.0
    head.head_memory_bytes, head.head_payload_bytes = memory_bytes, a.size_bytes
    return ASK


@kernel
def needs_of(x: Desks, i: int) -> tuple[float, float, float]:
    """Time on a replica, cores and memory: what a request states, else what is usual of its service."""
    a = x.asked[i]
    if a.stated:
        return a.service_s, a.cpu_cores, a.memory_bytes
    return x.service_s[a.desk, a.service], x.system.service_cpu_cores[a.service], 0.0


@kernel
def way_of(x: Desks, i: int) -> float:
    """Least time in which a request gets to who serves it, by the view as it was counted last."""
    a = x.asked[i]
    return least_way_s(x.system, x.seen, a.desk, x.desk[a.desk].site, a.service, a.size_bytes, False)


@kernel
def send(x: Desks, i: int, station: int, now_s: float) -> int:
    """At the station that was chosen, else anywhere, the replica with least to do; or HOLD."""
    a = x.asked[i]
    d, best = a.desk, -1
    clear_head(x, d)
    if station == HOLD:
        return HOLD
    for k in range(x.desk[d].replicas):
        at = x.order[d, k]
        r = x.replica[d, at]
        if r.service != a.service or not (r.up and r.wanted):
            continue
        if best < 0:
            best = at
            continue
        b = x.replica[d, best]
        if (r.station == station) != (b.station == station):
            better = r.station == station
        elif r.station != b.station:
            better = r.station < b.station
        else:
            better = r.mine + r.others < b.mine + b.others
        if better:
            best = at
    r = x.replica[d, best]
    a.replica, a.sent_s, a.alone = best, now_s, r.mine + r.others == 0
    r.mine += 1
    x.desk[d].undecided -= 1
    return int(best)


@kernel
def come_back(x: Desks, i: int, now_s: float, answered: bool, took_s: float, lost: bool) -> int:
    """A replica's answer came back, or it is lost (`RequestReturned`); the replica, -1: it was not sent."""
    a = x.asked[i]
    d, at = a.desk, a.replica
    if at < 0:
        return -1
    r = x.replica[d, at]
    a.replica = -1
    r.mine -= 1
    x.desk[d].undecided += 1
    if lost:
        r.up = 0
        a.lost += 1
    if answered and a.alone and not a.stated and took_s > 0.0:
        x.service_s[d, a.service] += WEIGHT * (took_s - x.service_s[d, a.service])
    if answered and r.station == CLOUD:
        world = x.seen.world[d]
        ways_s = max(now_s - a.sent_s - took_s - 8.0 * a.size_bytes / x.system.wan_bps, 0.0)
        world.cloud_delay_s += WEIGHT * (ways_s - world.cloud_delay_s)
    return int(at)


@kernel
def end(x: Desks, i: int, now_s: float, outcome: int) -> None:
    """What became of a request; its row is nobody's."""
    a = x.asked[i]
    if outcome == JUDGED:
        outcome = IN_TIME if in_time(now_s, a.deadline_s) else LATE
    x.ended[a.desk, outcome, a.service] += 1
    x.desk[a.desk].undecided -= a.replica < 0
    a.known = 0


@kernel
def tell(x: Desks, d: int, r: int, queued: int) -> None:
    """A replica said how many requests it has, of whomever."""
    replica = x.replica[d, r]
    replica.others = max(queued - replica.mine, 0)
