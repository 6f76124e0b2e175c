"""Stations: everything that serves - nodes, workers, links, shaped flows.

An item arrives, finds room (or waits outside, or is dropped), waits its turn and is served by one of
c servers, alone or in a batch, or shares the servers with all others (processor sharing). What
happens to it next is not decided here. All kernels change the world in place.

Processor sharing: n jobs on c servers each get rate · min(1, c / n).

All jobs attain service at the same speed, so one number, the service attained since the station
was last empty, says how far every job is: a job leaves when it reaches its arrival's value plus its
work. One announced completion per station, stale as soon as anything changes.
"""

import math

from edgewise.arrays import Records
from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import merge, without_root
from edgewise.sim.stations.events import push_event
from edgewise.sim.stations.items import account, discard, end, noise, propagation, speed, wake, write_log
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
    SHARED,
    UP,
    StationWorld,
)


@kernel
def share_of(st: Records, rate: float) -> float:
    """Rate of each of n jobs on c servers: rate · min(1, c / n)."""
    return rate * float(min(1.0, st.servers / max(st.serving, 1)))


@kernel
def progress(world: StationWorld, s: int, rate: float) -> None:
    """Bring the service that every job has attained up to now."""
    st, now_s = world.stations[s], world.clock[0].now_s
    if now_s > st.attained_s:
        st.attained += (now_s - st.attained_s) * share_of(st, rate)
    st.attained_s = now_s


@kernel
def schedule(world: StationWorld, s: int) -> None:
    """Announce the next completion of a processor-sharing station; older announcements are stale."""
    st = world.stations[s]
    st.stamp += 1
    rate = speed(st)
    if st.root >= 0 and rate > 0.0:
        left = max(world.items[st.root].key - st.attained, 0.0)
        push_event(
            world.clock, world.events, world.clock[0].now_s + left / share_of(st, rate), SHARED, s, st.stamp
        )


@kernel
def join(world: StationWorld, i: int, s: int) -> None:
    """A job joins those that share the station; it leaves when it has attained its amount.

    The next completion is to be announced by `schedule`.
    """
    st, item, c = world.stations[s], world.items[i], world.clock[0]
    progress(world, s, speed(st))
    if st.root < 0:
        st.attained = 0.0
    item.start_s = c.now_s
    item.stamp += 1  # it does not wait: a reneging timer is stale
    item.key = st.attained + item.amount * noise(world, s, i)
    item.order = c.order
    c.order += 1
    item.left, item.right = -1, -1
    st.root = merge(world.items, st.root, i)
    st.serving += 1


@kernel
def leave_shared(world: StationWorld, s: int) -> int:
    """Take out the job that completes now; returns its item."""
    st = world.stations[s]
    account(st, world.clock[0].now_s)
    progress(world, s, speed(st))
    i = st.root
    st.attained = max(st.attained, world.items[i].key)
    st.root = without_root(world.items, i)
    st.serving -= 1
    st.inside -= 1
    schedule(world, s)
    wake(world, s)
    return int(i)


MOST_LET_IN = 16  # per event, so that a step makes few events


@kernel
def ordered(st: Records) -> bool:
    """Whether the line is a heap and not a list."""
    return bool(st.discipline == EDF or st.discipline == OLDEST)


@kernel
def enqueue(world: StationWorld, s: int, i: int) -> None:
    """Put an item into the line: at the end, or by its deadline or the age of its query."""
    st, item, c = world.stations[s], world.items[i], world.clock[0]
    item.order = c.order
    c.order += 1
    item.next = -1
    if ordered(st):
        flight = world.flights[item.flight]
        item.key = flight.deadline_s if st.discipline == EDF else float(flight.query)  # sent in this order
        item.left, item.right = -1, -1
        st.head = merge(world.items, st.head, i)
    elif st.head < 0:
        st.head, st.tail = i, i
    else:
        world.items[st.tail].next = i
        st.tail = i
    st.waiting += 1


@kernel
def unlink_head(world: StationWorld, s: int) -> int:
    """Remove the first of the line."""
    st = world.stations[s]
    i = st.head
    st.head = without_root(world.items, i) if ordered(st) else world.items[i].next
    return int(i)


