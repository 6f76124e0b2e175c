"""Requests of services, event by event, compiled: sites decide and send, and hear what came of it.

Decisions are the desks'. The loop stops where Python has a say (`Stop`). Forbidden here: rules about
scheduling.
"""

from __future__ import annotations

import numpy as np

from edgewise.core.compiled import held, kernel
from edgewise.core.dispatch import desks
from edgewise.core.dispatch.desks import JUDGED, OUTCOMES
from edgewise.core.dispatch.request_rules import CLOUD, possible
from edgewise.core.orchestrate import HOLD
from edgewise.policies.requests.rules import by_rule
from edgewise.sim.links import riders
from edgewise.sim.links.net import MESSAGES
from edgewise.sim.links.riders import OnWire
from edgewise.sim.requests.events import drop_first, push
from edgewise.sim.requests.news import gather, hear, same, tell, write
from edgewise.sim.requests.replicas import begin, count, drop, finish, judge, leave, reach, reply
from edgewise.sim.requests.state import (
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
    UNANSWERED,
    RequestRun,
    Stop,
)
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replica_kernels import cloud_noise_s

THERE, DECIDE, SETTLE, HEAR, ROOM, LINKS, NOTED = (int(stop) for stop in list(Stop)[:7])
AT_SITE, SENT = k.AT_SITE, k.SENT
CAME, FORWARDED_BYTES, LOCAL_BYTES = k.ARRIVED, k.FORWARDED_BYTES, k.LOCAL_BYTES
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
        c.lacks = c.waiting + SPARE
        if c.events + c.lacks > x.events.size:
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
            c.ruled += 1
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
    c.lacks = on.net.many[on.net.sinks + on.sink]
    if c.events + c.lacks > x.events.size:
        return False
    what, at_s, lost = riders.take_there(on)
    for j in range(what.size):
        there, missed = (ANSWERED, UNANSWERED) if x.stands[what[j]].back else (REACHED, MISSED)
        push(x, max(at_s[j], c.now_s), missed if lost[j] else there, what[j])
    return True


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
def end(x: RequestRun, i: int, outcome: int) -> None:
    """What became of a request."""
    desks.end(x.desks, i, x.clock[0].now_s, outcome)
    write(x, ENDED, x.request[i].site, i, NONE, outcome)
