"""Sort by time what a list has before a time: into cells of equal length, then by insertion."""

from __future__ import annotations

from typing import Any

from edgewise.kernels.compiled import inner
from edgewise.sim.links.net import Net, Records

RUN = 8  # so many are sorted by insertion; where one cell has more, runs of so many are merged


@inner
def later(items: Records, a: int, b: int) -> bool:
    """Of two that come at once, whether `a` comes after `b`: by whose it is, then which of theirs."""
    x, y = items[a], items[b]
    return bool(x.who > y.who or (x.who == y.who and x.number > y.number))


@inner
def take_sorted(net: Net, items: Records, row: int, until_s: float) -> int:
    """Take what comes before `until_s` out of list `row` into `net.ranked`, by time.

    Returns:
        How many; the others stay, in their order.
    """
    line, starts, many, from_s = net.lists[row], net.starts, net.many[row], net.done_s[row]
    if many <= RUN:
        return take_few(net, items, row, until_s)
    # Who sends comes to the first level in no order; to others, nearly by time already.
    cells = 2 * many if row == 0 else many
    per_s = cells / (until_s - from_s) if until_s > from_s else 0.0
    net.done_s[row] = until_s
    for c in range(cells):
        starts[c] = 0
    for k in range(many):
        if line[k].at_s < until_s:
            starts[cell(line[k].at_s, from_s, per_s, cells)] += 1
    most = before = kept = 0
    for c in range(cells):  # nothing is read that has just been written: the processor would wait for it
        count = starts[c]
        starts[c] = before
        before += count
        most = max(most, count)
    for k in range(many):
        if line[k].at_s < until_s:
            c = cell(line[k].at_s, from_s, per_s, cells)
            net.ranked[starts[c]] = line[k]
            starts[c] += 1
        else:
            line[kept] = line[k]
            kept += 1
    net.many[row] = kept
    if most <= RUN:
        insert(net, items, 0, many - kept)
    else:
        merge_runs(net, items, many - kept)
    return int(many - kept)


@inner
def take_few(net: Net, items: Records, row: int, until_s: float) -> int:
    """The same, where so few are in the list that cells would take longer."""
    line, many, taken, kept = net.lists[row], net.many[row], 0, 0
    for k in range(many):
        if line[k].at_s < until_s:
            net.ranked[taken] = line[k]
            taken += 1
        else:
            line[kept] = line[k]
            kept += 1
    net.many[row], net.done_s[row] = kept, until_s
    insert(net, items, 0, taken)
    return taken


@inner
def cell(at_s: float, from_s: float, per_s: float, cells: int) -> int:
    """Which of cells of equal length a time is in."""
    return min(max(int((at_s - from_s) * per_s), 0), cells - 1)


@inner
def behind(items: Records, a: Any, b: Any) -> bool:
    """Whether item `a` comes after `b`."""
    return bool(a.at_s > b.at_s or (a.at_s == b.at_s and later(items, a.slot, b.slot)))


@inner
def insert(net: Net, items: Records, begin: int, end: int) -> None:
    """Order a part of `net.ranked`: each goes before those that come after it."""
    ranked = net.ranked
    one = net.spare[0]
    for k in range(begin + 1, end):
        if ranked[k - 1].at_s < ranked[k].at_s:
            continue
        one.slot, one.at_s, at = ranked[k].slot, ranked[k].at_s, k
        while at > begin and behind(items, ranked[at - 1], one):
            ranked[at] = ranked[at - 1]
            at -= 1
        ranked[at] = one


@inner
def merge_runs(net: Net, items: Records, count: int) -> None:
    """Order `net.ranked`: insertion in short runs, then merges of twice as long ones."""
    for begin in range(0, count, RUN):
        insert(net, items, begin, min(begin + RUN, count))
    width = RUN
    while width < count:
        for begin in range(0, count - width, 2 * width):
            merge(net, items, begin, begin + width, min(begin + 2 * width, count))
        width *= 2


@inner
def merge(net: Net, items: Records, low: int, middle: int, high: int) -> None:
    """Merge two runs that lie one behind the other; `net.spare` keeps the first one meanwhile."""
    ranked, kept = net.ranked, net.spare
    if ranked[middle - 1].at_s < ranked[middle].at_s:
        return
    for k in range(low, middle):
        kept[k] = ranked[k]
    a, b, at = low, middle, low
    while a < middle and b < high:
        if behind(items, kept[a], ranked[b]):
            ranked[at] = ranked[b]
            b += 1
        else:
            ranked[at] = kept[a]
            a += 1
        at += 1
    while a < middle:
        ranked[at] = kept[a]
        a += 1
        at += 1


@inner
def by_place(net: Net, items: Records, count: int, places: int) -> None:
    """What was sorted goes into `net.spare`, by place, then by time.

    Those of place p are from `net.starts[p]` to `net.starts[p + 1]`.
    """
    starts = net.starts
    for p in range(places + 2):
        starts[p] = 0
    for k in range(count):
        starts[items[net.ranked[k].slot].place + 2] += 1
    for p in range(places):
        starts[p + 2] += starts[p + 1]
    for k in range(count):  # starts[p + 1] moves from the begin of p to its end
        p = items[net.ranked[k].slot].place
        net.spare[starts[p + 1]] = net.ranked[k]
        starts[p + 1] += 1
