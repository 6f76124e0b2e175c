"""`SplitCore`: queries that arrive and news of servers go in, what is to be done comes out.

Simulation and gateway drive the same core. A policy that ships is asked by the simulation in compiled code,
which changes the core's arrays by the same kernels. Forbidden here: clocks, I/O, threads.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.guard import Guard, Shadow, begin
from edgewise.core.hooks import Renews
from edgewise.core.keyed import Key
from edgewise.core.split import (
    LEAST_QPS,
    NOTHING_S,
    SplitPolicy,
    SplitView,
    SplitWork,
    book,
    checked,
    count_arrival,
    hear,
    new_state,
    work_of,
)


class QueryArrived(NamedTuple):
    """A query of class `job` is to be placed; numbers do not repeat, times do not fall."""

    time_s: float
    query: int
    job: int


class ServersTold(NamedTuple):
    """News of all servers, counted from the beginning and only of what this scheduler gave them.

    Attributes:
        time_s: of the counts.
        worked_s: (S,) work of the tasks that ended there, over the server's power.
        served: (S,) these tasks. A task that was given up there counts as ended.
    """

    time_s: float
    worked_s: Floats
    served: Ints


class ServerChanged(NamedTuple):
    """A server went down, or came up."""

    time_s: float
    server: int
    up: bool


class QueryLost(NamedTuple):
    """Servers, `lost`, could not carry out their part of a query; its tasks are not under way any more."""

    time_s: float
    query: int
    job: int
    lost: tuple[int, ...]


class TasksGivenUp(NamedTuple):
    """Tasks of a query are not under way any more and have not ended: no news of servers will count them.

    Attributes:
        servers: (T,) where each was.
        work_ops: (T,) of each.
    """

    time_s: float
    servers: Ints
    work_ops: Floats


class PlanMade(NamedTuple):
    """What came of `MakePlan`: the policy with a plan for the rates; None: none could be made."""

    time_s: float
    rates_qps: Floats
    policy: SplitPolicy | None


class RunQuery(NamedTuple):
    """The tasks of a query run on `servers` ((T,))."""

    query: int
    servers: Ints


class RefuseQuery(NamedTuple):
    """There is no server left to run a query on."""

    query: int


class MakePlan(NamedTuple):
    """The rates have drifted to these: ask the policy for a plan (`hooks.Renews`), and tell what it made."""

    rates_qps: Floats


SplitEvent = QueryArrived | ServersTold | ServerChanged | TasksGivenUp | QueryLost | PlanMade
SplitCommand = RunQuery | RefuseQuery | MakePlan


class SplitCore:
    """Places the tasks of queries on servers, by a policy.

    Args:
        program: classes of queries, and servers.
        policy: begins anew.
        seed: of the policy's own draws.
        guard: asks the policy; without an answer a query runs whole where there is least to do. None: what is
            wrong with the policy is raised.
        follows: whether its plan is made anew as rates drift, if the policy can.
    Attributes:
        policy: the one that decides; replaced by each new plan.
        plans: made since the beginning, the first included.
        state: ledger, news and rates.
        up: (S,) servers that are thought to answer.
        shadow: watches what is decided, if there is one.
    Raises:
        PolicyError: the policy cannot begin.
    """

    def __init__(
        self,
        program: SplitWork,
        policy: SplitPolicy,
        seed: int = 0,
        guard: Guard | None = None,
        follows: bool = False,
    ) -> None:
        self.plans, self._follows = 1, follows
        self.work_ops = work_of(program.classes)
        self._rates_qps = np.array([each.rate_qps for each in program.classes])
        self.state = new_state(program.server_ops, self._rates_qps, follows)
        self.use(policy, guard)
        self.up = np.ones(program.server_ops.size, dtype=np.bool_)
        self.shadow: Shadow[Ints] | None = None
        begin(policy, program, Key(seed))

    def use(self, policy: SplitPolicy, guard: Guard | None = None) -> None:
        """Ask another policy from now on, which has begun; what is outstanding stays."""
        self.policy, self.guard = policy, guard
        plans = self._follows and isinstance(policy, Renews)
        rates = self.state.rates._replace(planned_qps=self._rates_qps.copy() if plans else np.zeros(0))
        self.state = self.state._replace(rates=rates)

    def handle(self, event: SplitEvent) -> list[SplitCommand]:
        """Take note of an event; commands follow queries.

        Raises:
            PolicyError: without a guard: the policy places a task nowhere.
        """
        match event:
            case QueryArrived(time_s, query, job):
                due = count_arrival(self.state.rates, job, time_s)
                run = RunQuery(query, self._place(self.view(query, job), time_s))
                return [run, self.plan_wanted()] if due else [run]
            case ServersTold(_, worked_s, served):
                hear(self.state, worked_s, served)
            case ServerChanged(_, server, up):
                self.up[server] = up
            case TasksGivenUp(_, servers, work_ops):
                self._take_back(servers, work_ops)
            case QueryLost(_, query, job, lost):
                return [self._elsewhere(query, job, lost)]
            case PlanMade(_, rates_qps, policy):
                self._use(rates_qps, policy)
        return []

    def view(self, query: int, job: int) -> SplitView:
        """What a policy sees when a query arrives now."""
        return SplitView(query, job, self.state.ledger, self.up)

    @property
    def placed(self) -> int:
        """Queries that were placed since the beginning."""
        return int(self.state.placed[0])

    def plan_wanted(self) -> MakePlan:
        """What is asked for when rates have drifted."""
        return MakePlan(np.maximum(self.state.rates.qps, LEAST_QPS))

    def validate(self) -> None:
        """Check that no more is outstanding than was given."""
        ledger = self.state.ledger
        assert (ledger.tasks >= 0).all() and (ledger.work_s >= 0).all()
        assert np.isfinite(ledger.work_s).all() and (self.state.rates.qps >= 0).all()

    def _place(self, view: SplitView, now_s: float) -> Ints:
        work_ops = self.work_ops[view.job]
        if self.guard is None:
            servers = checked(self.policy, view, work_ops.size)
        else:
            servers = self.guard.ask(
                lambda: checked(self.policy, view, work_ops.size),
                lambda: self._whole(work_ops.size, np.ones_like(self.up)),
            )
        if not self.up[servers].all() and self.up.any():  # few policies look at what is up
            servers = self._whole(work_ops.size, self.up)
        if (shadow := self.shadow) is not None:
            shadow.watch(lambda: checked(shadow.policy, view, work_ops.size), servers, now_s)
        book(self.state, servers, work_ops)
        return servers

    def _take_back(self, servers: Ints, work_ops: Floats) -> None:
        ledger = self.state.ledger
        np.subtract.at(ledger.tasks, servers, 1)
        np.subtract.at(ledger.work_s, servers, work_ops / ledger.power_ops[servers])
        ledger.work_s[ledger.work_s <= NOTHING_S] = 0.0

    def _whole(self, tasks: int, among: Bools) -> Ints:
        """All tasks on the server with least to do, among some that there are."""
        work_s = np.where(among, self.state.ledger.work_s, np.inf)
        return np.full(tasks, int(work_s.argmin()), dtype=np.int64)

    def _elsewhere(self, query: int, job: int, lost: tuple[int, ...]) -> SplitCommand:
        """A query that servers lost runs whole on another, first on those that are up."""
        left = np.ones(self.up.size, dtype=np.bool_)
        left[list(lost)] = False
        if not left.any():
            return RefuseQuery(query)
        best = left & self.up
        servers = self._whole(self.work_ops[job].size, best if best.any() else left)
        book(self.state, servers, self.work_ops[job])
        return RunQuery(query, servers)

    def _use(self, rates_qps: Floats, policy: SplitPolicy | None) -> None:
        rates = self.state.rates
        rates.look.planning = 0
        if policy is not None:
            self.policy, self.plans = policy, self.plans + 1
            rates.planned_qps[:] = rates_qps
