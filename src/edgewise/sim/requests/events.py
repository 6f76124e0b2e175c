"""What is to happen to requests: at one time by kind, see `ORDER`, then as it was pushed."""

from __future__ import annotations

from edgewise.kernels.compiled import kernel
from edgewise.sim import heap
from edgewise.sim.requests.state import ORDER, RequestRun

RANK_BITS = 48  # of an event's `order`, where its kind's rank begins; a run never pushes 2^48 events


@kernel
def push(x: RequestRun, at_s: float, kind: int, who: int) -> None:
    """Something happens then."""
    c = x.clock[0]
    c.number += 1
    c.calm_s = min(c.calm_s, at_s)
    c.at = heap.rise(x.events, c.events, at_s, (ORDER[kind] << RANK_BITS) + c.number)
    c.events += 1
    e = x.events[c.at]
    e.kind, e.who = kind, who


@kernel
def drop_first(x: RequestRun) -> None:
    """The first event has happened."""
    c = x.clock[0]
    c.events -= 1
    heap.drop_first(x.events, c.events)
