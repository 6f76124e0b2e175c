"""The gateway of an access site: asks the core where a stream goes, then forwards its queries.

Clients name the task in the URL; the variant is the scheduler's choice and is reported back.

    …      /v1/streams[/{id}]           see `streams`
    POST   /v2/models/{task}/infer      a query, with header `edgewise-stream: {id}`, or with its
                                        stream's needs as headers (`needs.HEADERS`)
    GET    /metrics, /openapi.json
    …      /v1/admin/…                  see `admin`

A service (see `service_requests`) may stand for the task; its requests have no stream.
Without `edgewise-stream`, queries of one task that state the same needs make one stream; it is
opened by the first and closed when idle. Beyond the declared rate of a stream its queries are answered 429.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from edgewise.runtime import clock, http
from edgewise.runtime.clock import next_period
from edgewise.runtime.gateway.describing import ALL, describe, describe_all
from edgewise.runtime.gateway.forwarding import (
    PASSED,
    Destination,
    LiveQuery,
    Patience,
    Upstream,
    Ways,
    forward,
    pass_time,
    reported,
    took_s,
    where_is,
)
from edgewise.runtime.gateway.granting import Granting
from edgewise.runtime.gateway.needs import Book
from edgewise.runtime.gateway.service_requests import RequestWork, ServiceRequests
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.gateway.split import SplitGroup
from edgewise.runtime.gateway.stream_query import StreamWork
from edgewise.runtime.gateway.streams import LiveStreams
from edgewise.runtime.protocol import triton
from edgewise.runtime.protocol.openapi import answer_about
from edgewise.runtime.watch.metrics import GatewayMetrics
from edgewise.runtime.watch.tracing import OFF, Tracing

__all__ = ["Gateway", "Patience"]
log = logging.getLogger("edgewise.gateway")
NO_STREAM = 2**40  # keys the emulated ways of requests, one number for each site
COUNTS_S = 0.5  # a worker that does not say by then what it counted is not waited for
MODELS = ["v2", "models"]
EXTENSIONS = ("binary_tensor_data", "edgewise_streams", *triton.EXTENSIONS)

Check = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Gateway:
    """Serves one session over HTTP.

    Args:
        session: core, clock and records.
        clients: one connection pool for each worker, in the world's order.
        models: name of each worker's model in its own URL.
        patience: times.
        max_streams: that may be open; one more is answered 429.
        book: numbers streams and keeps them.
        name: among gateways that share workers, which then grant reservations; None where there is one.
        ways: emulated delays between sites and clusters; None where the network has its own.
        site: of streams that state none; the first when None.
        tracing: records spans of queries.
        services: requests of services, which need no stream; None where the scenario has none.
        granted_by: see `Granting`, where the gateway has a name.
    """

    session: Session
    clients: list[http.Client]
    models: Sequence[str]
    patience: Patience = field(default_factory=Patience)
    max_streams: int = 10_000
    book: Book = field(default_factory=Book)
    name: str | None = None
    ways: Ways | None = None
    site: str | None = None
    tracing: Tracing = OFF
    services: ServiceRequests | None = None
    splits: Sequence[SplitGroup] = ()
    granted_by: Mapping[int, str] = field(default_factory=dict)
    draining: bool = False
    granting: Granting | None = field(init=False, default=None)
    upstreams: list[Upstream] = field(init=False)
    metrics: GatewayMetrics = field(init=False)
    streams: LiveStreams = field(init=False)
    _tasks: frozenset[str] = field(init=False)
    in_flight: int = 0
    _travelled: int = 0

    def __post_init__(self) -> None:
        pairs = zip(self.clients, self.models, strict=True)
        self.upstreams = [Upstream(client, model) for client, model in pairs]
        for target, there in zip(self.upstreams, self.session.world.at_first.tolist(), strict=True):
            target.up = target.wanted = there
        self.metrics = GatewayMetrics(self.session, self.upstreams)
        self._tasks = frozenset(self.session.world.task_names)
        if self.name is not None:
            self.granting = Granting(
                self.session,
                self.upstreams,
                self.name,
                lambda worker: self.worker_changed(worker, False),
                self.granted_by,
            )
        self.streams = LiveStreams(
            self.session, self.book, self.patience, self.granting, self.upstreams,
            max_streams=self.max_streams, site=self.site,
        )  # fmt: skip

    def handle(self, request: http.HttpRequest) -> Awaitable[http.Response]:
        """Answer one HTTP request."""
        parts = request.parts
        if parts[3:5] == ["versions", "1"]:
            del parts[3:5]  # the one that there is
        if len(parts) == 4 and parts[3] == "infer" and parts[:2] == MODELS and request.method == "POST":
            return self._infer(request, parts[2])
        return self._about(request, parts)

    async def _about(self, request: http.HttpRequest, parts: list[str]) -> http.Response:
        """Answer what is no query."""
        if parts in ALL:
            tasks = [*self._tasks, *(self.services.names if self.services is not None else ())]
            answer = await describe_all(request, {name: self._targets(name) for name in tasks}, self.draining)
            if answer is not None:
                return answer
        answer = None
        if parts[:2] == MODELS and len(parts) in (3, 4):
            task, rest = parts[2], parts[3:]
            known = self._serves(task)
            answer = (
                await describe(request, task, rest, self._targets(task), self.draining)
                if known
                else self._unknown(task)
            )
        elif parts[:2] == ["v1", "streams"]:
            if self.draining and request.method == "POST":
                return http.failure(503, "draining")
            answer = await self.streams.handle(request, parts[2:])
        return answer or answer_about(request, "gateway", EXTENSIONS, self.draining, self.metrics.registry)

    async def keep_time(self, telemetry_period_s: float = 1.0) -> None:
        """Begin windows, renew leases and report telemetry, each in its period, until cancelled."""
        chores = [self._begin_windows(), self._sample(telemetry_period_s)]
        if self.granting is not None:
            chores.append(self.granting.keep())
        await asyncio.gather(*chores)

    async def _begin_windows(self) -> None:
        while True:
            self.session.tick()
            await next_period(self.session.clock, self.session.rules.window_s)

    async def _sample(self, period_s: float) -> None:
        clock = self.session.clock
        while True:
            await next_period(clock, period_s)
            asked_s = clock()
            counts = await asyncio.gather(*(each.counts(COUNTS_S) for each in self.upstreams))
            down = [w for w, each in enumerate(self.upstreams) if not each.up]
            self.session.sample(counts, asked_s, down)
            self.streams.close_unused()

    async def watch(self) -> None:
        """Check the health of workers and replicas each period, until cancelled.

        The first time all at once, then spread over the period: asked at one time, all workers of a machine
        would wait for each other's processors.
        """
        apart_s = 0.0
        while True:
            checks: list[Check] = [partial(self._check, *each) for each in enumerate(self.upstreams)]
            checks += self.services.checks() if self.services is not None else []
            await asyncio.gather(*(_later(k * apart_s, check) for k, check in enumerate(checks)))
            await next_period(self.session.clock, self.patience.health_period_s)
            apart_s = self.patience.health_spread * self.patience.health_period_s / max(len(checks), 1)

    async def _check(self, worker: int, target: Upstream) -> None:
        up = await target.check(self.patience.health_timeout_s, self.patience.health_misses)
        if self.upstreams[worker] is not target:
            return
        self.worker_changed(worker, up)
        self.session.worked(self.session.world.worker_names[worker], target.worked)
        if self.services is not None:
            self.services.note_worker(worker)

    async def drain(self) -> None:
        """Take no more streams and queries, and wait for those accepted."""
        self.draining = True
        while self.in_flight:
            await clock.sleep(0.002)

    def worker_changed(self, worker: int, up: bool) -> None:
        """A worker was seen to go down or come up: its streams move, or refused ones get another try."""
        if self.upstreams[worker].up == up:
            return
        self.upstreams[worker].up = up
        log.warning("worker %s", "up" if up else "down", extra=where_is(self.session.world, worker))
        self.session.worker_changed(worker, up, drains=up and not self.upstreams[worker].wanted)
        if self.granting is not None:
            self.granting.settle_all()
        if not up and self.upstreams[worker].silent:
            self.upstreams[worker].client.abort()  # last: what was under way there goes elsewhere at once

    def want(self, worker: int, wanted: bool, start_s: float) -> None:
        """A worker is to go once it has no streams, or is to come, and takes so long to start, or stays."""
        target = self.upstreams[worker]
        if target.wanted == wanted:
            return
        target.wanted = wanted
        log.info("worker wanted" if wanted else "worker drains", extra=where_is(self.session.world, worker))
        if target.up:
            self.session.worker_changed(worker, wanted, drains=not wanted)
        else:
            self.session.worker_changed(worker, False, ready_s=start_s if wanted else math.inf)
        if self.granting is not None:
            self.granting.settle_all()

    def move(self, worker: int, url: str, model: str, token: str | None = None) -> None:
        """Take another server for a worker from now on; ValueError where the address is none."""
        old = self.upstreams[worker]
        fresh = old.moved(http.Client.of_url(url, token), model)
        fresh.up = old.up  # the next health check tells
        self.upstreams[worker] = fresh
        old.client.close()
        if self.granting is not None:
            self.granting.moved(worker)

    def restore(self) -> int:
        """Take over the book: where workers moved, and streams under their numbers; returns how many."""
        for name, where in self.book.moves().items():
            if name in self.session.world.worker_names:
                self.move(self.session.world.worker_names.index(name), *where)
        return self.streams.restore()

    # queries

    async def _infer(self, request: http.HttpRequest, name: str) -> http.Response:
        """Answer a query of a task, or a request of a service."""
        services, answer = self._services_with(name), None
        if services is None and name not in self._tasks:
            return self._unknown(name)
        if self.draining:
            return http.failure(503, "draining")
        headers = {each: request.headers[each] for each in PASSED if each in request.headers}
        query = LiveQuery(request.body, headers, request.received_s, len(request.body))
        work = StreamWork(self, request, name) if services is None else services.work(request, name)
        self.in_flight += 1
        try:
            with self.tracing.serve("infer", request.headers):
                answer = await self._serve(work, query)
                self.tracing.note(task=name, status=answer.status)
            return answer
        finally:
            self.in_flight -= 1
            work.ended(answer)

    async def _serve(self, work: StreamWork | RequestWork, query: LiveQuery) -> http.Response:
        """Send a query where it is to go, and elsewhere when who has it is lost."""
        for tried in itertools.count(1):
            with self.tracing.span("decide"):
                place = await work.choose(query)
            if isinstance(place, http.Response):
                return place
            answer, again = await self._carry(work, query, place, tried)
            if not again:
                return answer
            query.began_s = clock.monotonic_s()
            self.metrics.retries.inc()
        raise AssertionError("it is sent a few times at most")

    async def _carry(
        self, work: StreamWork | RequestWork, query: LiveQuery, place: Destination, tried: int
    ) -> tuple[http.Response, bool]:
        """The answer of a place, over the emulated ways there and back; and whether it goes elsewhere."""
        answer, there_s, back_s, again = None, None, 0.0, False
        try:
            ways_s = await self._travel(query, place)
            sent_s = clock.monotonic_s()
            answer, lost = await forward(place.target, place.name, query, self.tracing)
            now_s = clock.monotonic_s()
            there_s = now_s - sent_s if answer.status == 200 else None
            if self.ways is not None and ways_s is not None:
                back_s = self.ways.rest_s(ways_s, now_s - query.began_s, took_s(answer))
            again = lost and work.lost(tried, query.expires_s - now_s)
            self._note_sizes(query, place, answer)
        finally:
            work.returned(answer, there_s, back_s, again)
        if not again:
            await pass_time(back_s)
        return reported(answer, place.name, place.variant), again

    def _note_sizes(self, query: LiveQuery, place: Destination, answer: http.Response) -> None:
        """Count what went there and back; where ways are emulated, a query is as large as its stream says."""
        moved = place.target.moved_bytes(answer)
        there = len(query.body) if self.ways is None else int(query.size_bytes)
        back = len(answer.body) if answer.status == 200 else 0
        self.session.travelled(place.site, place.cluster, there + moved, back + moved)

    async def _travel(self, query: LiveQuery, place: Destination) -> tuple[float, float] | None:
        """Pass the emulated time to a place; that there and back, None where they are not emulated."""
        if self.ways is None:
            return None
        self._travelled += 1
        key = query.stream_id if query.stream_id >= 0 else NO_STREAM + place.site
        sizes = query.size_bytes, query.answer_bytes
        found = self.ways.delays_s(place.site, place.cluster, sizes, key, self._travelled)
        await pass_time(found[0])
        return found

    def _serves(self, task: str) -> bool:
        return task in self._tasks or self._services_with(task) is not None

    def _unknown(self, task: str) -> http.Response:
        names = [*self._tasks, *(self.services.names if self.services is not None else ())]
        why = f"task: no worker implements {task[:80]!r}; use {' or '.join(sorted(names))}"
        return http.failure(404, why)

    def _services_with(self, task: str) -> ServiceRequests | None:
        """The services, where one of them is called so."""
        return self.services if self.services is not None and task in self.services.names else None

    def _targets(self, task: str) -> list[Upstream]:
        """Who serves a task, or a service."""
        services = self._services_with(task)
        if services is not None:
            return services.targets(task)
        world = self.session.world
        return [self.upstreams[w] for w in range(world.workers) if world.task_names[world.task[w]] == task]


async def _later(after_s: float, check: Check) -> None:
    await clock.sleep(after_s)
    await check()
