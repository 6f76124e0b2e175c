"""What is to happen to requests, as a heap, compiled."""

from __future__ import annotations

from typing import Any

from edgewise.core.compiled import kernel
from edgewise.sim.requests.state import ORDER, RequestRun


@kernel
def push(x: RequestRun, at_s: float, kind: int, who: int) -> None:
    """Something happens then."""
    c, events = x.clock[0], x.events
    at = c.events
    c.events += 1
    c.number += 1
    c.calm_s = min(c.calm_s, at_s)
    while at > 0:
        up = (at - 1) >> 1
        e = events[up]
        if e.at_s < at_s or (e.at_s == at_s and ORDER[e.kind] <= ORDER[kind]):  # its number is less
            break
        events[at] = e
        at = up
    e = events[at]
    e.at_s, e.number, e.kind, e.who, c.at = at_s, c.number, kind, who, at


@kernel
def drop_first(x: RequestRun) -> None:
    """The first event has happened."""
    c, events = x.clock[0], x.events
    c.events -= 1
    size, at, child = c.events, 0, 1
    while child < size:
        if child + 1 < size and before(events[child + 1], events[child]):
            child += 1
        if before(events[size], events[child]):
            break
        events[at] = events[child]
        at, child = child, 2 * child + 1
    events[at] = events[size]


@kernel
def before(one: Any, other: Any) -> bool:
    """Whether an event happens before another."""
    if one.at_s != other.at_s:
        return bool(one.at_s < other.at_s)
    if ORDER[one.kind] != ORDER[other.kind]:
        return bool(ORDER[one.kind] < ORDER[other.kind])
    return bool(one.number < other.number)
