"""Small real ONNX models, the world that serves them, and both running in a thread."""

import asyncio
import threading
import time
from importlib import import_module

import numpy as np
import onnx
from onnx import TensorProto, helper

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
from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol import grpc_server
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel

ECHO = {
    "BOOL": TensorProto.BOOL, "INT8": TensorProto.INT8, "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32, "INT64": TensorProto.INT64, "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16, "UINT32": TensorProto.UINT32, "UINT64": TensorProto.UINT64,
    "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}  # fmt: skip


def save(file, nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, file)
    return file


def dense_file(folder):
    """y = relu(x W + b), with free batch size."""
    rng = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in (("W", (8, 4)), ("b", (4,)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    return save(folder / "dense.onnx", nodes, [x], [y], weights)


def echo_file(folder):
    """One identity for each datatype."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in ECHO]
    inputs = [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in ECHO.items()]
    outputs = [helper.make_tensor_value_info(f"{name}_out", kind, ["n"]) for name, kind in ECHO.items()]
    return save(folder / "echo.onnx", nodes, inputs, outputs)


def dense_world(workers=2, capacity_qps=100.0):
    """`workers` workers of one variant on one cluster, 0.1 ms away."""
    catalog = Catalog(
        (Model("dense", "score", 50.0),),
        (Variant("dense-cpu", "dense", Resources(1.0), Profile(0.001), capacity_qps, 1e6),),
    )
    node = Node("n0", "edge", Resources(4.0))
    topology = Topology(
        (Site("site-0"),),
        (Cluster("edge", 0, (node,)),),
        (Way("site-0", "edge", 0.0001),),
        tuple(Deployed(f"dense-{i}", "dense-cpu", "n0") for i in range(workers)),
    )
    return World.build(catalog, topology)


class Running:
    """Worker and gateway in a thread with its own event loop."""

    def __init__(self, folder):
        self.folder = folder
        self._started, self._stop = threading.Event(), None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        dense = LiveWorker(OnnxModel("dense", dense_file(self.folder)), max_batch=8)
        echo = LiveWorker(OnnxModel("echo", echo_file(self.folder)))
        servers = [await http.serve(dense.handle, at_once=True), await http.serve(echo.handle, at_once=True)]
        began = time.monotonic()
        session = Session(
            dense_world(), policies.load("dispatch", "least-impedance"), 0, lambda: time.monotonic() - began
        )
        clients = [http.Client(servers[0].host, servers[0].port) for _ in range(2)]
        self.gateway = Gateway(session, clients, ["dense", "dense"])
        front = await http.serve(with_admin(self.gateway), at_once=True)
        store = SteadyStore(self.folder / "state.sqlite")
        store.set_policy("dispatch", "closest")
        controller = await http.serve(Controller(store, LocalBackend(self.folder)).handle)
        grpcs = [await grpc_server.serve_grpc(h) for h in (dense.handle, echo.handle, self.gateway.handle)]
        self.http = {"dense": servers[0].port, "echo": servers[1].port, "score": front.port,
                     "controller": controller.port}  # fmt: skip
        self.grpc = dict(zip(("dense", "echo", "score"), (g.port for g in grpcs), strict=True))
        self._started.set()
        await self._stop.wait()
        for server in (*servers, front, controller, *grpcs):
            await server.close(0.1)
        session.core.validate()

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


def client_of(kind, running, model):
    """Triton's library for "http" or "grpc", and a client of it for a model."""
    library = import_module(f"tritonclient.{kind}")
    port = (running.http if kind == "http" else running.grpc)[model]
    return library, library.InferenceServerClient(f"127.0.0.1:{port}")
