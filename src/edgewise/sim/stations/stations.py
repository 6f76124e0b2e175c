"""Stations: everything that serves - nodes, workers, links, shaped flows.

An item arrives, finds room (or waits outside, or is dropped), waits its turn and is served by one of
c servers, alone or in a batch, or shares the servers with all others (processor sharing). What
happens to it next is not decided here. All kernels change the world in place.
"""

from __future__ import annotations

import math

from edgewise.core.compiled import kernel
from edgewise.sim.stations.heap import Records, merge, push_event, without_root
from edgewise.sim.stations.items import account, discard, end, noise, propagation, wake, write_log
from edgewise.sim.stations.sharing import join, schedule
from edgewise.sim.stations.state import (
    DRAINING,
    DROPPED,
    EDF,
    FINISH,
    GATHER,
    LOST,
    NONE,
    OLDEST,
    ONWARD,
    OPEN,
    PS,
    RENEGE,
    RENEGED,
    UP,
    StationWorld,
)

MOST_LET_IN = 16  # per event, so that a step makes few events


@kernel
def ordered(st: Records) -> bool:
    """Whether the line is a heap and not a list."""
    return bool(st.discipline == EDF or st.discipline == OLDEST)


@kernel
def enqueue(w: StationWorld, s: int, i: int) -> None:
    """Put an item into the line: at the end, or by its deadline or the age of its query."""
    st, item, c = w.stations[s], w.items[i], w.clock[0]
    item.order = c.order
    c.order += 1
    item.next = -1
    if ordered(st):
        flight = w.flights[item.flight]
        item.key = flight.deadline_s if st.discipline == EDF else float(flight.query)  # sent in this order
        item.left, item.right = -1, -1
        st.head = merge(w.items, st.head, i)
    elif st.head < 0:
        st.head, st.tail = i, i
    else:
        w.items[st.tail].next = i
        st.tail = i
    st.waiting += 1


@kernel
def unlink_head(w: StationWorld, s: int) -> int:
    """Remove the first of the line."""
    st = w.stations[s]
    i = st.head
    st.head = without_root(w.items, i) if ordered(st) else w.items[i].next
    return int(i)


@kernel
def first_waiting(w: StationWorld, s: int) -> int:
    """The first of the line, or -1; those who have left or whose query failed are removed on the way."""
    st = w.stations[s]
    while st.head >= 0:
        item = w.items[st.head]
        failed = w.flights[item.flight].outcome != OPEN
        if not (item.gone or failed):
            return int(st.head)
        i = unlink_head(w, s)
        if not item.gone:
            st.waiting -= 1
            st.inside -= 1
        discard(w, i)
    return -1


@kernel
def fail(w: StationWorld, s: int, i: int, outcome: int) -> None:
    """Fail an item's query and give the item back."""
    w.stations[s].failed += 1
    end(w, w.items[i].flight, outcome)
    discard(w, i)


@kernel
def drop_line(w: StationWorld, s: int) -> None:
    """Fail everything that waits."""
    st = w.stations[s]
    account(st, w.clock[0].now_s)
    while first_waiting(w, s) >= 0:
        st.waiting -= 1
        st.inside -= 1
        fail(w, s, unlink_head(w, s), LOST)
    wake(w, s)


@kernel
def renege(w: StationWorld, i: int, stamp: int) -> None:
    """An item leaves the line at its deadline, unless it has started or left before."""
    item = w.items[i]
    if item.stamp != stamp or item.gone:
        return
    s = item.station
    st = w.stations[s]
    account(st, w.clock[0].now_s)
    st.waiting -= 1
    st.inside -= 1
    st.failed += 1
    item.gone = 1
    end(w, item.flight, RENEGED)
    wake(w, s)


@kernel
def has_room(w: StationWorld, s: int) -> bool:
    """Whether one more may enter: into the line, or straight to a free server."""
    st = w.stations[s]
    if st.discipline == PS:
        return bool(st.inside < st.room)
    return bool(st.waiting < st.room or (st.waiting == 0 and st.idle >= 0 and st.mode == UP))


@kernel
def arrive(w: StationWorld, i: int, s: int, holder: int) -> None:
    """An item arrives at station `s`; until there is room it keeps the server `holder` (-1: none).

    Work sent back to the station that holds it always enters: it would wait for itself.
    An item without work, or at a station of infinite rate, passes at once; an "oldest" server that it
    comes from waits for it, so that what it leads to is in the line before that server chooses.
    """
    st, item, now_s = w.stations[s], w.items[i], w.clock[0].now_s
    item.station, item.enter_s = s, now_s
    if st.mode != UP and st.drop_waiting:
        fail(w, s, i, LOST)
    elif st.mode == UP and (item.amount == 0.0 or st.rate == math.inf):
        st.served += 1
        write_log(w, i, now_s)
        delay_s = propagation(w, s, i)
        kept = delay_s == 0.0 and holder >= 0 and w.stations[w.slots[holder].station].discipline == OLDEST
        if kept:
            w.slots[holder].blocked += 1
        push_event(w.clock, w.events, now_s + delay_s, ONWARD, i, holder if kept else NONE)
    elif (
        st.room < 0
        or (st.outside_head < 0 and has_room(w, s))
        or (holder >= 0 and w.slots[holder].station == s)
    ):
        admit(w, i, s)
    elif st.drop_full:
        fail(w, s, i, DROPPED)
    else:
        item.holder, item.next = holder, -1
        if holder >= 0:
            w.slots[holder].blocked += 1
        if st.outside_head < 0:
            st.outside_head = i
        else:
            w.items[st.outside_tail].next = i
        st.outside_tail = i


