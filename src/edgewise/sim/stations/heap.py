"""The two queues under every event-driven loop: the event heap and the mergeable item heap.

Both live in record arrays, so a world is copied with its arrays and compiled kernels use it in
place. Forbidden here: any idea of what an event or an item means.
"""

import numpy as np

from edgewise.arrays import Records
from edgewise.core.compiled import kernel

EVENT = np.dtype(
    [("at_s", "f8"), ("order", "i8"), ("kind", "i8"), ("who", "i8"), ("stamp", "i8")], align=True
)


@kernel
def push_event(clock: Records, events: Records, at_s: float, kind: int, who: int, stamp: int) -> None:
    """Add an event; of two at the same time the one pushed first comes out first.

    Args:
        clock: (1,) with the fields `events` (how many there are) and `order` (pushes so far).
        events: (capacity,) EVENT, a binary heap on (at_s, order). The caller has made sure of room.
    """
    c = clock[0]
    at, order = c.events, c.order
    c.events, c.order = at + 1, order + 1
    while at > 0:
        up = (at - 1) >> 1
        if events[up].at_s <= at_s:  # a tie stays below: its order is larger
            break
        events[at] = events[up]
        at = up
    e = events[at]
    e.at_s, e.order, e.kind, e.who, e.stamp = at_s, order, kind, who, stamp


@kernel
def drop_first_event(clock: Records, events: Records) -> None:
    """Remove the earliest event, `events[0]`."""
    c = clock[0]
    size = c.events - 1
    c.events = size
    last_s, order = events[size].at_s, events[size].order
    at, child = 0, 1
    while child < size:
        other = child + 1
        if other < size and (
            events[other].at_s < events[child].at_s
            or (events[other].at_s == events[child].at_s and events[other].order < events[child].order)
        ):
            child = other
        if last_s < events[child].at_s or (last_s == events[child].at_s and order < events[child].order):
            break
        events[at] = events[child]
        at, child = child, 2 * child + 1
    events[at] = events[size]


@kernel
def _before(items: Records, a: int, b: int) -> bool:
    x, y = items[a], items[b]
    return bool(x.key < y.key or (x.key == y.key and x.order < y.order))


@kernel
def merge(items: Records, a: int, b: int) -> int:
    """Merge two skew heaps of items (Sleator and Tarjan) on (key, order); returns the new root.

    Args:
        items: (n,) with the fields key, order, left, right; a child or a root of -1 is none.
        a, b: their roots.
    """
    if a < 0:
        return b
    if b < 0:
        return a
    if _before(items, b, a):
        a, b = b, a
    root = a
    while True:
        right = items[a].right
        items[a].right = items[a].left
        if right < 0:
            items[a].left = b
            return root
        if _before(items, b, right):
            right, b = b, right
        items[a].left = right
        a = right


@kernel
def without_root(items: Records, root: int) -> int:
    """Root of what is left when the least item is taken out."""
    return merge(items, items[root].left, items[root].right)
