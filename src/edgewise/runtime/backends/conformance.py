"""The contracts of `Backend` and `Testbed`, checked with real processes, workers and sockets."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgewise.model.pipelines import Network
from edgewise.runtime import clock, http
from edgewise.runtime.backends.contract import ServingBackend
from edgewise.runtime.controller.models import STAND_IN, write_stand_in
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.store import Process
from edgewise.runtime.testbeds import Flow, Testbed

SETTINGS = {
    "model": "stand-in", "max_batch": 1, "batch_timeout_s": 0.0, "capacity_qps": 10.0, "profile": None,
    "seed": 0, "entity": 0, "split": None,
}  # fmt: skip


def check_backend(
    make_backend: Callable[[Path], ServingBackend],
    folder: Path,
    limit_s: float,
    answers: Callable[[str], bool] | None = None,
) -> None:
    """See `edgewise.testing.check_backend`.

    Args:
        answers: whether a process is ready at an address; None: it is asked over HTTP.
    """
    answers = answers or _answers
    write_stand_in(folder / STAND_IN)
    settings = {**SETTINGS, "file": str((folder / STAND_IN).resolve())}
    process, backend = Process("checked", "worker", free_port(), settings), make_backend(folder)

    def ready(handle: str) -> bool:
        seen = backend.look(process, handle)
        assert isinstance(seen.url, str) and "://" in seen.url, "look: where a process answers is a URL"
        assert seen.ready in (None, True, False), "look: ready is True, False or None"
        return seen.ready is not False and answers(seen.url)

    first = backend.start(process)
    assert isinstance(first, str) and first, "start: a handle is text"
    _wait(lambda: ready(first), limit_s, "look: the process does not become ready where it says")
    assert backend.alive(first), "alive: the process answers"
    later = make_backend(folder)
    assert later.alive(first), "alive: a handle means the same to a backend made later"
    _wait(
        lambda: later.look(process, first) == backend.look(process, first),
        limit_s,
        "look: a backend made later says another address",
    )
    backend.stop(first, force=True)
    _wait(lambda: not backend.alive(first), limit_s, "stop(force): the process still runs")
    assert backend.look(process, first).ready is False, "look: a process that has ended is not ready"
    backend.stop(first)  # no error
    second = backend.start(process)
    assert second != first, "start: each start has its own handle"
    _wait(lambda: ready(second), limit_s, "look: a second start does not become ready where it says")
    assert not backend.alive(first), "alive: what ended never runs again"
    assert backend.look(process, first).ready is False, "look: what ended is ready again"
    url = backend.look(process, second).url
    backend.stop(second)
    _wait(lambda: not backend.alive(second), limit_s, "stop: a process that was asked to end still runs")
    assert not answers(url), "stop: something still answers"


def _answers(url: str) -> bool:
    async def ask() -> bool:
        client = http.Client.of_url(url)
        try:
            return (await client.request("GET", "/v2/health/ready", timeout_s=1.0)).status == 200
        except (ConnectionError, TimeoutError):
            return False
        finally:
            client.close()

    return asyncio.run(ask())


def _wait(condition: Callable[[], bool], limit_s: float, otherwise: str) -> None:
    until_s = clock.monotonic_s() + limit_s
    while not condition():
        assert clock.monotonic_s() < until_s, otherwise
        time.sleep(0.02)


NAMES, LINKS, WIDTH_BPS = ("a", "b", "c"), ((0, 1), (1, 2)), 8e6
SEND = """
import socket, sys
ours, to, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with socket.create_connection((to, port), 20, (ours, 0)) as sock:
    sock.sendall(b"x" * 100_000)
"""
RECEIVE = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    sock, (peer, _) = server.accept()
    total = 0
    while data := sock.recv(65536):
        total += len(data)
print(total, peer)
"""


def check_testbed(make: Callable[[Network], Testbed], limit_s: float) -> None:
    """See `edgewise.testing.check_testbed`."""
    ends, width = np.array(LINKS), np.full(len(LINKS), WIDTH_BPS)
    network = Network(NAMES, np.full(3, 1e9), np.full(3, 1e9), ends, width)
    bed = make(network)
    try:
        assert bed.network is network, "network: the one it was made of"
        assert isinstance(bed.name, str) and bed.name, "name: text"
        assert isinstance(bed.shapes, bool), "shapes: True or False"
        assert all(0 < bed.port() < 65536 for _ in range(3)), "port: of TCP"
        assert bed.link_bytes().shape == (len(LINKS),), "link_bytes: (L,)"
        _flows(bed)
        _traffic(bed, limit_s)
        bed.set_link(0, up=False)
        bed.set_link(0, up=True)
        _traffic(bed, limit_s)  # as before
        assert bed.apply([]) > 0, "apply: taking a flow away is a change"
        assert bed.apply([]) == 0, "apply: nothing is left to take away"
    finally:
        bed.close()
    again = make(network)  # what closed is gone, so another fits in its place
    again.close()


def _flows(bed: Testbed) -> None:
    port = bed.port()
    flow = Flow(port, 0, 2, (0, 1), 1e6)
    assert bed.apply([flow]) > 0, "apply: a new flow is a change"
    assert bed.apply([flow]) == 0, "apply: the same flows again change nothing"
    assert bed.apply([Flow(port, 0, 2, (0, 1), 2e6)]) > 0, "apply: a new rate is a change"
    try:
        bed.apply([Flow(port, 0, 2, (1,), 1e6)])
    except ValueError:
        return
    raise AssertionError("apply: a path that does not begin at its source is a ValueError")


def _traffic(bed: Testbed, limit_s: float) -> None:
    """A connection from the first node to the last arrives whole, and from where it should."""
    port, ours, to = bed.port(), bed.address(0), bed.address(2)
    bed.apply([Flow(port, 0, 2, (0, 1), WIDTH_BPS)])
    before = bed.link_bytes()
    receive = bed.command(2, [sys.executable, "-c", RECEIVE, to, str(port)])
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == "ready\n", "command: it runs"
            send = bed.command(0, [sys.executable, "-c", SEND, ours, to, str(port)])
            done = subprocess.run(send, capture_output=True, text=True, timeout=limit_s, check=False)
            assert done.returncode == 0, f"address: a node does not reach another: {done.stderr[-200:]}"
            said = server.communicate(timeout=limit_s)[0]
        finally:
            server.kill()
    assert said.split() == ["100000", ours], f"address: arrived {said!r}, not 100000 bytes from {ours}"
    carried = bed.link_bytes() - before
    assert (carried >= 0).all(), "link_bytes: never less than before"
    if bed.shapes:
        assert (carried >= 100_000).all(), "link_bytes: every link of the path has carried the flow"
