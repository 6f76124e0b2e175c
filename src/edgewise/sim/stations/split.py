"""DAG queries split over servers that share links, simulated query by query.

Every task is placed when its query arrives, by a split policy. A server takes, of the tasks that wait for it,
one of the query that arrived first, whatever the policy; a query that stays whole so runs through. Links
send messages in the order in which they come. `SplitCore` decides, as it does live; a policy that ships is
asked in compiled code, any other in Python.

What the servers of a simulation tell the scheduler of split queries: how far they are, and when it hears.

At the end of each period every server counts the tasks that ended there; the counts arrive after a lag. Of
counts that have arrived only the latest matter, for they go on from the beginning. Without a period the
scheduler knows at once how far each server is, even in the task under way: Nona's setting as published.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import held, kernel
from edgewise.core.split import SplitPolicy, SplitState, SplitView, book, closed, count_arrival, hear
from edgewise.core.split.core import (
    MakePlan,
    PlanMade,
    QueryArrived,
    RunQuery,
    ServersTold,
    SplitCommand,
    SplitCore,
)
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.policies.split.layout import Layout, LayoutProgram, layout_of
from edgewise.policies.split.policy import ShippedSplit, split_policy
from edgewise.policies.split.program import ServerChoice, SplitProgram
from edgewise.policies.split.schedule import SplitRule, beside, place_beside
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.loop import advance_held
from edgewise.sim.stations.network import GraphClass, Station, StationNetwork
from edgewise.sim.stations.state import DECISION, DONE, REACHED, GraphTables, StationWorld
from edgewise.workloads.queries import poisson_queries


class SplitNews(NamedTuple):
    """Counts on their way to the scheduler: the last R of S servers, sample k in row k modulo R.

    Attributes:
        period_s: between samples; 0: all is known at once, and in row 0.
        lag_s: of a sample.
        worked_s, served: (R, S) as in `core.split.core.ServersTold`.
        at: (2,) samples taken; sample that was heard last, from 1.
    """

    period_s: float
    lag_s: float
    worked_s: Floats
    served: Ints
    at: Ints


def new_news(servers: int, telemetry: TelemetrySpec | None) -> SplitNews:
    """Of servers that have done nothing; None: all is known at once."""
    period_s, lag_s = (telemetry.period_s, telemetry.lag_s) if telemetry is not None else (0.0, 0.0)
    rows = math.ceil(lag_s / period_s) + 2 if period_s else 1
    shape = rows, servers
    return SplitNews(period_s, lag_s, np.zeros(shape), np.zeros(shape, np.int64), np.zeros(2, np.int64))


@kernel
def count_work(world: StationWorld, news: SplitNews, row: int, whole: bool) -> None:
    """What each server has worked off by now, and the number of tasks; `whole`: only tasks that ended."""
    now_s = world.clock[0].now_s
    for s in range(news.served.shape[1]):
        station = world.stations[s]
        worked_s = station.busy_s + (now_s - station.area_s) * min(station.serving, station.servers)
        if whole and station.serving > 0:
            worked_s -= now_s - world.slots[station.slot].start_s
        news.worked_s[row, s], news.served[row, s] = worked_s, station.served


@kernel
def latest_news(world: StationWorld, news: SplitNews) -> int:
    """The row of news that has arrived by now and was not yet heard of, or -1; it is heard now."""
    if news.period_s == 0.0:
        count_work(world, news, 0, False)
        return 0
    now_s, found = world.clock[0].now_s, -1
    for k in range(max(news.at[1], news.at[0] - news.served.shape[0]), news.at[0]):
        if (k + 1) * news.period_s + news.lag_s <= now_s:
            news.at[1], found = k + 1, k % news.served.shape[0]
    return int(found)


@kernel
def advance_to_query(p: GraphTables, world: StationWorld, until_s: float, news: SplitNews) -> int:
    """`advance_held`, with samples taken on the way."""
    c = world.clock[0]
    while True:
        sample_s = (news.at[0] + 1) * news.period_s if news.period_s > 0.0 else math.inf
        if c.events == 0 and c.pending < 0 and c.query == world.queries.size:
            sample_s = math.inf  # nothing is left
        status = advance_held(p, world, min(sample_s, until_s), world.changes)
        if c.now_s < sample_s or (status != REACHED and status != DECISION):
            return status
        count_work(world, news, news.at[0] % news.served.shape[0], True)
        news.at[0] += 1
        if status == DECISION:  # at the very instant
            return status


@kernel
def advance_hearing(plan: GraphTables, world: StationWorld, until_s: float, news: SplitNews) -> int:
    """On to the next query that waits to be placed, for a scheduler in Python."""
    return advance_to_query(held(plan), held(world), until_s, news)


class SplitMemory(NamedTuple):
    """A policy in arrays, what its scheduler keeps, and news on their way to it."""

    rule: SplitRule
    state: SplitState
    news: SplitNews


@kernel
def advance_splitting(plan: GraphTables, world: StationWorld, until_s: float, memory: SplitMemory) -> int:
    """`advance_deciding` with `SplitCore` and its policy built in, so that its code is kept on disk.

    Returns:
        As `advance`; DECISION only where rates have drifted, with the query placed.
    """
    p, x = held(plan), held(world)
    state, news = memory.state, memory.news
    given = beside(state.ledger)
    while True:
        status = advance_to_query(p, x, until_s, news)
        if status != DECISION:
            return status
        row = latest_news(x, news)
        if row >= 0:
            hear(state, news.worked_s[row], news.served[row])
        pending = x.clock[0].pending
        flight, servers = x.flights[pending], x.placement[pending]
        drifted = count_arrival(state.rates, flight.graph, x.clock[0].now_s)
        place_beside(memory.rule, state.ledger, given, flight.graph, flight.query, servers)
        tasks = memory.rule.graphs.tasks[flight.graph]
        book(state, servers[:tasks], memory.rule.graphs.work_ops[flight.graph, :tasks])
        if drifted:
            return int(DECISION)


@dataclass(frozen=True, slots=True)
class SplitRun:
    """What became of the queries of a run.

    Attributes:
        job: (Q,) class of each query.
        time_s: (Q,) completion time.
        link_load: of the busiest link, the time that tensors of these queries took over the time of the run.
        server_load: mean of the same over the servers.
    """

    job: Ints
    time_s: Floats
    link_load: float
    server_load: float

    def settled(self, skip: float = 0.1) -> "SplitRun":
        """Without the first part of the queries, which met empty servers."""
        first = int(len(self.job) * skip)
        return SplitRun(self.job[first:], self.time_s[first:], self.link_load, self.server_load)


class SplitWorld:
    """Poisson queries on their way through servers and links, of which every one is placed when it arrives.

    Args:
        program: classes, servers and links.
        queries: how many are sent.
        seed: of them.
        core: places them; where its policy has `compiled`, in compiled code.
        telemetry: how news of the servers come; None: all is known at once.
        network: servers and links, where they are not just those of the program.
    """

    def __init__(
        self,
        program: SplitProgram | LayoutProgram,
        queries: int,
        seed: int,
        core: SplitCore,
        telemetry: TelemetrySpec | None = None,
        network: StationNetwork | None = None,
    ) -> None:
        graphs = [closed(job.graph) for job in program.classes]
        classes = [
            GraphClass(graph, routes={(e.source, e.target): [] for e in graph.edges if e.size_bytes == 0})
            for graph in graphs
        ]
        self.core, self.servers = core, len(program.server_ops)
        self.sent_s, self.jobs = poisson_queries([job.rate_qps for job in program.classes], queries, seed)
        self._news = new_news(self.servers, telemetry)
        network = network or network_of(layout_of(program))
        self.engine = GraphEngine(network, classes, self.sent_s, self.jobs, loop=self._loop, seed=seed)

    @property
    def _compiled(self) -> bool:
        """Whether decisions are made in compiled code, which does not ask what is up."""
        policy = self.core.policy
        own = getattr(policy.decide, "__func__", None) is not ShippedSplit.decide  # says more than its arrays
        return not own and isinstance(policy, ShippedSplit) and bool(self.core.up.all())

    def _loop(self, plan: GraphTables, world: StationWorld, until_s: float) -> int:
        policy: Any = self.core.policy
        if self._compiled:
            memory = SplitMemory(policy.compiled, self.core.state, self._news)
            return advance_splitting(plan, world, until_s, memory)
        return advance_hearing(plan, world, until_s, self._news)

    def run(self, until_s: float = math.inf) -> None:
        """Place every query that comes until then."""
        while not self.advance(until_s):
            self.place()

    def advance(self, until_s: float = math.inf) -> bool:
        """On to the next query that waits to be placed; whether it is time, or all are done, instead."""
        while not self.engine.advance(until_s):
            if not self._compiled:
                self._tell()
                return False
            self._carry_out([self.core.plan_wanted()])
        return True

    def _tell(self) -> None:
        row = latest_news(self.engine.world, self._news)
        if row >= 0:
            counts = self._news.worked_s[row].copy(), self._news.served[row].copy()
            self.core.handle(ServersTold(self.engine.now_s, *counts))

    @property
    def query(self) -> int:
        """The number of the one that waits; 0 where none does."""
        return self.engine.pending or 0

    @property
    def view(self) -> SplitView:
        """Of the query that waits."""
        return self.core.view(self.query, int(self.jobs[self.query]))

    @property
    def waited_s(self) -> float:
        """What all queries together have waited for their ends so far."""
        ends_s = np.fmin(self.engine.queries.done_s, self.engine.now_s)
        return float(np.maximum(ends_s - self.sent_s, 0.0).sum())

    def place(self) -> None:
        """The query that waits, as the core says."""
        view = self.view
        self._carry_out(self.core.handle(QueryArrived(self.engine.now_s, view.query, view.job)))

    def outcome(self) -> SplitRun:
        """What became of the queries; nan for one that has not ended."""
        busy = self.engine.tallies()["busy_s"] / self.engine.now_s
        queries = self.engine.queries
        time_s = np.where(queries.outcome == DONE, queries.done_s, np.nan) - self.sent_s
        return SplitRun(
            self.jobs, time_s, float(busy[self.servers :].max()), float(busy[: self.servers].mean())
        )

    def _carry_out(self, commands: Sequence[SplitCommand]) -> None:
        for command in commands:
            match command:
                case RunQuery(_, servers):
                    self.engine.place(servers)
                case MakePlan(rates_qps):
                    self.core.handle(PlanMade(self.engine.now_s, rates_qps, self._plan(rates_qps)))

    def _plan(self, rates_qps: Floats) -> SplitPolicy | None:
        policy: Any = self.core.policy
        if self.core.guard is None:
            return cast(SplitPolicy | None, policy.renewed(rates_qps))
        return self.core.guard.ask(lambda: policy.renewed(rates_qps), lambda: None, questions=None)


def simulate_split(
    policy: SplitPolicy,
    program: SplitProgram | LayoutProgram,
    queries: int,
    seed: int,
    telemetry: TelemetrySpec | None = None,
) -> SplitRun:
    """Send Poisson queries of the program's classes through its servers and links.

    Args:
        telemetry: how news of the servers come, and then plans follow the rates, as live; None: as published,
            the policy knows at once how far each server is, and its plan stays.

    Raises:
        PolicyError: the policy places a task nowhere.
    """
    core = SplitCore(program, policy, seed, follows=telemetry is not None)
    world = SplitWorld(program, queries, seed, core, telemetry)
    world.run()
    return world.outcome()


def network_of(layout: Layout) -> StationNetwork:
    """The servers of a layout and its links as stations."""
    names = [(g, f"{group.name}.{i}") for g, group in enumerate(layout.groups) for i in range(group.servers)]
    nodes = [
        Station(name, layout.groups[g].power_ops, discipline="oldest", on_down="restart") for g, name in names
    ]
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
