"""Servers of the Open Inference Protocol on the same echo model, same tensor, same load generator.

    python -m bench servers [--mlserver-python FILE] [--kserve-python FILE]

Ours: a whole worker (queue, metrics, ONNX Runtime running Identity), with batches of what comes at once and
without, and a gateway in front of one. The peers run a Python function that copies, in environments of their
own, each as one process without access log.
Two more rows are no contenders: fixed bytes, which show what the sockets cost alone, and our HTTP server with
a handler that copies, which is what a worker would be without queue, checks, metrics and ONNX Runtime.
Contenders take turns, round after round; the best round of each counts and all are kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from bench import answering
from bench.echo import open_stream, process, serve_bytes, serve_echo, serve_gateway, serve_worker
from bench.load import cpu_s, load, query
from edgewise.runtime.http.ports import free_port

HERE = Path(__file__).resolve().parent
PEERS = {"mlserver": "MLServer", "kserve": "KServe"}
OURS = ("worker", "worker without batches", "gateway and worker")
MAX_BATCH = 16
SHAPE, CONNECTIONS, TARGET = (1, 8), (1, 16), 5.0
START_S = 60.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A server that is up: its queries by encoding, and the processes that answer them."""

    name: str
    port: int
    pids: tuple[int, ...]
    queries: dict[str, bytes]


def default_python(peer: str) -> Path:
    """Where `make bench` puts a peer's interpreter."""
    return HERE.parent / ".venv-peers" / peer / "bin" / "python"


def run(rounds: int, seconds: float, pythons: dict[str, Path]) -> dict[str, Any]:
    """Measure every server at 1 and 16 connections, JSON and binary where it takes that.

    Args:
        pythons: interpreter of each peer's environment; a peer without one is skipped, with the reason.
    """
    with _ours() as ours, _theirs(pythons) as (theirs, skipped, versions):
        each = uvloop.run(_rounds([*ours, *theirs], rounds, seconds))
    rows = [_row(*where, repeats) for where, repeats in each.items()]
    more = {"parts": answering.run(), "skipped": skipped, "versions": versions, "target": TARGET}
    return {"rows": rows, "ratios": ratios_of(rows), **more}


@contextmanager
def _ours() -> Iterator[list[Contender]]:
    fixed, to_fixed = process(serve_bytes)
    copying, to_copying = process(serve_echo)
    worker, to_worker = process(serve_worker, MAX_BATCH)
    single, to_single = process(serve_worker, 1)
    gateway, to_gateway = process(serve_gateway, to_worker)
    try:
        stream = uvloop.run(open_stream(to_gateway))
        yield [
            Contender("fixed bytes", to_fixed, (fixed.pid,), _queries("echo")),
            Contender("copying handler", to_copying, (copying.pid,), _queries("echo")),
            Contender(OURS[0], to_worker, (worker.pid,), _queries("echo")),
            Contender(OURS[1], to_single, (single.pid,), _queries("echo")),
            Contender(OURS[2], to_gateway, (worker.pid, gateway.pid), _queries("copy", stream)),
        ]
    finally:
        for one in (gateway, single, worker, copying, fixed):
            one.terminate()


@contextmanager
def _theirs(pythons: dict[str, Path]) -> Iterator[tuple[list[Contender], dict[str, str], dict[str, str]]]:
    made: list[Contender] = []
    skipped: dict[str, str] = {}
    versions: dict[str, str] = {}
    running = []
    try:
        for peer, name in PEERS.items():
            python = pythons.get(peer) or default_python(peer)
            if not python.is_file():
                skipped[name] = (
                    f"no {os.path.relpath(python)}: {peer} is not installed there; make bench tries"
                )
                continue
            port = free_port()
            server = subprocess.Popen(
                [python, HERE / "peers" / f"{peer}_echo.py", str(port)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            running.append(server)
            if not uvloop.run(_ready(port, server)):
                skipped[name] = f"{os.path.relpath(python)}: the server did not start"
                continue
            versions[peer] = _version(python, peer)
            made.append(uvloop.run(_with_what_it_takes(name, port, server.pid)))
        yield made, skipped, versions
    finally:
        for server in running:
            server.kill()
            server.wait()


async def _with_what_it_takes(name: str, port: int, pid: int) -> Contender:
    """A peer with the encodings it answers with 200."""
    taken = {}
    for encoding, data in _queries("echo").items():
        with suppress(RuntimeError):
            await load(port, data, 1, 0.0)
            taken[encoding] = data
    return Contender(name, port, (pid,), taken)


def _queries(model: str, stream: str = "") -> dict[str, bytes]:
    path = f"/v2/models/{model}/infer"
    return {"JSON": query(path, SHAPE, stream, binary=False), "binary": query(path, SHAPE, stream)}


async def _rounds(contenders: list[Contender], rounds: int, seconds: float) -> dict[Any, Any]:
    each: dict[tuple[str, str, int], list[dict[str, float]]] = {}
    for k in range(rounds + 1):  # the first is to warm up
        for connections in CONNECTIONS:
            for c in contenders:
                for encoding, data in c.queries.items():
                    before_s = cpu_s(*c.pids)
                    qps, delays_s = await load(c.port, data, connections, seconds if k else seconds / 4)
                    figures = {"qps": qps, "p50_s": float(np.median(delays_s)),
                               "cpu_s": (cpu_s(*c.pids) - before_s) / len(delays_s)}  # fmt: skip
                    if k:
                        each.setdefault((c.name, encoding, connections), []).append(figures)
    return each


def _row(name: str, encoding: str, connections: int, repeats: list[dict[str, float]]) -> dict[str, Any]:
    best = {"qps": max(r["qps"] for r in repeats)}
    best |= {figure: min(r[figure] for r in repeats) for figure in ("p50_s", "cpu_s")}
    return {"name": name, "encoding": encoding, "connections": connections, **best, "repeats": repeats}


def ratios_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ours over each peer's, at the same encoding and number of connections."""
    found = []
    for theirs in (row for row in rows if row["name"] in PEERS.values()):
        for ours in (row for row in rows if row["name"] in OURS):
            if all(ours[key] == theirs[key] for key in ("encoding", "connections")):
                found.append({
                    "peer": theirs["name"], "ours": ours["name"], "encoding": ours["encoding"],
                    "connections": ours["connections"], "qps": ours["qps"] / theirs["qps"],
                    "p50": theirs["p50_s"] / ours["p50_s"], "cpu": theirs["cpu_s"] / ours["cpu_s"],
                })  # fmt: skip
    return found


async def _ready(port: int, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the server's model is ready."""
    from edgewise.runtime import http

    client, until_s = http.Client("127.0.0.1", port), time.monotonic() + START_S
    while time.monotonic() < until_s and server.poll() is None:
        with suppress(ConnectionError, TimeoutError):
            if (await client.request("GET", "/v2/models/echo/ready", timeout_s=2.0)).status == 200:
                client.close()
                return True
        await asyncio.sleep(0.1)
    return False


def _version(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m, json; print(json.dumps(m.version({package!r})))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout))
