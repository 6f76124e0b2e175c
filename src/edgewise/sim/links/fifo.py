"""Messages on a link one after the other, first come first served.

wait = max(0, free - a), then free = max(free, a) + bits / (C - R)
where a message comes at a, and all that came before is through at `free`. When it begins to pass, its time on
the link is certain. A rate that changes is that of what has not begun: such a message may be held up by more
than its wait, where a link has become its slowest. What the link has left of the one that passes, it sends at
the new rate, and those behind wait for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.core.compiled import inner
from edgewise.sim.links.net import Net, Records, admit, append, arrive, come
from edgewise.sim.links.sort import take_sorted


@inner
def pass_level(net: Net, row: int, until_s: float) -> None:
    """Carry on all that begins to pass a link of this level before `until_s`."""
    count = net.many[row]
    take_sorted(net, net.messages, row, net.links.size)
    for k in range(count):
        slot, at_s = net.slots[k], net.keys[k]
        m = net.messages[slot]
        if at_s < until_s:
            if not m.begun:
                join_line(net, m)
            if m.lost:
                arrive(net, slot)
                continue
            if m.start_s < until_s:
                go_on(net, slot)
                continue
        append(net, row, slot, m.place, at_s)


@inner
def join_line(net: Net, m: Any) -> None:
    """A message comes to the end of a link's line, or is dropped."""
    link = net.links[m.place]
    if not admit(link, m.at_s, m.bits):
        m.lost = 1
        return
    m.begun = 1
    set_start(link, m)


@inner
def set_start(link: Any, m: Any) -> None:
    """When a message in line begins to pass, as the rate is now."""
    m.start_s, m.own_s = max(link.free_s, m.at_s), m.bits / link.rate_bps
    link.free_s = m.start_s + m.own_s
    if link.rate_bps == 0.0:
        m.start_s = link.free_s = np.inf


@inner
def go_on(net: Net, slot: int) -> None:
    """A message passes its link, and comes to the next one."""
    m = net.messages[slot]
    link = net.links[m.place]
    link.passing_s = m.start_s + m.own_s
    m.wait_s += m.start_s - m.at_s
    if m.own_s > m.most_s:
        m.wait_s += m.own_s - m.most_s
        m.most_s, m.slowest = m.own_s, min(m.slowest, m.hop)
    m.hop += 1
    if m.hop < net.routes[m.route].length:
        come(net, slot)
    else:
        arrive(net, slot)


@inner
def pass_loop(net: Net, row: int, until_s: float) -> None:
    """The same for links in a loop: one event after the other, a heap by time."""
    line, size = net.lists[row], 0
    for k in range(net.many[row]):
        size = push(net.messages, line, size, line[k])
    while size > 0:
        slot = line[0]
        m = net.messages[slot]
        if event_s(m) >= until_s:
            break
        size -= 1
        line[0] = line[size]
        sift(net.messages, line, size)
        if not m.begun:
            join_line(net, m)
            if not m.lost and m.start_s > m.at_s:
                size = push(net.messages, line, size, slot)
                continue
        if m.lost:
            arrive(net, slot)
            continue
        net.many[row] = size
        go_on(net, slot)
        if net.many[row] > size:  # to another link of the loop: it was appended
            size = push(net.messages, line, size, line[size])
    net.many[row] = size
    for k in range(size):
        m = net.messages[line[k]]
        net.where[row, k], net.when[row, k] = m.place, m.at_s


@inner
def event_s(m: Any) -> float:
    """When something happens to a message: it begins to pass, or comes."""
    return float(m.start_s if m.begun else m.at_s)


@inner
def sooner(messages: Records, a: int, b: int) -> bool:
    """Whether something happens to `a` before `b`; of two at once, to who passes first."""
    x, y = messages[a], messages[b]
    if event_s(x) != event_s(y):
        return bool(event_s(x) < event_s(y))
    if x.begun != y.begun:
        return bool(x.begun > y.begun)
    return bool(x.who < y.who or (x.who == y.who and x.number < y.number))


@inner
def push(messages: Records, heap: Any, size: int, slot: int) -> int:
    """Add a message to a heap of the first `size`; the new size."""
    at = size
    heap[at] = slot
    while at > 0 and sooner(messages, slot, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
        heap[at] = slot
    return size + 1


@inner
def sift(messages: Records, heap: Any, size: int) -> None:
    """Restore the heap after its root was replaced."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and sooner(messages, heap[child + 1], heap[child]):
            child += 1
        if not sooner(messages, heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@inner
def retime(net: Net, j: int, now_s: float, rate_bps: float) -> None:
    """Link `j` has another rate from now on, and all up to now has been carried on."""
    link = net.links[j]
    if link.rate_bps > 0.0:
        link.left_bits = max(link.passing_s - now_s, 0.0) * link.rate_bps
    link.rate_bps = rate_bps
    link.passing_s = link.free_s = now_s + (link.left_bits / rate_bps if rate_bps > 0.0 else 0.0)
    count = net.many[link.level]
    take_sorted(net, net.messages, link.level, net.links.size)
    for k in range(count):
        m = net.messages[net.slots[k]]
        if m.place == j and m.begun:
            set_start(link, m)
        append(net, link.level, net.slots[k], m.place, net.keys[k])
