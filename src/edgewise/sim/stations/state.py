"""The arrays of an event-driven world: what changes (`StationWorld`) and what does not (`GraphTables`).

Everything is a numpy record array or a plain array, so a world is copied, stacked and advanced
inside compiled code without a Python object in sight. Counters live in `clock`, one record.
Every `@kernel` freezes the constants of this module: naming it here makes the cache notice edits.
"""

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Ints, Records


def _codes(count: int, first: int = 0) -> Any:
    """Consecutive codes; numpy integers, because numba compiles a kernel anew for every literal."""
    return tuple(np.int64(code) for code in range(first, first + count))


NONE, FIRST_HOP = _codes(2, -1)
# Disciplines, laws of the noise on work, and whether a station works.
FIFO, EDF, PS, OLDEST = _codes(4)
FIXED, EXPONENTIAL, NORMAL, LOGNORMAL = _codes(4)
DOWN, UP, DRAINING = _codes(3)
# What happens to work in service when its station goes down.
RESUME, RESTART, LOSE = _codes(3)
# Kinds of events.
FINISH, SHARED, ONWARD, RENEGE, GATHER, WAKE, APPEAR = _codes(7)
# Kinds of timeline changes.
TO_RATE, TO_DOWN, TO_UP, TO_DRAINING, TO_APPEAR = _codes(5)
# How a query ends.
OPEN, DONE, DROPPED, RENEGED, LOST, REJECTED = _codes(6)
# Why `advance` returns.
REACHED, DECISION, GROW, NO_ROUTE, NO_STATION, SENT = _codes(6)
# What grows as a run goes on, and the parts of `StationWorld` that do so together.
GROWING = {
    "events": ("events",),
    "items": ("items",),
    "flights": ("flights", "placement", "missing"),
    "log": ("log",),
}
SHORT_OF = ("", *GROWING)
NOTHING, EVENTS, ITEMS, FLIGHTS, LOGGED = _codes(5)

CLOCK = np.dtype(
    [
        ("now_s", "f8"), ("seed", "u8"), ("events", "i8"), ("order", "i8"), ("query", "i8"), ("change", "i8"),
        ("item_free", "i8"), ("items", "i8"), ("flight_free", "i8"), ("flights", "i8"), ("logged", "i8"),
        ("logging", "i8"), ("pending", "i8"), ("error", "i8"), ("steps", "i8"), ("sent", "i8"),
        ("short", "i8"),
    ],
    align=True,
)  # fmt: skip
"""One record of counters: `query` and `change` are the next ones to come, `items` and `flights` are
in use, `*_free` head their free lists, `pending` is the flight that waits for a placement (-1 none),
`steps` counts events and arrivals, `sent` items at wired stations that nobody has taken yet,
`short` what has no room for one more step, an index of `SHORT_OF`."""

ITEM = np.dtype(
    [
        ("amount", "f8"), ("key", "f8"), ("enter_s", "f8"), ("start_s", "f8"), ("order", "i8"),
        ("flight", "i8"), ("what", "i8"), ("hop", "i8"), ("route", "i8"), ("station", "i8"),
        ("holder", "i8"), ("next", "i8"), ("left", "i8"), ("right", "i8"), ("gone", "i8"), ("stamp", "i8"),
    ],
    align=True,
)  # fmt: skip
"""A piece of work at one station: task `what` (hop -1), or edge `what` at hop `hop` of its route.
`holder` is the server it still occupies upstream while it waits outside (-1 none)."""

