"""DAG queries split over servers that share links, simulated query by query.

Every task is placed when its query arrives, by a split policy. A server takes, of the tasks that wait for it,
one of the query that arrived first, whatever the policy; a query that stays whole so runs through. Links
send messages in the order in which they come. The policy reads its own ledger: what it gave to each server,
less what that server has worked off since. One that ships decides in compiled code, any other in Python.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.keyed import Key, Purpose, uniform
from edgewise.policies.split.layout import Layout, LayoutProgram, layout_of
from edgewise.policies.split.policy import SplitPolicy, SplitView, decided, split_policy
from edgewise.policies.split.program import ServerChoice, SplitProgram
from edgewise.policies.split.schedule import Ledger, SplitRule, lay_out, new_ledger, place_query
from edgewise.policies.split.subgraphs import closed
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.held import HeldPlan, HeldWorld
from edgewise.sim.stations.loop import advance, advance_held
from edgewise.sim.stations.network import GraphClass, Station, StationNetwork
from edgewise.sim.stations.state import DECISION, GraphTables, StationWorld

NOTHING_S = 1e-9  # less outstanding work than this is rounding


class SplitMemory(NamedTuple):
    """A policy in arrays, its ledger, and of each server what it had worked off when it was seen last."""

    rule: SplitRule
    ledger: Ledger
    seen_s: Floats
    seen: Ints


@kernel
def follow(world: StationWorld, ledger: Ledger, seen_s: Floats, seen: Ints) -> None:
    """Take off the ledger what each server has worked off since it was seen last."""
    now = world.clock[0].now_s
    for s in range(seen.size):
        station = world.stations[s]
        worked_s = station.busy_s + (now - station.area_s) * min(station.serving, station.servers)
        left = ledger.work_s[s] - (worked_s - seen_s[s])
        ledger.work_s[s] = left if left > NOTHING_S else 0.0
        ledger.tasks[s] -= station.served - seen[s]
        seen_s[s], seen[s] = worked_s, station.served


@kernel
def advance_splitting(plan: GraphTables, world: StationWorld, until_s: float, memory: SplitMemory) -> int:
    """`advance_deciding` with the policy built in, so that its code is kept on disk."""
    p, held = HeldPlan(*plan), HeldWorld(*world)
    while True:
        status = advance_held(p, held, until_s)
        if status != DECISION:
            return status
        follow(held, memory.ledger, memory.seen_s, memory.seen)
        flight = held.flights[held.clock[0].pending]
        place_query(
            memory.rule, memory.ledger, flight.graph, flight.query, held.placement[held.clock[0].pending]
        )


@kernel
def advance_laid_out(plan: GraphTables, world: StationWorld, until_s: float, memory: SplitMemory) -> int:
    """The same on a layout."""
    p, held = HeldPlan(*plan), HeldWorld(*world)
    while True:
        status = advance_held(p, held, until_s)
        if status != DECISION:
            return status
        follow(held, memory.ledger, memory.seen_s, memory.seen)
        flight = held.flights[held.clock[0].pending]
        lay_out(memory.rule, memory.ledger, flight.graph, flight.query, held.placement[held.clock[0].pending])


@dataclass(frozen=True, slots=True)
class SplitRun:
    """What became of the queries of a run.

    Attributes:
        job: (Q,) class of each query.
        time_s: (Q,) completion time.
        link_load: busy time of the link over the time of the run.
        server_load: mean of the same over the servers.
    """

    job: Ints
    time_s: Floats
    link_load: float
    server_load: float

    def settled(self, skip: float = 0.1) -> SplitRun:
        """Without the first part of the queries, which met empty servers."""
        first = int(len(self.job) * skip)
        return SplitRun(self.job[first:], self.time_s[first:], self.link_load, self.server_load)


def poisson_queries(rates_qps: Sequence[float] | Floats, queries: int, seed: int) -> tuple[Floats, Ints]:
    """((Q,) times, (Q,) classes) of Poisson arrivals; class j comes at rates_qps[j]."""
    number = np.arange(queries)
    rates = np.asarray(rates_qps, dtype=float)
    gaps = -np.log(uniform(seed, Purpose.ARRIVAL, number, 0)) / rates.sum()
    bounds = np.cumsum(rates) / rates.sum()
    job = np.searchsorted(bounds[:-1], uniform(seed, Purpose.ARRIVAL, number, 1))
    return np.cumsum(gaps), job.astype(np.int64)


def simulate_split(
    policy: SplitPolicy, program: SplitProgram | LayoutProgram, queries: int, seed: int
) -> SplitRun:
    """Send Poisson queries of the program's classes through its servers and links.

    Raises:
        PolicyError: the policy places a task nowhere.
    """
    policy.reset(program, Key(seed))
    layout = layout_of(program)
    nodes = sum(group.servers for group in layout.groups)
    power = np.repeat(
        [group.power_ops for group in layout.groups], [group.servers for group in layout.groups]
    )
    graphs = [closed(job.graph) for job in program.classes]
    classes = [
        GraphClass(graph, routes={(e.source, e.target): [] for e in graph.edges if e.size_bytes == 0})
        for graph in graphs
    ]
    sent_s, job = poisson_queries([job.rate_qps for job in program.classes], queries, seed)
    ledger, seen_s, seen = new_ledger(power), np.zeros(nodes), np.zeros(nodes, np.int64)
    loop = advance
    if (rule := getattr(policy, "compiled", None)) is not None:
        compiled = advance_splitting if isinstance(program, SplitProgram) else advance_laid_out
        loop = partial(compiled, memory=SplitMemory(rule, ledger, seen_s, seen))
    engine = GraphEngine(network_of(layout), classes, sent_s, job, loop=loop, seed=seed)
    work = [np.array([task.work_ops for task in graph.tasks]) for graph in graphs]
    while not engine.advance(math.inf):
        follow(engine.world, ledger, seen_s, seen)
        query = engine.pending or 0
        engine.place(decided(policy, SplitView(query, job[query], ledger), work[job[query]]))
    busy = engine.tallies()["busy_s"] / engine.now_s
    return SplitRun(
        job, engine.queries.done_s - sent_s, float(busy[nodes:].max()), float(busy[:nodes].mean())
    )


def network_of(layout: Layout) -> StationNetwork:
    """The servers of a layout and its links as stations."""
    names = [(g, f"{group.name}.{i}") for g, group in enumerate(layout.groups) for i in range(group.servers)]
    nodes = [Station(name, layout.groups[g].power_ops, discipline="oldest") for g, name in names]
    links = list(layout.links)
    if len(layout.groups) == 1:
        routes = {("*", "*"): [links[i] for i in layout.route(0, 0)]}
    else:
        routes = {
            (one, other): [links[i] for i in layout.route(a, b)]
            for a, one in names
            for b, other in names
            if one != other
        }
    return StationNetwork(nodes, [Station(name, bps) for name, bps in layout.links.items()], routes)


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A policy at a load.

    Attributes:
        load: work that arrives over what the servers can do.
        policy: its name.
        mean_s, p99_s: (seeds,) mean and 99 % quantile of the completion times of a run.
        predicted_s: mean completion time by the formula; None: the policy has none.
        link_load: mean over the seeds.
    """

    load: float
    policy: str
    mean_s: tuple[float, ...]
    p99_s: tuple[float, ...]
    predicted_s: float | None
    link_load: float


