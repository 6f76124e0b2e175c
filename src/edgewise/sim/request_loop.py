"""Requests of services, event by event, compiled: sites decide and send, replicas work.

A queue goes by deadline and drops what could not end in time, as in the engine of slots; but a request is
bound to its replica, as live, not to a station. Decisions are the desks'. The loop stops where Python has a
say (`Stop`). Forbidden here: rules about scheduling.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.core.compiled import kernel
from edgewise.core.dispatch import desks
from edgewise.core.dispatch.desks import JUDGED, OUTCOMES
from edgewise.core.dispatch.request_rules import CLOUD, in_time, possible, too_late
from edgewise.core.held import held
from edgewise.core.ledger import has_room
from edgewise.core.orchestrate import HOLD
from edgewise.policies.dispatch.requests.rules import by_rule
from edgewise.sim.links import riders
from edgewise.sim.links.net import MESSAGES
from edgewise.sim.links.riders import OnWire
from edgewise.sim.request_state import (
    AGAIN,
    ANSWERED,
    ARRIVED,
    BEGUN,
    DONE,
    DROPPED,
    ENDED,
    GATHERED,
    HEARD,
    LEFT,
    LOST,
    MISSED,
    NONE,
    ORDER,
    REACHED,
    READY,
    RETURNED,
    TOLD_OF,
    UNANSWERED,
    RequestRun,
    Stop,
)
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replica_kernels import cloud_noise_s, varied_s

THERE, DECIDE, SETTLE, HEAR, ROOM, LINKS, NOTED, WORKER = (int(stop) for stop in Stop)
AT_SITE, SENT, WORKED_ON, IN_TIME, LATE, NOT_SERVED = (
    k.AT_SITE, k.SENT, k.WORKED_ON, k.IN_TIME, k.LATE, k.DROPPED,
)  # fmt: skip
CAME, DONE_IN_TIME, DONE_LATE, NOT_DONE = k.ARRIVED, k.DONE_IN_TIME, k.DONE_LATE, k.LOST
FORWARDED_BYTES, LOCAL_BYTES = k.FORWARDED_BYTES, k.LOCAL_BYTES
DROPPED_OUTCOME = OUTCOMES.index("dropped")
SPARE = 8  # events at most that one brings about, beside those of who waits


@kernel
def go_on(x: RequestRun, on: OnWire, to_s: float) -> int:
    """Let what happens before `to_s` happen, or before a message may come; why it stopped.

    Args:
        on: the sites' messages, if they share links.
    """
    x, on = held(x), held(on)
    c = x.clock[0]
    if c.wired and not take_in(x, on):
        return ROOM
    while True:
        limit_s = to_s
        if c.wired:
            if on.net.free[MESSAGES] < 0 or on.many[0] == on.soon.size:
                return LINKS
            c.next_s = riders.next_s(on)
            limit_s = min(to_s, c.next_s)
        if c.events + c.waiting + SPARE > x.events.size:
            return ROOM
        if x.notes.size and c.notes + SPARE + c.servers * x.desks.desk.size > x.notes.size:
            return NOTED
        arrives_s = x.request[c.arrived].arrival_s if c.arrived < c.requests else np.inf
        at_s = x.events[0].at_s if c.events > 0 else np.inf
        c.calm_s = min(at_s, arrives_s)
        if not c.calm_s < limit_s:
            return THERE
        if arrives_s < at_s or (arrives_s == at_s and ORDER[x.events[0].kind] > ARRIVED):
            c.now_s, c.arrived = arrives_s, c.arrived + 1
            stop = arrive(x, on, c.arrived - 1)
        else:
            c.now_s = at_s
            stop = happen(x, on)
        if stop != THERE:
            return stop


@kernel
def happen(x: RequestRun, on: OnWire) -> int:
    """The first event; as `go_on` returns."""
    e = x.events[0]
    kind, i, server, starts, how, took_s, queued = (
        e.kind,
        e.who,
        e.server,
        e.starts,
        e.how,
        e.took_s,
        e.queued,
    )
    drop_first(x)
    if kind == REACHED:
        return reach(x, i)
    elif kind == LEFT:
        x.server[x.stands[i].server].waiting = queued
        if how == DONE:
            reply(x, on, i)
        else:
            leave(x, i, how)
    elif kind == MISSED:
        leave(x, i, DROPPED)
    elif kind == BEGUN:
        begin(x, i)
    elif kind == ENDED:
        if x.server[server].starts == starts:
            finish(x, on, i)
    elif kind == READY:
        s = x.server[server]
        if s.starts == starts:
            s.up = 1
    elif kind == RETURNED:
        return come_back(x, on, i, how, took_s, queued)
    elif kind in (ANSWERED, UNANSWERED):
        return answered(x, on, i, kind == ANSWERED)
    elif kind == AGAIN:
        return again(x, on, i)
    elif kind == GATHERED:
        gather(x, i)
    elif kind == HEARD:
        x.clock[0].told = i
        return hear(x, i) if same(x, i) else HEAR
    return THERE


@kernel
def next_s(x: RequestRun) -> float:
    """When something happens next; infinite: never."""
    c = x.clock[0]
    arrives_s = x.request[c.arrived].arrival_s if c.arrived < c.requests else np.inf
    return float(min(arrives_s, x.events[0].at_s) if c.events > 0 else arrives_s)


# requests


@kernel
def arrive(x: RequestRun, on: OnWire, i: int) -> int:
    """A request comes to its site; as `go_on` returns."""
    r = x.request[i]
    r.state = AT_SITE
    count(x, CAME, 1.0)
    needs = (r.service_s, r.cpu_cores, r.memory_bytes)
    desks.arrive(x.desks, i, (r.site, r.service), r.deadline_s, r.payload_bytes, True, needs)
    return decide(x, on, i, ARRIVED)


@kernel
def again(x: RequestRun, on: OnWire, i: int) -> int:
    """A request asks again; as `go_on` returns."""
    x.request[i].state = AT_SITE
    return decide(x, on, i, AGAIN)


@kernel
def decide(x: RequestRun, on: OnWire, i: int, why: int) -> int:
    """Where a request goes, unless Python's policy is to say.

    Args:
        why: it came, or asks again.
    """
    c, d, found = x.clock[0], x.request[i].site, desks.look(x.desks, i, x.clock[0].now_s)
    c.asked = why
    if found != desks.ASK:
        write(x, why, d, i, NONE, found)
        drop(x, i)
        end(x, i, DROPPED_OUTCOME)
        return THERE
    if c.rule:
        station = by_rule(x.desks.system, x.desks.seen, d, d, x.memory)
        if possible(x.desks.seen, d, d, station):
            obey(x, on, i, station)
            return THERE
    c.head = i
    return DECIDE


@kernel
def obey(x: RequestRun, on: OnWire, i: int, station: int) -> None:
    """A request goes to a station that was chosen, or waits."""
    x, on = held(x), held(on)
    now_s, row = x.clock[0].now_s, desks.send(x.desks, i, station, x.clock[0].now_s)
    write(x, x.clock[0].asked, x.request[i].site, i, row, desks.ASK)
    if row == HOLD:
        push(x, now_s + x.desks.system.slot_s, AGAIN, i)
    else:
        send(x, on, i, x.server_of[x.request[i].site, row])


@kernel
def send(x: RequestRun, on: OnWire, i: int, server: int) -> None:
    """The queue of the link, then the delay, as in the engine of slots; or over links of all work."""
    c, r, system = x.clock[0], x.request[i], x.desks.system
    b, station, bits = r.site, x.server[server].station, 8.0 * r.payload_bytes
    delay_s = system.delay_s[b, station] - x.back_s[b, station]
    if station == CLOUD:
        noise_s = cloud_noise_s(system.wan_deviation_s, c.seed, int(c.now_s / system.slot_s))
        delay_s = max(0.0, delay_s + noise_s)
    own = station != CLOUD and system.site_of[station - 1] == b
    count(x, LOCAL_BYTES if own else FORWARDED_BYTES, r.payload_bytes)
    r.state, r.station, x.stands[i].server = SENT, station, server
    if c.wired:
        riders.send(on, i, x.route[0, b, station], c.now_s, delay_s, bits)
        return
    if station == CLOUD:
        sent_s = max(c.now_s, c.up_free_s) + bits / system.wan_bps
        c.up_free_s = sent_s
    else:
        sent_s = max(c.now_s, x.lan_free_s[b]) + bits / system.lan_bps
        x.lan_free_s[b] = sent_s
    push(x, sent_s + delay_s, REACHED, i)


@kernel
def take_in(x: RequestRun, on: OnWire) -> bool:
    """Messages that are there, or were dropped by a link on their way; whether there was room."""
    c = x.clock[0]
    if c.events + on.net.many[on.net.sinks + on.sink] > x.events.size:
        return False
    what, at_s, lost = riders.take_there(on)
    for j in range(what.size):
        there, missed = (ANSWERED, UNANSWERED) if x.stands[what[j]].back else (REACHED, MISSED)
        push(x, max(at_s[j], c.now_s), missed if lost[j] else there, what[j])
    return True


@kernel
def leave(x: RequestRun, i: int, how: int) -> None:
    """A request leaves its replica without an answer; its site hears of it after the way back."""
    x = held(x)
    r, station = x.request[i], x.server[x.stands[i].server].station
    if how == DROPPED:
        drop(x, i)
    else:
        r.state = SENT
    hear_back(x, i, x.clock[0].now_s + x.back_s[r.site, station], how, 0.0)


@kernel
def hear_back(x: RequestRun, i: int, at_s: float, how: int, took_s: float) -> None:
    """A site hears then what became of a request, and how many its replica has now."""
    s = x.server[x.stands[i].server]
    push(x, at_s, RETURNED, i)
    e = x.events[x.clock[0].at]
    e.how, e.took_s, e.queued = how, took_s, s.waiting + s.working


@kernel
def answered(x: RequestRun, on: OnWire, i: int, there: bool) -> int:
    """An answer came over links that are shared, or was dropped by one of them; as `go_on` returns."""
    at = x.stands[i]
    at.back = 0
    if there:
        judge(x, i, x.clock[0].now_s)
    else:
        drop(x, i)
    return come_back(x, on, i, DONE if there else DROPPED, at.took_s, at.queued)


@kernel
def judge(x: RequestRun, i: int, end_s: float) -> None:
    """A request ends with an answer."""
    r = x.request[i]
    r.end_s, r.state = end_s, IN_TIME if in_time(end_s, r.deadline_s) else LATE
    count(x, DONE_IN_TIME if r.state == IN_TIME else DONE_LATE, 1.0)


@kernel
def come_back(x: RequestRun, on: OnWire, i: int, how: int, took_s: float, queued: int) -> int:
    """Its site hears what became of a request; as `go_on` returns."""
    c, server = x.clock[0], x.stands[i].server
    row, stop = desks.come_back(x.desks, i, c.now_s, how == DONE, took_s, how == LOST), THERE
    write(x, RETURNED, x.request[i].site, i, row, how)
    if x.notes.size:
        x.notes[c.notes - 1].took_s = took_s
    if how == DONE:
        tell(x, x.request[i].site, row, queued)
    if how == LOST:
        stop = again(x, on, i)
    else:
        end(x, i, JUDGED if how == DONE else DROPPED_OUTCOME)
    if not x.server[server].wanted:
        return SETTLE if stop == THERE else stop
    return stop


@kernel
def drop(x: RequestRun, i: int) -> None:
    """A request is not served."""
    x.request[i].state, x.request[i].end_s = NOT_SERVED, x.clock[0].now_s
    count(x, NOT_DONE, 1.0)


@kernel
def count(x: RequestRun, column: int, number: float) -> None:
    """Add to a column of the frame."""
    c = x.clock[0]
    x.tally[min(int(c.now_s / c.frame_s), x.tally.shape[0] - 1), column] += number


# replicas


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
    look_at(x, s.station)
    return THERE


@kernel
def look_at(x: RequestRun, station: int) -> None:
    """Go through a station's queue once all is there that comes now."""
    if not x.due[station]:
        x.due[station] = True
        push(x, x.clock[0].now_s, BEGUN, station)


