"""A load generator for inference servers: connections that ask again as soon as they are answered."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httptools
import numpy as np

from edgewise.runtime.http.messages import write_request
from edgewise.runtime.protocol.messages import InferRequest, encode_request


class Load(asyncio.Protocol):
    """One connection."""

    def __init__(self, data: bytes, until_s: float, delays_s: list[float]) -> None:
        self.data, self.until_s, self.delays_s = data, until_s, delays_s
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Ask for the first time."""
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        """Send the query."""
        self.parser = httptools.HttpResponseParser(self)
        self.sent_s = time.perf_counter()
        self.transport.write(self.data)

    def data_received(self, data: bytes) -> None:
        """Part of an answer."""
        self.parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The server hung up."""
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the server hung up: {error}"))

    def on_message_complete(self) -> None:
        """An answer: note its delay and ask again."""
        now_s = time.perf_counter()
        if self.parser.get_status_code() != 200:
            self.done.set_exception(RuntimeError(f"status {self.parser.get_status_code()}"))
            return
        self.delays_s.append(now_s - self.sent_s)
        if now_s < self.until_s:
            asyncio.get_running_loop().call_soon(self.ask)
        else:
            self.done.set_result(None)
            self.transport.close()


async def load(port: int, data: bytes, connections: int, seconds: float) -> tuple[float, np.ndarray]:
    """Requests per second, and the delays in seconds."""
    delays_s: list[float] = []
    loop, started_s = asyncio.get_running_loop(), time.perf_counter()
    made = [
        await loop.create_connection(lambda: Load(data, started_s + seconds, delays_s), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    return len(delays_s) / (time.perf_counter() - started_s), np.array(delays_s)


def query(path: str, shape: tuple[int, ...], stream: str = "", binary: bool = True) -> bytes:
    """A query's bytes: one FP32 tensor "x", raw or as JSON numbers; the answer is asked for alike."""
    asked = InferRequest({"x": np.ones(shape, np.float32)}, id="1", binary=binary)
    headers, body = encode_request(asked, json_inputs=() if binary else ("x",))
    if stream:
        headers["edgewise-stream"] = stream
    return b"".join(write_request("POST", path, "127.0.0.1", headers, body))


def cpu_s(*pids: int) -> float:
    """CPU time of processes so far, of those threads that still run."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9