def compare_split(
    program: SplitProgram,
    names: Sequence[str],
    loads: Sequence[float],
    queries: int,
    seeds: Sequence[int],
    rule: ServerChoice = ServerChoice.LEAST_LOADED,
) -> list[SplitRow]:
    """Policies at several loads; every policy meets the same queries.

    Args:
        program: its rates say how the classes mix; they are scaled to each load.
        loads: shares of the servers' capacity, > 0; a load of 1 is saturation without any transfer.
    """
    work_s = sum(job.rate_qps * sum(t.work_ops for t in job.graph.tasks) for job in program.classes)
    full = program.servers * program.power_ops / work_s
    rows = []
    for load in loads:
        scaled = program.with_rates(list(program.rates_qps * load * full))
        for name in names:
            policy = split_policy(name, scaled, rule)
            runs = [simulate_split(policy, scaled, queries, seed).settled() for seed in seeds]
            rows.append(
                SplitRow(
                    load,
                    name,
                    tuple(float(run.time_s.mean()) for run in runs),
                    tuple(float(np.quantile(run.time_s, 0.99)) for run in runs),
                    policy.plan.forecast.mean_s if policy.plan else None,
                    float(np.mean([run.link_load for run in runs])),
                )
            )
    return rows


SHARES = (0.0, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)


def tune_share(
    program: SplitProgram,
    queries: int,
    seeds: Sequence[int],
    shares: Sequence[float] = SHARES,
    rule: ServerChoice = ServerChoice.LEAST_LOADED,
) -> float:
    """The share of `nona-free` with the smallest simulated mean; seeds must not be those of a test.

    With a share of 0 every query stays whole on one server, so what is chosen is no worse than that.
    """
    means, program = [], program.with_queues()  # enumerated once
    for share in shares:
        policy = split_policy("nona-free", program, rule, share=share)
        runs = [simulate_split(policy, program, queries, seed).settled() for seed in seeds]
        means.append(float(np.mean([run.time_s.mean() for run in runs])))
    return shares[int(np.argmin(means))]
