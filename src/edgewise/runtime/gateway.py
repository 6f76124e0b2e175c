"""The gateway of an access site: asks the core where a stream goes, then forwards its queries.

Clients name the task in the URL; the variant is the scheduler's choice and is reported back.

    POST   /v1/streams                  open a stream: its needs as JSON → worker, or 409 and why
    GET    /v1/streams[/{id}]           what was opened and what became of it
    DELETE /v1/streams/{id}             close it
    POST   /v2/models/{task}/infer      a query, with header `edgewise-stream: {id}`, or with its
                                        stream's needs as headers (`needs.HEADERS`)
    GET    /metrics, /openapi.json
    …      /v1/admin/…                  see `admin`

Without `edgewise-stream`, queries of one task that state the same needs make one stream; it is
opened by the first and closed when idle.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewise.core.events import Refuse
from edgewise.core.views import REASONS, Violation
from edgewise.errors import ProtocolError
from edgewise.runtime import http, needs, upstream
from edgewise.runtime.headers import PRIORITY, REMAINING, STREAM, TRACE, VARIANT, WORKER, remaining_s
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.metrics import GatewayMetrics, page
from edgewise.runtime.openapi import gateway_document
from edgewise.runtime.session import Session
from edgewise.runtime.upstream import Upstream

log = logging.getLogger("edgewise.gateway")
PASSED = ("content-type", "content-encoding", "inference-header-content-length", *TRACE)
DROPPED = {"content-length", "connection", "transfer-encoding", "keep-alive"}
LARGE_JSON_BYTES = 64 * 2**10  # parameters are not written into larger JSON
LONGEST_S = 600.0  # nobody is waited for longer
LOST = (502, 503)  # answers of a worker that cannot serve; its queries go elsewhere


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a gateway waits for what.

    Attributes:
        late_s: for an answer after the deadline; it is passed on and counted as failed.
        idle_stream_s: before a stream opened by headers is closed.
        health_period_s, health_timeout_s: between health checks, and for one.
        health_misses: checks without an answer before a worker is down; a refused connection is enough.
    """

    late_s: float = 5.0
    idle_stream_s: float = 30.0
    health_period_s: float = 1.0
    health_timeout_s: float = 1.0
    health_misses: int = 2


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
    """

    session: Session
    clients: list[http.Client]
    models: Sequence[str]
    default_needs: dict[str, Any] | None = None
    patience: Patience = Patience()
    max_streams: int = 10_000
    draining: bool = False
    upstreams: list[Upstream] = field(init=False)
    metrics: GatewayMetrics = field(init=False)
    _next_id: int = 0
    _by_needs: dict[tuple[str | None, ...], int] = field(default_factory=dict)
    _used_s: dict[int, float] = field(default_factory=dict)  # last query of each stream opened by headers
    _in_flight: int = 0

    def __post_init__(self) -> None:
        pairs = zip(self.clients, self.models, strict=True)
        self.upstreams = [Upstream(client, model) for client, model in pairs]
        self.metrics = GatewayMetrics(self.session)

    async def handle(self, request: http.Request) -> http.Response:
        """Answer one HTTP request."""
        parts = request.parts
        if parts[:2] == ["v2", "models"] and len(parts) in (3, 4):
            return await self._task(request, parts[2], parts[3:])
        if parts[:2] == ["v1", "streams"] and len(parts) <= 3:
            return self._streams(request, parts[2:])
        answer = self._server_answer(parts)
        if answer is None:
            return http.failure(404, f"no {request.path}")
        return answer if request.method == "GET" else not_allowed(f"{request.path} needs GET", "GET")

    async def keep_time(self, telemetry_period_s: float = 1.0) -> None:
        """Report telemetry every period and begin windows, until cancelled."""
        session, window = self.session, -1
        while True:
            if int(session.clock() / session.window_s) > window:
                window = int(session.clock() / session.window_s)
                session.tick()
            await asyncio.sleep(telemetry_period_s)
            session.sample()
            self._close_idle()

    async def watch(self) -> None:
        """Check the workers' health, until cancelled."""
        wait = self.patience
        await upstream.watch(
            self.upstreams,
            self.worker_changed,
            period_s=wait.health_period_s,
            timeout_s=wait.health_timeout_s,
            failures=wait.health_misses,
        )

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
        log.warning("worker %s", "up" if up else "down", extra=self._where(worker))
        self.session.worker_changed(worker, up)
        if up:
            for stream_id in list(self.session.core.refused):
                self.session.retry_stream(stream_id)

    def _server_answer(self, parts: list[str]) -> http.Response | None:
        if parts == ["v2"]:
            extensions = ["binary_tensor_data", "edgewise_streams"]
            return http.as_json({"name": "edgewise-gateway", "version": "1", "extensions": extensions})
        if parts == ["v2", "health", "live"]:
            return http.as_json({"live": True})
        if parts == ["v2", "health", "ready"]:
            return http.as_json({"ready": not self.draining}, 503 if self.draining else 200)
        if parts == ["metrics"]:
            return page(self.metrics.registry)
        return http.as_json(gateway_document()) if parts == ["openapi.json"] else None

    # streams

    def _streams(self, request: http.Request, rest: list[str]) -> http.Response:
        if not rest:
            if request.method == "POST":
                return self._open(needs.from_json(request.body))
            if request.method == "GET":
                return http.as_json(self.session.stream_records())
            return not_allowed("/v1/streams takes POST and GET", "POST", "GET")
        stream_id = self._id(rest[0])
        if request.method == "GET":
            return http.as_json(self.session.stream_record(stream_id))
        if request.method == "DELETE":
            self.session.close_stream(stream_id)
            log.info("stream closed", extra={"stream": stream_id})
            return http.as_json({"stream": stream_id, "closed": True})
        return not_allowed("/v1/streams/{id} takes GET and DELETE", "GET", "DELETE")

    def _open(self, stated: dict[str, Any]) -> http.Response:
        if self.draining:
            return http.failure(503, "draining")
        core = self.session.core
        if len(core.bindings) + len(core.refused) >= self.max_streams:
            raise ProtocolError(f"{self.max_streams} streams are open; close some", status=429)
        stream = needs.to_stream(stated, self._next_id, self.session.world, self.session.clock())
        self._next_id += 1
        (command,) = self.session.open_stream(stream)
        if isinstance(command, Refuse):
            log.info("stream refused", extra={"stream": stream.id, "reason": command.reason})
            return http.failure(409, f"refused: {command.reason}", stream=stream.id, reason=command.reason)
        where = self._where(command.worker)
        log.info("stream bound", extra={"stream": stream.id, **where})
        return http.as_json({"stream": stream.id, **where}, 201)

    def _stream_of(self, request: http.Request, task: str) -> int:
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
            self._open({**default, **needs.from_headers(headers, task, len(request.body))})
            stream_id = self._by_needs[key] = self._next_id - 1
        self._used_s[stream_id] = time.monotonic()
        return stream_id

    def _close_idle(self) -> None:
        now_s = time.monotonic()
        idle = [s for s, used_s in self._used_s.items() if now_s - used_s > self.patience.idle_stream_s]
        for stream_id in idle:
            del self._used_s[stream_id]
            if not self.session.is_closed(stream_id):
                self.session.close_stream(stream_id)
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
        if task not in self.session.world.task_names:
            return http.failure(404, f"no worker implements the task {task!r}")
        if rest == ["infer"]:
            if request.method != "POST":
                return not_allowed("infer needs POST", "POST")
            return await self._infer(request, task)
        if rest not in ([], ["ready"]):
            return http.failure(404, f"no {request.path}")
        if request.method != "GET":
            return not_allowed(f"{request.path} needs GET", "GET")
        workers = [worker for worker in self._serving(task) if self.upstreams[worker].up]
        if rest:
            ready = bool(workers) and not self.draining
            return http.as_json({"name": task, "ready": ready}, 200 if ready else 503)
        for worker in workers:
            if (found := await self.upstreams[worker].metadata()) is not None:
                return http.as_json({**found, "name": task})
        return http.failure(503, f"no worker of the task {task!r} answers")

    async def _infer(self, request: http.Request, task: str) -> http.Response:
        if self.draining:
            return http.failure(503, "draining")
        session = self.session
        stream_id = self._stream_of(request, task)
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
        query = _Query(stream_id, request.body, headers, expires_s, session.clock())
        self._in_flight += 1
        try:
            return await self._send(query, worker)
        finally:
            self._in_flight -= 1

    def _reject(self, stream_id: int) -> http.Response:
        self.session.query_rejected(stream_id)
        reason = self.session.core.refused[stream_id]
        status = 503 if reason == REASONS[Violation.DOWN] else 409
        return http.failure(status, f"refused: {reason}", stream=stream_id, reason=reason)

    async def _send(self, query: _Query, worker: int) -> http.Response:
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
        finally:
            session.query_done(query.stream_id, worker, query.sent_s, answered)
        self.metrics.answered(worker, session.clock() - query.sent_s)
        return self._reported(answer, worker)

    async def _forward(self, query: _Query, worker: int) -> tuple[http.Response, bool]:
        """The worker's answer, or ours in its place; and whether the worker is lost."""
        target, name = self.upstreams[worker], self.session.world.worker_names[worker]
        left_s = query.expires_s - time.monotonic()
        if left_s <= 0:
            return http.failure(504, "deadline passed; not sent to a worker"), False
        query.headers[REMAINING] = f"{left_s:.6f}"
        try:
            wait_s = min(left_s, LONGEST_S) + self.patience.late_s
            answer = await target.infer(query.headers, query.body, wait_s)
            if answer.status == 500:
                return http.failure(502, f"worker {name} failed: status 500"), False
            return answer, answer.status in LOST
        except ConnectionError as error:
            return http.failure(502, f"worker {name} did not answer: {error}"), True
        except TimeoutError as error:
            return http.failure(504, f"worker {name}: {error}"), False

    def _reported(self, answer: http.Response, worker: int) -> http.Response:
        """The answer with the worker and variant in its headers, and in its parameters unless it is large."""
        world = self.session.world
        who, variant = world.worker_names[worker], world.variant_names[worker]
        headers = {name: value for name, value in answer.headers.items() if name not in DROPPED}
        headers[WORKER], headers[VARIANT] = who, variant
        answer.headers = headers
        if answer.status == 200:
            _write_parameters(answer, {"edgewise_worker": who, "edgewise_variant": variant})
        return answer

    def _serving(self, task: str) -> list[int]:
        world = self.session.world
        return [worker for worker in range(world.workers) if world.task_names[world.task[worker]] == task]

    def _where(self, worker: int) -> dict[str, str]:
        world = self.session.world
        return {
            "worker": world.worker_names[worker],
            "variant": world.variant_names[worker],
            "cluster": world.cluster_names[world.cluster[worker]],
        }


@dataclass(slots=True)
class _Query:
    """A query on its way; `expires_s` on the monotonic clock, `sent_s` on the session's."""

    stream_id: int
    body: bytes
    headers: dict[str, str]
    expires_s: float
    sent_s: float


def _write_parameters(answer: http.Response, parameters: dict[str, str]) -> None:
    stated = answer.headers.get("inference-header-content-length")
    length = int(stated) if stated and stated.isdigit() else len(answer.body)
    if length > LARGE_JSON_BYTES:
        return
    try:
        head = json.loads(answer.body[:length])
        head["parameters"] = {**(head.get("parameters") or {}), **parameters}
    except (ValueError, TypeError, AttributeError):
        return  # whatever a foreign server sent: passed on as it is
    text = json.dumps(head, separators=(",", ":")).encode()
    answer.body = b"".join((text, memoryview(answer.body)[length:]))
    if stated:
        answer.headers["inference-header-content-length"] = str(len(text))