@kernel
def first_waiting(world: StationWorld, s: int) -> int:
    """The first of the line, or -1; those who have left or whose query failed are removed on the way."""
    st = world.stations[s]
    while st.head >= 0:
        item = world.items[st.head]
        failed = world.flights[item.flight].outcome != OPEN
        if not (item.gone or failed):
            return int(st.head)
        i = unlink_head(world, s)
        if not item.gone:
            st.waiting -= 1
            st.inside -= 1
        discard(world, i)
    return -1


@kernel
def fail(world: StationWorld, s: int, i: int, outcome: int) -> None:
    """Fail an item's query and give the item back."""
    world.stations[s].failed += 1
    end(world, world.items[i].flight, outcome)
    discard(world, i)


@kernel
def drop_line(world: StationWorld, s: int) -> None:
    """Fail everything that waits."""
    st = world.stations[s]
    account(st, world.clock[0].now_s)
    while first_waiting(world, s) >= 0:
        st.waiting -= 1
        st.inside -= 1
        fail(world, s, unlink_head(world, s), LOST)
    wake(world, s)


@kernel
def renege(world: StationWorld, i: int, stamp: int) -> None:
    """An item leaves the line at its deadline, unless it has started or left before."""
    item = world.items[i]
    if item.stamp != stamp or item.gone:
        return
    s = item.station
    st = world.stations[s]
    account(st, world.clock[0].now_s)
    st.waiting -= 1
    st.inside -= 1
    st.failed += 1
    item.gone = 1
    end(world, item.flight, RENEGED)
    wake(world, s)


@kernel
def has_room(world: StationWorld, s: int) -> bool:
    """Whether one more may enter: into the line, or straight to a free server."""
    st = world.stations[s]
    if st.discipline == PS:
        return bool(st.inside < st.room)
    return bool(st.waiting < st.room or (st.waiting == 0 and st.idle >= 0 and st.mode == UP))


@kernel
def arrive(world: StationWorld, i: int, s: int, holder: int) -> None:
    """An item arrives at station `s`; until there is room it keeps the server `holder` (-1: none).

    Work sent back to the station that holds it always enters: it would wait for itself.
    An item without work, or at a station of infinite rate, passes at once; an "oldest" server that it
    comes from waits for it, so that what it leads to is in the line before that server chooses.
    """
    st, item, now_s = world.stations[s], world.items[i], world.clock[0].now_s
    item.station, item.enter_s = s, now_s
    if st.mode != UP and st.drop_waiting:
        fail(world, s, i, LOST)
    elif st.mode == UP and (item.amount == 0.0 or st.rate == math.inf):
        st.served += 1
        write_log(world, i, now_s)
        delay_s = propagation(world, s, i)
        kept = (
            delay_s == 0.0
            and holder >= 0
            and world.stations[world.slots[holder].station].discipline == OLDEST
        )
        if kept:
            world.slots[holder].blocked += 1
        push_event(world.clock, world.events, now_s + delay_s, ONWARD, i, holder if kept else NONE)
    elif st.wired:
        account(st, now_s)
        st.inside += 1
        enqueue(world, s, i)
        world.clock[0].sent += 1
    elif (
        st.room < 0
        or (st.outside_head < 0 and has_room(world, s))
        or (holder >= 0 and world.slots[holder].station == s)
    ):
        admit(world, i, s)
    elif st.drop_full:
        fail(world, s, i, DROPPED)
    else:
        item.holder, item.next = holder, -1
        if holder >= 0:
            world.slots[holder].blocked += 1
        if st.outside_head < 0:
            st.outside_head = i
        else:
            world.items[st.outside_tail].next = i
        st.outside_tail = i


