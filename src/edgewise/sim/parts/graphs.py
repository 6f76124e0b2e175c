"""Queries of split models: DAGs split over servers that share links, simulated query by query.

Every task is placed when its query arrives, by a split policy. A server takes, of the tasks that wait for it,
one of the query that arrived first, whatever the policy; a query that stays whole so runs through. Links
send messages in the order in which they come. `SplitCore` decides, as it does live; a policy that ships is
asked in compiled code (`sim.stations.split`), any other in Python.

In a joint run servers hold their part of nodes for life, so queries ask nothing of the plane. What a dead
server had goes elsewhere, whole, once the scheduler has heard of it; until then it waits there, and is begun
anew where the server is up again before. A link between clusters that runs over cables is part of the links
that all kinds of work share; any other is its queries' own.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.split import SplitPolicy, SplitView, closed
from edgewise.core.split.core import (
    MakePlan,
    PlanMade,
    QueryArrived,
    QueryLost,
    RunQuery,
    ServerChanged,
    ServersTold,
    SplitCommand,
    SplitCore,
    TasksGivenUp,
)
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.policies.split.layout import LayoutProgram, layout_of
from edgewise.policies.split.policy import ShippedSplit, split_policy
from edgewise.policies.split.program import ServerChoice, SplitProgram
from edgewise.sim.links.wires import Wires
from edgewise.sim.parts.graph_networks import network_of
from edgewise.sim.parts.outcomes import SplitRun
from edgewise.sim.parts.part import Bystander, Rank, StartTimes
from edgewise.sim.stations import state as k
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.leaving import begin_anew, leave, left_of, queries_at
from edgewise.sim.stations.network import GraphClass, StationNetwork
from edgewise.sim.stations.split import (
    SplitMemory,
    advance_hearing,
    advance_splitting,
    latest_news,
    new_news,
)
from edgewise.sim.stations.state import DONE, GraphTables, StationWorld
from edgewise.workloads.queries import poisson_queries


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


class LostQueries:
    """What becomes of the queries of servers that are down.

    Args:
        world: of the servers.
    Attributes:
        lost: servers that have lost each query so far, by its number.
    """

    def __init__(self, world: SplitWorld) -> None:
        self.world, self.lost = world, dict[int, tuple[int, ...]]()

    def heard(self, server: int) -> None:
        """A server is known to be down: what it has, or was to do yet, goes elsewhere; the oldest first.

        All before now has happened.
        """
        engine, core = self.world.engine, self.world.core
        if engine.world.stations[server].mode == k.UP:  # it is back, and has begun anew what it had
            return
        for flight in queries_at(engine.world, engine.plan, server):
            query, left = int(engine.world.flights[flight].query), left_of(engine.world, engine.plan, flight)
            self.lost[query] = lost = (*self.lost.get(query, ()), server)
            leave(engine.world, flight)
            gone = [each for each in left if not each.runs]  # what runs out counts as served in the end
            where, work = np.array([each.station for each in gone]), np.array([each.work for each in gone])
            core.handle(TasksGivenUp(engine.now_s, where, work))
            for command in core.handle(QueryLost(engine.now_s, query, int(self.world.jobs[query]), lost)):
                if isinstance(command, RunQuery):
                    self._run(flight, command.servers)
                else:
                    engine.queries.outcome[query], engine.queries.done_s[query] = k.LOST, engine.now_s

    def _run(self, flight: int, servers: Ints) -> None:
        engine = self.world.engine
        if engine.world.clock[0].flights == engine.world.flights.size:
            engine.enlarge("flights")
        begin_anew(engine.world, engine.plan, flight, servers)
        self.world.run(engine.now_s)


class GraphsPart(Bystander):
    """Queries on their way through servers and links, decided in their own event loop.

    Nobody looks at them on the way, so they go on when something changes, or at the end.

    Args:
        world: before its first query.
        nodes: (S,) names of the servers' nodes.
        end_s: of the run; queries that are under way then go on.
        delays_s: after which the scheduler hears that a server went down or came up; in which one starts on a
            node that is back.
        wires: links that others use too, with the route over them that each station of the world stands for.
    Attributes:
        busy_s: (S,) seconds of the run in which servers worked, once it is over.
    """

    busy_s: Floats

    def __init__(
        self,
        world: SplitWorld,
        nodes: Sequence[str],
        end_s: float,
        delays_s: tuple[float, float],
        wires: tuple[Wires, dict[str, int]] | None = None,
    ) -> None:
        self.world, self._nodes, self._end_s, (self._lag_s, self._start_s) = world, nodes, end_s, delays_s
        self._starting = StartTimes()  # servers on nodes that are back
        self._over, self._lost = False, LostQueries(world)
        self._news: deque[ServerChanged] = deque()
        self._wire = None
        if wires is not None:
            engine = world.engine
            self._wire = wires[0].wire(self._go_on, engine.come_back)
            self._route = {engine.network.index(name): route for name, route in wires[1].items()}
            engine.wire(list(wires[1]), self._send)

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """The server there stops; or starts, and begins anew what it had."""
        for server in [s for s, name in enumerate(self._nodes) if name == node]:
            if up and self._start_s > 0.0:
                self._starting[server] = now_s + self._start_s
            else:
                self._starting.pop(server, None)
                self._change(server, up, now_s)

    def next_s(self) -> float:
        """When a server has started."""
        return self._starting.next_s()

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Servers that have started; nothing for the cores."""
        for server in self._starting.up(now_s):
            self._change(server, True, now_s)
        return ()

    def _change(self, server: int, up: bool, now_s: float) -> None:
        self._bring_up(now_s)
        engine = self.world.engine
        engine.change(now_s, engine.network.stations[server].name, up=up)
        self._news.append(ServerChanged(now_s + self._lag_s, server, up))

    def finish(self) -> None:
        """To the last query that can end."""
        self._bring_up(math.inf)

    def _bring_up(self, to_s: float) -> None:
        if self._wire is None:
            self._go_on(to_s)
        else:
            self._wire.wires.advance(to_s)

    def _go_on(self, to_s: float) -> None:
        """Up to there, or to where a tensor may come."""
        while self._news and self._news[0].time_s <= to_s:
            if not self._reach(self._news[0].time_s):
                return
            news = self._news.popleft()
            self.world.core.handle(news)
            if not news.up:
                self._lost.heard(news.server)
        self._reach(to_s)

    def _reach(self, to_s: float) -> bool:
        """Whether `to_s` is reached, and no tensor comes before."""
        if to_s > self._end_s and not self._over:
            if not self._reach(self._end_s):
                return False
            self._over = True
            self.busy_s = self.world.engine.tallies()["busy_s"][: self.world.servers]
        self.world.run(min(to_s, self._before_s()))
        return self._before_s() >= to_s

    def _before_s(self) -> float:
        """The last moment before a tensor may come."""
        next_s = math.inf if self._wire is None else self._wire.next_s()
        return next_s if next_s == math.inf else math.nextafter(next_s, -math.inf)

    def _send(self, items: Ints, stations: Ints, bits: Floats) -> float:
        assert self._wire is not None, "who sends has links"
        now_s, found = self.world.engine.now_s, (items, stations, bits)
        for item, station, size_bits in zip(*(column.tolist() for column in found), strict=True):
            self._wire.send(self._route[station], now_s, size_bits, item)
        return self._before_s()
