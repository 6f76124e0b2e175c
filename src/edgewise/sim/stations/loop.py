"""The event loop over stations and task graphs, compiled.

`advance` runs one world to a time, or until a query needs a placement, or until an array is full.
It may be stopped anywhere between two events and go on later: the result is the same.
At one instant, events come first, then timeline changes, then queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from edgewise.core.compiled import kernel
from edgewise.sim.stations.changes import apply_change, set_mode
from edgewise.sim.stations.heap import drop_first_event, push_event
from edgewise.sim.stations.held import HeldPlan, HeldWorld
from edgewise.sim.stations.items import (
    account,
    discard,
    end,
    new_item,
    propagation,
    release_flight,
    write_log,
)
from edgewise.sim.stations.sharing import leave_shared
from edgewise.sim.stations.state import (
    DECISION,
    FINISH,
    FIRST_HOP,
    GATHER,
    GROW,
    NO_ROUTE,
    NO_STATION,
    NONE,
    ONWARD,
    OPEN,
    REACHED,
    REJECTED,
    RENEGE,
    SHARED,
    UP,
    WAKE,
    GraphTables,
    StationWorld,
)
from edgewise.sim.stations.stations import arrive, let_in, release_server, renege, serve, unblock

# --- queries through their task graph ----------------------------------------------------------


@kernel
def send(p: GraphTables, w: StationWorld, f: int, e: int, holder: int) -> None:
    """Send the data of edge `e` on its way; between tasks at one place it is there at once."""
    edge, flight = p.edges[e], w.flights[f]
    source = flight.source if edge.source < 0 else w.stations[w.placement[f, edge.source]].place
    target = flight.source if edge.target < 0 else w.stations[w.placement[f, edge.target]].place
    if source < 0 or target < 0 or source == target:
        deliver(p, w, f, e, holder)
        return
    route = edge.route if edge.route >= 0 else p.route_of[source, target]
    if route < 0:
        w.clock[0].error = NO_ROUTE
    elif p.route_first[route] == p.route_first[route + 1]:
        deliver(p, w, f, e, holder)
    else:
        i = new_item(w, f, e, FIRST_HOP, edge.amount)
        w.items[i].route = route
        arrive(w, i, p.hops[p.route_first[route]], holder)


@kernel
def deliver(p: GraphTables, w: StationWorld, f: int, e: int, holder: int) -> None:
    """Hand the data of edge `e` over; a task with all its inputs arrives at its station."""
    t = p.edges[e].target
    if t < 0:
        return
    w.missing[f, t] -= 1
    if w.missing[f, t] == 0:
        submit(p, w, f, t, holder)


@kernel
def submit(p: GraphTables, w: StationWorld, f: int, t: int, holder: int) -> None:
    """Bring task `t` to the station it is placed on."""
    flight = w.flights[f]
    work = p.tasks[p.graphs[flight.graph].task + t].work * flight.scale
    arrive(w, new_item(w, f, t, NONE, work), w.placement[f, t], holder)


@kernel
def onward(p: GraphTables, w: StationWorld, i: int, holder: int) -> None:
    """An item has been served: to the next hop, to the next tasks, or away with a failed query."""
    item = w.items[i]
    f = item.flight
    if w.flights[f].outcome != OPEN:
        discard(w, i)
    elif item.hop < 0:
        task = p.tasks[p.graphs[w.flights[f].graph].task + item.what]
        for e in range(task.out, task.out + task.outs):
            send(p, w, f, e, holder)
        discard(w, i)
    else:
        at = p.route_first[item.route] + item.hop + 1
        if at < p.route_first[item.route + 1]:
            item.hop += 1
            item.stamp += 1
            arrive(w, i, p.hops[at], holder)
        else:
            deliver(p, w, f, item.what, holder)
            discard(w, i)


@kernel
def open_flight(p: GraphTables, w: StationWorld) -> int:
    """Begin the next query of the run; its placement is copied if it was given in advance."""
    c = w.clock[0]
    q = c.query
    c.query += 1
    f = c.flight_free
    flight, query = w.flights[f], w.queries[q]
    c.flight_free = flight.next
    c.flights += 1
    flight.query, flight.graph, flight.source = q, query.graph, query.source
    flight.scale, flight.deadline_s = query.scale, query.sent_s + query.deadline_s
    flight.refs, flight.outcome = 1, OPEN
    graph = p.graphs[query.graph]
    for t in range(graph.tasks):
        w.missing[f, t] = p.tasks[graph.task + t].inputs
        w.placement[f, t] = w.mapped[query.row, t] if query.row >= 0 else -1
    return int(f)


@kernel
def launch(p: GraphTables, w: StationWorld, f: int) -> None:
    """Send a placed query on its way; a first task placed on -1 means it is rejected."""
    flight = w.flights[f]
    graph = p.graphs[flight.graph]
    if w.placement[f, 0] == -1:
        end(w, f, REJECTED)
    else:
        for t in range(graph.tasks):
            if not 0 <= w.placement[f, t] < w.stations.size:
                w.clock[0].error = NO_STATION
                return
        for t in range(graph.tasks):
            if w.missing[f, t] == 0:
                submit(p, w, f, t, NONE)
        for e in range(graph.entry, graph.entry + graph.entries):
            send(p, w, f, e, NONE)
    release_flight(w, f)


# --- events ------------------------------------------------------------------------------------


@kernel
def finish(p: GraphTables, w: StationWorld, k: int) -> None:
    """A server finishes its batch; it stays occupied while an output finds no room."""
    slot = w.slots[k]
    s = slot.station
    st = w.stations[s]
    account(st, w.clock[0].now_s)
    st.serving -= 1
    i = slot.leader
    slot.leader = -1
    slot.blocked = 0
    while i >= 0:
        following = w.items[i].next
        st.inside -= 1
        depart(p, w, s, i, k, slot.start_s)
        i = following
    if slot.blocked == 0:
        release_server(w, k)


@kernel
def depart(p: GraphTables, w: StationWorld, s: int, i: int, holder: int, start_s: float) -> None:
    """An item leaves a station, if need be over the propagation delay."""
    st = w.stations[s]
    st.served += 1
    write_log(w, i, start_s)
    delay_s = propagation(w, s, i)
    if delay_s > 0.0:
        push_event(w.clock, w.events, w.clock[0].now_s + delay_s, ONWARD, i, NONE)
    else:
        onward(p, w, i, holder)


@kernel
def handle(p: GraphTables, w: StationWorld, kind: int, who: int, stamp: int) -> None:
    """Carry out one event, unless it is stale."""
    if kind == FINISH:
        if w.slots[who].stamp == stamp and w.slots[who].leader >= 0:
            finish(p, w, who)
    elif kind == ONWARD:
        onward(p, w, who, stamp)  # the server it kept, or none
        unblock(w, stamp)
    elif kind == SHARED:
        if w.stations[who].stamp == stamp:
            i = leave_shared(w, who)
            depart(p, w, who, i, NONE, w.items[i].start_s)
    elif kind == RENEGE:
        renege(w, who, stamp)
    elif kind == GATHER:
        serve(w, who)
    elif kind == WAKE:
        let_in(w, who)
    elif w.stations[who].mode_stamp == stamp:  # APPEAR
        set_mode(w, who, UP)


@kernel
def short(p: GraphTables, w: StationWorld) -> bool:
    """Whether one more step might not fit into the arrays."""
    c = w.clock[0]
    return bool(
        c.events + p.slack > w.events.size
        or c.items + p.slack > w.items.size
        or c.flights + 1 > w.flights.size
        or (c.logging and c.logged + p.slack > w.log.size)
    )


@kernel
def advance_held(p: GraphTables, w: StationWorld, until_s: float) -> int:
    """`advance` on a held world; for loops with their own decide function built in."""
    c = w.clock[0]
    if c.pending >= 0:
        f = c.pending
        c.pending = -1
        launch(p, w, f)
    while True:
        if c.error:
            return int(c.error)
        if short(p, w):
            return int(GROW)
        event_s = w.events[0].at_s if c.events > 0 else math.inf
        change_s = w.changes[c.change].at_s if c.change < w.changes.size else math.inf
        query_s = w.queries[c.query].sent_s if c.query < w.queries.size else math.inf
        first_s = min(event_s, change_s, query_s)
        if first_s > until_s or first_s == math.inf:
            if until_s < math.inf:
                c.now_s = max(c.now_s, until_s)
            return int(REACHED)
        c.now_s = first_s
        c.steps += 1
        if event_s == first_s:
            e = w.events[0]
            kind, who, stamp = e.kind, e.who, e.stamp
            drop_first_event(w.clock, w.events)
            handle(p, w, kind, who, stamp)
        elif change_s == first_s:
            c.change += 1
            apply_change(w, c.change - 1)
        else:
            f = open_flight(p, w)
            if w.placement[f, 0] < 0:
                c.pending = f
                return int(DECISION)
            launch(p, w, f)


@kernel
def advance(plan: GraphTables, world: StationWorld, until_s: float) -> int:
    """Run everything up to and at `until_s`.

    Returns:
        REACHED; DECISION: flight `clock.pending` waits for its row of `placement`; GROW: enlarge the
        arrays and call again; NO_ROUTE or NO_STATION: a placement cannot be carried out.
    """
    return advance_held(HeldPlan(*plan), HeldWorld(*world), until_s)


Decide = Callable[[GraphTables, StationWorld, int, Any], None]


@kernel
def advance_deciding(
    plan: GraphTables, world: StationWorld, until_s: float, decide: Decide, memory: Any
) -> int:
    """`advance`, where a compiled `decide(plan, world, flight, memory)` writes the placements."""
    p, w = HeldPlan(*plan), HeldWorld(*world)
    while True:
        status = advance_held(p, w, until_s)
        if status != DECISION:
            return status
        decide(p, w, w.clock[0].pending, memory)
