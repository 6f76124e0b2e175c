"""Requests at replicas, compiled: they wait by deadline, are worked on, and leave.

A queue drops what could not end in time, as in the engine of slots; but a request is bound to its replica, as
live, not to a station. Forbidden here: rules about scheduling.
"""

from __future__ import annotations

import numpy as np

from edgewise.core.dispatch.desks import DROPPED
from edgewise.core.dispatch.request_flow import ANSWERED as DONE, LOST
from edgewise.core.dispatch.request_rules import CLOUD, SLACK_S, in_time
from edgewise.core.ledger import has_room
from edgewise.kernels.compiled import held, kernel
from edgewise.sim.links import riders
from edgewise.sim.links.riders import OnWire
from edgewise.sim.requests.events import push
from edgewise.sim.requests.state import (
    BEGUN,
    ENDED,
    LEFT,
    NONE,
    READY,
    RETURNED,
    RequestRun,
    Stop,
)
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replica_kernels import varied_s

THERE, WORKER = int(Stop.THERE), int(Stop.WORKER)
SENT, WORKED_ON, IN_TIME, LATE, NOT_SERVED = k.SENT, k.WORKED_ON, k.IN_TIME, k.LATE, k.DROPPED
DONE_IN_TIME, DONE_LATE, NOT_DONE = k.DONE_IN_TIME, k.DONE_LATE, k.LOST


@kernel
def reach(x: RequestRun, i: int) -> int:
    """A request comes to where it was sent, and waits by its deadline; as `go_on` returns."""
    r, s = x.request[i], x.server[x.stands[i].server]
    if not s.up:
        leave(x, i, LOST)
        return THERE
    r.ready_s = x.clock[0].now_s
    if s.worker != NONE:
        x.clock[0].head = i
        return WORKER
    before, at = NONE, x.first[s.station]
    while at != NONE and (
        x.request[at].deadline_s < r.deadline_s or (x.request[at].deadline_s == r.deadline_s and at < i)
    ):
        before, at = at, x.stands[at].behind
    x.stands[i].behind = at
    if before == NONE:
        x.first[s.station] = i
    else:
        x.stands[before].behind = i
    s.waiting += 1
    x.clock[0].waiting += 1
    look_at(x, x.stands[i].server)
    return THERE


@kernel
def look_at(x: RequestRun, server: int) -> None:
    """Go through a replica's queue once all is there that comes now, and through its station's for room."""
    station, x.server[server].looks_s = x.server[server].station, x.clock[0].now_s
    if not x.due[station]:
        x.due[station] = True
        push(x, x.clock[0].now_s, BEGUN, station)


@kernel
def begin(x: RequestRun, station: int) -> None:
    """Begin what can begin at a station, by deadline; who has a look drops what could not end in time."""
    x.due[station] = False
    before, i = NONE, x.first[station]
    while i != NONE:
        s, behind = x.server[x.stands[i].server], x.stands[i].behind
        machine, late = machine_for(x, i), False
        if machine != NONE or s.looks_s == x.clock[0].now_s:
            late = is_late(x, i)
        if not late and machine == NONE:
            before = i
        else:
            if before == NONE:
                x.first[station] = behind
            else:
                x.stands[before].behind = behind
            s.waiting -= 1
            x.clock[0].waiting -= 1
            if late:
                leave(x, i, DROPPED)
            else:
                work(x, i, machine)
        i = behind


@kernel
def is_late(x: RequestRun, i: int) -> bool:
    """Whether a request could not end in time if it began now, as its site said when it sent it."""
    return x.desks.system.drops and not in_time(x.clock[0].now_s, x.desks.asked[i].begin_by_s)


@kernel
def holds(x: RequestRun, i: int) -> tuple[float, float]:
    """Cores and memory of a request while it is worked on; in the cloud it has a replica of its own."""
    r = x.request[i]
    if r.station == CLOUD:
        return r.cpu_cores + x.holds[r.service, 0], r.memory_bytes + x.holds[r.service, 1]
    return r.cpu_cores, r.memory_bytes


@kernel
def machine_for(x: RequestRun, i: int) -> int:
    """The first machine of its station on which a request can begin now, or -1."""
    s, first = x.server[x.stands[i].server], x.desks.system.first_machine
    if s.working < s.serves:
        cores, memory_bytes = holds(x, i)
        for m in range(first[s.station], first[s.station + 1]):
            free_cores, free_bytes = x.room[m, 0] - x.busy[m, 0], x.room[m, 1] - x.busy[m, 1]
            if has_room(cores, free_cores, x.has[m, 0]) and has_room(memory_bytes, free_bytes, x.has[m, 1]):
                return m
    return NONE


