"""Sort a list of messages by place and time. They come as a few runs in order, so runs are merged."""

from __future__ import annotations

from edgewise.core.compiled import inner
from edgewise.sim.links.net import Net, Records

RUN = 8  # so short runs are sorted by insertion


@inner
def later(items: Records, a: int, b: int) -> bool:
    """Whether `a` comes after `b`: by time, then whose it is, then which of theirs."""
    x, y = items[a], items[b]
    if x.at_s != y.at_s:
        return bool(x.at_s > y.at_s)
    return bool(x.who > y.who or (x.who == y.who and x.number > y.number))


@inner
def sort(net: Net, items: Records, row: int, places: int) -> None:
    """Order list `row` by (place, time); those of place p then begin at `net.starts[p]`."""
    line, count, starts = net.lists[row], net.many[row], net.starts
    for p in range(places + 2):
        starts[p] = 0
    for k in range(count):
        starts[items[line[k]].place + 2] += 1
    for p in range(places):
        starts[p + 2] += starts[p + 1]
    for k in range(count):  # starts[p + 1] moves from the begin of p to its end
        p = items[line[k]].place + 1
        net.slots[starts[p]], net.keys[starts[p]] = line[k], items[line[k]].at_s
        starts[p] += 1
    for p in range(places):
        sort_part(net, items, row, starts[p], starts[p + 1])
    for k in range(count):
        line[k] = net.slots[k]


@inner
def sort_part(net: Net, items: Records, row: int, low: int, high: int) -> None:
    """Order `net.slots[low:high]` by time: insertion in short runs, then merges of twice as long ones."""
    slots, keys = net.slots, net.keys
    for begin in range(low, high, RUN):
        for k in range(begin + 1, min(begin + RUN, high)):
            slot, key, at = slots[k], keys[k], k
            while at > begin and keys[at - 1] >= key:
                if keys[at - 1] == key and not later(items, slots[at - 1], slot):
                    break
                slots[at], keys[at] = slots[at - 1], keys[at - 1]
                at -= 1
            slots[at], keys[at] = slot, key
    width = RUN
    while width < high - low:
        for begin in range(low, high - width, 2 * width):
            merge(net, items, row, begin, begin + width, min(begin + 2 * width, high))
        width *= 2


@inner
def merge(net: Net, items: Records, row: int, low: int, middle: int, high: int) -> None:
    """Merge two runs that lie one behind the other; the list's own row keeps the first one meanwhile."""
    slots, keys, kept = net.slots, net.keys, net.lists[row]
    if keys[middle - 1] < keys[middle]:
        return
    for k in range(low, middle):
        kept[k] = slots[k]
    a, b, at = low, middle, low
    while a < middle and b < high:
        first, key = items[kept[a]].at_s, keys[b]
        if first > key or (first == key and later(items, kept[a], slots[b])):
            slots[at], keys[at] = slots[b], key
            b += 1
        else:
            slots[at], keys[at] = kept[a], first
            a += 1
        at += 1
    while a < middle:
        slots[at], keys[at] = kept[a], items[kept[a]].at_s
        a += 1
        at += 1
