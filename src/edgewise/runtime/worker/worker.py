"""A worker: an Open Inference Protocol v2 server in front of ONNX Runtime.

    GET  /v2, /v2/health/live, /v2/health/ready      server
    GET  /v2/models/{model}[/versions/1][/ready]     model; /config, /stats and others: see `triton`
    POST /v2/models/{model}[/versions/1]/infer       a query
    GET  /metrics, /openapi.json
    GET  /v1/telemetry                               counts for gateways: see `core.sojourns`
    …    /v1/reservations/…                          where gateways share it: see `Reservations`

Queries wait in one bounded queue (`batching`). A query whose remaining time is already over is
answered 504 and not run.
"""

import asyncio
import math
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import msgspec

from edgewise.core.sojourns import Sojourns
from edgewise.errors import ProtocolError
from edgewise.runtime import clock, http
from edgewise.runtime.protocol import triton
from edgewise.runtime.protocol.bodies import ModelMetadata, Ready, Statistics
from edgewise.runtime.protocol.messages import (
    BEGAN,
    BUSY,
    JSON_LENGTH,
    QUEUED,
    TOOK,
    age_s,
    decode_request,
    encode_response,
    priority,
    remaining_s,
)
from edgewise.runtime.protocol.openapi import answer_about
from edgewise.runtime.watch.metrics import WorkerMetrics
from edgewise.runtime.watch.tracing import OFF, Tracing
from edgewise.runtime.worker.batching import Batcher, Line
from edgewise.runtime.worker.onnx_model import OnnxModel
from edgewise.runtime.worker.reservations import Reservations

__all__ = ["LiveWorker", "OnnxModel"]

EXTENSIONS = ("binary_tensor_data", *triton.EXTENSIONS)
LARGE_BYTES = 64 * 2**10  # JSON beyond this is read and written in a thread, so that others are answered


