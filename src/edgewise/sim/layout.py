"""Queries split over a layout (groups of servers, several links), simulated query by query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.core.compiled import kernel
from edgewise.core.keyed import Key, Purpose, uniform
from edgewise.policies.split.layout import LayoutProgram
from edgewise.policies.split.layout_optimum import LayoutPlan
from edgewise.policies.split.subgraphs import closed, subgraphs
from edgewise.sim.engine import GraphEngine
from edgewise.sim.network import GraphClass, Network, Station
from edgewise.sim.split import SplitRun, poisson_queries
from edgewise.sim.state import Plan, World

Ints = NDArray[np.int64]


class Placed(NamedTuple):
    """(Q, T) server of each task of each query."""

    servers: Ints


@kernel
def copy_placement(plan: Plan, world: World, flight: int, m: Placed) -> None:
    """Place the tasks of a query as drawn beforehand."""
    query = world.flights[flight].query
    for task in range(m.servers.shape[1]):
        world.placement[flight][task] = m.servers[query, task]


def draw_placements(plan: LayoutPlan, jobs: Ints, seed: int) -> Ints:
    """Servers of every task of every query: a placement for each sub-graph given its root's group, then
    for each part a server of its group, uniformly among those that the sub-graph does not use yet.

    Args:
        jobs: (Q,) class of each query.
    Returns:
        (Q, T) servers, numbered group after group; -1 where a class has fewer tasks.
    """
    program = plan.program
    most = max(len(closed(job.graph).tasks) for job in program.classes)
    out = np.full((len(jobs), most), -1, dtype=np.int64)
    first = np.cumsum([0, *(group.servers for group in program.layout.groups)])
    start = np.cumsum([0, *(len(stage.root) for stage in program.stages)])
    stages = [
        [n for n, stage in enumerate(program.stages) if stage.job == job]
        for job in range(len(program.classes))
    ]
    pieces = [subgraphs(job.graph) for job in program.classes]
    number = np.arange(len(jobs))
    draws = {d: uniform(Key(seed).seed, Purpose.POLICY, number, d) for d in range(_most_draws(program))}
    for query, job in enumerate(jobs):
        draw, now = 0, -1
        for place, n in enumerate(stages[job]):
            stage, theta = program.stages[n], plan.theta[start[n] : start[n + 1]]
            group = -1 if now < 0 else int(np.searchsorted(first, now, side="right")) - 1
            chance = np.cumsum(theta if group < 0 else theta * (stage.root == group))
            k = int(np.searchsorted(chance, draws[draw][query] * chance[-1], side="right"))
            draw += 1
            used = [now] if now >= 0 else []
            servers = [now] if now >= 0 else []
            for g in stage.group[k][len(servers) :]:
                if g < 0:
                    break
                free = [s for s in range(first[g], first[g + 1]) if s not in used]
                used.append(free[int(draws[draw][query] * len(free))])
                servers.append(used[-1])
                draw += 1
            if place == 0:
                out[query, pieces[job][0].root if pieces[job] else 0] = servers[0]
            if pieces[job]:
                piece = pieces[job][place]
                for branch, part in zip(piece.branches, stage.part[k], strict=False):
                    out[query, list(branch.tasks)] = servers[part]
                now = servers[stage.part[k][-1]]
                out[query, piece.sink] = now
    return out


def _most_draws(program: LayoutProgram) -> int:
    return sum(1 + stage.group.shape[1] for stage in program.stages)


def simulate_layout(plan: LayoutPlan, queries: int, seed: int) -> SplitRun:
    """Send Poisson queries through the servers and links of a layout."""
    program, layout = plan.program, plan.program.layout
    nodes = [
        Station(f"{group.name}.{i}", group.power_ops) for group in layout.groups for i in range(group.servers)
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
    network = Network(nodes, [Station(name, bps) for name, bps in layout.links.items()], routes)
    classes = []
    for item in program.classes:
        graph = closed(item.graph)
        classes.append(
            GraphClass(graph, routes={(e.source, e.target): [] for e in graph.edges if e.size_bytes == 0})
        )
    rates = np.array([job.rate_qps for job in program.classes])
    sent_s, jobs = poisson_queries(rates, queries, seed)
    placed = Placed(draw_placements(plan, jobs, seed))
    engine = GraphEngine(network, classes, sent_s, jobs, copy_placement, memory=placed, seed=seed)
    engine.run()
    busy = engine.tallies()["busy_s"] / engine.now_s
    return SplitRun(
        jobs,
        engine.queries.done_s - sent_s,
        float(busy[len(nodes) :].max()),
        float(busy[: len(nodes)].mean()),
    )
