"""Carry all messages up to a time, level by level; and change what links can carry."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints, Records
from edgewise.kernels.compiled import inner, kernel
from edgewise.sim.links.fifo import pass_level, pass_loop, retime
from edgewise.sim.links.net import (
    FIFO,
    Net,
    backlog_at,
    comes_s,
    depart,
    forget,
    look,
    new_message,
    next_look_s,
    set_rates,
)
from edgewise.sim.links.ps import change_share, finish_s, share_level


@inner
def pass_levels(net: Net, first: int, last: int, until_s: float) -> None:
    """Carry on what happens before `until_s` on the links of levels `first` to `last - 1`."""
    for row in range(first, last):
        if net.sharing != FIFO:
            share_level(net, row, until_s)
        elif is_loop(net, row):
            pass_loop(net, row, until_s)
        else:
            pass_level(net, row, until_s)


@inner
def is_loop(net: Net, row: int) -> bool:
    """Whether the links of this level are a loop."""
    for j in range(net.links.size):
        if net.links[j].level == row:
            return bool(net.links[j].loop)
    return False


@kernel
def send(net: Net, at: int, who: Ints, route: Ints, leaves_s: Floats, there_s: Floats, bits: Floats) -> int:
    """Send (M,) messages, from the `at`-th on; all go to the first sink.

    Args:
        who: what each is called. there_s: delay on the way, beside transmission.
    Returns:
        M, or where to go on when there is room for more.
    """
    for k in range(at, who.size):
        slot = new_message(net)
        if slot < 0:
            return k
        m = net.messages[slot]
        m.who, m.number, m.route, m.sink, m.bits = who[k], k, route[k], 0, bits[k]
        m.base_s, m.there_s, m.tx_s = leaves_s[k], there_s[k], bits[k] / net.routes[route[k]].bps
        m.due_s = leaves_s[k] + there_s[k] + m.tx_s
        depart(net, slot, m)
    return who.size


@kernel
def carry(net: Net, until_s: float) -> tuple[Ints, Floats, Floats]:
    """Carry messages up to `until_s`.

    Returns:
        (A,) who is there now; when, infinite where it was dropped; how long it was held up.
    """
    pass_levels(net, 0, net.sinks, until_s)
    came = net.many[net.sinks]
    who, at_s, wait_s = np.empty(came, dtype=np.int64), np.empty(came), np.empty(came)
    for k in range(came):
        slot = net.lists[net.sinks, k].slot
        m = net.messages[slot]
        who[k], at_s[k], wait_s[k] = m.who, np.inf if m.lost else m.at_s, m.wait_s
        forget(net, slot)
    net.many[net.sinks] = 0
    return who, at_s, wait_s


@kernel
def pass_until(net: Net, until_s: float) -> None:
    """Carry messages up to `until_s`; those that are there stay in their sinks."""
    to_s = -np.inf
    while to_s < until_s:
        to_s = min(until_s, next_look_s(net))
        pass_levels(net, 0, net.sinks, to_s)
        look(net, to_s)


@kernel
def soonest_change(net: Net) -> float:
    """When the next message comes to a link or leaves it, where all are served at once."""
    found_s = np.inf
    for row in range(net.sinks):
        for k in range(net.many[row]):
            found_s = min(found_s, net.lists[row, k].at_s)
    for j in range(net.links.size):
        found_s = min(found_s, finish_s(net, j))
    return found_s


@kernel
def reserve(net: Net, j: int, now_s: float, reserved_bps: float, capacity_bps: float) -> None:
    """From now on link `j` has this capacity, of which so much is reserved; it is up to now.

    Messages share what is left. Nothing passes where that is 0.
    """
    link, rate_bps = net.links[j], max(capacity_bps - reserved_bps, 0.0)
    link.backlog_bits, link.backlog_s = backlog_at(link, now_s), now_s
    link.capacity_bps, link.reserved_bps = capacity_bps, reserved_bps
    if net.sharing == FIFO:
        retime(net, j, now_s, rate_bps)
    else:
        change_share(net, j, now_s, rate_bps)
    set_rates(net)
    for slot in range(net.messages.size):
        m = net.messages[slot]
        if m.number >= 0 and m.base_s > now_s:
            leave_later(net, m)
    for row in range(net.sinks if net.sharing == FIFO else 0):
        for k in range(net.many[row]):
            m = net.messages[net.lists[row, k].slot]
            if m.base_s > now_s:
                net.lists[row, k].at_s = m.at_s = comes_s(m, net.hops[m.route, m.hop])


@inner
def leave_later(net: Net, m: Any) -> None:
    """A message that has not left yet reckons with the rates that there are now."""
    route = net.routes[m.route]
    tx_s = m.bits / route.bps
    m.due_s += tx_s - m.tx_s
    m.tx_s = m.most_s = tx_s
    m.slowest = route.slowest


@kernel
def links_now(links: Records, now_s: float) -> Floats:
    """(2, L) bit/s that are left of each link, and bits that it has still to send."""
    found = np.empty((2, links.size))
    for j in range(links.size):
        found[0, j], found[1, j] = links[j].rate_bps, backlog_at(links[j], now_s)
    return found
