"""The gateway of an access site: asks the core where a stream goes, then forwards its queries.

Clients name the task in the URL; the variant is the scheduler's choice and is reported back.

    POST   /edgewise/streams            open a stream: its needs as JSON → worker, or 409 and why
    GET    /edgewise/streams            what was opened and what became of it
    DELETE /edgewise/streams/{id}       close it
    POST   /v2/models/{task}/infer      a query, with header `edgewise-stream: {id}`
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, field
from typing import Any

from edgewise.core.events import Refuse
from edgewise.errors import ProtocolError
from edgewise.model.work import Stream
from edgewise.runtime import http
from edgewise.runtime.session import Session
from edgewise.runtime.worker import REMAINING

STREAM = "edgewise-stream"
NEEDS: dict[str, float | None] = {
    "rate_qps": None, "size_bytes": None, "deadline_s": None, "min_accuracy": 0.0,
}  # fmt: skip


@dataclass(slots=True)
class Gateway:
    """Serves one session over HTTP.

    Args:
        session: core, clock and records.
        clients: one connection pool for each worker, in the world's order.
        models: name of each worker's model in its own URL.
    """

    session: Session
    clients: list[http.Client]
    models: list[str]
    draining: bool = False
    _next_id: int = field(default=0)

    async def handle(self, request: http.Request) -> http.Response:
        """Answer one HTTP request."""
        parts = request.path.strip("/").split("/")
        if parts[:2] == ["edgewise", "streams"]:
            return self._streams(request, parts[2:])
        if parts == ["v2"]:
            extensions = ["binary_tensor_data", "edgewise_streams"]
            return http.as_json({"name": "edgewise-gateway", "version": "1", "extensions": extensions})
        if parts[:2] == ["v2", "health"] and len(parts) == 3 and parts[2] in ("live", "ready"):
            ready = parts[2] == "live" or not self.draining
            return http.as_json({parts[2]: ready}, 200 if ready else 503)
        if parts[:2] == ["v2", "models"] and len(parts) in (3, 4):
            return await self._task(request, parts[2], parts[3:])
        return http.failure(404, f"no {request.path}")

    async def keep_time(self, telemetry_period_s: float = 1.0) -> None:
        """Report telemetry every period and begin windows, until cancelled."""
        session, window = self.session, -1
        while True:
            if int(session.clock() / session.window_s) > window:
                window = int(session.clock() / session.window_s)
                session.tick()
            await asyncio.sleep(telemetry_period_s)
            session.sample()

    def _streams(self, request: http.Request, rest: list[str]) -> http.Response:
        if not rest and request.method == "POST":
            return self._open(request.body)
        if not rest and request.method == "GET":
            return http.as_json(self.session.stream_records())
        if len(rest) == 1 and request.method == "DELETE":
            stream_id = self._id(rest[0])
            self.session.worker_of(stream_id)
            self.session.close_stream(stream_id)
            return http.as_json({"stream": stream_id, "closed": True})
        return http.failure(405, "use POST or GET on /edgewise/streams, DELETE on /edgewise/streams/{id}")

    def _open(self, body: bytes) -> http.Response:
        if self.draining:
            return http.failure(503, "draining")
        stream = self._parse(body)
        self._next_id += 1
        (command,) = self.session.open_stream(stream)
        if isinstance(command, Refuse):
            return http.failure(409, f"refused: {command.reason}", stream=stream.id, reason=command.reason)
        return http.as_json({"stream": stream.id, **self._where(command.worker)}, 201)

    def _parse(self, body: bytes) -> Stream:
        try:
            needs = json.loads(body)
        except (ValueError, RecursionError):
            raise ProtocolError("body: a JSON object with the stream's needs is needed") from None
        if not isinstance(needs, dict):
            raise ProtocolError("body: a JSON object with the stream's needs is needed")
        known = {*NEEDS, "site", "application", "task", "priority"}
        if strange := sorted(set(needs) - known):
            raise ProtocolError(f"{strange[0]}: unknown; a stream has {', '.join(sorted(known))}")
        world, now_s = self.session.world, self.session.clock()
        site = needs.get("site", world.site_names[0])
        if site not in world.site_names:
            raise ProtocolError(f"site: {site!r} is none of {', '.join(world.site_names)}")
        for name, default in (("task", None), ("application", "")):
            if not isinstance(needs.get(name, default), str):
                raise ProtocolError(f"{name}: a string is needed")
        priority = needs.get("priority", 0)
        if type(priority) is not int:
            raise ProtocolError("priority: a whole number is needed")
        figures = {name: _figure(needs, name, default) for name, default in NEEDS.items()}
        return Stream(
            id=self._next_id,
            site=world.site_names.index(site),
            application=needs.get("application", ""),
            task=needs["task"],
            open_s=now_s,
            close_s=math.inf,
            priority=priority,
            rate_qps=figures["rate_qps"],
            size_bytes=figures["size_bytes"],
            deadline_s=figures["deadline_s"],
            min_accuracy=figures["min_accuracy"],
        )

    async def _task(self, request: http.Request, task: str, rest: list[str]) -> http.Response:
        workers = [w for w in range(self.session.world.workers) if self._serves(w, task)]
        if not workers:
            return http.failure(404, f"no worker implements the task {task!r}")
        if rest == ["infer"]:
            if request.method != "POST":
                return http.failure(405, "infer needs POST")
            return await self._infer(request, task)
        if rest == ["ready"]:
            return http.as_json({"name": task, "ready": not self.draining})
        if rest:
            return http.failure(404, f"no {request.path}")
        answer = await self.clients[workers[0]].request("GET", f"/v2/models/{self.models[workers[0]]}")
        return http.as_json({**json.loads(answer.body), "name": task})

    async def _infer(self, request: http.Request, task: str) -> http.Response:
        session = self.session
        stream_id = self._id(request.headers.get(STREAM, ""))
        worker = session.worker_of(stream_id)
        stream = session.served[stream_id].stream
        if stream.task != task:
            raise ProtocolError(f"{STREAM}: stream {stream_id} needs {stream.task!r}, not {task!r}")
        if worker is None:
            session.query_rejected(stream_id)
            reason = session.core.refused[stream_id]
            return http.failure(409, f"refused: {reason}", stream=stream_id, reason=reason)
        sent_s, answered = session.clock(), False
        session.query_sent(worker)
        try:
            answer = await self._forward(worker, request, stream.deadline_s)
            answered = answer.status == 200
        finally:
            session.query_done(stream_id, worker, sent_s, answered)
        where = self._where(worker)
        answer.headers = {
            name: value
            for name, value in answer.headers.items()
            if name not in ("content-length", "connection")
        } | {"edgewise-worker": where["worker"], "edgewise-variant": where["variant"]}
        return answer

    async def _forward(self, worker: int, request: http.Request, deadline_s: float) -> http.Response:
        passed = ("content-type", "inference-header-content-length")
        headers = {name: request.headers[name] for name in passed if name in request.headers}
        headers[REMAINING] = f"{deadline_s:.6f}"
        path = f"/v2/models/{self.models[worker]}/infer"
        try:
            return await self.clients[worker].request("POST", path, headers, request.body)
        except (ConnectionError, TimeoutError) as error:
            name = self.session.world.worker_names[worker]
            return http.failure(502, f"worker {name} did not answer: {error}")

    def _serves(self, worker: int, task: str) -> bool:
        world = self.session.world
        return bool(world.task_names[world.task[worker]] == task)

    def _where(self, worker: int) -> dict[str, str]:
        world = self.session.world
        return {
            "worker": world.worker_names[worker],
            "variant": world.variant_names[worker],
            "cluster": world.cluster_names[world.cluster[worker]],
        }

    def _id(self, text: str) -> int:
        """Number of an open stream.

        Raises:
            ProtocolError: it names none; status 404.
        """
        if text.isascii() and text.isdigit() and len(text) < 19:
            served = self.session.served.get(int(text))
            if served is not None and served.close_s is None:
                return int(text)
        raise ProtocolError(
            f"{STREAM}: {text!r} is no open stream; open one with POST /edgewise/streams", status=404
        )


def _figure(needs: dict[str, Any], name: str, default: float | None) -> float:
    value = needs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ProtocolError(f"{name}: {value!r} is not a number >= 0")
    if name == "rate_qps" and value == 0:
        raise ProtocolError("rate_qps: must be greater than 0")
    return float(value)
