"""Queries of one network split over its workers by the gateway, as a split policy says.

To the gateway a worker of a split variant is an upstream like any other: streams are bound to it, its
capacity is reserved, its health is watched. Only `infer` differs: `SplitCore` places the tasks of
the query on the workers of the variant, and every sub-model is asked over the Open Inference Protocol as
soon as its tensors are known. Every request says how long its query has been under way, for a worker takes
the oldest query first. Tensors between two workers pass through the gateway. A query whose tasks
all go to one worker is passed on whole, as it came; so is one for which a worker is lost.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from edgewise import policies
from edgewise.arrays import Floats, Ints
from edgewise.core.guard import Guard, Shadow, Strict, begin
from edgewise.core.keyed import Key
from edgewise.core.split import SplitPolicy, closed
from edgewise.core.split.core import (
    MakePlan,
    PlanMade,
    QueryArrived,
    QueryLost,
    RunQuery,
    ServerChanged,
    ServersTold,
    SplitCore,
)
from edgewise.errors import ScenarioError
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import QueryClass, SplitProgram, build_program, predicted_s
from edgewise.runtime import clock, http
from edgewise.runtime.apart import load
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.gateway.service_requests import Over
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.gateway.split_query import QueryRun, WorkerLost
from edgewise.runtime.protocol.messages import (
    AGE,
    PLAN,
    SENT,
    SERVERS,
    TOOK,
    InferRequest,
    decode_request,
)
from edgewise.runtime.worker.pieces import Cut, Part, read_split

log = logging.getLogger("edgewise.split")
KEPT = 100_000  # queries that are over, for whoever keeps them


class SplitMetrics:
    """What a gateway did with the queries of its split variants.

    Attributes:
        queries: by variant and number of workers; sent, predicted, plans: by variant.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        names = ["variant"]
        self.queries = Counter(
            "edgewise_split_queries", "Queries by number of workers.", [*names, "workers"], registry=registry
        )
        self.sent = Counter("edgewise_split_sent_bytes", "Tensors between workers.", names, registry=registry)
        self.predicted = Gauge(
            "edgewise_split_predicted_seconds", "Mean time by the formula.", names, registry=registry
        )
        self.plans = Gauge("edgewise_split_plans", "Plans made so far.", names, registry=registry)


class SplitUpstream(Upstream):
    """A worker of a split variant; its group carries out the queries that enter here."""

    group: "SplitGroup | None" = None
    _up = True

    @property
    def up(self) -> bool:
        """Whether it is thought to answer; its group hears of it at once."""
        return self._up

    @up.setter
    def up(self, up: bool) -> None:
        self._up = up
        if self.group is not None:
            self.group.noticed(self)

    async def infer(self, headers: dict[str, str], body: bytes, timeout_s: float) -> http.Response:
        """See `Upstream.infer`."""
        assert self.group is not None, "it has one from the beginning"
        return await self.group.infer(headers, body, timeout_s)

    def moved(self, client: http.Client, model: str) -> Upstream:
        """See `Upstream.moved`."""
        fresh = SplitUpstream(client, model)
        assert self.group is not None, "it has one from the beginning"
        self.group.replace(self, fresh)
        return fresh

    def moved_bytes(self, answer: http.Response) -> int:
        """See `Upstream.moved_bytes`."""
        return int(answer.headers[SENT]) if answer.status == 200 else 0  # its group wrote it

    async def whole(self, headers: dict[str, str], body: bytes, timeout_s: float) -> http.Response:
        """Pass a query on as it came."""
        return await super().infer(headers, body, timeout_s)