@kernel
def begin(x: RequestRun, station: int) -> None:
    """Drop what cannot end in time and begin what can begin, by deadline."""
    x.due[station] = False
    before, i, now_s = NONE, x.first[station], x.clock[0].now_s
    while i != NONE:
        r, s, behind = x.request[i], x.server[x.stands[i].server], x.stands[i].behind
        late = too_late(
            x.desks.system.drops,
            now_s + (x.back_s[r.site, station] + x.answer_s[r.service, station]),
            r.service_s,
            r.deadline_s,
        )
        machine = NONE if late else machine_for(x, i)
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
            if has_room(cores, x.free[m, 0], x.has[m, 0]) and has_room(
                memory_bytes, x.free[m, 1], x.has[m, 1]
            ):
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
    x.free[machine, 0] -= cores
    x.free[machine, 1] -= memory_bytes
    at.machine, at.begun, r.state = machine, c.begun, WORKED_ON
    c.begun += 1
    s.working += 1
    push(x, c.now_s + took_s, ENDED, i)
    e = x.events[c.at]
    e.server, e.starts = at.server, s.starts


@kernel
def finish(x: RequestRun, on: OnWire, i: int) -> None:
    """A request has been worked on."""
    release(x, i)
    reply(x, on, i)
    look_at(x, x.request[i].station)


