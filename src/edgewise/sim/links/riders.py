"""Messages of who sends one when another has come, compiled: which are on their way, and which are there.

A *rider* has a list of its own for those that are there. A message is called by a number that its rider gives
it; at one time links take messages of all riders in the order in which they were sent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.kernels.compiled import inner, kernel
from edgewise.sim.heap import drop_first, rise
from edgewise.sim.links.advance import soonest_change
from edgewise.sim.links.fifo import soonest_there
from edgewise.sim.links.net import FIFO, SENT, Net, depart, forget, new_message

RIDER = 2**31 - 1  # who: behind all streams
SOON = np.dtype([("at_s", "f8"), ("order", "i8"), ("slot", "i8")])  # order: the number of the message


class OnWire(NamedTuple):
    """One rider's messages.

    net: what they are on. soon: (room,) SOON, a heap of when each may be there at the soonest, as it was last
    asked, and of some that are there; the first `many[0]` of them. sink: its list of those that are there.
    now_s: (1,) all before it has happened on the links.
    """

    net: Net
    soon: Records
    many: Ints
    sink: int
    now_s: Floats


def on_wire(net: Net, sink: int, now_s: Floats) -> OnWire:
    """Of a rider that has sent nothing."""
    return OnWire(net, records((net.messages.size,), SOON), np.zeros(1, dtype=np.int64), sink, now_s)


@kernel
def send(x: OnWire, what: int, route: int, at_s: float, there_s: float, bits: float) -> bool:
    """Send a message.

    Args:
        what: its rider's number of it, less than 2^31. there_s: delay on the way, beside transmission.
    Returns:
        Whether there was room.
    """
    if x.many[0] == x.soon.size:
        return False
    net, slot = x.net, new_message(x.net)
    if slot < 0:
        return False
    m = net.messages[slot]
    m.who, m.number, m.epoch, m.route, m.sink, m.bits = RIDER, net.free[SENT], what, route, x.sink, bits
    m.base_s, m.there_s, m.tx_s = at_s, there_s, bits / net.routes[route].bps
    m.due_s = at_s + m.tx_s + there_s
    net.free[SENT] = (net.free[SENT] + 1) % 2**31
    depart(net, slot, m)
    _push(x, soonest_s(x, slot), m.number, slot)
    return True


@inner
def soonest_s(x: OnWire, slot: int) -> float:
    """A message is not there before."""
    m = x.net.messages[slot]
    if x.net.sharing == FIFO:
        return soonest_there(x.net, m)
    found_s = m.due_s + m.wait_s
    return float(found_s if found_s >= x.now_s[0] else soonest_change(x.net))


@kernel
def next_s(x: OnWire) -> float:
    """No message of this rider is there before; infinite: none ever, unless something changes."""
    while x.many[0] > 0:
        first = x.soon[0]
        at_s, number, slot = first.at_s, first.order, first.slot
        if not on_its_way(x, number, slot):
            _drop_first(x)
            continue
        later_s = soonest_s(x, slot)
        if later_s <= at_s:
            return float(at_s)
        _drop_first(x)
        _push(x, later_s, number, slot)
    return np.inf


@inner
def on_its_way(x: OnWire, number: int, slot: int) -> bool:
    """Whether a message was not taken yet; its place may be another's by now."""
    m = x.net.messages[slot]
    return bool(m.number == number and m.who == RIDER)


@kernel
def look_again(x: OnWire) -> None:
    """Links have other rates now, so that what is on its way may be there sooner."""
    count, x.many[0] = x.many[0], 0
    for k in range(count):  # what is pushed lies before what is yet to be read
        number, slot = x.soon[k].order, x.soon[k].slot
        if on_its_way(x, number, slot):
            _push(x, soonest_s(x, slot), number, slot)


@inner
def sort_there(x: OnWire) -> int:
    """Put what is there in order of time, and at one time as it was sent; how many."""
    net, row = x.net, x.net.sinks + x.sink
    there, count = net.lists[row], net.many[row]
    for k in range(1, count):
        slot, at_s, at = there[k].slot, there[k].at_s, k
        number = net.messages[slot].number
        while at > 0 and (
            there[at - 1].at_s > at_s
            or (there[at - 1].at_s == at_s and net.messages[there[at - 1].slot].number > number)
        ):
            there[at] = there[at - 1]
            at -= 1
        there[at].slot, there[at].at_s = slot, at_s
    return int(count)


@kernel
def take_there(x: OnWire) -> tuple[Ints, Floats, Ints]:
    """(A,) what is there, in order of time; when it came, and whether it was dropped on the way."""
    net, row, count = x.net, x.net.sinks + x.sink, sort_there(x)
    what, at_s, lost = np.empty(count, np.int64), np.empty(count), np.empty(count, np.int64)
    for k in range(count):
        slot = net.lists[row, k].slot
        m = net.messages[slot]
        what[k], at_s[k], lost[k] = m.epoch, m.at_s, m.lost
        forget(net, slot)
    net.many[row] = 0
    return what, at_s, lost


@inner
def _push(x: OnWire, at_s: float, number: int, slot: int) -> None:
    x.soon[rise(x.soon, x.many[0], at_s, number)].slot = slot
    x.many[0] += 1


@inner
def _drop_first(x: OnWire) -> None:
    x.many[0] -= 1
    drop_first(x.soon, x.many[0])
