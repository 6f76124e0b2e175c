"""A load generator for inference servers: connections that ask again as soon as they are answered.

It shares the machine with the servers, so it does little: plain sockets, and of an answer only its status
and its length are read.
"""

from __future__ import annotations

import math
import os
import re
import select
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgewise.runtime.http.messages import write_request
from edgewise.runtime.protocol import InferRequest, encode_request

_BUFFER = bytearray(2**20)  # making room for every answer would cost more than reading it
PATIENCE_MS = 60_000
_END = b"0\r\n\r\n"  # of an answer in chunks; our tensors do not look like it
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    sent_s: float = 0.0
    missing: float = 0  # bytes of the answer that have not come; inf for one in chunks


def load(port: int, data: bytes, connections: int, seconds: float) -> tuple[float, np.ndarray]:
    """Requests per second, and the delays in seconds.

    Raises:
        RuntimeError: the server refuses a query or hangs up.
    """
    delays_s: list[float] = []
    with ExitStack() as opened:
        made: dict[int, _Connection] = {}
        poll = select.poll()
        for _ in range(connections):
            sock = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made[sock.fileno()] = _Connection(sock)
            poll.register(sock, select.POLLIN)
        started_s = time.perf_counter()
        until_s = started_s + seconds
        for one in made.values():
            _ask(one, data)
        while made:
            ready = poll.poll(PATIENCE_MS)
            if not ready:
                raise RuntimeError("no answer")
            for number, _ in ready:
                one = made[number]
                if not _answered(one):
                    continue
                now_s = time.perf_counter()
                delays_s.append(now_s - one.sent_s)
                if now_s < until_s:
                    _ask(one, data)
                else:
                    poll.unregister(number)
                    del made[number]
        return len(delays_s) / (time.perf_counter() - started_s), np.array(delays_s)


def _ask(one: _Connection, data: bytes) -> None:
    one.sent_s = time.perf_counter()
    one.sock.sendall(data)


def _answered(one: _Connection) -> bool:
    """Read what has come; whether an answer is complete."""
    size = one.sock.recv_into(_BUFFER)
    if not size:
        raise RuntimeError("the server hung up")
    if not one.missing:
        one.missing = _length(bytes(_BUFFER[: min(size, 2048)]))
    one.missing -= size
    if one.missing == math.inf and _BUFFER[size - len(_END) : size] == _END:
        one.missing = 0
    return one.missing == 0


def _length(head: bytes) -> float:
    """Of an answer that begins like this."""
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"the server answered {head[:80]!r}")
    stated = _LENGTH.search(head)
    return head.index(b"\r\n\r\n") + 4 + int(stated[1]) if stated else math.inf


def query(path: str, shape: tuple[int, ...], stream: str = "", binary: bool = True) -> bytes:
    """A query's bytes: one FP32 tensor "x", raw or as JSON numbers; the answer is asked for alike."""
    asked = InferRequest({"x": np.ones(shape, np.float32)}, id="1", binary=binary)
    headers, body = encode_request(asked, json_inputs=() if binary else ("x",))
    if stream:
        headers["edgewise-stream"] = stream
    return b"".join(write_request("POST", path, "127.0.0.1", headers, body))


def cpu_s(*pids: int) -> float:
    """CPU time of processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
