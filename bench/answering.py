"""Where a worker's time goes with one query: the same code in one process, part by part, without sockets.

    python -m bench.answering

Each part runs alone in a loop, so its code and data stay in the caches; between system calls, as a server
runs it, each takes up to twice as long. "all" is until the answer is written, with a turn of the event loop;
"all, as a batch" is a query's share when as many come in one turn on a connection each.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.load import query
from bench.measure import least_s
from edgewise.runtime import http
from edgewise.runtime.controller.models import write_stand_in
from edgewise.runtime.http.connection import ClientConnection, OfServer
from edgewise.runtime.http.messages import Bodies, Limits
from edgewise.runtime.protocol.messages import decode_request, encode_response
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel

SHAPE = (1, 8)
TOGETHER = 16
LEARNING = 300  # queries after which a worker knows that its model is quick


def run(repeats: int = 5000) -> list[dict[str, Any]]:
    """Seconds of each part, for JSON and binary: the least of the repeats, others only disturb."""
    return [row for binary in (False, True) for row in uvloop.run(_parts(binary, repeats))]


async def _parts(binary: bool, repeats: int) -> list[dict[str, Any]]:
    data, asked = query("/v2/models/echo/infer", SHAPE, binary=binary), []
    answer = http.Response(200, b"x" * 150, {"content-type": "application/json"})

    async def fixed(request: http.HttpRequest) -> http.Response:
        asked.append(request)
        return answer

    _connection(fixed).data_received(data)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "echo.onnx"
        write_stand_in(file)
        model = OnnxModel("echo", file)
    worker, request = LiveWorker(model, max_batch=TOGETHER), asked[0]
    for _ in range(LEARNING):
        await worker.handle(request)
    tensors = decode_request(request.headers, request.body)
    outputs = model.run(tensors)
    bare = _connection(fixed)
    parts: dict[str, Callable[[], Any]] = {
        "HTTP": lambda: bare.data_received(data),
        "reading the tensors": lambda: decode_request(request.headers, request.body),
        "checking them": lambda: model.check(tensors),
        "ONNX Runtime": lambda: model.run_batch((tensors,)),
        "writing the tensors": lambda: encode_response(outputs, binary),
    }
    alone_s = await _answered_s(worker, data, 1, repeats)
    measured = {part: least_s(call, repeats, time.perf_counter) for part, call in parts.items()}
    rows = {
        "all": alone_s,
        **measured,
        "queue, deadline, metrics, routing, a turn": alone_s - sum(measured.values()),
        "all, as a batch": await _answered_s(worker, data, TOGETHER, repeats // 10),
    }
    return [{"part": part, "binary": binary, "s": took_s} for part, took_s in rows.items()]


class _Nowhere(asyncio.Transport):
    """Takes what is written."""

    def write(self, data: Any) -> None:
        """Forget it."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def resume_reading(self) -> None:
        """Nothing is read."""


def _connection(handler: http.Handler) -> ClientConnection:
    connection = ClientConnection(OfServer(handler, Limits(), at_once=True, bodies=Bodies(http.BODIES_BYTES)))
    connection.connection_made(_Nowhere())
    return connection


async def _answered_s(worker: LiveWorker, data: bytes, together: int, repeats: int) -> float:
    """A query's least share of the time until all that come together are answered."""
    connections, times_s = [_connection(worker.handle) for _ in range(together)], []
    for _ in range(repeats):
        began_s = time.perf_counter()
        for connection in connections:
            connection.data_received(data)
        while connections[-1].busy:
            await asyncio.sleep(0)
        times_s.append(time.perf_counter() - began_s)
    return min(times_s) / together


if __name__ == "__main__":
    for found in run():
        print(f"{'binary' if found['binary'] else 'JSON':8s}{found['part']:44s}{found['s'] * 1e6:6.1f} µs")