@kernel
def work(x: RequestRun, i: int, machine: int) -> None:
    """Work on a request from now on."""
    c, r, at = x.clock[0], x.request[i], x.stands[i]
    s = x.server[at.server]
    took_s = varied_s(x.desks.system.service_deviation, c.seed, i, r.service_s)
    x.worked_s[s.service, s.station] += took_s
    cores, memory_bytes = holds(x, i)
    x.busy[machine, 0] += cores
    x.busy[machine, 1] += memory_bytes
    at.machine, at.begun, at.until_s, r.state = machine, c.begun, c.now_s + took_s, WORKED_ON
    c.begun += 1
    s.working += 1
    push(x, c.now_s + took_s, ENDED, i)
    e = x.events[c.at]
    e.server, e.starts = at.server, s.starts


@kernel
def finish(x: RequestRun, on: OnWire | None, i: int) -> None:
    """A request has been worked on."""
    release(x, i)
    reply(x, on, i)
    look_at(x, x.stands[i].server)


@kernel
def asks(x: RequestRun, i: int) -> tuple[int, float, float]:
    """Of a request that waits among queries of streams: its worker, what it takes, when it is late."""
    r, worker = x.request[i], x.server[x.stands[i].server].worker
    took_s = varied_s(x.desks.system.service_deviation, x.clock[0].seed, i, r.service_s)
    begin_by_s = x.desks.asked[i].begin_by_s + SLACK_S if x.desks.system.drops else np.inf
    return int(worker), took_s, begin_by_s


@kernel
def left(x: RequestRun, i: int, at_s: float, dropped: bool, queued: int) -> None:
    """A request leaves a worker of streams then, where so many are then."""
    push(x, at_s, LEFT, i)
    e = x.events[x.clock[0].at]
    e.how, e.queued = DROPPED if dropped else DONE, queued


@kernel
def reply(x: RequestRun, on: OnWire | None, i: int) -> None:
    """The answer to a request goes back."""
    c, r, at, station = x.clock[0], x.request[i], x.stands[i], x.request[i].station
    took_s, back_s, bits = c.now_s - r.ready_s, x.desks.back_s[r.site, station], x.answer_bits[r.service]
    if on is not None and bits > 0.0:
        s = x.server[at.server]
        r.state, at.back, at.took_s, at.queued = SENT, 1, took_s, s.waiting + s.working
        riders.send(on, i, x.route[1, r.site, station], c.now_s, back_s, bits)
    else:
        end_s = c.now_s + x.desks.answer_s[r.site, station, r.service] + back_s
        r.state = SENT
        if end_s < c.end_s:  # else it is on its way back when the run ends
            judge(x, i, end_s)
        hear_back(x, i, end_s, DONE, took_s)


@kernel
def release(x: RequestRun, i: int) -> None:
    """A request holds nothing any more."""
    x = held(x)
    at = x.stands[i]
    s = x.server[at.server]
    s.working -= 1
    x.worked_s[s.service, s.station] -= max(at.until_s - x.clock[0].now_s, 0.0)  # what a failure cut off
    cores, memory_bytes = holds(x, i)
    if x.desks.system.returns_cpu or x.request[i].station == CLOUD:
        x.busy[at.machine, 0] -= cores
    x.busy[at.machine, 1] -= memory_bytes


@kernel
def start(x: RequestRun, server: int, at_s: float) -> None:
    """A replica will be up then, unless it breaks before."""
    push(x, at_s, READY, NONE)
    e = x.events[x.clock[0].at]
    e.server, e.starts = server, x.server[server].starts


@kernel
def leave(x: RequestRun, i: int, how: int) -> None:
    """A request leaves its replica without an answer; its site hears of it after the way back."""
    x = held(x)
    r, station = x.request[i], x.server[x.stands[i].server].station
    if how == DROPPED:
        drop(x, i)
    else:
        r.state = SENT
    hear_back(x, i, x.clock[0].now_s + x.desks.back_s[r.site, station], how, 0.0)


@kernel
def hear_back(x: RequestRun, i: int, at_s: float, how: int, took_s: float) -> None:
    """A site hears then what became of a request, and how many its replica has now."""
    s = x.server[x.stands[i].server]
    push(x, at_s, RETURNED, i)
    e = x.events[x.clock[0].at]
    e.how, e.took_s, e.queued = how, took_s, s.waiting + s.working


@kernel
def judge(x: RequestRun, i: int, end_s: float) -> None:
    """A request ends with an answer."""
    r = x.request[i]
    r.end_s, r.state = end_s, IN_TIME if in_time(end_s, r.deadline_s) else LATE
    count_at(x, DONE_IN_TIME if r.state == IN_TIME else DONE_LATE, 1.0, end_s)


@kernel
def drop(x: RequestRun, i: int) -> None:
    """A request is not served."""
    x.request[i].state, x.request[i].end_s = NOT_SERVED, x.clock[0].now_s
    count(x, NOT_DONE, 1.0)


@kernel
def count(x: RequestRun, column: int, number: float) -> None:
    """Add to a column of the frame."""
    count_at(x, column, number, x.clock[0].now_s)


@kernel
def count_at(x: RequestRun, column: int, number: float, at_s: float) -> None:
    """Add to a column of the frame of that time."""
    x.tally[min(int(at_s / x.clock[0].frame_s), x.tally.shape[0] - 1), column] += number
