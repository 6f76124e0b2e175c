"""The gateway of an access site: asks the core where a stream goes, then forwards its queries.

Clients name the task in the URL; the variant is the scheduler's choice and is reported back.

    POST   /v1/streams                  open a stream: its needs as JSON → worker, or 409 and why
    GET    /v1/streams[/{id}]           what was opened and what became of it
    DELETE /v1/streams/{id}             close it
    POST   /v2/models/{task}/infer      a query, with header `edgewise-stream: {id}`, or with its
                                        stream's needs as headers (`needs.HEADERS`)
    GET    /metrics, /openapi.json
    …      /v1/admin/…                  see `admin`

A service (see `service_requests`) may stand for the task; its requests have no stream.
Without `edgewise-stream`, queries of one task that state the same needs make one stream; it is
opened by the first and closed when idle.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgewise.core.views import REASONS, Violation
from edgewise.errors import ProtocolError
from edgewise.model.work import Stream
from edgewise.runtime import http, needs, upstream
from edgewise.runtime.about import answer_about
from edgewise.runtime.books import Book, Counting, Key, known_as
from edgewise.runtime.emulation import Ways, pass_time
from edgewise.runtime.forwarding import OUTCOME, PASSED, Patience, Query, forward, reported, took_s, where_is
from edgewise.runtime.granting import Granting
from edgewise.runtime.headers import PRIORITY, STREAM, remaining_s
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.metrics import GatewayMetrics
from edgewise.runtime.openapi import gateway_document
from edgewise.runtime.service_requests import ServiceRequests
from edgewise.runtime.session import Session
from edgewise.runtime.tracing import OFF, Tracing
from edgewise.runtime.upstream import Upstream

__all__ = ["Gateway", "Patience"]
log = logging.getLogger("edgewise.gateway")
EXTENSIONS = ("binary_tensor_data", "edgewise_streams")


@dataclass(slots=True)
class Gateway:
    """Serves one session over HTTP.

    Args:
        session: core, clock and records.
        clients: one connection pool for each worker, in the world's order.
        models: name of each worker's model in its own URL.
        default_needs: of queries that state none, without `task`; None answers them 404.
        patience: times.
        max_streams: that may be open; one more is answered 429.
        book: numbers streams and keeps them.
        name: among gateways that share workers, which then grant reservations; None where there is one.
        ways: emulated delays between sites and clusters; None where the network has its own.
        site: of streams that state none; the first when None.
        tracing: records spans of queries.
        services: requests of services, which need no stream; None where the scenario has none.
    """

    session: Session
    clients: list[http.Client]
    models: Sequence[str]
    default_needs: dict[str, Any] | None = None
    patience: Patience = field(default_factory=Patience)
    max_streams: int = 10_000
    book: Book = field(default_factory=Counting)
    name: str | None = None
    ways: Ways | None = None
    site: str | None = None
    tracing: Tracing = OFF
    services: ServiceRequests | None = None
    draining: bool = False
    granting: Granting | None = field(init=False, default=None)
    upstreams: list[Upstream] = field(init=False)
    metrics: GatewayMetrics = field(init=False)
    _tasks: frozenset[str] = field(init=False)
    _by_needs: dict[Key, int] = field(default_factory=dict)
    _used_s: dict[int, float] = field(default_factory=dict)  # last query of each stream opened by headers
    _in_flight: int = 0
    _travelled: int = 0

    def __post_init__(self) -> None:
        pairs = zip(self.clients, self.models, strict=True)
        self.upstreams = [Upstream(client, model) for client, model in pairs]
        self.metrics = GatewayMetrics(self.session)
        self._tasks = frozenset(self.session.world.task_names)
        if self.name is not None:
            self.granting = Granting(
                self.session, self.upstreams, self.name, lambda worker: self.worker_changed(worker, False)
            )

    async def handle(self, request: http.Request) -> http.Response:
        """Answer one HTTP request."""
        parts = request.parts
        if parts[:2] == ["v2", "models"] and len(parts) in (3, 4):
            return await self._task(request, parts[2], parts[3:])
        if parts[:2] == ["v1", "streams"] and len(parts) <= 3:
            return await self._streams(request, parts[2:])
        about = ("edgewise-gateway", EXTENSIONS, self.draining, self.metrics.registry)
        return answer_about(request, *about, gateway_document)

    async def keep_time(self, telemetry_period_s: float = 1.0) -> None:
        """Report telemetry every period and begin windows, until cancelled."""
        session, window = self.session, -1
        while True:
            if int(session.clock() / session.window_s) > window:
                window = int(session.clock() / session.window_s)
                session.tick()
            if self.granting is not None:
                await self.granting.renew()
            await asyncio.sleep(telemetry_period_s)
            session.sample()
            self._close_idle()

    async def watch(self) -> None:
        """Check the workers' health, until cancelled."""
        wait = self.patience
        watching = upstream.watch(
            self.upstreams,
            self.worker_changed,
            period_s=wait.health_period_s,
            timeout_s=wait.health_timeout_s,
            failures=wait.health_misses,
        )
        await asyncio.gather(watching, *([self.services.watch()] if self.services is not None else []))

    async def drain(self) -> None:
        """Take no more streams and queries, and wait for those accepted."""
        self.draining = True
        while self._in_flight:
            await asyncio.sleep(0.002)

    def worker_changed(self, worker: int, up: bool) -> None:
        """A worker was seen to go down or come up: its streams move, or refused ones get another try."""
        if self.upstreams[worker].up == up:
            return
        self.upstreams[worker].up = up
        log.warning("worker %s", "up" if up else "down", extra=where_is(self.session.world, worker))
        self.session.worker_changed(worker, up)
        if up:
            for stream_id in list(self.session.core.refused):
                self.session.retry_stream(stream_id)
        if self.granting is not None:
            self.granting.settle_all()

    def move(self, worker: int, url: str, model: str) -> None:
        """Take another server for a worker from now on; ValueError where the address is none."""
        old = self.upstreams[worker]
        fresh = old.moved(http.Client.of_url(url), model)
        fresh.up = old.up  # the next health check tells
        self.upstreams[worker] = fresh
        old.client.close()
        if self.granting is not None:
            self.granting.moved(worker)

    def restore(self) -> int:
        """Take over the book: where workers moved, and streams under their numbers; returns how many."""
        session, kept = self.session, self.book.kept()
        for name, where in self.book.moves().items():
            if name in session.world.worker_names:
                self.move(session.world.worker_names.index(name), *where)
        for opened in kept:
            try:
                stream = needs.to_stream(opened.needs, opened.id, session.world, session.clock())
            except ProtocolError as error:  # the scenario changed
                log.warning("stream dropped", extra={"stream": opened.id, "why": str(error)})
                self.book.closed(opened.id, None, {})
                continue
            was = known_as(opened.worker, session.world.worker_names) if opened.worker else None
            session.open_stream(stream, None if was is None else session.world.worker_names.index(was))
            if opened.key is not None:
                self._by_needs[opened.key] = opened.id
                self._used_s[opened.id] = time.monotonic()
        return len(kept)

    # streams

    async def _streams(self, request: http.Request, rest: list[str]) -> http.Response:
        if not rest:
            if request.method == "POST":
                return self._opened(await self._open(needs.from_json(request.body), None))
            if request.method == "GET":
                return http.as_json(self.session.stream_records())
            return not_allowed("/v1/streams takes POST and GET", "POST", "GET")
        stream_id = self._id(rest[0])
        if request.method == "GET":
            return http.as_json(self.session.stream_record(stream_id))
        if request.method == "DELETE":
            self._close(stream_id)
            return http.as_json({"stream": stream_id, "closed": True})
        return not_allowed("/v1/streams/{id} takes GET and DELETE", "GET", "DELETE")

    async def _open(self, stated: dict[str, Any], key: Key | None) -> int:
        """Open a stream and have its worker confirm it; returns its number.

        Raises:
            ProtocolError: draining, too many, or the needs are wrong.
        """
        core, session = self.session.core, self.session
        if self.draining:
            raise ProtocolError("draining", status=503)
        if len(core.bindings) + len(core.refused) >= self.max_streams:
            raise ProtocolError(f"{self.max_streams} streams are open; close some", status=429)
        if self.site is not None:
            stated = {"site": self.site, **stated}
        checked = needs.to_stream(stated, 0, session.world, session.clock())
        stream_id = self.book.opened(stated, key)
        session.open_stream(replace(checked, id=stream_id))
        if key is not None:
            self._by_needs[key] = stream_id
        if self.granting is not None:
            try:
                await self.granting.settle(stream_id)
            except asyncio.CancelledError:  # its client hung up and does not know its number
                self._close(stream_id)
                raise
        return self._id(str(stream_id))  # it may have been closed in the meantime

    def _opened(self, stream_id: int) -> http.Response:
        """What became of a new stream."""
        worker, core = self.session.bound_to(stream_id), self.session.core
        if worker is None:
            reason = core.refused.get(stream_id, REASONS[Violation.POLICY])
            log.info("stream refused", extra={"stream": stream_id, "reason": reason})
            return http.failure(409, f"refused: {reason}", stream=stream_id, reason=reason)
        where = where_is(self.session.world, worker)
        log.info("stream bound", extra={"stream": stream_id, **where})
        return http.as_json({"stream": stream_id, **where}, 201)

    def _close(self, stream_id: int) -> None:
        self.session.close_stream(stream_id)
        row = self.session.stream_record(stream_id)
        self.book.closed(stream_id, row["worker"], {name: row[name] for name in OUTCOME})
        if self.granting is not None:
            self.granting.closed(stream_id)
        log.info("stream closed", extra={"stream": stream_id})

    async def _stream_of(self, request: http.Request, task: str) -> int:
        """The stream a query belongs to, opened now when its headers state new needs."""
        headers = request.headers
        stated = headers.get(STREAM)
        if stated is not None:
            return self._id(stated)
        key = (task, *map(headers.get, needs.HEADERS))
        stream_id = self._by_needs.get(key)
        if stream_id is None or self.session.is_closed(stream_id):
            if not any(key[1:]) and self.default_needs is None:
                return self._id("")
            default = self.default_needs or {}
            found = {**default, **needs.from_headers(headers, task, len(request.body))}
            stream_id = await self._open(found, key)
            self._opened(stream_id)
        self._used_s[stream_id] = time.monotonic()
        return stream_id

    def _close_idle(self) -> None:
        now_s = time.monotonic()
        idle = [s for s, used_s in self._used_s.items() if now_s - used_s > self.patience.idle_stream_s]
        for stream_id in idle:
            del self._used_s[stream_id]
            if not self.session.is_closed(stream_id):
                self._close(stream_id)
        if idle:
            self._by_needs = {key: s for key, s in self._by_needs.items() if s in self._used_s}

    def _id(self, text: str) -> int:
        """Number of an open stream.

        Raises:
            ProtocolError: it names none; status 404.
        """
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        if self.session.is_closed(number):
            raise ProtocolError(
                f"{STREAM}: {text!r} is no open stream; open one with POST /v1/streams", status=404
            )
        return number

    # queries

    async def _task(self, request: http.Request, task: str, rest: list[str]) -> http.Response:
        if task not in self._tasks and self._services_with(task) is None:
            return http.failure(404, f"no worker implements the task {task!r}")
        if rest == ["infer"]:
            if request.method != "POST":
                return not_allowed("infer needs POST", "POST")
            with self.tracing.serve("infer", request.headers):
                answer = await self._infer(request, task)
                self.tracing.note(task=task, status=answer.status)
            return answer
        if rest not in ([], ["ready"]):
            return http.failure(404, f"no {request.path}")
        if request.method != "GET":
            return not_allowed(f"{request.path} needs GET", "GET")
        up = [target for target in self._targets(task) if target.up]
        if rest:
            ready = bool(up) and not self.draining
            return http.as_json({"name": task, "ready": ready}, 200 if ready else 503)
        for target in up:
            if (found := await target.metadata()) is not None:
                return http.as_json({**found, "name": task})
        return http.failure(503, f"no worker of the task {task!r} answers")

    async def _infer(self, request: http.Request, task: str) -> http.Response:
        if self.draining:
            return http.failure(503, "draining")
        services = self._services_with(task)
        if services is not None:
            self._in_flight += 1
            try:
                return await services.infer(request, task)
            finally:
                self._in_flight -= 1
        session = self.session
        with self.tracing.span("decide"):
            stream_id = await self._stream_of(request, task)
            worker = session.worker_of(stream_id)
        stream = session.served[stream_id].stream
        if stream.task != task:
            raise ProtocolError(f"{STREAM}: stream {stream_id} needs {stream.task!r}, not {task!r}")
        if worker is None:
            return self._reject(stream_id)
        expires_s = request.received_s + min(stream.deadline_s, remaining_s(request.headers))
        headers = {name: request.headers[name] for name in PASSED if name in request.headers}
        if stream.priority:
            headers[PRIORITY] = str(stream.priority)
        query = Query(stream_id, request.body, headers, expires_s, session.clock(), request.received_s)
        self._in_flight += 1
        try:
            if self.ways is not None:
                return await self._travel(query, worker, stream)
            return await self._send(query, worker)
        finally:
            self._in_flight -= 1

    async def _travel(self, query: Query, worker: int, stream: Stream) -> http.Response:
        """Send a query over the emulated way to its worker and back."""
        assert self.ways is not None
        self._travelled += 1
        where = stream.site, int(self.session.world.cluster[worker])
        there_s, back_s = self.ways.delays_s(*where, stream.size_bytes, query.stream_id, self._travelled)
        await pass_time(there_s)
        now = self.session.bound_to(query.stream_id)  # it may have moved in the meantime
        query.ways_s = there_s + back_s - self.ways.client_s
        answer = await self._send(query, worker if now is None else now)
        await pass_time(query.home_s - time.monotonic())
        return answer

    def _reject(self, stream_id: int) -> http.Response:
        self.session.query_rejected(stream_id)
        reason = self.session.core.refused[stream_id]
        status = 503 if reason == REASONS[Violation.DOWN] else 409
        return http.failure(status, f"refused: {reason}", stream=stream_id, reason=reason)

    async def _send(self, query: Query, worker: int) -> http.Response:
        """Send a query to its stream's worker, and once elsewhere when that one is lost."""
        session, answered = self.session, False
        session.query_sent(worker)
        try:
            answer, lost = await self._forward(query, worker)
            if lost:
                self.worker_changed(worker, False)
                other = session.bound_to(query.stream_id)
                if other is not None and other != worker:
                    session.query_lost(worker)
                    worker = other
                    session.query_sent(worker)
                    self.metrics.retried()
                    answer, lost = await self._forward(query, worker)
            answered = answer.status == 200
            if query.ways_s is not None:
                query.home_s = query.received_s + query.ways_s + took_s(answer)
        finally:
            left_s = max(query.home_s - time.monotonic(), 0.0)
            session.query_done(query.stream_id, worker, query.sent_s, answered, left_s)
        self.metrics.answered(worker, session.clock() - query.sent_s)
        return reported(answer, session.world.worker_names[worker], session.world.variant_names[worker])

    async def _forward(self, query: Query, worker: int) -> tuple[http.Response, bool]:
        name = self.session.world.worker_names[worker]
        return await forward(self.upstreams[worker], name, query, self.patience, self.tracing)

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