@kernel
def left(x: RequestRun, i: int, at_s: float, dropped: bool, queued: int) -> None:
    """A request leaves a worker of streams then, where so many are then."""
    push(x, at_s, LEFT, i)
    e = x.events[x.clock[0].at]
    e.how, e.queued = DROPPED if dropped else DONE, queued


@kernel
def reply(x: RequestRun, on: OnWire, i: int) -> None:
    """The answer to a request goes back."""
    c, r, at, station = x.clock[0], x.request[i], x.stands[i], x.request[i].station
    took_s, back_s, bits = c.now_s - r.ready_s, x.back_s[r.site, station], x.answer_bits[r.service]
    if c.wired and bits > 0.0:
        s = x.server[at.server]
        r.state, at.back, at.took_s, at.queued = SENT, 1, took_s, s.waiting + s.working
        riders.send(on, i, x.route[1, r.site, station], c.now_s, back_s, bits)
    else:
        end_s = c.now_s + x.answer_s[r.service, station] + back_s
        judge(x, i, end_s)
        hear_back(x, i, end_s, DONE, took_s)


@kernel
def release(x: RequestRun, i: int) -> None:
    """A request holds nothing any more."""
    x = held(x)
    at = x.stands[i]
    x.server[at.server].working -= 1
    cores, memory_bytes = holds(x, i)
    if x.desks.system.returns_cpu or x.request[i].station == CLOUD:
        x.free[at.machine, 0] += cores
    x.free[at.machine, 1] += memory_bytes


