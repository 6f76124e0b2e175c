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
from edgewise.policies.split.schedule import Ledger, SplitRule, new_ledger, place_query
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
        status = advance_held(p, held, until_s, None)
        if status != DECISION:
            return status
        follow(held, memory.ledger, memory.seen_s, memory.seen)
        flight = held.flights[held.clock[0].pending]
        place_query(
            memory.rule, memory.ledger, flight.graph, flight.query, held.placement[held.clock[0].pending]
        )


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


class SplitWorld:
    """Poisson queries on their way through servers and links, of which every one is placed when it arrives.

    Args:
        program: classes, servers and links.
        queries: how many are sent.
        seed: of them.
        rule: a compiled policy that places them; None: `place` does.
    Attributes:
        work_ops: of each class, (T,) of its tasks.
        ledger: what was given to each server and is not finished yet, as of the query that waits.
    """

    def __init__(
        self, program: SplitProgram | LayoutProgram, queries: int, seed: int, rule: SplitRule | None = None
    ) -> None:
        layout = layout_of(program)
        self.nodes = sum(group.servers for group in layout.groups)
        power = np.repeat(
            [group.power_ops for group in layout.groups], [group.servers for group in layout.groups]
        )
        graphs = [closed(job.graph) for job in program.classes]
        classes = [
            GraphClass(graph, routes={(e.source, e.target): [] for e in graph.edges if e.size_bytes == 0})
            for graph in graphs
        ]
        self.work_ops = [np.array([task.work_ops for task in graph.tasks]) for graph in graphs]
        self.sent_s, self.jobs = poisson_queries([job.rate_qps for job in program.classes], queries, seed)
        self.ledger = new_ledger(power)
        self._seen_s, self._seen = np.zeros(self.nodes), np.zeros(self.nodes, np.int64)
        loop = advance
        if rule is not None:
            loop = partial(advance_splitting, memory=SplitMemory(rule, self.ledger, self._seen_s, self._seen))
        self.engine = GraphEngine(network_of(layout), classes, self.sent_s, self.jobs, loop=loop, seed=seed)

    def advance(self) -> bool:
        """On to the next query that waits to be placed; whether all are done instead."""
        done = self.engine.advance(math.inf)
        if not done:
            follow(self.engine.world, self.ledger, self._seen_s, self._seen)
        return done

    @property
    def query(self) -> int:
        """The number of the one that waits; 0 where none does."""
        return self.engine.pending or 0

    @property
    def waited_s(self) -> float:
        """What all queries together have waited for their ends so far."""
        now_s = self.engine.now_s
        ends_s = np.fmin(self.engine.queries.done_s, now_s)
        return float(np.maximum(ends_s - self.sent_s, 0.0).sum())

    def place(self, servers: Ints) -> None:
        """The query that waits, (T,) a server for each task."""
        self.ledger.change(servers, self.work_ops[self.jobs[self.query]])
        self.engine.place(servers)


def simulate_split(
    policy: SplitPolicy, program: SplitProgram | LayoutProgram, queries: int, seed: int
) -> SplitRun:
    """Send Poisson queries of the program's classes through its servers and links.

    Raises:
        PolicyError: the policy places a task nowhere.
    """
    policy.reset(program, Key(seed))
    world = SplitWorld(program, queries, seed, getattr(policy, "compiled", None))
    while not world.advance():
        job = int(world.jobs[world.query])
        view = SplitView(world.query, job, world.ledger)
        world.engine.place(decided(policy, view, world.work_ops[job]))
    engine = world.engine
    busy, nodes = engine.tallies()["busy_s"] / engine.now_s, world.nodes
    return SplitRun(
        world.jobs,
        engine.queries.done_s - world.sent_s,
        float(busy[nodes:].max()),
        float(busy[:nodes].mean()),
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
