"""The event loop over stations and task graphs, compiled.

`advance` runs one world to a time, or until a query needs a placement, or until an array is full.
It may be stopped anywhere between two events and go on later: the result is the same.
At one instant, events come first, then timeline changes, then queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from edgewise.arrays import Records
from edgewise.kernels.compiled import held, kernel
from edgewise.sim.stations.changes import apply_change, set_mode
from edgewise.sim.stations.events import drop_first_event, push_event
from edgewise.sim.stations.items import (
    account,
    discard,
    end,
    new_item,
    propagation,
    release_flight,
    write_log,
)
from edgewise.sim.stations.state import (
    DECISION,
    DROPPED,
    EVENTS,
    FINISH,
    FIRST_HOP,
    FLIGHTS,
    GATHER,
    GROW,
    ITEMS,
    LOGGED,
    NO_ROUTE,
    NO_STATION,
    NONE,
    NOTHING,
    ONWARD,
    OPEN,
    REACHED,
    REJECTED,
    RENEGE,
    SENT,
    SHARED,
    UP,
    WAKE,
    GraphTables,
    StationWorld,
)
from edgewise.sim.stations.stations import (
    arrive,
    fail,
    leave_shared,
    let_in,
    release_server,
    renege,
    serve,
    unblock,
)

# --- queries through their task graph ----------------------------------------------------------


@kernel
def send(p: GraphTables, world: StationWorld, f: int, e: int, holder: int) -> None:
    """Send the data of edge `e` on its way; between tasks at one place it is there at once."""
    edge, flight = p.edges[e], world.flights[f]
    source = flight.source if edge.source < 0 else world.stations[world.placement[f, edge.source]].place
    target = flight.source if edge.target < 0 else world.stations[world.placement[f, edge.target]].place
    if source < 0 or target < 0 or source == target:
        deliver(p, world, f, e, holder)
        return
    route = edge.route if edge.route >= 0 else p.route_of[source, target]
    if route < 0:
        world.clock[0].error = NO_ROUTE
    elif p.route_first[route] == p.route_first[route + 1]:
        deliver(p, world, f, e, holder)
    else:
        i = new_item(world, f, e, FIRST_HOP, edge.amount)
        world.items[i].route = route
        arrive(world, i, p.hops[p.route_first[route]], holder)


@kernel
def deliver(p: GraphTables, world: StationWorld, f: int, e: int, holder: int) -> None:
    """Hand the data of edge `e` over; a task with all its inputs arrives at its station."""
    t = p.edges[e].target
    if t < 0:
        return
    world.missing[f, t] -= 1
    if world.missing[f, t] == 0:
        submit(p, world, f, t, holder)


@kernel
def submit(p: GraphTables, world: StationWorld, f: int, t: int, holder: int) -> None:
    """Bring task `t` to the station it is placed on."""
    flight = world.flights[f]
    work = p.tasks[p.graphs[flight.graph].task + t].work * flight.scale
    arrive(world, new_item(world, f, t, NONE, work), world.placement[f, t], holder)


@kernel
def onward(p: GraphTables, world: StationWorld, i: int, holder: int) -> None:
    """An item has been served: to the next hop, to the next tasks, or away with a failed query."""
    item = world.items[i]
    f = item.flight
    if world.flights[f].outcome != OPEN:
        discard(world, i)
    elif item.gone:  # dropped by links outside
        fail(world, item.station, i, DROPPED)
    elif item.hop < 0:
        task = p.tasks[p.graphs[world.flights[f].graph].task + item.what]
        for e in range(task.out, task.out + task.outs):
            send(p, world, f, e, holder)
        discard(world, i)
    else:
        at = p.route_first[item.route] + item.hop + 1
        if at < p.route_first[item.route + 1]:
            item.hop += 1
            item.stamp += 1
            arrive(world, i, p.hops[at], holder)
        else:
            deliver(p, world, f, item.what, holder)
            discard(world, i)


@kernel
def open_flight(p: GraphTables, world: StationWorld) -> int:
    """Begin the next query of the run; its placement is copied if it was given in advance."""
    c = world.clock[0]
    q = c.query
    c.query += 1
    f = c.flight_free
    flight, query = world.flights[f], world.queries[q]
    c.flight_free = flight.next
    c.flights += 1
    flight.query, flight.graph, flight.source = q, query.graph, query.source
    flight.scale, flight.deadline_s = query.scale, query.sent_s + query.deadline_s
    flight.refs, flight.outcome = 1, OPEN
    graph = p.graphs[query.graph]
    for t in range(graph.tasks):
        world.missing[f, t] = p.tasks[graph.task + t].inputs
        world.placement[f, t] = world.mapped[query.row, t] if query.row >= 0 else -1
    return int(f)


@kernel
def launch(p: GraphTables, world: StationWorld, f: int) -> None:
    """Send a placed query on its way; a first task placed on -1 means it is rejected."""
    graph = p.graphs[world.flights[f].graph]
    if world.placement[f, 0] == -1:
        end(world, f, REJECTED)
    else:
        for t in range(graph.tasks):
            if not 0 <= world.placement[f, t] < world.stations.size:
                world.clock[0].error = NO_STATION
                return
        for t in range(graph.tasks):
            if world.missing[f, t] == 0:
                submit(p, world, f, t, NONE)
        for e in range(graph.entry, graph.entry + graph.entries):
            send(p, world, f, e, NONE)
    release_flight(world, f)


# --- events ------------------------------------------------------------------------------------


@kernel
def finish(p: GraphTables, world: StationWorld, k: int) -> None:
    """A server finishes its batch; it stays occupied while an output finds no room."""
    slot = world.slots[k]
    s = slot.station
    st = world.stations[s]
    account(st, world.clock[0].now_s)
    st.serving -= 1
    i = slot.leader
    slot.leader = -1
    slot.blocked = 0
    while i >= 0:
        following = world.items[i].next
        st.inside -= 1
        depart(p, world, s, i, k, slot.start_s)
        i = following
    if slot.blocked == 0:
        release_server(world, k)


@kernel
def depart(p: GraphTables, world: StationWorld, s: int, i: int, holder: int, start_s: float) -> None:
    """An item leaves a station, if need be over the propagation delay."""
    world.stations[s].served += 1
    write_log(world, i, start_s)
    delay_s = propagation(world, s, i)
    if delay_s > 0.0:
        push_event(world.clock, world.events, world.clock[0].now_s + delay_s, ONWARD, i, NONE)
    else:
        onward(p, world, i, holder)


@kernel
def handle(
    p: GraphTables, world: StationWorld, kind: int, who: int, stamp: int, changes: Records | None
) -> None:
    """Carry out one event, unless it is stale."""
    if kind == FINISH:
        if world.slots[who].stamp == stamp and world.slots[who].leader >= 0:
            finish(p, world, who)
    elif kind == ONWARD:
        onward(p, world, who, stamp)  # the server it kept, or none
        unblock(world, stamp)
    elif kind == SHARED:
        if world.stations[who].stamp == stamp:
            i = leave_shared(world, who)
            depart(p, world, who, i, NONE, world.items[i].start_s)
    elif kind == RENEGE:
        renege(world, who, stamp)
    elif kind == GATHER:
        serve(world, who)
    elif kind == WAKE:
        let_in(world, who)
    elif changes is not None and world.stations[who].mode_stamp == stamp:  # APPEAR
        set_mode(world, who, UP)


@kernel
def short(p: GraphTables, world: StationWorld) -> int:
    """What might have no room for one more step, an index of `SHORT_OF`."""
    c = world.clock[0]
    if c.events + p.slack > world.events.size:
        return int(EVENTS)
    if c.items + p.slack > world.items.size:
        return int(ITEMS)
    if c.flights + 1 > world.flights.size:
        return int(FLIGHTS)
    if c.logging and c.logged + p.slack > world.log.size:
        return int(LOGGED)
    return int(NOTHING)


@kernel
def advance_held(p: GraphTables, world: StationWorld, until_s: float, changes: Records | None) -> int:
    """`advance` on a held world; for loops with their own decide function built in.

    `changes` are the world's, or None where there will be none: what carries them out is then not compiled.
    """
    c = world.clock[0]
    if c.pending >= 0:
        f = c.pending
        c.pending = -1
        launch(p, world, f)
    while True:
        if c.error:
            return int(c.error)
        if c.sent:
            return int(SENT)
        c.short = short(p, world)
        if c.short:
            return int(GROW)
        event_s = world.events[0].at_s if c.events > 0 else math.inf
        change_s = math.inf
        if changes is not None and c.change < changes.size:
            change_s = changes[c.change].at_s
        query_s = world.queries[c.query].sent_s if c.query < world.queries.size else math.inf
        first_s = min(event_s, change_s, query_s)
        if first_s > until_s or first_s == math.inf:
            if until_s < math.inf:
                c.now_s = max(c.now_s, until_s)
            return int(REACHED)
        c.now_s = first_s
        c.steps += 1
        if event_s == first_s:
            e = world.events[0]
            kind, who, stamp = e.kind, e.who, e.stamp
            drop_first_event(world.clock, world.events)
            handle(p, world, kind, who, stamp, changes)
        elif change_s > first_s:
            f = open_flight(p, world)
            if world.placement[f, 0] < 0:
                c.pending = f
                return int(DECISION)
            launch(p, world, f)
        elif changes is not None:
            c.change += 1
            apply_change(world, c.change - 1)


@kernel
def advance(plan: GraphTables, world: StationWorld, until_s: float) -> int:
    """Run everything up to and at `until_s`.

    Returns:
        REACHED; DECISION: flight `clock.pending` waits for its row of `placement`; GROW: enlarge the
        arrays and call again; NO_ROUTE or NO_STATION: a placement cannot be carried out; SENT: items wait
        at wired stations, see `sim.stations.wired`.
    """
    return advance_held(held(plan), held(world), until_s, world.changes)


Decide = Callable[[GraphTables, StationWorld, int, Any], None]


@kernel
def advance_deciding(
    plan: GraphTables, world: StationWorld, until_s: float, decide: Decide, memory: Any
) -> int:
    """`advance`, where a compiled `decide(plan, world, flight, memory)` writes the placements."""
    p, x = held(plan), held(world)
    while True:
        status = advance_held(p, x, until_s, world.changes)
        if status != DECISION:
            return status
        decide(p, x, x.clock[0].pending, memory)