@kernel
def start(x: RequestRun, server: int, at_s: float) -> None:
    """A replica will be up then, unless it breaks before."""
    push(x, at_s, READY, NONE)
    e = x.events[x.clock[0].at]
    e.server, e.starts = server, x.server[server].starts


# news


@kernel
def gather(x: RequestRun, number: int) -> None:
    """Note how replicas are; sites hear of it later."""
    c, news = x.clock[0], number % (x.tellers.size - 1)
    note(x, news)
    push(x, c.now_s + c.lag_s, HEARD, news)
    if c.now_s < c.end_s:
        push(x, (number + 1) * c.period_s, GATHERED, number + 1)


@kernel
def note(x: RequestRun, news: int) -> None:
    """Note how replicas are."""
    x.tellers[news] = x.clock[0].servers
    for j in range(x.tellers[news]):
        s, t = x.server[x.alive[j]], x.told[news, j]
        t.server, t.wanted, t.up, t.queued = x.alive[j], s.wanted, s.up, s.waiting + s.working
        t.down = x.down[s.station]


@kernel
def same(x: RequestRun, news: int) -> bool:
    """Whether all sites know of the same replicas, as they are told."""
    for d in range(x.row_of.shape[0]):
        if x.desks.desk[d].replicas != x.tellers[news]:
            return False
        for j in range(x.tellers[news]):
            t = x.told[news, j]
            if x.row_of[d, t.server] == NONE:
                return False
            r = x.desks.replica[d, x.row_of[d, t.server]]
            if r.wanted != t.wanted or r.up != t.up:
                return False
    return True