class SplitGroup:
    """The workers of a split variant and the core that places queries on them.

    Args:
        variant: its name.
        cut: the network.
        members: its workers; more than one.
        names: of the workers.
        metrics: told about every query.
        session: whose seed keys the policy's draws, and which makes its guard.
        policy_name: who splits; "": as the cut says.
    Attributes:
        over: the latest queries that are, as `ServiceRequests.over`.
    Raises:
        ScenarioError: there is only one worker.
        PolicyError: the policy's name is unknown, or the workers cannot do the work.
    """

    def __init__(
        self,
        variant: str,
        cut: Cut,
        members: Sequence[SplitUpstream],
        names: Sequence[str],
        metrics: SplitMetrics,
        session: Session,
        policy_name: str = "",
    ) -> None:
        if len(members) < 2:
            raise ScenarioError(f"{variant}: a split variant needs 2 workers or more, got {len(members)}")
        self.variant, self.cut, self.members, self.names = variant, cut, list(members), names
        self.metrics, self._session = metrics, session
        program, policy = program_of(cut, len(members)), self._loaded(policy_name or cut.policy)
        self.core = SplitCore(program, policy, session.seed, session.guard("split", policy), follows=True)
        self._work_s = {task.name: task.work_ops / cut.power_ops for task in closed(cut.graph).tasks}
        self._live = [part for part in cut.parts if part.name]
        self._asked = [self._targets(member) for member in members]
        self._queries = 0
        self.over: deque[Over] = deque(maxlen=KEPT)
        self._worked_s, self._served = np.zeros(len(members)), np.zeros(len(members), dtype=np.int64)
        self._planning: asyncio.Task[None] | None = None
        self._runs = set[QueryRun]()
        self._tell()
        for member in members:
            member.group = self

    def replace(self, old: SplitUpstream, fresh: SplitUpstream) -> None:
        """A worker is somewhere else now."""
        place = self.members.index(old)
        self.members[place], self._asked[place] = fresh, self._targets(fresh)
        fresh.group = self

    def _targets(self, member: SplitUpstream) -> dict[str, Upstream]:
        return {part.name: Upstream(member.client, part.name) for part in self._live}

    def begun(self, name: str) -> SplitPolicy:
        """A policy that has begun for this group, which may take seconds.

        Raises:
            PolicyError: there is none of that name, or it cannot begin.
        """
        policy = self._loaded(name)
        return begin(policy, program_of(self.cut, len(self.members)), Key(self._session.seed))

    def _loaded(self, name: str) -> SplitPolicy:
        policy: SplitPolicy = load("split", name, self._session.budget_s("split"))
        return policy

    def hand(self, policy: SplitPolicy | None, watches: bool = False) -> None:
        """Have a policy, which has begun, place queries; where it only watches, None: no longer."""
        guard = None if policy is None else self._session.guard("split", policy, watches)
        if guard is None or watches:
            self.core.shadow = None if guard is None else Shadow(policy, guard, self._said)
        elif policy is not None:
            self.core.use(policy, guard)
            self._tell()

    def _said(self, servers: Ints) -> dict[Hashable, str]:
        return {task: self.names[s] for task, s in zip(self._work_s, servers.tolist(), strict=True)}

    async def infer(self, headers: dict[str, str], body: bytes, timeout_s: float) -> http.Response:
        """Answer a query.

        Raises:
            ConnectionError: every worker is lost.
            TimeoutError: no answer within `timeout_s`.
            ProtocolError: the tensors cannot be read.
        """
        began_s, answer = clock.monotonic_s(), None
        try:
            answer = await self._infer(headers, body, began_s, timeout_s)
            return answer
        finally:
            end_s, took_s = clock.unix_s(), clock.monotonic_s() - began_s
            served = answer is not None and answer.status == 200
            outcome = "dropped" if not served else "in_time" if took_s <= timeout_s else "late"
            self.over.append((end_s - took_s, (self.variant, timeout_s, len(body), None, end_s, outcome)))

    async def _infer(
        self, headers: dict[str, str], body: bytes, began_s: float, timeout_s: float
    ) -> http.Response:
        number = self._queries
        self._queries += 1
        lost: list[int] = []
        servers = self._decided(QueryArrived(began_s, number, 0))
        while servers is not None:
            left = servers.copy()
            try:
                return await self._carried_out(servers, left, headers, body, began_s, timeout_s)
            except WorkerLost as error:  # inference may run twice
                lost.append(error.args[0])
            finally:
                self.ended(left, *left)
            servers = self._decided(QueryLost(clock.monotonic_s(), number, 0, tuple(lost)))
        raise ConnectionError("no worker of the variant is up")

    async def _carried_out(
        self, servers: Mapping[str, int], left: dict[str, int], headers: dict[str, str], body: bytes,
        began_s: float, timeout_s: float,
    ) -> http.Response:  # fmt: skip
        """In pieces, each of which leaves `left` when it is done; or whole."""
        used = sorted({servers[part.task] for part in self._live})
        asked = decode_request(headers, body) if len(used) > 1 else None
        if asked is not None and self._divisible(asked):
            run = QueryRun(self, asked, left, headers, began_s, timeout_s)
            self._runs.add(run)
            try:
                answer = await run.answer()
            finally:
                self._runs.discard(run)
            return self._reported(answer, used, run.sent_bytes, began_s)
        age_s = clock.monotonic_s() - began_s
        try:
            answer = await self.members[used[0]].whole(
                headers | {AGE: f"{age_s:.6f}"}, body, max(timeout_s - age_s, 0.001)
            )
        except ConnectionError as error:
            raise WorkerLost(used[0]) from error
        return self._reported(answer, used[:1], 0, began_s)

    def noticed(self, member: SplitUpstream) -> None:
        """A worker went down or came up: queries that are still to go there are placed anew."""
        server = self.members.index(member)
        if member.up != self.core.up[server]:
            self.core.handle(ServerChanged(clock.monotonic_s(), server, member.up))
            for run in [] if member.up else list(self._runs):
                run.lose(server)

    def _decided(self, event: QueryArrived | QueryLost) -> dict[str, int] | None:
        """A server for each task, as the core says; None: there is none left."""
        servers = None
        for command in self.core.handle(event):
            match command:
                case RunQuery(_, found):
                    servers = dict(zip(self._work_s, found.tolist(), strict=True))
                case MakePlan(rates_qps):
                    self._planning = asyncio.create_task(self._plan(rates_qps))
        return servers

    def ended(self, left: dict[str, int], *tasks: str) -> None:
        """Tasks of a query ended, or were given up, at their workers: the core hears of it.

        Args:
            left: where those run that have not ended yet.
        """
        for task in tasks:
            server = left.pop(task)
            self._worked_s[server] += self._work_s[task]
            self._served[server] += 1
        self.core.handle(ServersTold(clock.monotonic_s(), self._worked_s.copy(), self._served.copy()))

    def ask(self, server: int, part: Part) -> Upstream:
        """A sub-model at a worker."""
        return self._asked[server][part.name]

    def _divisible(self, asked: InferRequest) -> bool:
        """Whether a query is as the network wants it; the whole network says what is wrong with others."""
        return set(asked.inputs) == set(self.cut.inputs) and set(asked.outputs) <= set(self.cut.outputs)

    def _reported(
        self, answer: http.Response, used: Sequence[int], sent_bytes: int, began_s: float
    ) -> http.Response:
        if answer.status == 200:
            self.metrics.queries.labels(self.variant, str(len(used))).inc()
            self.metrics.sent.labels(self.variant).inc(sent_bytes)
            answer.headers[PLAN], answer.headers[SENT] = self.core.policy.name, str(sent_bytes)
            answer.headers[SERVERS] = ",".join(self.names[server] for server in used)
            answer.headers[TOOK] = f"{clock.monotonic_s() - began_s:.6f}"
        return answer

    async def _plan(self, rates_qps: Floats) -> None:
        """Make a plan in a thread, and have the core draw from it."""
        policy: Any = self.core.policy
        made = await asyncio.to_thread(Guard().ask, lambda: policy.renewed(rates_qps), lambda: None)
        made = made if policy is self.core.policy else None  # another decides by now
        self.core.handle(PlanMade(clock.monotonic_s(), rates_qps, made))
        self._tell()

    def _tell(self) -> None:
        if (mean_s := predicted_s(self.core.policy)) is not None:
            self.metrics.predicted.labels(self.variant).set(mean_s)
        self.metrics.plans.labels(self.variant).set(self.core.plans)


