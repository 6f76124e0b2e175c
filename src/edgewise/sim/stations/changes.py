"""The timeline: rates change in mid-service, stations fail, return, appear and drain.

Work that is left is brought up to now, announced completions become stale, new ones are made.
"""

from __future__ import annotations

from edgewise.core.compiled import kernel
from edgewise.sim.stations.heap import push_event, without_root
from edgewise.sim.stations.items import account, speed, wake
from edgewise.sim.stations.sharing import join, progress, schedule
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
from edgewise.sim.stations.stations import drop_line, fail, first_waiting, serve, unlink_head


@kernel
def retime(w: StationWorld, s: int, old: float) -> None:
    """The speed has changed from `old`: finish what is in service at the new one.

    Jobs that share have been brought up to now before the change.
    """
    st, now_s = w.stations[s], w.clock[0].now_s
    new = speed(st)
    if st.discipline == PS:
        schedule(w, s)
        return
    for k in range(st.slot, st.slot + st.servers):
        slot = w.slots[k]
        if slot.leader < 0 or slot.blocked > 0:
            continue
        if now_s > slot.since_s:
            slot.remaining = max(slot.remaining - (now_s - slot.since_s) * old, 0.0)
        slot.since_s = now_s
        slot.stamp += 1
        if new > 0.0:
            push_event(w.clock, w.events, now_s + slot.remaining / new, FINISH, k, slot.stamp)


@kernel
def set_mode(w: StationWorld, s: int, mode: int) -> None:
    """A station goes down, comes up, or drains (starts nothing new, finishes what is in service)."""
    st = w.stations[s]
    st.mode_stamp += 1
    if st.mode == mode:
        return
    old = speed(st)
    account(st, w.clock[0].now_s)
    if st.discipline == PS:
        progress(w, s, old)
    st.mode = mode
    retime(w, s, old)
    if mode == UP:
        if st.discipline == PS:
            while first_waiting(w, s) >= 0:  # came while it drained
                st.waiting -= 1
                join(w, unlink_head(w, s), s)
            schedule(w, s)
        serve(w, s)
        wake(w, s)
        return
    if mode == DOWN and st.on_down != RESUME:
        interrupt(w, s)
    if st.drop_waiting:
        drop_line(w, s)


@kernel
def interrupt(w: StationWorld, s: int) -> None:
    """Work in service is lost with its query, or begins again after the repair."""
    st = w.stations[s]
    lose = st.on_down == LOSE
    if st.discipline == PS:
        interrupt_shared(w, s, lose)
        return
    for k in range(st.slot, st.slot + st.servers):
        slot = w.slots[k]
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
                following = w.items[i].next
                st.inside -= 1
                fail(w, s, i, LOST)
                i = following
    wake(w, s)


@kernel
def interrupt_shared(w: StationWorld, s: int, lose: bool) -> None:
    """The same for jobs that share: all leave, and those not lost begin anew."""
    st = w.stations[s]
    again = -1
    while st.root >= 0:
        i = st.root
        st.root = without_root(w.items, i)
        st.serving -= 1
        if lose:
            st.inside -= 1
            fail(w, s, i, LOST)
        else:
            w.items[i].next = again
            again = i
    while again >= 0:
        following = w.items[again].next
        join(w, again, s)
        again = following
    schedule(w, s)
    wake(w, s)


@kernel
def apply_change(w: StationWorld, at: int) -> None:
    """Carry out one entry of the timeline."""
    change, c = w.changes[at], w.clock[0]
    s, kind = change.station, change.kind
    st = w.stations[s]
    if kind == TO_RATE:
        old = speed(st)
        account(st, c.now_s)
        if st.discipline == PS:
            progress(w, s, old)
        st.rate = change.value
        retime(w, s, old)
    elif kind == TO_DOWN:
        set_mode(w, s, DOWN)
    elif kind == TO_UP:
        set_mode(w, s, UP)
    elif kind == TO_DRAINING:
        set_mode(w, s, DRAINING)
    else:
        st.mode_stamp += 1
        push_event(w.clock, w.events, c.now_s + st.start_delay_s, APPEAR, s, st.mode_stamp)
