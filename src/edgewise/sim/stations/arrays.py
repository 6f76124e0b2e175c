"""Making and enlarging the arrays of a world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from edgewise.arrays import Ints
from edgewise.errors import ScenarioError
from edgewise.sim.stations import state as k
from edgewise.sim.stations.heap import EVENT, Records, records
from edgewise.sim.stations.network import GraphClass, StationNetwork, station_records


class Sizes(NamedTuple):
    """Rows of the arrays that may have to grow."""

    events: int
    items: int
    flights: int
    log: int


def free_list(rows: Records, start: int, head: int) -> None:
    """Chain rows from `start` on into a free list that ends in `head`."""
    rows.next[start:] = np.arange(start + 1, rows.size + 1)
    rows.next[-1] = head


def longer(rows: Any, size: int) -> Any:
    """A copy with `size` rows, the new ones zero."""
    out = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)
    out[: len(rows)] = rows
    return out.view(type(rows))


def sizes_of(w: k.StationWorld) -> Sizes:
    """The present sizes of a world."""
    return Sizes(w.events.shape[-1], w.items.shape[-1], w.flights.shape[-1], w.log.shape[-1])


def sizes_wanted(w: k.StationWorld, slack: int) -> Sizes:
    """Twice the size of whatever has no room for one more step."""
    c, now = w.clock[0], sizes_of(w)
    used = Sizes(c.events + slack, c.items + slack, c.flights + 1, (c.logged + slack) * (c.logging != 0))
    return Sizes(*(have if need <= have else 2 * int(need) for need, have in zip(used, now, strict=True)))


def enlarged(w: k.StationWorld, to: Sizes) -> k.StationWorld:
    """The same world in larger arrays; what is large enough is kept."""
    c, now = w.clock[0], sizes_of(w)
    if to.events > now.events:
        w = w._replace(events=longer(w.events, to.events))
    if to.log > now.log:
        w = w._replace(log=longer(w.log, to.log))
    if to.items > now.items:
        w = w._replace(items=longer(w.items, to.items))
        free_list(w.items, now.items, int(c.item_free) if c.items < now.items else -1)
        c.item_free = now.items
    if to.flights > now.flights:
        w = w._replace(
            flights=longer(w.flights, to.flights),
            placement=longer(w.placement, to.flights),
            missing=longer(w.missing, to.flights),
        )
        free_list(w.flights, now.flights, int(c.flight_free) if c.flights < now.flights else -1)
        c.flight_free = now.flights
    return w


def copied(w: k.StationWorld) -> k.StationWorld:
    """An independent copy."""
    return k.StationWorld(*(part.copy() for part in w))


def query_records(
    sent_s: ArrayLike, graph: ArrayLike, source: ArrayLike, deadline_s: ArrayLike, scale: ArrayLike
) -> Records:
    """(Q,) QUERY records, not yet placed."""
    times = np.atleast_1d(np.asarray(sent_s, dtype=np.float64))
    out = records(k.QUERY, times.size)
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
    clock = records(k.CLOCK, 1)
    clock.pending, clock.logging, clock.seed = -1, log, seed & 0xFFFFFFFFFFFFFFFF
    items, flights = records(k.ITEM, 2 * plan.slack), records(k.FLIGHT, 64)
    free_list(items, 0, -1)
    free_list(flights, 0, -1)
    table = np.zeros((flights.size, tasks), dtype=np.int64)
    return k.StationWorld(
        clock, records(EVENT, 2 * plan.slack), items, flights, table, table.copy(), queries, mapped,
        stations, slots, records(k.CHANGE, 0), records(k.LOG, 2 * plan.slack if log else 0),
    )  # fmt: skip
