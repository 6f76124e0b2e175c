"""Servers of a worker: which is free first, and whether that is soon enough."""

from typing import Any

from edgewise.kernels.compiled import kernel


@kernel(allocates=False)
def soonest(w: Any, servers: Any) -> int:
    """The server of worker `w` that is free first."""
    first = 0
    for c in range(1, w.servers):
        if servers[c].free_s < servers[first].free_s:
            first = c
    return first


@kernel(allocates=False)
def may_begin(q: Any, w: Any, servers: Any) -> bool:
    """Whether request `q`, which is next at worker `w`, can begin in time; else it is dropped then."""
    begin_s = max(q.arrival_s, servers[soonest(w, servers)].free_s)
    if begin_s > q.deadline_s:
        q.delay_max_s, q.rejected = begin_s, 1
    return bool(begin_s <= q.deadline_s)