@kernel
def admit(world: StationWorld, i: int, s: int) -> None:
    """Let an item in: into the line or among those that share."""
    st, item, now_s = world.stations[s], world.items[i], world.clock[0].now_s
    account(st, now_s)
    st.inside += 1
    item.enter_s = now_s
    if st.discipline == PS and st.mode != DRAINING:
        join(world, i, s)
        schedule(world, s)
        return
    if st.discipline != PS and st.mode == UP and st.idle >= 0 and st.head < 0 and st.batch == 1:
        item.next = -1
        start(world, s, i, st.batch, item.amount)  # nobody waits: straight to a server
        return
    stamp = item.stamp
    enqueue(world, s, i)
    serve(world, s)
    if st.renege and item.stamp == stamp:  # it waits
        deadline_s = world.flights[item.flight].deadline_s
        if deadline_s < math.inf:
            push_event(world.clock, world.events, max(deadline_s, now_s), RENEGE, i, item.stamp)


@kernel
def let_in(world: StationWorld, s: int) -> None:
    """Admit those outside, in order, while there is room; free the servers they held."""
    st = world.stations[s]
    st.waking = 0
    for _ in range(MOST_LET_IN):
        if st.outside_head < 0:
            return
        i = st.outside_head
        item = world.items[i]
        failed = world.flights[item.flight].outcome != OPEN
        if not failed and not has_room(world, s):
            return
        st.outside_head = item.next
        holder = item.holder
        if failed:
            discard(world, i)
        else:
            admit(world, i, s)
        unblock(world, holder)
    wake(world, s)


@kernel
def unblock(world: StationWorld, holder: int) -> None:
    """One output of a server (-1: of none) is out of its way; without any it is free again."""
    if holder >= 0:
        world.slots[holder].blocked -= 1
        if world.slots[holder].blocked == 0:
            release_server(world, holder)


@kernel
def serve(world: StationWorld, s: int) -> None:
    """Start work on every free server, as far as the line and the batch rule allow."""
    st = world.stations[s]
    account(st, world.clock[0].now_s)
    started = False
    while st.mode == UP and st.idle >= 0 and first_waiting(world, s) >= 0:
        if st.batch > 1 and not gathered(world, s):
            break
        leader = unlink_head(world, s)
        last, count, largest = leader, 1, world.items[leader].amount
        while count < st.batch and first_waiting(world, s) >= 0:
            i = unlink_head(world, s)
            world.items[last].next = i
            last, count = i, count + 1
            largest = max(largest, world.items[i].amount)
        world.items[last].next = -1
        st.waiting -= count
        start(world, s, leader, count, largest)
        started = True
    if started:
        wake(world, s)


@kernel
def gathered(world: StationWorld, s: int) -> bool:
    """Whether a batch may start: it is full, or its first item has waited for the timeout."""
    st = world.stations[s]
    if st.waiting >= st.batch:
        return True
    at_s = world.items[st.head].enter_s + st.batch_timeout_s
    if at_s <= world.clock[0].now_s:
        return True
    if at_s < math.inf and at_s != st.gather_s:
        st.gather_s = at_s
        push_event(world.clock, world.events, at_s, GATHER, s, NONE)
    return False


@kernel
def start(world: StationWorld, s: int, leader: int, count: int, largest: float) -> None:
    """Start a batch of `count` items on a free server.

    Work = largest amount · (1 + slope (count - 1)) · noise of the first item.
    """
    st, c = world.stations[s], world.clock[0]
    k = st.idle
    slot = world.slots[k]
    st.idle = slot.next
    st.serving += 1
    i = leader
    while i >= 0:
        world.items[i].stamp += 1  # its reneging timer is stale from here on
        i = world.items[i].next
    amount = largest * noise(world, s, leader)
    if count > 1:
        amount *= 1.0 + st.batch_slope * (count - 1)
    slot.leader, slot.amount, slot.remaining = leader, amount, amount
    slot.since_s, slot.start_s = c.now_s, c.now_s
    slot.stamp += 1
    if st.rate > 0.0:
        push_event(world.clock, world.events, c.now_s + amount / st.rate, FINISH, k, slot.stamp)


@kernel
def release_server(world: StationWorld, k: int) -> None:
    """A server is free again: it takes the next of the line."""
    slot = world.slots[k]
    s = slot.station
    st = world.stations[s]
    account(st, world.clock[0].now_s)
    slot.leader = -1
    slot.next = st.idle
    st.idle = k
    serve(world, s)
    wake(world, s)
