"""Queries of one network split over its workers by the gateway, as a split policy says.

To the gateway a worker of a split variant is an upstream like any other: streams are bound to it, its
capacity is reserved, its health is watched. Only `infer` differs: the group's policy places the tasks of
the query on the workers of the variant, and every sub-model is asked over the Open Inference Protocol as
soon as its tensors are known. Every request says how long its query has been under way, for a worker takes
the oldest query first. Tensors between two workers pass through the gateway. A query whose tasks
all go to one worker is passed on whole, as it came; so is one for which a worker is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from edgewise.arrays import Ints
from edgewise.core.guard import Guard, at_once
from edgewise.core.world import World
from edgewise.errors import ProtocolError, ScenarioError
from edgewise.policies import is_file
from edgewise.policies.split import (
    QueryClass,
    SplitProgram,
    SplitView,
    build_program,
    checked,
    closed,
    new_ledger,
    split_policy,
)
from edgewise.policies.split.online import RateTracker
from edgewise.runtime import http
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.guarded import Limited
from edgewise.runtime.protocol.messages import (
    InferRequest,
    InferResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from edgewise.runtime.protocol.stated import (
    AGE,
    PLAN,
    PRIORITY,
    REMAINING,
    SENT,
    SERVERS,
    TOOK,
    TRACE,
    remaining_s,
)
from edgewise.runtime.protocol.tensors import Array
from edgewise.runtime.worker.pieces import Cut, Part, read_split

log = logging.getLogger("edgewise.split")
PASSED = (PRIORITY, *TRACE)
FOLLOW = ("nona", "nona-queues")  # their plan is made anew as the rate drifts
UPDATE_S = 1.0  # between looks at the rate


class SplitMetrics:
    """What a gateway did with the queries of its split variants.

    Attributes:
        predicted, plans: by variant.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        names = ["variant"]
        self._queries = Counter(
            "edgewise_split_queries", "Queries by number of workers.", [*names, "workers"], registry=registry
        )
        self._sent = Counter(
            "edgewise_split_sent_bytes", "Tensors between workers.", names, registry=registry
        )
        self.predicted = Gauge(
            "edgewise_split_predicted_seconds", "Mean time by the formula.", names, registry=registry
        )
        self.plans = Gauge("edgewise_split_plans", "Plans made so far.", names, registry=registry)

    def answered(self, variant: str, workers: int, sent_bytes: int) -> None:
        """A query was answered by so many workers."""
        self._queries.labels(variant, str(workers)).inc()
        self._sent.labels(variant).inc(sent_bytes)


class SplitUpstream(Upstream):
    """A worker of a split variant; its group carries out the queries that enter here."""

    group: SplitGroup

    async def infer(self, headers: dict[str, str], body: bytes, timeout_s: float) -> http.Response:
        """See `Upstream.infer`."""
        return await self.group.infer(self, headers, body, timeout_s)

    def moved(self, client: http.Client, model: str) -> Upstream:
        """See `Upstream.moved`."""
        fresh = SplitUpstream(client, model)
        self.group.replace(self, fresh)
        return fresh

    async def whole(self, headers: dict[str, str], body: bytes, timeout_s: float) -> http.Response:
        """Pass a query on as it came."""
        return await super().infer(headers, body, timeout_s)


