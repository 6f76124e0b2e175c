"""Processor sharing: n jobs on c servers each get rate · min(1, c / n).

All jobs attain service at the same speed, so one number, the service attained since the station
was last empty, says how far every job is: a job leaves when it reaches its arrival's value plus its
work. One announced completion per station, stale as soon as anything changes.
"""

from __future__ import annotations

from edgewise.arrays import Records
from edgewise.core.compiled import kernel
from edgewise.sim.stations.heap import merge, push_event, without_root
from edgewise.sim.stations.items import account, noise, speed, wake
from edgewise.sim.stations.state import SHARED, StationWorld


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
