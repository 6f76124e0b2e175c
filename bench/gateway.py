"""What the gateway costs: the same queries to a worker directly and through the gateway, core in the path.

    python bench/gateway.py [--seconds 4] [--profile gateway.prof]

Three processes on this machine: an echo worker (our HTTP server, a handler that only copies), a gateway,
and this load generator. "added" is the difference of the medians; "gateway CPU" is its process's CPU time for
each request: the bound of its throughput when the machine has cores to spare for the other two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing as mp
import os
import time
from pathlib import Path
from typing import Any

import httptools
import numpy as np
import uvloop

from edgewise import policies
from edgewise.core.world import World
from edgewise.model.catalog import Catalog, Model, Profile, Variant
from edgewise.model.resources import Resources
from edgewise.model.topology import Cluster, Link, Node, Site, Topology
from edgewise.model.topology import Worker as Deployed
from edgewise.runtime import http
from edgewise.runtime.admin import with_admin
from edgewise.runtime.gateway import Gateway
from edgewise.runtime.http.messages import write_request
from edgewise.runtime.protocol import (
    InferRequest,
    InferResponse,
    decode_request,
    encode_request,
    encode_response,
)
from edgewise.runtime.session import Session

SIZES = {"small (32 B)": (1, 8), "600 kB": (1, 150_000)}


async def echo(request: http.Request) -> http.Response:
    """Answer with the tensors that came; ready to every health check."""
    if not request.path.endswith("/infer"):
        return http.as_json({"ready": True})
    asked = decode_request(request.headers, request.body)
    headers, body = encode_response(InferResponse("echo", asked.inputs), True)
    return http.Response(200, body, headers)


def world() -> World:
    """One echo worker."""
    variant = Variant("echo-cpu", "echo", Resources(1.0), Profile(0.0001), 1e6, 1e6)
    topology = Topology(
        (Site("here"),),
        (Cluster("edge", 0, (Node("node", "edge", Resources(4.0)),)),),
        (Link("here", "edge", 0.0),),
        (Deployed("echo-0", "echo-cpu", "node"),),
    )
    return World.build(Catalog((Model("echo", "copy", 100.0),), (variant,)), topology)


async def serve_echo(ready: Any, _: int) -> None:
    """The worker's process."""
    server = await http.serve(echo)
    ready.put(server.port)
    await asyncio.Event().wait()


async def serve_gateway(ready: Any, worker_port: int) -> None:
    """The gateway's process."""
    began = time.monotonic()
    session = Session(world(), policies.load("least-impedance"), 0, lambda: time.monotonic() - began)
    gateway = Gateway(session, [http.Client("127.0.0.1", worker_port)], ["echo"])
    server = await http.serve(with_admin(gateway))
    ready.put(server.port)
    await asyncio.gather(gateway.keep_time(), gateway.watch())


def process(main: Any, argument: int = 0, profile: str = "") -> tuple[Any, int]:
    """Start a process and wait for its port."""
    ready: Any = mp.Queue()
    started = mp.Process(target=_child, args=(main, ready, argument, profile), daemon=True)
    started.start()
    return started, ready.get(timeout=60)


def _child(main: Any, ready: Any, argument: int, profile: str) -> None:
    if not profile:
        uvloop.run(main(ready, argument))
        return
    import cProfile
    import signal

    profiler = cProfile.Profile()

    def stop(*_: Any) -> None:
        profiler.disable()
        profiler.dump_stats(profile)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    profiler.enable()
    asyncio.run(main(ready, argument))


class Load(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

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
            self.transport.close()
            self.done.set_result(None)


async def load(port: int, data: bytes, connections: int, seconds: float) -> tuple[float, np.ndarray]:
    """Requests per second, and the delays in seconds."""
    delays_s: list[float] = []
    loop, started = asyncio.get_running_loop(), time.perf_counter()
    made = [
        await loop.create_connection(lambda: Load(data, started + seconds, delays_s), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    return len(delays_s) / (time.perf_counter() - started), np.array(delays_s)


def query(path: str, shape: tuple[int, ...], stream: str = "") -> bytes:
    """A query's bytes."""
    headers, body = encode_request(InferRequest({"x": np.ones(shape, np.float32)}))
    if stream:
        headers["edgewise-stream"] = stream
    return b"".join(write_request("POST", path, "127.0.0.1", headers, body))


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(worker: int, gateway: int, pid: int, seconds: float) -> None:
    """Print the table."""
    needs = {"task": "copy", "rate_qps": 100, "size_bytes": 6e5, "deadline_s": 5}
    client = http.Client("127.0.0.1", gateway)
    opened = json.loads((await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())).body)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    print(f"{'tensor':14}{'connections':>12}{'direct p50':>12}{'gateway p50':>13}{'added':>10}"
          f"{'direct/s':>11}{'gateway/s':>11}{'gateway CPU':>17}")  # fmt: skip
    for name, shape in SIZES.items():
        direct = query("/v2/models/echo/infer", shape)
        through = query("/v2/models/copy/infer", shape, str(opened["stream"]))
        for connections in (1, 16):
            await load(gateway, through, connections, 0.3)
            rate_d, delays_d = await load(worker, direct, connections, seconds)
            before_s = cpu_s(pid)
            rate_g, delays_g = await load(gateway, through, connections, seconds)
            cpu_us = 1e6 * (cpu_s(pid) - before_s) / len(delays_g)
            p50_d, p50_g = np.median(delays_d) * 1e3, np.median(delays_g) * 1e3
            print(f"{name:14}{connections:12}{p50_d:9.3f} ms{p50_g:10.3f} ms{p50_g - p50_d:7.3f} ms"
                  f"{rate_d:11.0f}{rate_g:11.0f}{cpu_us:14.0f} us")  # fmt: skip


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--profile", default="", help="write a cProfile of the gateway here")
    options = parser.parse_args()
    worker, worker_port = process(serve_echo)
    gateway, gateway_port = process(serve_gateway, worker_port, options.profile)
    try:
        uvloop.run(measure(worker_port, gateway_port, gateway.pid, options.seconds))
    finally:
        gateway.terminate()
        worker.terminate()


if __name__ == "__main__":
    main()
