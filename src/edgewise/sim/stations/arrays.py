"""Making and enlarging the arrays of a world."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgewise.arrays import Ints, Records, records
from edgewise.errors import ScenarioError
from edgewise.sim.stations import state as k
from edgewise.sim.stations.heap import EVENT
from edgewise.sim.stations.network import GraphClass, StationNetwork, station_records


def free_list(rows: Records, start: int, head: int) -> None:
    """Chain rows from `start` on into a free list that ends in `head`."""
    rows.next[start:] = np.arange(start + 1, rows.size + 1)
    rows.next[-1] = head


def longer(rows: Any, size: int) -> Any:
    """A copy with `size` rows, the new ones zero."""
    out = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)
    out[: len(rows)] = rows
    return out.view(type(rows))


def enlarged(world: k.StationWorld) -> k.StationWorld:
    """The same world in arrays with twice the rows, where rows are taken as they are needed."""
    c = world.clock[0]
    growing = ("events", "items", "flights", "placement", "missing", "log")
    more = world._replace(
        **{name: longer(getattr(world, name), 2 * len(getattr(world, name))) for name in growing}
    )
    for name, used in (("item", c.items), ("flight", c.flights)):
        rows, head = getattr(more, f"{name}s"), f"{name}_free"
        free_list(rows, rows.size // 2, int(c[head]) if used < rows.size // 2 else -1)
        c[head] = rows.size // 2
    return more


def copied(world: k.StationWorld) -> k.StationWorld:
    """An independent copy."""
    return k.StationWorld._make(part.copy() for part in world)


def query_records(
    sent_s: ArrayLike,
    graph: ArrayLike,
    source: ArrayLike = -1,
    deadline_s: ArrayLike = np.inf,
    scale: ArrayLike = 1.0,
) -> Records:
    """(Q,) QUERY records, not yet placed."""
    times = np.atleast_1d(np.asarray(sent_s, dtype=np.float64))
    out = records((times.size,), k.QUERY)
    out.sent_s, out.graph, out.source = times, graph, source
    out.deadline_s, out.scale, out.done_s, out.row = deadline_s, scale, np.nan, -1
    return out


def check_queries(queries: Records, classes: int, places: int) -> None:
    """Raise ScenarioError unless times ascend and classes and places exist."""
    if np.any(np.diff(queries.sent_s) < 0):
        raise ScenarioError("sent_s must be ascending; sort the queries")
    for name, low, high in (("graph", 0, classes), ("source", -1, places)):
        values = queries[name]
        wrong = np.flatnonzero((values < low) | (values >= high))
        if wrong.size:
            raise ScenarioError(f"{name} of query {wrong[0]} is {values[wrong[0]]}; use {low}..{high - 1}")


def placement_rows(
    placement: ArrayLike | None, queries: Records, classes: Sequence[GraphClass], stations: int
) -> Ints:
    """Rows of placements, and in `queries` which row is whose."""
    tasks = max(len(c.graph.tasks) for c in classes)
    if placement is None:
        return np.zeros((0, tasks), dtype=np.int64)
    rows = np.array(placement, dtype=np.int64, ndmin=2)
    if rows.shape == (len(classes), tasks):
        queries.row = queries.graph
    elif rows.shape == (queries.size, tasks):
        queries.row = np.arange(queries.size)
    else:
        raise ScenarioError(
            f"placement has shape {rows.shape}; use ({len(classes)}, {tasks}) or ({queries.size}, {tasks})"
        )
    if rows.size and not (rows.min() >= -1 and rows.max() < stations):
        raise ScenarioError(f"placement names a station outside 0..{stations - 1}")
    return rows


def new_world(
    network: StationNetwork,
    plan: k.GraphTables,
    queries: Records,
    mapped: Ints,
    tasks: int,
    seed: int,
    log: bool,
) -> k.StationWorld:
    """A world at time 0."""
    stations, slots = station_records(network)
    clock = records((1,), k.CLOCK)
    clock.pending, clock.logging, clock.seed = -1, log, seed & 0xFFFFFFFFFFFFFFFF
    items, flights = records((2 * plan.slack,), k.ITEM), records((64,), k.FLIGHT)
    free_list(items, 0, -1)
    free_list(flights, 0, -1)
    table = np.zeros((flights.size, tasks), dtype=np.int64)
    return k.StationWorld(
        clock, records((2 * plan.slack,), EVENT), items, flights, table, table.copy(), queries, mapped,
        stations, slots, records((0,), k.CHANGE), records((2 * plan.slack if log else 0,), k.LOG),
    )  # fmt: skip
