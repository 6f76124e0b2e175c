"""Messages on a link one after the other, first come first served.

wait = max(0, free - a), then free = max(free, a) + bits / (C - R)
where a message comes at a, and all that came before is through at `free`. When it begins to pass, its time on
the link is certain. A rate that changes is that of what has not begun: such a message may be held up by more
than its wait, where a link has become its slowest, or by less, where its slowest has become faster. What the
link has left of the one that passes, it sends at the new rate, and those behind wait for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.kernels.compiled import inner
from edgewise.sim.heap import drop_first, rise
from edgewise.sim.links.net import Net, admit, append, arrive, come
from edgewise.sim.links.sort import take_sorted


@inner
def pass_level(net: Net, row: int, until_s: float) -> None:
    """Carry on all that begins to pass a link of this level before `until_s`."""
    for j in range(net.links.size):
        link = net.links[j]
        while link.level == row and link.first >= 0 and net.messages[link.first].start_s < until_s:
            leave_line(net, link)
    for k in range(take_sorted(net, net.messages, row, until_s)):
        join_line(net, net.ranked[k].slot, until_s)


@inner
def join_line(net: Net, slot: int, until_s: float) -> None:
    """A message passes at once if it can before `until_s`, comes to the end of the line, or is dropped."""
    m = net.messages[slot]
    link = net.links[m.place]
    if not admit(link, m.at_s, m.bits):
        m.lost = 1
        arrive(net, slot, m)
        return
    own_s = m.bits / link.rate_bps
    start_s = next_start(link, m, own_s)
    if link.first < 0 and start_s < until_s:
        go_on(net, slot, m, link, start_s, own_s)
    else:
        m.begun, m.start_s = 1, start_s
        m.left = -1
        if link.first < 0:
            link.first = slot
        else:
            net.messages[link.last].left = slot
        link.last = slot


@inner
def next_start(link: Any, m: Any, own_s: float) -> float:
    """When a message at the end of the line begins to pass, which then takes `own_s`, as the rate is now."""
    start_s = max(link.free_s, m.at_s)
    link.free_s = start_s + own_s
    if link.rate_bps == 0.0:
        start_s = link.free_s = np.inf
    return float(start_s)


@inner
def leave_line(net: Net, link: Any) -> None:
    """The first message of a line begins to pass."""
    slot = link.first
    m = net.messages[slot]
    link.first, m.begun = m.left, 0
    go_on(net, slot, m, link, m.start_s, m.bits / link.rate_bps)


@inner
def go_on(net: Net, slot: int, m: Any, link: Any, start_s: float, own_s: float) -> None:
    """A message, which is in `slot`, passes its link, and comes to the next one."""
    m.wait_s += start_s - m.at_s
    if own_s > m.most_s:
        m.wait_s += own_s - m.most_s
        m.most_s, m.slowest = own_s, min(m.slowest, m.hop)
    elif own_s < m.most_s and m.hop == m.slowest:
        lighten(net, m, own_s)
    m.passed_s = max(m.passed_s, own_s)
    m.hop += 1
    if m.hop < net.routes[m.route].length:
        come(net, slot, m)
    else:
        arrive(net, slot, m)


@inner
def lighten(net: Net, m: Any, own_s: float) -> None:
    """The slowest link of a message has become faster before the message begins to pass it."""
    route = net.routes[m.route]
    most_s = max(own_s, m.passed_s, m.bits / route.private_bps)
    for hop in range(m.hop + 1, route.length):
        rate_bps = net.links[net.hops[m.route, hop].link].rate_bps
        if 0.0 < rate_bps < m.bits / most_s:
            most_s, m.slowest = m.bits / rate_bps, hop
    m.wait_s -= m.most_s - most_s
    m.most_s = most_s


@inner
def soonest_there(net: Net, m: Any) -> float:
    """A message is not there before, unless rates change."""
    found_s = m.due_s + m.wait_s
    if m.hop <= m.slowest:  # which may have become faster since it left
        rate_bps = net.links[net.hops[m.route, m.slowest].link].rate_bps
        found_s -= max(m.most_s - m.bits / rate_bps, 0.0)
    return float(max(found_s + (m.start_s - m.at_s), m.start_s) if m.begun else max(found_s, m.at_s))


@inner
def pass_loop(net: Net, row: int, until_s: float) -> None:
    """The same for links in a loop: one event after the other, who comes or is next in line."""
    turns, line, messages = net.turns, net.lists[row], net.messages
    size, net.many[row] = net.many[row], 0
    for k in range(size):
        _take_turn(net, k, line[k].slot)
    for j in range(net.links.size):
        if net.links[j].level == row and net.links[j].first >= 0:
            _take_turn(net, size, net.links[j].first)
            size += 1
    while size > 0 and turns[0].at_s < until_s:
        slot, size = turns[0].slot, size - 1
        drop_first(turns, size)
        m, link = messages[slot], net.links[messages[slot].place]
        if m.begun:
            leave_line(net, link)
            first = link.first
        else:
            join_line(net, slot, np.nextafter(m.at_s, np.inf))
            first = slot if link.first == slot else -1
        if net.many[row] > 0:  # it came to another link of the loop
            net.many[row] = 0
            _take_turn(net, size, line[0].slot)
            size += 1
        if first >= 0:
            _take_turn(net, size, first)
            size += 1
    for k in range(size):
        slot = turns[k].slot
        if not messages[slot].begun:
            append(net, row, slot, messages[slot].at_s)


@inner
def _take_turn(net: Net, size: int, slot: int) -> None:
    """Note when a message begins to pass, or comes; of two at once who passes is first, see `TURN_OF`."""
    m = net.messages[slot]
    order = ((1 - np.int64(m.begun)) << 62) + (np.int64(m.who) << 31) + m.number
    net.turns[rise(net.turns, size, m.start_s if m.begun else m.at_s, order)].slot = slot


@inner
def retime(net: Net, j: int, now_s: float, rate_bps: float) -> None:
    """Link `j` has another rate from now on, and all up to now has been carried on."""
    link = net.links[j]
    slot = link.first
    if link.rate_bps > 0.0:
        through_s = net.messages[slot].start_s if slot >= 0 else link.free_s
        link.left_bits = max(through_s - now_s, 0.0) * link.rate_bps
    link.rate_bps = rate_bps
    link.free_s = now_s + (link.left_bits / rate_bps if rate_bps > 0.0 else 0.0)
    while slot >= 0:
        m = net.messages[slot]
        m.start_s = next_start(link, m, m.bits / rate_bps)
        slot = m.left
