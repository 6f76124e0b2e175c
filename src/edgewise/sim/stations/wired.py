"""Stations that are links outside: what they are to send is taken there, and comes back when it is there."""

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import rise
from edgewise.sim.stations.items import account
from edgewise.sim.stations.state import NONE, ONWARD, StationWorld


@kernel
def take_sent(world: StationWorld) -> tuple[Ints, Ints, Floats]:
    """(A,) items that wait at wired stations, in the order in which they came; where, and bits of each."""
    c = world.clock[0]
    items, where, bits = np.empty(c.sent, np.int64), np.empty(c.sent, np.int64), np.empty(c.sent)
    order, count = np.empty(c.sent, np.int64), 0
    for s in range(world.stations.size):
        st = world.stations[s]
        while st.wired and st.head >= 0:
            i = st.head
            st.head = world.items[i].next
            st.waiting -= 1
            items[count], where[count], bits[count] = i, s, world.items[i].amount
            order[count] = world.items[i].order
            count += 1
    c.sent = 0
    first = np.argsort(order)
    return items[first], where[first], bits[first]


@kernel
def come_back(world: StationWorld, i: int, at_s: float, lost: bool) -> None:
    """An item will be at the end of its link then, or is dropped; there must be room for an event.

    Of what happens at that time it takes the turn that it had when it was sent, as at a station that serves
    at once.
    """
    item = world.items[i]
    st = world.stations[item.station]
    account(st, world.clock[0].now_s)
    st.inside -= 1
    st.served += 1
    st.busy_s += item.amount / st.rate
    item.gone = lost
    c = world.clock[0]
    e = world.events[rise(world.events, c.events, at_s, item.order)]
    e.kind, e.who, e.stamp = ONWARD, i, NONE
    c.events += 1