class SplitGroup:
    """The workers of a split variant and the policy that places queries on them.

    Args:
        variant: its name.
        cut: the network.
        members: its workers; more than one.
        names: of the workers.
        metrics: told about every query.
        seed: of the policy's draws.
    Attributes:
        guard: asks the policy; where it fails, a query runs whole where there is least to do.
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
        seed: int = 0,
    ) -> None:
        if len(members) < 2:
            raise ScenarioError(f"{variant}: a split variant needs 2 workers or more, got {len(members)}")
        self.variant, self.cut, self.members, self.names = variant, cut, list(members), names
        self.metrics = metrics
        self.policy = split_policy(cut.policy, program_of(cut, len(members)), seed=seed)
        self.guard = Guard(Limited() if is_file(cut.policy) else at_once)  # what ships does not hang
        self.tracker = RateTracker(self.policy) if cut.policy in FOLLOW else None
        self.ledger = new_ledger(np.full(len(members), cut.power_ops))
        self._tasks = [task.name for task in closed(cut.graph).tasks]
        self._work_ops = np.array([task.work_ops for task in closed(cut.graph).tasks])
        self._live = [part for part in cut.parts if part.name]
        self._asked = [self._targets(member) for member in members]
        self._queries = 0
        self._solving: asyncio.Future[None] | None = None
        self._next_s = 0.0
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

    async def infer(
        self, home: SplitUpstream, headers: dict[str, str], body: bytes, timeout_s: float
    ) -> http.Response:
        """Answer a query that entered at `home`.

        Raises:
            ConnectionError: every worker is lost.
            TimeoutError: no answer within `timeout_s`.
            ProtocolError: the tensors cannot be read.
        """
        began_s = time.monotonic()
        self._follow(began_s)
        placed = self._placed()
        servers = dict(zip(self._tasks, placed.tolist(), strict=True))
        used = sorted({servers[part.task] for part in self._live})
        try:
            asked = decode_request(headers, body) if len(used) > 1 else None
            if asked is not None and self._divisible(asked) and all(self.members[s].up for s in used):
                try:
                    run = _QueryRun(self, asked, servers, headers, began_s, timeout_s)
                    return self._reported(await run.answer(), used, run.sent_bytes, began_s)
                except ConnectionError:  # a worker was lost on the way; inference may run twice
                    pass
            return await self._whole(used[0], home, headers, body, began_s, timeout_s)
        finally:
            self.ledger.change(placed, self._work_ops, -1)

    def _placed(self) -> Ints:
        """A server for each task: as the policy says, or where it fails the one with least to do for all."""
        view, work_ops = SplitView(self._queries, 0, self.ledger), self._work_ops
        servers = self.guard.ask(
            lambda: checked(self.policy, view, work_ops),
            lambda: np.full(work_ops.size, int(self.ledger.work_s.argmin()), dtype=np.int64),
        )
        if self.guard.new:
            log.error("split policy failed", extra={"policy": self.policy.name, "why": self.guard.fault})
        self.ledger.change(servers, work_ops)
        self._queries += 1
        return servers

    def ask(self, server: int, part: Part) -> Upstream:
        """A sub-model at a worker."""
        return self._asked[server][part.name]

    def _divisible(self, asked: InferRequest) -> bool:
        """Whether a query is as the network wants it; the whole network says what is wrong with others."""
        return set(asked.inputs) == set(self.cut.inputs) and set(asked.outputs) <= set(self.cut.outputs)

    async def _whole(
        self, first: int, home: SplitUpstream, headers: dict[str, str], body: bytes, began_s: float,
        timeout_s: float,
    ) -> http.Response:  # fmt: skip
        """At one worker: the first that is there."""
        order = dict.fromkeys((self.members[first], home, *self.members))
        lost = ConnectionError("no worker of the variant is up")
        for member in sorted(order, key=lambda m: not m.up):
            age_s = time.monotonic() - began_s
            try:
                aged = headers | {AGE: f"{age_s:.6f}"}
                answer = await member.whole(aged, body, max(timeout_s - age_s, 0.001))
            except ConnectionError as error:
                lost = error
                continue
            return self._reported(answer, [self.members.index(member)], 0, began_s)
        raise lost

    def _reported(
        self, answer: http.Response, used: Sequence[int], sent_bytes: int, began_s: float
    ) -> http.Response:
        if answer.status == 200:
            self.metrics.answered(self.variant, len(used), sent_bytes)
            answer.headers[PLAN], answer.headers[SENT] = self.policy.name, str(sent_bytes)
            answer.headers[SERVERS] = ",".join(self.names[server] for server in used)
            answer.headers[TOOK] = f"{time.monotonic() - began_s:.6f}"
        return answer

    def _follow(self, now_s: float) -> None:
        """Note the arrival; where the rate has drifted, make a new plan in a thread."""
        if self.tracker is None:
            return
        self.tracker.seen(0, now_s)
        if now_s < self._next_s or (self._solving is not None and not self._solving.done()):
            return
        self._next_s = now_s + UPDATE_S
        if (rates := self.tracker.drifted(now_s)) is not None:
            self._solving = asyncio.get_running_loop().run_in_executor(None, self._solve, rates)

    def _solve(self, rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        assert self.tracker is not None
        if self.tracker.solve(rates):
            self.policy = self.tracker.policy
            self._tell()

    def _tell(self) -> None:
        if (plan := getattr(self.policy, "plan", None)) is not None:
            self.metrics.predicted.labels(self.variant).set(plan.forecast.mean_s)
        solved = self.tracker.solved if self.tracker is not None else 1
        self.metrics.plans.labels(self.variant).set(solved)


def program_of(cut: Cut, servers: int) -> SplitProgram:
    """The optimisation problem of a cut network on its workers."""
    return build_program([QueryClass(cut.graph, cut.rate_qps)], servers, cut.power_ops, cut.link_bps)


def warm(folders: Sequence[str]) -> None:
    """Compile what groups need, so that forks of this process start at once."""
    for folder in folders:
        cut = read_split(Path(folder))
        policy, ledger = split_policy(cut.policy, program_of(cut, 2)), new_ledger(np.full(2, cut.power_ops))
        policy.decide(SplitView(0, 0, ledger))


def split_upstreams(
    upstreams: list[Upstream],
    world: World,
    folders: Sequence[str | None],
    registry: CollectorRegistry,
    seed: int,
) -> list[SplitGroup]:
    """Replace the upstreams of split variants in a gateway's list.

    Args:
        folders: of each worker: its cut network (`pieces`), None where it serves its network whole.
    """
    groups: list[SplitGroup] = []
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
        groups.append(SplitGroup(variant, read_split(Path(folder)), members, names, metrics, seed))
    return groups


class _PieceRefused(Exception):
    """A worker's answer that is not 200."""

    def __init__(self, answer: http.Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


class _QueryRun:
    """One query on its way through the sub-models.

    Attributes:
        sent_bytes: tensors that went to another worker than the one they came from.
    """

    def __init__(
        self,
        group: SplitGroup,
        asked: InferRequest,
        servers: Mapping[str, int],
        headers: Mapping[str, str],
        began_s: float,
        timeout_s: float,
    ) -> None:
        self._group, self._asked, self._servers = group, asked, servers
        self._passed = {name: headers[name] for name in PASSED if name in headers}
        self._began_s, self._expires_s = began_s, began_s + remaining_s(headers)
        self._until_s = began_s + timeout_s
        self._parts = [part for part in group.cut.parts if part.name]
        loop = asyncio.get_running_loop()
        self._known: dict[str, asyncio.Future[Array]] = {
            name: loop.create_future() for part in self._parts for name in part.outputs
        }
        self._came_from = {name: servers[part.task] for part in self._parts for name in part.outputs}
        for name, array in asked.inputs.items():
            self._known[name] = loop.create_future()
            self._known[name].set_result(array)
        self.sent_bytes = 0

    async def answer(self) -> http.Response:
        """Every sub-model as soon as its tensors are known; the network's answer, or the first refusal."""
        parts = [asyncio.ensure_future(self._carry_out(part)) for part in self._parts]
        try:
            await asyncio.gather(*parts)
        except _PieceRefused as refused:
            return refused.answer
        finally:
            for part in parts:
                part.cancel()
        asked, cut = self._asked, self._group.cut
        outputs = {name: self._known[name].result() for name in asked.outputs or cut.outputs}
        response = InferResponse(cut.graph.name, outputs, asked.id)
        headers, body = encode_response(response, asked.binary, asked.binary_outputs)
        return http.Response(200, body, headers)

    async def _carry_out(self, part: Part) -> None:
        here = self._servers[part.task]
        feeds = {name: await self._known[name] for name in part.inputs}
        now_s = time.monotonic()
        if now_s >= self._expires_s:
            raise _PieceRefused(http.failure(504, f"deadline passed before {part.task}"))
        request = InferRequest(feeds, part.outputs, parameters=self._asked.parameters)
        headers, body = encode_request(request)
        headers |= self._passed | {AGE: f"{now_s - self._began_s:.6f}"}
        if self._expires_s < np.inf:
            headers[REMAINING] = f"{self._expires_s - now_s:.6f}"
        target = self._group.ask(here, part)
        answer = await target.infer(headers, body, max(self._until_s - now_s, 0.001))
        if answer.status == 503:
            raise ConnectionError(f"{target.client.url} is draining")
        if answer.status != 200:
            raise _PieceRefused(answer)
        try:
            found = decode_response(answer.headers, answer.body).outputs
        except ProtocolError as error:
            raise ProtocolError(f"{part.task}: the worker's answer: {error}", status=502) from error
        self.sent_bytes += sum(a.nbytes for n, a in feeds.items() if self._came_from.get(n, here) != here)
        for name in part.outputs:
            self._known[name].set_result(found[name])
