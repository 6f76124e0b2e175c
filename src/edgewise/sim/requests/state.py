"""All of a run of requests that changes, as arrays: what is to happen, requests, replicas, queues, news."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints, Records, records
from edgewise.core.dispatch.desks import Desks
from edgewise.model.services import Services
from edgewise.sim.slots.replica_state import COLUMNS, WORKED_ON

NONE = -1
# What happens at one time happens in this order: news are heard as they are gathered.
ENDED, READY, REACHED, BEGUN, RETURNED, GATHERED, ARRIVED, AGAIN = range(8)
MISSED, HEARD, ANSWERED, UNANSWERED, LEFT = range(8, 13)
ORDER = np.array([0, 1, 2, 3, 4, 5, 6, 7, REACHED, GATHERED, RETURNED, RETURNED, ENDED])
TOLD_OF = ORDER.size  # of a note alone


class Stop(IntEnum):
    """Why the loop is left: it is there; or Python is to decide, let go, hear, make room, read notes, or
    hand a request to a worker of streams."""

    THERE, DECIDE, SETTLE, HEAR, ROOM, LINKS, NOTED, WORKER = range(8)


EVENT = np.dtype(
    [("at_s", "f8"), ("took_s", "f8")]
    + [(name, "i8") for name in ("order", "kind", "who", "server", "starts", "how", "queued")]
)
# serves: requests that it works on at once; waiting, working: those that are there. starts: how often it
# broke; what is due of an earlier process is void. broken: its node was down, as gateways have heard.
# looks_s: when it last went through its queue.
# worker: of streams, whose queue it is, -1: none; `waiting` is then all that was there when last looked at.
SERVER = np.dtype(
    [
        (name, "i8")
        for name in ("service", "station", "serves", "wanted", "up", "waiting", "working", "starts")
    ]
    + [("broken", "i8"), ("worker", "i8"), ("looks_s", "f8")]
)
# What a site was told of a request or, with `row`, of a replica, and what it said (`request_flow`).
# value: how a request came back, or how many a replica has.
NOTE = np.dtype(
    [("at_s", "f8"), ("took_s", "f8")]
    + [(name, "i8") for name in ("kind", "desk", "request", "row", "value", "said")]
)
TOLD = np.dtype([(name, "i8") for name in ("server", "wanted", "up", "queued", "down")])
# Of each request: where it was sent, the machine on which it is worked on, until when, who waits behind it,
# and of all that were begun the how-manieth it is; what its replica says with the answer on its way (`back`).
STANDS = np.dtype(
    [("took_s", "f8"), ("until_s", "f8")]
    + [(name, "i8") for name in ("server", "machine", "behind", "begun", "back", "queued")]
)
# next_s: no message is there before; calm_s: nothing else happens before. arrived: so many requests came.
# events, servers: so many there are. waiting: requests in queues. at: where in the heap the latest event was
# put. head: a request that Python decides, or hands on. asked: what it has decided. told: news that Python
# hears. notes: so many there are. rule: whether all sites decide by `by_rule`, ruled: how often.
# lacks: for so many more events there is to be room.
CLOCK = np.dtype(
    [
        (name, "f8")
        for name in ("now_s", "next_s", "end_s", "frame_s", "period_s", "lag_s", "calm_s", "up_free_s")
    ]
    + [("seed", "u8")]
    + [(name, "i8") for name in ("requests", "arrived", "events", "number", "begun", "waiting", "servers")]
    + [(name, "i8") for name in ("at", "head", "asked", "told", "rule", "ruled", "notes", "lacks")]
)


class RequestRun(NamedTuple):
    """One run: B sites, K stations, M machines, P replicas that ever were, R requests, W workers of streams.

    Attributes:
        desks: of the sites.
        clock: (1,) CLOCK.
        events: a heap of EVENT.
        request: (R,) REQUEST, where each stands.
        stands: (R,) STANDS.
        server: (P,) SERVER.
        alive: (P,) replicas that there are, the oldest first.
        server_of: (B, .) replica of each row of a desk.
        row_of: (B, P) row of each replica at a desk; -1 where it has none.
        first: (K,) who waits first, by deadline.
        due: (K,) whether a queue is to be gone through.
        down: (K,) whether a station has failed.
        has: (M, 2) cores and memory of each machine.
        room: (M, 2) what replicas leave of that.
        busy: (M, 2) what requests hold that are worked on.
        holds: (S, 2) what a replica of each service holds.
        lan_free_s: (B,) from when each site's own network is free.
        answer_bits: (S,) of an answer of each service.
        route: (2, B, K) routes there and back.
        worked_s: (S, K) time that replicas have worked on requests.
        tally: (F, COLUMNS) counts by frame.
        told: (news, P) TOLD.
        tellers: how many of each there are.
        notes: (.,) NOTE; of no size where nobody reads them.
        memory: of the rule that dispatches.
        worker: (., W) costs of streams' workers.
        sent_qps: (B, W) load of what was sent there since it was read.
    """

    desks: Desks
    clock: Records
    events: Records
    request: Records
    stands: Records
    server: Records
    alive: Ints
    server_of: Ints
    row_of: Ints
    first: Ints
    due: Bools
    down: Bools
    has: Floats
    room: Floats
    busy: Floats
    holds: Floats
    lan_free_s: Floats
    answer_bits: Floats
    route: Ints
    worked_s: Floats
    tally: Floats
    told: Records
    tellers: Ints
    notes: Records
    memory: Floats
    worker: Floats
    sent_qps: Floats


def new_run(
    services: Services,
    desks: Desks,
    rows: Records,
    frames: int,
    times: dict[str, Any],
    memory: Floats,
    notes: int,
    worker: Floats,
) -> RequestRun:
    """Nothing has happened, and there are no replicas.

    Args:
        rows: (R,) REQUEST. frames: of the tally. times: fields of CLOCK.
        memory: of the rule by which all sites decide. notes: places for them.
        worker: of `core.dispatch.state.State.real`.
    """
    system = services.system
    clock, stations = records((1,), CLOCK), system.stations
    for name, value in times.items():
        clock[name] = value
    clock["frame_s"] = system.frame_slots * system.slot_s
    clock["end_s"] = frames * clock["frame_s"]
    unknown = np.zeros((system.sites, 0), dtype=np.int64)
    has = np.stack([system.cpu_cores, system.memory_bytes], axis=1)
    news = 3 + math.ceil(times["lag_s"] / times["period_s"])
    return RequestRun(
        desks, clock, records((64,), EVENT), rows, records(rows.shape, STANDS), records((0,), SERVER),
        np.zeros(0, dtype=np.int64), unknown, unknown,
        np.full(stations, NONE), np.zeros(stations, np.bool_), np.zeros(stations, np.bool_),
        has, has.copy(), np.zeros_like(has), np.ascontiguousarray(system.replica_holds[:, ::-1]),
        np.zeros(system.sites),
        8.0 * services.answer_bytes,
        np.zeros((2, *system.delay_s.shape), np.int64), np.zeros((system.services, stations)),
        np.zeros((frames, COLUMNS)), records((news, 0), TOLD), np.zeros(news, np.int64),
        records((notes,), NOTE), memory, worker, np.zeros((system.sites, worker.shape[1])),
    )  # fmt: skip


def worked_until(x: RequestRun, end_s: float) -> Floats:
    """(S, K) seconds that replicas have worked on requests, without what is done after `end_s`."""
    found, under_way = x.worked_s.copy(), x.request["state"] == WORKED_ON
    server = x.server[x.stands["server"][under_way]]
    after_s = np.maximum(x.stands["until_s"][under_way] - end_s, 0.0)
    np.subtract.at(found, (server["service"], server["station"]), after_s)
    return found


def longer(array: Any, size: int) -> Any:
    """The same with room for `size` along its last axis."""
    found = np.zeros_like(array, shape=(*array.shape[:-1], size))
    found[..., : array.shape[-1]] = array
    return found