@kernel
def hear(x: RequestRun, news: int) -> int:
    """Sites hear how many requests replicas have; as `go_on` returns."""
    x = held(x)
    for j in range(x.tellers[news]):
        t = x.told[news, j]
        x.server[t.server].broken = t.down
        for d in range(x.row_of.shape[0]):
            tell(x, d, x.row_of[d, t.server], t.queued)
    for j in range(x.clock[0].servers):
        if not x.server[x.alive[j]].wanted:
            return SETTLE
    return THERE


@kernel
def tell(x: RequestRun, d: int, row: int, queued: int) -> None:
    """A site hears how many requests a replica has."""
    desks.tell(x.desks, d, row, queued)
    write(x, TOLD_OF, d, NONE, row, queued)


@kernel
def end(x: RequestRun, i: int, outcome: int) -> None:
    """What became of a request."""
    desks.end(x.desks, i, x.clock[0].now_s, outcome)
    write(x, ENDED, x.request[i].site, i, NONE, outcome)


@kernel
def write(x: RequestRun, kind: int, d: int, i: int, row: int, value: int) -> None:
    """Note what a site was told, if anybody reads it."""
    c = x.clock[0]
    if x.notes.size:
        n = x.notes[c.notes]
        n.at_s, n.took_s, n.kind, n.desk, n.request, n.row, n.value = c.now_s, 0.0, kind, d, i, row, value
        c.notes += 1


# what is to happen


@kernel
def push(x: RequestRun, at_s: float, kind: int, who: int) -> None:
    """Something happens then."""
    c, events = x.clock[0], x.events
    at = c.events
    c.events += 1
    c.number += 1
    c.calm_s = min(c.calm_s, at_s)
    while at > 0:
        up = (at - 1) >> 1
        e = events[up]
        if e.at_s < at_s or (e.at_s == at_s and ORDER[e.kind] <= ORDER[kind]):  # its number is less
            break
        events[at] = e
        at = up
    e = events[at]
    e.at_s, e.number, e.kind, e.who, c.at = at_s, c.number, kind, who, at


@kernel
def drop_first(x: RequestRun) -> None:
    """The first event has happened."""
    c, events = x.clock[0], x.events
    c.events -= 1
    size, at, child = c.events, 0, 1
    while child < size:
        if child + 1 < size and before(events[child + 1], events[child]):
            child += 1
        if before(events[size], events[child]):
            break
        events[at] = events[child]
        at, child = child, 2 * child + 1
    events[at] = events[size]


@kernel
def before(one: Any, other: Any) -> bool:
    """Whether an event happens before another."""
    if one.at_s != other.at_s:
        return bool(one.at_s < other.at_s)
    if ORDER[one.kind] != ORDER[other.kind]:
        return bool(ORDER[one.kind] < ORDER[other.kind])
    return bool(one.number < other.number)
