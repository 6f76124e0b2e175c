"""The streams of a worker as a binary heap, by when their next query arrives there."""

from typing import Any

from edgewise.arrays import Ints
from edgewise.core.compiled import kernel


@kernel(allocates=False)
def before(s: Any, a: int, b: int) -> bool:
    """Whether stream `a`'s query arrives before stream `b`'s; ties by position."""
    x, y = s[a].arrival_s, s[b].arrival_s
    return bool(x < y or (x == y and a < b))


@kernel(allocates=False)
def push(heap: Ints, size: int, i: int, s: Any) -> int:
    """Add stream `i` to a binary heap ordered by (arrival, position); returns the new size."""
    heap[size] = i
    at = size
    while at > 0:
        up = (at - 1) // 2
        a, b = heap[at], heap[up]
        if before(s, a, b):
            heap[at], heap[up] = b, a
            at = up
        else:
            break
    return size + 1


@kernel(allocates=False)
def sift(heap: Ints, size: int, s: Any) -> None:
    """Restore the heap after its root's arrival grew."""
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size:
                a, b = heap[child], heap[least]
                if before(s, a, b):
                    least = child
        if least == at:
            return
        heap[at], heap[least] = heap[least], heap[at]
        at = least
