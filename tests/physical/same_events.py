"""Whether two cores were told the same and said the same, but for order at one time and rounding."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from edgewise.core.dispatch.events import ReservedElsewhere, StreamOpened

TOLERANCE = 1e-9


def without_repetition(log: list[Any], until_s: float) -> list[Any]:
    """Events up to a time with their commands, in order; without what a worker says again.

    Events at one time that come over networks have no order: here it is that of their kinds and figures.
    """
    said: dict[int, float] = {}
    kept = []
    for event, commands in log:
        if event.time_s >= until_s:
            continue
        if isinstance(event, ReservedElsewhere):
            before, said[event.worker] = said.get(event.worker, 0.0), event.load_qps
            if abs(before - event.load_qps) <= TOLERANCE:
                continue
        kept.append((event, commands))
    return sorted(kept, key=_order)


def _order(each: Any) -> Any:
    event, _ = each
    return round(event.time_s, 7), type(event).__name__, *figures(event)[1:3]


def match_rate(one: list[Any], other: list[Any]) -> float:
    """Share of events, in order, that are equal and have equal commands; the first others are printed."""
    pairs = list(zip(one, other, strict=False))
    differ = [pair for pair in pairs if not _alike(*pair)]
    for expected, found in differ[:3]:
        print(f"simulated {expected}\nlive      {found}")
    more = abs(len(one) - len(other))
    return 1.0 - (len(differ) + more) / max(len(one), len(other), 1)


def _alike(one: Any, other: Any) -> bool:
    a, b = figures(one[0]), figures(other[0])
    alike = type(one[0]) is type(other[0]) and one[1] == other[1] and names(one[0]) == names(other[0])
    return alike and len(a) == len(b) and bool(np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE))


def names(event: Any) -> list[str]:
    """All that an event says in words."""
    values = event if isinstance(event, tuple) else ()
    return [value for value in values if isinstance(value, str)]


def figures(event: Any) -> list[float]:
    """All that an event says, as numbers; of a stream its number: live, nobody knows when it will close."""
    if isinstance(event, StreamOpened):
        return [event.time_s, event.stream.id]
    found: list[float] = []
    values = [getattr(event, each.name) for each in fields(event)] if is_dataclass(event) else event
    for value in values:
        if is_dataclass(value):
            found += figures(value)
        elif value is not None and not isinstance(value, str):
            found += np.ravel(value).astype(float).tolist()
    return found


def share_alike(one: list[Any], other: list[Any]) -> float:
    """`match_rate` of what is plain already."""
    differ = [pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]]
    for expected, found in differ[:3]:
        print(f"simulated {expected}\nlive      {found}")
    return 1.0 - (len(differ) + abs(len(one) - len(other))) / max(len(one), len(other), 1)
