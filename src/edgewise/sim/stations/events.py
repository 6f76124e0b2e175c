"""Events of stations: those at one time come as they were pushed."""

import numpy as np

from edgewise.arrays import Records
from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import drop_first, rise

EVENT = np.dtype(
    [("at_s", "f8"), ("order", "i8"), ("kind", "i8"), ("who", "i8"), ("stamp", "i8")], align=True
)


@kernel
def push_event(clock: Records, events: Records, at_s: float, kind: int, who: int, stamp: int) -> None:
    """Add an event.

    Args:
        clock: (1,) with the fields `events` (how many there are) and `order` (pushes so far).
        events: (capacity,) EVENT, a heap. The caller has made sure of room.
    """
    c = clock[0]
    e = events[rise(events, c.events, at_s, c.order)]
    e.kind, e.who, e.stamp = kind, who, stamp
    c.events, c.order = c.events + 1, c.order + 1


@kernel
def drop_first_event(clock: Records, events: Records) -> None:
    """Remove the earliest event, `events[0]`."""
    c = clock[0]
    c.events -= 1
    drop_first(events, c.events)