STATION = np.dtype(
    [
        ("rate", "f8"), ("batch_timeout_s", "f8"), ("batch_slope", "f8"), ("deviation", "f8"),
        ("log_deviation", "f8"), ("delay_s", "f8"), ("delay_deviation_s", "f8"), ("start_delay_s", "f8"),
        ("room", "i8"),
        ("discipline", "i8"), ("servers", "i8"), ("batch", "i8"), ("law", "i8"), ("mode", "i8"),
        ("on_down", "i8"), ("drop_waiting", "i8"), ("drop_full", "i8"), ("renege", "i8"), ("place", "i8"),
        ("head", "i8"), ("tail", "i8"), ("outside_head", "i8"), ("outside_tail", "i8"), ("root", "i8"),
        ("idle", "i8"), ("slot", "i8"), ("waking", "i8"), ("wired", "i8"),
        ("waiting", "i8"), ("serving", "i8"), ("inside", "i8"), ("stamp", "i8"), ("mode_stamp", "i8"),
        ("gather_s", "f8"), ("attained", "f8"), ("attained_s", "f8"), ("area_s", "f8"),
        ("number_s", "f8"), ("busy_s", "f8"), ("served", "i8"), ("failed", "i8"),
    ],
    align=True,
)  # fmt: skip
"""Settings, then lines (`head` of the FIFO list or root of the ordered heap, `outside` those without
room, `root` the jobs of a processor-sharing station; `wired`: links outside carry what waits), then
tallies up to `area_s`: `number_s` is the
time integral of items inside, `busy_s` of busy servers."""

SLOT = np.dtype(
    [
        ("remaining", "f8"), ("amount", "f8"), ("since_s", "f8"), ("start_s", "f8"), ("stamp", "i8"),
        ("leader", "i8"), ("blocked", "i8"), ("next", "i8"), ("station", "i8"),
    ],
    align=True,
)  # fmt: skip
"""A server: the batch it works on (`leader`, linked by `next`), work left at `since_s`; `blocked`
counts outputs that wait for room downstream."""

FLIGHT = np.dtype(
    [("scale", "f8"), ("deadline_s", "f8"), ("query", "i8"), ("graph", "i8"), ("source", "i8"),
     ("refs", "i8"), ("outcome", "i8"), ("next", "i8")],
    align=True,
)  # fmt: skip
"""A query under way; over when nothing refers to it (`refs` items)."""

QUERY = np.dtype(
    [("sent_s", "f8"), ("deadline_s", "f8"), ("scale", "f8"), ("done_s", "f8"), ("graph", "i8"),
     ("source", "i8"), ("row", "i8"), ("outcome", "i8")],
    align=True,
)  # fmt: skip
"""A query of the run: `deadline_s` after `sent_s`, `row` of `mapped` that places it (-1: decide)."""

CHANGE = np.dtype([("at_s", "f8"), ("value", "f8"), ("station", "i8"), ("kind", "i8")], align=True)

LOG = np.dtype(
    [("enter_s", "f8"), ("start_s", "f8"), ("finish_s", "f8"), ("query", "i8"), ("what", "i8"),
     ("hop", "i8"), ("station", "i8")],
    align=True,
)  # fmt: skip
"""One service: task `what` (hop -1) or edge `what` at hop `hop`."""

GRAPH = np.dtype([("task", "i8"), ("tasks", "i8"), ("entry", "i8"), ("entries", "i8")], align=True)
TASK = np.dtype([("work", "f8"), ("inputs", "i8"), ("out", "i8"), ("outs", "i8")], align=True)
EDGE = np.dtype([("amount", "f8"), ("source", "i8"), ("target", "i8"), ("route", "i8")], align=True)


class StationWorld(NamedTuple):
    """All that changes, and this world's own queries.

    Attributes:
        clock: (1,) CLOCK.
        events: a heap of EVENT.
        items: a pool of ITEM.
        flights: a pool of FLIGHT.
        placement: (flights, most tasks) station of each task.
        missing: (flights, most tasks) inputs that each task still lacks.
        queries: (Q,) QUERY.
        mapped: (rows, most tasks) placements that were given in advance.
        stations: (stations,) STATION.
        slots: a pool of SLOT.
        changes: a pool of CHANGE.
        log: LOG of every service, where it is asked for.
    """

    clock: Records
    events: Records
    items: Records
    flights: Records
    placement: Ints
    missing: Ints
    queries: Records
    mapped: Ints
    stations: Records
    slots: Records
    changes: Records
    log: Records


class GraphTables(NamedTuple):
    """What never changes: graphs, tasks, edges, routes.

    `route_of` (places, places) is the route between two places or -1; the stations of route r are
    `hops[route_first[r]:route_first[r + 1]]`. A step makes at most `slack` items or events.
    """

    graphs: Records
    tasks: Records
    edges: Records
    route_of: Ints
    route_first: Ints
    hops: Ints
    slack: int
