"""The one heap of every event-driven loop, and the mergeable one for what has many lines in one pool.

**Events** lie in an array of records, the first in front, as a binary heap. A record has the fields `at_s`
and `order`, and whatever else its loop wants. It comes out by `at_s`; of two at one time, the one of less
`order` does. No two have both alike, so what comes out next never depends on how the heap was made. What
`order` holds is the loop's rule for one instant: a count of what was pushed, a rank in the high bits before
it, or whose the event is. A loop keeps by itself how many there are, makes sure of room, and writes its own
fields into the place that `rise` or `sink` returns.

**Items** that wait lie in one pool whatever line they are in, and lines are many and of no known length: an
array for each would have to be as long as the pool. So they hang together by their numbers, as skew heaps.

Both live in record arrays, so a world is copied with its arrays and compiled kernels use it in place.
Forbidden here: any idea of what an event or an item means.
"""

from edgewise.arrays import Records
from edgewise.kernels.compiled import inner


@inner
def rise(events: Records, count: int, at_s: float, order: int) -> int:
    """Add an event to a heap of `count`, which has room for it; returns its place."""
    at = count
    while at > 0:
        up = (at - 1) >> 1
        e = events[up]
        if e.at_s < at_s or (e.at_s == at_s and e.order < order):
            break
        events[at] = e
        at = up
    events[at].at_s, events[at].order = at_s, order
    return at


@inner
def sink(events: Records, count: int, at_s: float, order: int) -> int:
    """Put an event into a heap of `count` instead of its first; returns its place."""
    at, child = 0, 1
    while child < count:
        e, other = events[child], child + 1
        if other < count:
            o = events[other]
            if o.at_s < e.at_s or (o.at_s == e.at_s and o.order < e.order):
                child, e = other, o
        if at_s < e.at_s or (at_s == e.at_s and order < e.order):
            break
        events[at] = e
        at, child = child, 2 * child + 1
    events[at].at_s, events[at].order = at_s, order
    return at


@inner
def drop_first(events: Records, count: int) -> None:
    """Remove the first event; `count` are left."""
    last = events[count]
    events[sink(events, count, last.at_s, last.order)] = last


@inner
def _before(items: Records, a: int, b: int) -> bool:
    x, y = items[a], items[b]
    return bool(x.key < y.key or (x.key == y.key and x.order < y.order))


@inner
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


@inner
def without_root(items: Records, root: int) -> int:
    """Root of what is left when the least item is taken out."""
    return merge(items, items[root].left, items[root].right)