@kernel
def admit(w: StationWorld, i: int, s: int) -> None:
    """Let an item in: into the line or among those that share."""
    st, item, now_s = w.stations[s], w.items[i], w.clock[0].now_s
    account(st, now_s)
    st.inside += 1
    item.enter_s = now_s
    if st.discipline == PS and st.mode != DRAINING:
        join(w, i, s)
        schedule(w, s)
        return
    if st.discipline != PS and st.mode == UP and st.idle >= 0 and st.head < 0 and st.batch == 1:
        item.next = -1
        start(w, s, i, st.batch, item.amount)  # nobody waits: straight to a server
        return
    stamp = item.stamp
    enqueue(w, s, i)
    serve(w, s)
    if st.renege and item.stamp == stamp:  # it waits
        deadline_s = w.flights[item.flight].deadline_s
        if deadline_s < math.inf:
            push_event(w.clock, w.events, max(deadline_s, now_s), RENEGE, i, item.stamp)


@kernel
def let_in(w: StationWorld, s: int) -> None:
    """Admit those outside, in order, while there is room; free the servers they held."""
    st = w.stations[s]
    st.waking = 0
    for _ in range(MOST_LET_IN):
        if st.outside_head < 0:
            return
        i = st.outside_head
        item = w.items[i]
        failed = w.flights[item.flight].outcome != OPEN
        if not failed and not has_room(w, s):
            return
        st.outside_head = item.next
        holder = item.holder
        if failed:
            discard(w, i)
        else:
            admit(w, i, s)
        unblock(w, holder)
    wake(w, s)


@kernel
def unblock(w: StationWorld, holder: int) -> None:
    """One output of a server (-1: of none) is out of its way; without any it is free again."""
    if holder >= 0:
        w.slots[holder].blocked -= 1
        if w.slots[holder].blocked == 0:
            release_server(w, holder)


@kernel
def serve(w: StationWorld, s: int) -> None:
    """Start work on every free server, as far as the line and the batch rule allow."""
    st = w.stations[s]
    account(st, w.clock[0].now_s)
    started = False
    while st.mode == UP and st.idle >= 0 and first_waiting(w, s) >= 0:
        if st.batch > 1 and not gathered(w, s):
            break
        leader = unlink_head(w, s)
        last, count, largest = leader, 1, w.items[leader].amount
        while count < st.batch and first_waiting(w, s) >= 0:
            i = unlink_head(w, s)
            w.items[last].next = i
            last, count = i, count + 1
            largest = max(largest, w.items[i].amount)
        w.items[last].next = -1
        st.waiting -= count
        start(w, s, leader, count, largest)
        started = True
    if started:
        wake(w, s)


@kernel
def gathered(w: StationWorld, s: int) -> bool:
    """Whether a batch may start: it is full, or its first item has waited for the timeout."""
    st = w.stations[s]
    if st.waiting >= st.batch:
        return True
    at_s = w.items[st.head].enter_s + st.batch_timeout_s
    if at_s <= w.clock[0].now_s:
        return True
    if at_s < math.inf and at_s != st.gather_s:
        st.gather_s = at_s
        push_event(w.clock, w.events, at_s, GATHER, s, NONE)
    return False


@kernel
def start(w: StationWorld, s: int, leader: int, count: int, largest: float) -> None:
    """Start a batch of `count` items on a free server.

    Work = largest amount · (1 + slope (count - 1)) · noise of the first item.
    """
    st, c = w.stations[s], w.clock[0]
    k = st.idle
    slot = w.slots[k]
    st.idle = slot.next
    st.serving += 1
    i = leader
    while i >= 0:
        w.items[i].stamp += 1  # its reneging timer is stale from here on
        i = w.items[i].next
    amount = largest * noise(w, s, leader)
    if count > 1:
        amount *= 1.0 + st.batch_slope * (count - 1)
    slot.leader, slot.amount, slot.remaining = leader, amount, amount
    slot.since_s, slot.start_s = c.now_s, c.now_s
    slot.stamp += 1
    if st.rate > 0.0:
        push_event(w.clock, w.events, c.now_s + amount / st.rate, FINISH, k, slot.stamp)


@kernel
def release_server(w: StationWorld, k: int) -> None:
    """A server is free again: it takes the next of the line."""
    slot = w.slots[k]
    s = slot.station
    st = w.stations[s]
    account(st, w.clock[0].now_s)
    slot.leader = -1
    slot.next = st.idle
    st.idle = k
    serve(w, s)
    wake(w, s)