class LiveWorker:
    """Serves one model.

    Args:
        model: what to run.
        max_queue: queries that may wait or run; one more is answered 429.
        max_batch: rows that may run together; 1 when the model has fixed dimensions.
        batch_timeout_s: how long a query waits for others to fill a batch.
        reservations: what gateways have of its capacity; 404 where there is none.
        by_deadline: within a priority, the query whose time ends first goes first.
        tracing: records spans of queries.
        line: the server it shares with other workers of this process, which takes the oldest query first.
    """

    def __init__(
        self,
        model: OnnxModel,
        max_queue: int = 64,
        max_batch: int = 1,
        batch_timeout_s: float = 0.0,
        reservations: Reservations | None = None,
        by_deadline: bool = False,
        tracing: Tracing = OFF,
        line: Line | None = None,
    ) -> None:
        self.model, self.reservations, self.tracing = model, reservations, tracing
        self._by_deadline, self._by_age = by_deadline, line is not None
        self.metrics = WorkerMetrics(model.name, lambda: self.batcher.queued)
        self._sojourns, self._began_s = Sojourns.none(), clock.unix_s()
        self.batcher = Batcher(
            model.run_batch,
            self.metrics,
            max_queue=max_queue,
            max_batch=max_batch if model.batchable else 1,
            batch_timeout_s=batch_timeout_s,
            clock=model.clock,
            line=line,
            tracing=tracing,
        )
        self._batches = (max_batch, batch_timeout_s) if model.batchable else (0, 0.0)
        self._infer_path = f"/v2/models/{quote(model.name, safe='')}/infer"

    @property
    def draining(self) -> bool:
        """Whether no more queries are taken."""
        return self.batcher.draining

    @property
    def queued(self) -> int:
        """Queries waiting or running."""
        return self.batcher.queued

    async def handle(self, request: http.HttpRequest) -> http.Response:
        """Answer one HTTP request."""
        if request.path == self._infer_path and request.method == "POST":  # nearly all of them
            return await self._query(request)
        match request.method, request.parts:
            case "GET", ["v2", "models", "stats"] if self.model.name != "stats":
                return http.as_json(Statistics([self.metrics.statistics.report(self.model.name)]))
            case "POST", ["v2", "repository", "index"]:
                models = {self.model.name: "draining" if self.draining else ""}
                return http.as_json(triton.index(request.body, models))
            case _, ["v2", "models", name, *rest]:
                if (answer := await self._model_request(request, name, rest)) is not None:
                    return answer
            case _, ["v1", "reservations", *rest] if self.reservations is not None:
                return self.reservations.handle(request, rest)
            case "GET", ["v1", "telemetry"]:
                self._sojourns.queue = self.queued
                return http.as_json(asdict(self._sojourns))
        return answer_about(request, "worker", EXTENSIONS, self.draining, self.metrics.registry)

    async def drain(self) -> None:
        """Take no more queries and wait for those accepted."""
        await self.batcher.drain()

    async def _model_request(
        self, request: http.HttpRequest, name: str, rest: list[str]
    ) -> http.Response | None:
        """The answer to what is asked of one model; None to what nobody answers."""
        if name != self.model.name:
            return http.failure(404, f"no model {name!r}; this worker serves {self.model.name!r}")
        if rest[:1] == ["versions"] and len(rest) >= 2:
            if rest[1] != "1":
                return http.failure(404, f"no version {rest[1]!r} of {name!r}; it has version '1'")
            rest = rest[2:]
        match request.method, rest:
            case "POST", ["infer"]:
                return await self._query(request)
            case "GET", []:
                return http.as_json(msgspec.convert(self.model.metadata(), ModelMetadata))
            case "GET", ["ready"]:
                answer = http.as_json(Ready(not self.draining, name), 503 if self.draining else 200)
                answer.headers |= {QUEUED: str(self.queued), BEGAN: f"{self._began_s:.3f}"}
                answer.headers[BUSY] = f"{self.batcher.busy_s:.6f}"
                return answer
            case "GET", ["config"]:
                return http.as_json(triton.model_config(self.model.metadata(), *self._batches))
            case "GET", ["stats"]:
                return http.as_json(Statistics([self.metrics.statistics.report(name)]))
        return None

    async def _query(self, request: http.HttpRequest) -> http.Response:
        with self.tracing.serve("infer", request.headers):
            try:
                response = await self._infer(request)
            except ProtocolError as error:
                response = http.failure(error.status, str(error))
            self.tracing.note(model=self.model.name, status=response.status)
        took_s = clock.monotonic_s() - request.received_s
        self.metrics.answered(response.status, took_s)
        if response.status == 200:
            self._sojourns.note(took_s)
        return response

    async def _infer(self, request: http.HttpRequest) -> http.Response:
        json_bytes = 0 if JSON_LENGTH in request.headers else len(request.body)
        if json_bytes <= LARGE_BYTES:
            tensors = decode_request(request.headers, request.body)
        else:
            tensors = await asyncio.to_thread(decode_request, request.headers, request.body)
        self.model.check(tensors)
        left_s = min(remaining_s(request.headers), _timeout_s(tensors.parameters))
        expires_s, order = request.received_s + left_s, 0.0
        if self._by_age:
            order = request.received_s - age_s(request.headers)
        elif self._by_deadline:
            order = expires_s
        answer = await self.batcher.submit(tensors, expires_s, priority(request.headers), order)
        json_bytes = sum([a.nbytes for name, a in answer.outputs.items() if not tensors.wants_binary(name)])
        form = answer, tensors.binary, tensors.binary_outputs
        if json_bytes <= LARGE_BYTES:
            headers, body = encode_response(*form)
        else:
            headers, body = await asyncio.to_thread(encode_response, *form)
        headers[TOOK], headers[QUEUED] = f"{clock.monotonic_s() - request.received_s:.6f}", str(self.queued)
        return http.Response(200, body, headers)


def _timeout_s(parameters: dict[str, Any]) -> float:
    """The request parameter `timeout`, in microseconds as other servers take it; 0 means none."""
    value = parameters.get("timeout", 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ProtocolError(f"parameters.timeout: {str(value)[:80]} is not a number of microseconds")
    return value / 1e6 if value else math.inf
