"""Queries of split models that leave their servers and begin anew elsewhere, as `SplitCore` says.

All that was done of such a query is done in vain: what is on a link stays there to its end, and so does what
a server that is up works on; what waits is thrown away when its turn comes. This happens seldom, so it is
plain Python on the arrays of a world.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Ints
from edgewise.sim.stations import state as k
from edgewise.sim.stations.items import account, discard


class Left(NamedTuple):
    """A task of a query that has not ended.

    Attributes:
        station, work: where it is or was to be done, and how much it is.
        runs: that station is up and works on it, to its end whatever becomes of the query.
    """

    station: int
    work: float
    runs: bool


def queries_at(world: k.StationWorld, plan: k.GraphTables, station: int) -> list[int]:
    """Flights of queries that a station has a task of still to do, or is doing; the oldest query first."""
    found = [f for f in _open(world) if any(left.station == station for left in left_of(world, plan, f))]
    return sorted(found, key=lambda f: int(world.flights.query[f]))


def left_of(world: k.StationWorld, plan: k.GraphTables, flight: int) -> list[Left]:
    """The tasks of a query that have not ended."""
    used = _used(world)
    mine = used[(world.items.flight[used] == flight) & (world.items.hop[used] < 0)]
    begun = set(world.items.what[mine].tolist())
    at_work = {int(slot.leader) for slot in world.slots if world.stations[slot.station].mode == k.UP}
    runs = set(world.items.what[[i for i in mine.tolist() if i in at_work]].tolist())
    graph = plan.graphs[world.flights[flight].graph]
    tasks = [t for t in range(int(graph.tasks)) if world.missing[flight, t] > 0 or t in begun]
    work = plan.tasks.work[int(graph.task) : int(graph.task + graph.tasks)] * world.flights[flight].scale
    return [Left(int(world.placement[flight, t]), float(work[t]), t in runs) for t in tasks]


def leave(world: k.StationWorld, flight: int) -> None:
    """Whatever a query has at stations is done in vain, or not at all; stations that are down let it go."""
    world.flights[flight].outcome = k.LOST  # of the flight alone: the query goes on
    for slot in np.flatnonzero(world.slots.leader >= 0).tolist():
        leader, station = int(world.slots[slot].leader), int(world.slots[slot].station)
        if world.items[leader].flight == flight and world.stations[station].mode == k.DOWN:
            _let_go(world, slot)


def begin_anew(world: k.StationWorld, plan: k.GraphTables, flight: int, stations: Ints) -> None:
    """Let the query of a flight that has left begin on other stations; the next `advance` sends it.

    There must be room for a flight, and nobody must wait for a placement.
    """
    c, old = world.clock[0], world.flights[flight].copy()
    assert c.pending < 0 and c.flights < world.flights.size
    fresh = int(c.flight_free)
    c.flight_free = world.flights[fresh].next
    c.flights += 1
    world.flights[fresh] = old
    world.flights[fresh].refs, world.flights[fresh].outcome = 1, k.OPEN
    graph = plan.graphs[old.graph]
    first, many = int(graph.task), int(graph.tasks)
    world.missing[fresh, :many] = plan.tasks.inputs[first : first + many]
    world.placement[fresh, :many] = stations
    c.pending = fresh


def _open(world: k.StationWorld) -> list[int]:
    """Flights of queries that are under way."""
    return np.flatnonzero((world.flights.refs > 0) & (world.flights.outcome == k.OPEN)).tolist()


def _used(world: k.StationWorld) -> Ints:
    """Numbers of the items that are in use."""
    used, at = np.ones(world.items.size, dtype=np.bool_), int(world.clock[0].item_free)
    while 0 <= at < world.items.size:
        used[at], at = False, int(world.items[at].next)
    return np.flatnonzero(used)


def _let_go(world: k.StationWorld, slot: int) -> None:
    """The work of a server that stands still is thrown away."""
    server = world.slots[slot]
    st, i = world.stations[server.station], int(server.leader)
    account(st, world.clock[0].now_s)
    server.leader, server.next = -1, st.idle
    st.idle = slot
    server.stamp += 1
    st.serving -= 1
    while i >= 0:
        following = int(world.items[i].next)
        st.inside -= 1
        discard(world, i)
        i = following
