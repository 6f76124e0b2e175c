"""Echo workers of ours and a gateway in front of one, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from edgewise import policies
from edgewise.core.world import World
from edgewise.model.topology import (
    Catalog,
    Cluster,
    Model,
    Node,
    Profile,
    Resources,
    Site,
    Topology,
    Variant,
    Way,
    Worker as Deployed,
)
from edgewise.runtime import http
from edgewise.runtime.controller.models import write_stand_in
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import Book
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.process.serving import Listen, listen
from edgewise.runtime.protocol.messages import InferResponse, decode_request, encode_response
from edgewise.runtime.store.records import ALONE
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel


async def echo(request: http.HttpRequest) -> http.Response:
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
        (Way("here", "edge", 0.0),),
        (Deployed("echo-0", "echo-cpu", "node"),),
    )
    return World.build(Catalog((Model("echo", "copy", 100.0),), (variant,)), topology)


async def serve_echo(ready: Any, _: int) -> None:
    """The least a worker can be: our HTTP server and a handler that copies."""
    server = await http.serve(echo)
    ready.put(server.port)
    await asyncio.Event().wait()


class Bytes(asyncio.Protocol):
    """Answers whatever comes with the same bytes: what sockets and event loop cost any server."""

    ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 150\r\n\r\n" + b" " * 150

    def connection_made(self, transport: Any) -> None:
        """Keep the way back."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """A query, which is small enough to come in one piece."""
        self.transport.write(self.ANSWER)


async def serve_bytes(ready: Any, _: int) -> None:
    """No server at all."""
    server = await asyncio.get_running_loop().create_server(Bytes, "127.0.0.1", 0)
    ready.put(server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


async def serve_worker(ready: Any, max_batch: int) -> None:
    """A whole worker: queue, metrics, and ONNX Runtime running Identity on up to `max_batch` rows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "echo.onnx"
        write_stand_in(file)
        server = await http.serve(
            LiveWorker(OnnxModel("echo", file), max_batch=max_batch).handle, at_once=True
        )
        ready.put(server.port)
        await asyncio.Event().wait()


def gateway_to(worker_port: int, share: tuple[int, int] = ALONE) -> Gateway:
    """A gateway whose worker listens there."""
    began_s = time.monotonic()
    session = Session(
        world(), policies.load("dispatch", "least-impedance"), 0, lambda: time.monotonic() - began_s
    )
    client = http.Client("127.0.0.1", worker_port)
    return Gateway(session, [client], ["echo"], book=Book(share=share))


async def serve_gateway(ready: Any, worker_port: int) -> None:
    """A gateway whose worker listens there."""
    gateway = gateway_to(worker_port)
    listening = await listen(with_admin(gateway), Listen(), at_once=True)  # with all that guards it
    ready.put(listening.http.port)
    await asyncio.gather(gateway.keep_time(), gateway.watch())


async def open_stream(gateway_port: int, rate_qps: float = 5e5) -> str:
    """Number of a new stream of the gateway."""
    needs = {"task": "copy", "rate_qps": rate_qps, "size_bytes": 6e5, "deadline_s": 5}
    client = http.Client("127.0.0.1", gateway_port)
    opened = await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
    client.close()
    return str(json.loads(opened.body)["stream"])


def process(main: Any, argument: Any = 0, profile: str = "") -> tuple[Any, int]:
    """Start a process and wait for its port; with `profile`, it writes a cProfile there when it is ended."""
    ready: Any = mp.Queue()
    started = mp.Process(target=_child, args=(main, ready, argument, profile), daemon=True)
    started.start()
    return started, ready.get(timeout=60)


def _child(main: Any, ready: Any, argument: Any, profile: str) -> None:
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