def program_of(cut: Cut, servers: int) -> SplitProgram:
    """The optimisation problem of a cut network on its workers."""
    return build_program([QueryClass(cut.graph, cut.rate_qps)], servers, cut.power_ops, cut.link_bps)


def warm(folders: Sequence[str], policy: str) -> None:
    """Compile what groups need, so that forks of this process start at once."""
    for folder in folders:
        cut = read_split(Path(folder))
        name = policy if policy and policies.ships("split", policy) else cut.policy
        core = SplitCore(program_of(cut, 2), policies.load("split", name), follows=True)
        core.handle(QueryArrived(0.0, 0, 0))
        core.handle(ServersTold(0.0, np.zeros(2), np.zeros(2, dtype=np.int64)))


def rehearse(policy: SplitPolicy, _: SplitProgram | None = None) -> None:
    """Let a policy place a query of two tasks on two servers.

    Raises:
        PolicyError: it cannot begin, raises, or places a task nowhere.
    """
    graph = TaskGraph("small", (Task("first", 1e6), Task("second", 1e6)), (Edge("first", "second", 1e3),))
    program = build_program([QueryClass(graph, 1.0)], 2, 1e9, 1e9)
    SplitCore(program, policy, guard=Strict(policy.name)).handle(QueryArrived(0.0, 0, 0))


def split_upstreams(
    upstreams: list[Upstream],
    session: Session,
    folders: Sequence[str | None],
    registry: CollectorRegistry,
    policy: str = "",
) -> list[SplitGroup]:
    """Replace the upstreams of split variants in a gateway's list.

    Args:
        folders: of each worker: its cut network (`pieces`), None where it serves its network whole.
        policy: as `SplitGroup`.
    """
    groups: list[SplitGroup] = []
    world = session.world
    if not any(folders):
        return groups
    metrics = SplitMetrics(registry)
    for folder in dict.fromkeys(folder for folder in folders if folder is not None):
        mine = [worker for worker, each in enumerate(folders) if each == folder]
        variant = world.variant_names[mine[0]]
        for worker in mine:
            upstreams[worker] = SplitUpstream(upstreams[worker].client, variant)
        members = [member for w in mine if isinstance(member := upstreams[w], SplitUpstream)]
        names = [world.worker_names[w] for w in mine]
        cut = read_split(Path(folder))
        groups.append(SplitGroup(variant, cut, members, names, metrics, session, policy))
    return groups
