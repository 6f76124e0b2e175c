"""The contract of `Backend`, checked with a real worker."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

from edgewise.runtime import http
from edgewise.runtime.backends.base import Backend
from edgewise.runtime.controller.plan import STAND_IN, write_stand_in
from edgewise.runtime.store import Process

SETTINGS = {
    "model": "stand-in", "max_batch": 1, "batch_timeout_s": 0.0, "capacity_qps": 10.0, "profile": None,
    "seed": 0, "entity": 0, "split": None,
}  # fmt: skip


def check(make_backend: Callable[[Path], Backend], folder: Path, limit_s: float) -> None:
    """See `edgewise.testing.check_backend`."""
    write_stand_in(folder / STAND_IN)
    with socket.socket() as probe:
        probe.bind((http.LOCALHOST, 0))
        port = probe.getsockname()[1]
    settings = {**SETTINGS, "file": str((folder / STAND_IN).resolve())}
    process, backend = Process("checked", "worker", port, settings), make_backend(folder)
    first = backend.start(process)
    assert isinstance(first, str) and first, "start: a handle is text"
    _wait(lambda: _answers(process), limit_s, "start: the process does not answer where it should")
    assert backend.alive(first), "alive: the process answers"
    assert make_backend(folder).alive(first), "alive: a handle means the same to a backend made later"
    backend.stop(first, force=True)
    _wait(lambda: not backend.alive(first), limit_s, "stop(force): the process still runs")
    backend.stop(first)  # no error
    second = backend.start(process)
    assert second != first, "start: each start has its own handle"
    _wait(lambda: _answers(process), limit_s, "start: a second start does not answer on the same port")
    assert not backend.alive(first), "alive: what ended never runs again"
    backend.stop(second)
    _wait(lambda: not backend.alive(second), limit_s, "stop: a process that was asked to end still runs")
    assert not _answers(process), "stop: something still answers"


def _answers(process: Process) -> bool:
    async def ask() -> bool:
        client = http.Client.of_url(process.url)
        try:
            return (await client.request("GET", "/v2/health/ready", timeout_s=1.0)).status == 200
        except (ConnectionError, TimeoutError):
            return False
        finally:
            client.close()

    return asyncio.run(ask())


def _wait(condition: Callable[[], bool], limit_s: float, otherwise: str) -> None:
    until_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until_s, otherwise
        time.sleep(0.02)
