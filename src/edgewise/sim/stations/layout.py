"""Queries split over a layout (groups of servers, several links), simulated query by query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.keyed import Key, Purpose, uniform
from edgewise.policies.split.layout_optimum import LayoutPlan
from edgewise.policies.split.schedule import Ledger, give, new_ledger, pick
from edgewise.policies.split.subgraphs import closed, subgraphs
from edgewise.policies.split.tables import Graphs, make_graphs
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.held import HeldPlan, HeldWorld
from edgewise.sim.stations.loop import advance_held
from edgewise.sim.stations.network import GraphClass, Station, StationNetwork
from edgewise.sim.stations.split import SplitRun, follow, poisson_queries
from edgewise.sim.stations.state import DECISION, GraphTables, StationWorld

FIRST_PICK = 1_000  # draws of servers come after those of placements


class Slots(NamedTuple):
    """What was drawn for every query: tasks of one slot share a server.

    Attributes:
        task: (Q, T) slot of each task; -1 where a class has fewer tasks.
        group: (Q, K) group of each slot's server; -1 where there is none.
        apart: (Q, K) first slot that it must not share a server with, beyond those up to itself; its own
            number where it may be anywhere. Slots of a sub-graph follow each other after its root's.
        root: (Q, K) slot of its sub-graph's root.
    """

    task: Ints
    group: Ints
    apart: Ints
    root: Ints


class LayoutMemory(NamedTuple):
    """What `decide` reads and writes."""

    slots: Slots
    first: Ints
    ledger: Ledger
    seen_s: Floats
    seen: Ints
    graphs: Graphs
    rule: int
    seed: np.uint64


@kernel
def decide(plan: GraphTables, world: StationWorld, flight: int, m: LayoutMemory) -> None:
    """Bring the ledger up to now; then a server of its group for each slot, and the tasks follow."""
    follow(world, m.ledger, m.seen_s, m.seen)
    query, job = world.flights[flight].query, world.flights[flight].graph
    group, apart, root = m.slots.group[query], m.slots.apart[query], m.slots.root[query]
    used = np.zeros(m.ledger.work_s.size, np.bool_)
    server = np.empty(group.size, np.int64)
    for slot in range(group.size):
        if group[slot] < 0:
            break
        used[:] = True
        used[m.first[group[slot]] : m.first[group[slot] + 1]] = False
        used[server[apart[slot] : slot]] = True
        if root[slot] < slot:
            used[server[root[slot]]] = True
        server[slot] = pick(m.ledger, used, m.rule, m.seed, query, FIRST_PICK + slot)
        for task in range(m.slots.task.shape[1]):
            if m.slots.task[query, task] == slot:
                world.placement[flight][task] = server[slot]
                give(m.ledger, server[slot], m.graphs.work_ops[job, task])


@kernel
def advance_laid_out(plan: GraphTables, world: StationWorld, until_s: float, memory: LayoutMemory) -> int:
    """`advance_deciding` with `decide` built in, so that its code is kept on disk."""
    p, w = HeldPlan(*plan), HeldWorld(*world)
    while True:
        status = advance_held(p, w, until_s)
        if status != DECISION:
            return status
        decide(p, w, w.clock[0].pending, memory)


def draw_slots(plan: LayoutPlan, jobs: Ints, seed: int) -> Slots:
    """A placement for each sub-graph of each query, given the group of its root.

    Args:
        jobs: (Q,) class of each query.
    """
    program = plan.program
    most = max(len(closed(job.graph).tasks) for job in program.classes)
    task = np.full((len(jobs), most), -1, dtype=np.int64)
    per_class = [[s for s in program.stages if s.job == job] for job in range(len(program.classes))]
    wide = 1 + max(sum(stage.group.shape[1] for stage in stages) for stages in per_class)
    group, apart, root = (np.full((len(jobs), wide), -1, dtype=np.int64) for _ in range(3))
    pieces = [subgraphs(job.graph) for job in program.classes]
    ends = np.cumsum([0, *(len(stage.root) for stage in program.stages)])
    theta = {id(s): plan.theta[a:b] for s, a, b in zip(program.stages, ends, ends[1:], strict=False)}
    number = np.arange(len(jobs))
    most_stages = max(len(stages) for stages in per_class)
    draws = [uniform(Key(seed).seed, Purpose.POLICY, number, d) for d in range(most_stages)]
    for query, job in enumerate(jobs):
        now, slots = -1, 0  # slot of the root; slots so far
        for place, stage in enumerate(per_class[job]):
            chance = theta[id(stage)] * (1.0 if now < 0 else stage.root == group[query, now])
            sums = np.cumsum(chance)
            k = int(np.searchsorted(sums, draws[place][query] * sums[-1], side="right"))
            if now < 0:
                group[query, 0], apart[query, 0], root[query, 0], now, slots = stage.group[k, 0], 0, 0, 0, 1
                task[query, pieces[job][0].root if pieces[job] else 0] = 0
            begin, parts = slots, int((stage.group[k] >= 0).sum())
            for part in range(1, parts):
                group[query, slots], apart[query, slots] = stage.group[k, part], begin
                root[query, slots] = now
                slots += 1
            if pieces[job]:
                slot = [now, *range(begin, slots)]
                for branch, part in zip(pieces[job][place].branches, stage.part[k], strict=False):
                    task[query, list(branch.tasks)] = slot[part]
                now = slot[stage.part[k][-1]]
                task[query, pieces[job][place].sink] = now
    return Slots(task, group, apart, root)


def simulate_layout(plan: LayoutPlan, queries: int, seed: int) -> SplitRun:
    """Send Poisson queries through the servers and links of a layout."""
    program, layout = plan.program, plan.program.layout
    nodes = [
        Station(f"{group.name}.{i}", group.power_ops, discipline="oldest")
        for group in layout.groups
        for i in range(group.servers)
    ]
    names = [(group.name, f"{group.name}.{i}") for group in layout.groups for i in range(group.servers)]
    groups = {group.name: g for g, group in enumerate(layout.groups)}
    links = list(layout.links)
    routes = {
        (b, d): [links[i] for i in layout.route(groups[a], groups[c])]
        for a, b in names
        for c, d in names
        if b != d
    }
    network = StationNetwork(nodes, [Station(name, bps) for name, bps in layout.links.items()], routes)
    classes = []
    for item in program.classes:
        graph = closed(item.graph)
        classes.append(
            GraphClass(graph, routes={(e.source, e.target): [] for e in graph.edges if e.size_bytes == 0})
        )
    rates = np.array([job.rate_qps for job in program.classes])
    sent_s, jobs = poisson_queries(rates, queries, seed)
    power = np.repeat([group.power_ops for group in layout.groups], [g.servers for g in layout.groups])
    memory = LayoutMemory(
        draw_slots(plan, jobs, seed),
        np.cumsum([0, *(group.servers for group in layout.groups)]),
        new_ledger(power),
        np.zeros(len(nodes)),
        np.zeros(len(nodes), np.int64),
        make_graphs([job.graph for job in program.classes], float(power[0]), 1.0),
        int(layout.rule),
        np.uint64(Key(seed).seed),
    )
    engine = GraphEngine(network, classes, sent_s, jobs, loop=advance_laid_out, memory=memory, seed=seed)
    engine.run()
    busy = engine.tallies()["busy_s"] / engine.now_s
    return SplitRun(
        jobs,
        engine.queries.done_s - sent_s,
        float(busy[len(nodes) :].max()),
        float(busy[: len(nodes)].mean()),
    )
