"""Sort a list of messages by place and time. They come as a few runs in order, so runs are merged."""

from __future__ import annotations

from edgewise.core.compiled import inner
from edgewise.sim.links.net import Net, Records

RUN = 8  # so short runs are sorted by insertion


@inner
def later(items: Records, a: int, b: int) -> bool:
    """Of two that come at once, whether `a` comes after `b`: by whose it is, then which of theirs."""
    x, y = items[a], items[b]
    return bool(x.who > y.who or (x.who == y.who and x.number > y.number))


@inner
def take_sorted(net: Net, items: Records, row: int, places: int) -> None:
    """Take list `row` out into `net.slots` and `net.keys`, by (place, time).

    Those of place p are then from `net.starts[p]` to `net.starts[p + 1]`. The list is empty.
    """
    line, where, when, starts = net.lists[row], net.where[row], net.when[row], net.starts
    for p in range(places + 2):
        starts[p] = 0
    for k in range(net.many[row]):
        starts[where[k] + 2] += 1
    for p in range(places):
        starts[p + 2] += starts[p + 1]
    for k in range(net.many[row]):  # starts[p + 1] moves from the begin of p to its end
        at = starts[where[k] + 1]
        net.slots[at], net.keys[at] = line[k], when[k]
        starts[where[k] + 1] = at + 1
    for p in range(places):
        if starts[p + 1] - starts[p] > 1:
            sort_part(net, items, row, starts[p], starts[p + 1])
    net.many[row] = 0


@inner
def sort_part(net: Net, items: Records, row: int, low: int, high: int) -> None:
    """Order a part of `net.slots` by time: insertion in short runs, then merges of twice as long ones."""
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
    slots, keys, kept, kept_s = net.slots, net.keys, net.lists[row], net.when[row]
    if keys[middle - 1] < keys[middle]:
        return
    for k in range(low, middle):
        kept[k], kept_s[k] = slots[k], keys[k]
    a, b, at = low, middle, low
    while a < middle and b < high:
        if kept_s[a] > keys[b] or (kept_s[a] == keys[b] and later(items, kept[a], slots[b])):
            slots[at], keys[at] = slots[b], keys[b]
            b += 1
        else:
            slots[at], keys[at] = kept[a], kept_s[a]
            a += 1
        at += 1
    while a < middle:
        slots[at], keys[at] = kept[a], kept_s[a]
        a += 1
        at += 1
