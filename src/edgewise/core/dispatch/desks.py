"""What a site knows of its requests and of replicas, as arrays.

A *desk* is a site's; all that is known of several sites lies in the same arrays. What becomes of a request
there is `request_flow`'s. Index d is the desk, i the request, r the replica (a row that stays the same while
it is known), s the service.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints, Records, records
from edgewise.core.dispatch.request_rules import CLOUD
from edgewise.core.orchestrate import ReplicaView, new_view
from edgewise.core.orchestrate.counting import (
    READY,
    REMOVING,
    STARTING,
    add_up,
    clear,
    count_replica,
    request_cores,
)
from edgewise.kernels.compiled import held, kernel, plain
from edgewise.model.orchestration import System
from edgewise.model.services import Services

OUTCOMES = ("in_time", "late", "dropped", "failed")
IN_TIME, LATE, DROPPED, FAILED = range(4)
FREE = -1  # as a service: the row is nobody's

# Counted where it is said, of requests: sent for the first time; sent elsewhere, as their replica was lost;
# kept for a while; refused; given up after a replica was lost with them.
SAID = ("sent", "resent", "kept", "refused", "given_up")
DESK = np.dtype([(name, "i8") for name in ("site", "replicas", "undecided", *SAID)])
# mine: the site's own requests there; others: those of others. serves: requests that it works on at once.
REPLICA = np.dtype(
    [(name, "i8") for name in ("service", "station", "wanted", "up", "mine", "others", "serves")]
)
# lost: replicas, with it. alone: nobody else was at its replica when it was sent, so that it takes its
# service time. replica: -1 while it is undecided; else it could not end in time if that began it after
# `begin_by_s`. until_s: it is kept so long.
ASKED = np.dtype(
    [(name, "f8") for name in ("deadline_s", "size_bytes", "sent_s", "until_s", "begin_by_s")]
    + [(name, "i8") for name in ("desk", "service", "known", "replica", "lost", "alone")]
)


class Desks(NamedTuple):
    """D desks of K stations and S services.

    Attributes:
        system: places and services, which all desks share.
        seen: what their policies see, a world for each.
        desk: (D,) DESK.
        replica: (D, P) REPLICA.
        order: (D, P) rows of replicas that are known, as they came to be.
        asked: (A,) ASKED.
        service_s: (D, S) measured mean time of a request on a replica.
        least_s: (D, S) what nine of ten take at least.
        arrived: (D, S) requests that came.
        ended: (D, outcomes, S) requests that ended, by outcome.
        asks_cores: (S,) whether a request holds cores beside its replica's.
        back_s: (D, K) way of an answer from each station.
        answer_s: (D, K, S) to send an answer over a link where nothing else is sent.
        changed: (D, K) whether `seen` does not show what is known of a station's replicas now.
    """

    system: System
    seen: ReplicaView
    desk: Records
    replica: Records
    order: Ints
    asked: Records
    service_s: Floats
    least_s: Floats
    arrived: Ints
    ended: Ints
    asks_cores: Bools
    back_s: Floats
    answer_s: Floats
    changed: Bools


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
    asks = np.array([plain(request_cores)(system, s, 1.0) for s in range(kinds)]) > 0.0
    service_s, least_s = (np.tile(each, (count, 1)) for each in (services.service_s, services.least_s))
    arrived, ended = np.zeros((count, kinds), np.int64), np.zeros((count, len(OUTCOMES), kinds), np.int64)
    none, nobody = np.zeros((count, 0), dtype=np.int64), records((count, 0), REPLICA)
    back_s = system.delay_s[sites] * (0.5 if services.spec.answers else 0.0)
    answer_s = 8.0 * services.answer_bytes / system.rate_bps[sites][:, :, None]
    found = Desks(
        system, view, desk, nobody, none, asked, service_s, least_s, arrived, ended, asks, back_s, answer_s,
        np.ones(back_s.shape, dtype=np.bool_),
    )  # fmt: skip
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
def count_all(x: Desks, d: int, now_s: float) -> None:
    """Write what is known of replicas into the view, without a head.

    It is asked before each decision: only stations are counted where something has changed.
    """
    x = held(x)
    system, view, changed = x.system, x.seen, x.changed[d]
    view.world[d].clock_s = now_s
    clear_head(x, d)
    for k in range(changed.size):
        if changed[k]:
            clear(system, view, d, k)
    for at in range(x.desk[d].replicas):
        r = x.replica[d, x.order[d, at]]
        if changed[r.station] and (r.up or r.wanted):
            state = REMOVING if not r.wanted else READY if r.up else STARTING
            count_replica(system, view, d, r.station, r.service, r.mine + r.others, state, r.serves)
    for k in range(changed.size):
        if changed[k]:
            add_up(system, view, d, k, x.service_s[d])
            changed[k] = False


@kernel
def clear_head(x: Desks, d: int) -> None:
    """The site has nothing to decide."""
    head = x.seen.site[d, x.desk[d].site]
    head.head, head.head_service, head.site_queue = -1, -1, 0
    head.head_deadline_s = head.head_service_s = head.head_cpu_cores = 0.0
    head.head_memory_bytes = head.head_payload_bytes = 0.0


@kernel
def tell(x: Desks, d: int, r: int, queued: int) -> None:
    """A replica said how many requests it has, of whomever."""
    replica = x.replica[d, r]
    others = max(queued - replica.mine, 0)
    if others != replica.others:
        replica.others, x.changed[d, replica.station] = others, True


@kernel
def measure(x: Desks, d: int, s: int, service_s: float) -> None:
    """Requests take so long on replicas, and so much work waits."""
    x.service_s[d, s] = service_s
    for k in range(x.changed.shape[1]):
        cell = x.seen.replicas[d, k, s]
        cell.waiting_s = cell.waiting * service_s
