"""Requests of services, event by event, compiled: what sites hear, and what they say is carried out.

What becomes of a request is said by the kernels of `core.dispatch.request_flow`, as live. The loop stops
where Python has a say (`Stop`). Forbidden here: rules about scheduling.
"""

from __future__ import annotations

import numpy as np

from edgewise.core.dispatch import request_flow as flow
from edgewise.core.dispatch.desks import DROPPED
from edgewise.core.dispatch.request_flow import ANSWERED as DONE, LOST
from edgewise.core.dispatch.request_rules import CLOUD, possible
from edgewise.core.dispatch.state import share_of
from edgewise.kernels.compiled import held, kernel
from edgewise.policies.requests.rules import by_rule
from edgewise.sim.links import riders
from edgewise.sim.links.net import MESSAGES, forget
from edgewise.sim.links.riders import OnWire
from edgewise.sim.requests.events import drop_first, push
from edgewise.sim.requests.news import gather, hear, same, tell, write
from edgewise.sim.requests.replicas import begin, count, drop, finish, judge, leave, reach, reply
from edgewise.sim.requests.state import (
    AGAIN,
    ANSWERED,
    ARRIVED,
    BEGUN,
    ENDED,
    GATHERED,
    HEARD,
    LEFT,
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
from edgewise.sim.slots.replica_kernels import noise_s

THERE, DECIDE, SETTLE, HEAR, ROOM, LINKS, NOTED = (int(stop) for stop in list(Stop)[:7])
AT_SITE, SENT = k.AT_SITE, k.SENT
CAME, FORWARDED_BYTES, LOCAL_BYTES = k.ARRIVED, k.FORWARDED_BYTES, k.LOCAL_BYTES
SPARE = 8  # events at most that one brings about, beside those of who waits


@kernel
def go_on(x: RequestRun, on: OnWire | None, to_s: float) -> int:
    """Let what happens before `to_s` happen, or before a message may come; why it stopped.

    Args:
        on: the sites' messages; None: they share no links, and kernels are compiled without these.
    """
    return go(held(x), held(on), to_s)


@kernel
def go(x: RequestRun, on: OnWire | None, to_s: float) -> int:
    """The same."""
    c = x.clock[0]
    if on is not None and not take_in(x, on):
        return ROOM
    while True:
        limit_s = to_s
        if on is not None:
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
def happen(x: RequestRun, on: OnWire | None) -> int:
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
        return follow(x, on, i, AGAIN, flow.again(x.desks, i, x.clock[0].now_s))
    elif kind == GATHERED:
        gather(x, i)
    elif kind == HEARD:
        x.clock[0].told = i
        return hear(x, i) if same(x, i) else HEAR
    return THERE


@kernel
def arrive(x: RequestRun, on: OnWire | None, i: int) -> int:
    """A request comes to its site; as `go_on` returns."""
    r = x.request[i]
    r.state = AT_SITE
    count(x, CAME, 1.0)
    times = x.clock[0].now_s, r.deadline_s
    said = flow.come(x.desks, i, (r.site, r.service), times, r.payload_bytes)
    return follow(x, on, i, ARRIVED, said)


@kernel
def follow(x: RequestRun, on: OnWire | None, i: int, why: int, said: int) -> int:
    """Do with a request what its site says, unless Python's policy is to say; as `go_on` returns.

    Args:
        why: it came, asks again, or its replica is lost.
    """
    c, d = x.clock[0], x.request[i].site
    c.asked = why
    if said != flow.ASK:
        carry_out(x, on, i, said)
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
def obey(x: RequestRun, on: OnWire | None, i: int, station: int) -> None:
    """A policy has said where a request goes."""
    x = held(x)
    carry_out(x, held(on), i, flow.obey(x.desks, i, station, x.clock[0].now_s))


@kernel
def carry_out(x: RequestRun, on: OnWire | None, i: int, said: int) -> None:
    """A request is sent, kept or dropped."""
    c, asked = x.clock[0], x.desks.asked[i]
    write(x, c.asked, asked.desk, i, asked.replica, LOST if c.asked == RETURNED else 0, said)
    if said == flow.SEND:
        send(x, on, i, x.server_of[asked.desk, asked.replica])
    elif said == flow.WAIT:
        push(x, asked.until_s, AGAIN, i)
    else:
        drop(x, i)


@kernel
def send(x: RequestRun, on: OnWire | None, i: int, server: int) -> None:
    """The queue of the link, then the delay, as in the engine of slots; or over links of all work."""
    c, r, system = x.clock[0], x.request[i], x.desks.system
    b, station, bits = r.site, x.server[server].station, 8.0 * r.payload_bytes
    number = 0 if station == CLOUD else 1 + b * system.delay_s.shape[1] + station
    differs_s = noise_s(system.deviation_s[b, station], c.seed, number, int(c.now_s / system.slot_s))
    delay_s = max(0.0, system.delay_s[b, station] - x.desks.back_s[b, station] + differs_s)
    own = station != CLOUD and system.site_of[station - 1] == b
    count(x, LOCAL_BYTES if own else FORWARDED_BYTES, r.payload_bytes)
    r.state, r.station, x.stands[i].server = SENT, station, server
    if x.server[server].worker != NONE:
        w = x.server[server].worker
        x.sent_qps[b, w] += share_of(x.worker, w, 1.0, r.payload_bytes)
    if on is not None:
        riders.send(on, i, x.route[0, b, station], c.now_s, delay_s, bits)
        return
    if station == CLOUD:
        sent_s = max(c.now_s, c.up_free_s) + bits / system.rate_bps[b, station]
        c.up_free_s = sent_s
    else:
        sent_s = max(c.now_s, x.lan_free_s[b]) + bits / system.rate_bps[b, station]
        x.lan_free_s[b] = sent_s
    push(x, sent_s + delay_s, REACHED, i)


@kernel
def take_in(x: RequestRun, on: OnWire) -> bool:
    """Messages that are there, or were dropped by a link on their way; whether there was room."""
    c, net, row = x.clock[0], on.net, on.net.sinks + on.sink
    c.lacks = net.many[row]
    if c.events + c.lacks > x.events.size:
        return False
    for j in range(riders.sort_there(on)):
        slot = net.lists[row, j].slot
        m = net.messages[slot]
        there, missed = (ANSWERED, UNANSWERED) if x.stands[m.epoch].back else (REACHED, MISSED)
        push(x, max(m.at_s, c.now_s), missed if m.lost else there, m.epoch)
        forget(net, slot)
    net.many[row] = 0
    return True


@kernel
def answered(x: RequestRun, on: OnWire | None, i: int, there: bool) -> int:
    """An answer came over links that are shared, or was dropped by one of them; as `go_on` returns."""
    at = x.stands[i]
    at.back = 0
    if there:
        judge(x, i, x.clock[0].now_s)
    else:
        drop(x, i)
    return come_back(x, on, i, DONE if there else DROPPED, at.took_s, at.queued)


@kernel
def come_back(x: RequestRun, on: OnWire | None, i: int, how: int, took_s: float, queued: int) -> int:
    """Its site hears what became of a request; as `go_on` returns."""
    c, d, server, row = x.clock[0], x.request[i].site, x.stands[i].server, x.desks.asked[i].replica
    said, stop = flow.come_back(x.desks, i, c.now_s, how, took_s), THERE
    if said == flow.OVER:
        write(x, RETURNED, d, i, row, how, said)
        if x.notes.size:
            x.notes[c.notes - 1].took_s = took_s
        if how == DONE:
            tell(x, d, row, queued)
    else:
        x.request[i].state = AT_SITE
        stop = follow(x, on, i, RETURNED, said)
    if not x.server[server].wanted:
        return SETTLE if stop == THERE else stop
    return stop
