"""The timeline: rates change in mid-service, stations fail, return, appear and drain.

Work that is left is brought up to now, announced completions become stale, new ones are made.
"""

from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import without_root
from edgewise.sim.stations.events import push_event
from edgewise.sim.stations.items import account, speed, wake
from edgewise.sim.stations.state import (
    APPEAR,
    DOWN,
    DRAINING,
    FINISH,
    LOSE,
    LOST,
    PS,
    RESUME,
    TO_DOWN,
    TO_DRAINING,
    TO_RATE,
    TO_UP,
    UP,
    StationWorld,
)
from edgewise.sim.stations.stations import (
    drop_line,
    fail,
    first_waiting,
    join,
    progress,
    schedule,
    serve,
    unlink_head,
)


@kernel
def retime(world: StationWorld, s: int, old: float) -> None:
    """The speed has changed from `old`: finish what is in service at the new one.

    Jobs that share have been brought up to now before the change.
    """
    st, now_s = world.stations[s], world.clock[0].now_s
    new = speed(st)
    if st.discipline == PS:
        schedule(world, s)
        return
    for k in range(st.slot, st.slot + st.servers):
        slot = world.slots[k]
        if slot.leader < 0 or slot.blocked > 0:
            continue
        if now_s > slot.since_s:
            slot.remaining = max(slot.remaining - (now_s - slot.since_s) * old, 0.0)
        slot.since_s = now_s
        slot.stamp += 1
        if new > 0.0:
            push_event(world.clock, world.events, now_s + slot.remaining / new, FINISH, k, slot.stamp)


@kernel
def set_mode(world: StationWorld, s: int, mode: int) -> None:
    """A station goes down, comes up, or drains (starts nothing new, finishes what is in service)."""
    st = world.stations[s]
    st.mode_stamp += 1
    if st.mode == mode:
        return
    old = speed(st)
    account(st, world.clock[0].now_s)
    if st.discipline == PS:
        progress(world, s, old)
    st.mode = mode
    retime(world, s, old)
    if mode == UP:
        if st.discipline == PS:
            while first_waiting(world, s) >= 0:  # came while it drained
                st.waiting -= 1
                join(world, unlink_head(world, s), s)
            schedule(world, s)
        serve(world, s)
        wake(world, s)
        return
    if mode == DOWN and st.on_down != RESUME:
        interrupt(world, s)
    if st.drop_waiting:
        drop_line(world, s)


@kernel
def interrupt(world: StationWorld, s: int) -> None:
    """Work in service is lost with its query, or begins again after the repair."""
    st = world.stations[s]
    lose = st.on_down == LOSE
    if st.discipline == PS:
        interrupt_shared(world, s, lose)
        return
    for k in range(st.slot, st.slot + st.servers):
        slot = world.slots[k]
        if slot.leader < 0:
            continue
        slot.remaining = slot.amount
        if lose:
            i = slot.leader
            slot.leader = -1
            slot.next = st.idle
            st.idle = k
            st.serving -= 1
            while i >= 0:
                following = world.items[i].next
                st.inside -= 1
                fail(world, s, i, LOST)
                i = following
    wake(world, s)


@kernel
def interrupt_shared(world: StationWorld, s: int, lose: bool) -> None:
    """The same for jobs that share: all leave, and those not lost begin anew."""
    st = world.stations[s]
    again = -1
    while st.root >= 0:
        i = st.root
        st.root = without_root(world.items, i)
        st.serving -= 1
        if lose:
            st.inside -= 1
            fail(world, s, i, LOST)
        else:
            world.items[i].next = again
            again = i
    while again >= 0:
        following = world.items[again].next
        join(world, again, s)
        again = following
    schedule(world, s)
    wake(world, s)


@kernel
def apply_change(world: StationWorld, at: int) -> None:
    """Carry out one entry of the timeline."""
    change, c = world.changes[at], world.clock[0]
    s, kind = change.station, change.kind
    st = world.stations[s]
    if kind == TO_RATE:
        old = speed(st)
        account(st, c.now_s)
        if st.discipline == PS:
            progress(world, s, old)
        st.rate = change.value
        retime(world, s, old)
    elif kind == TO_DOWN:
        set_mode(world, s, DOWN)
    elif kind == TO_UP:
        set_mode(world, s, UP)
    elif kind == TO_DRAINING:
        set_mode(world, s, DRAINING)
    else:
        st.mode_stamp += 1
        push_event(world.clock, world.events, c.now_s + st.start_delay_s, APPEAR, s, st.mode_stamp)
