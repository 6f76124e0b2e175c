"""A network in a folder, whole and in pieces, with what a gateway needs to split its queries.

    VARIANT.split/whole.onnx, piece0.onnx, …     written by `write_split`
    VARIANT.split/split.json                     graph, pieces, policy, costs

Every worker of the variant serves all of them (`PieceWorker`), each under its own model name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.model.topology import Profile
from edgewise.model.work import TaskGraph
from edgewise.policies import USUAL
from edgewise.runtime import http
from edgewise.runtime.protocol.messages import InferRequest, decode_response, encode_request
from edgewise.runtime.protocol.tensors import Array
from edgewise.runtime.watch.metrics import page
from edgewise.runtime.worker.batching import Line
from edgewise.runtime.worker.onnx_model import OnnxModel, SlowModel
from edgewise.runtime.worker.worker import LiveWorker

if TYPE_CHECKING:
    import onnx

    from edgewise.profiling.dags import Piece

SUFFIX, WHOLE, ABOUT = ".split", "whole.onnx", "split.json"
MAX_QUEUE = 256


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-model as workers serve it.

    Attributes:
        name: in URLs, and of its file; empty where the task has no operator.
        task: of the contracted graph.
        inputs, outputs: its tensors.
        emulated_s: that a stand-in takes; None: it is run.
    """

    name: str
    task: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    emulated_s: float | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A network that was cut, and how its queries are to be split.

    Attributes:
        graph: contracted, with costs in operations.
        parts: sub-models, in an order in which they can run.
        inputs, outputs: tensors of the network.
        power_ops: operations per second of a worker.
        link_bps: capacity between workers.
        rate_qps: queries that are expected.
        policy: a split policy's name.
    """

    graph: TaskGraph
    parts: tuple[Part, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    power_ops: float
    link_bps: float
    rate_qps: float
    policy: str = USUAL["split"]

    @property
    def whole_s(self) -> float:
        """What a worker takes for the network."""
        return sum(task.work_ops for task in self.graph.tasks) / self.power_ops

    def with_seconds(self, seconds: Mapping[str, float]) -> Cut:
        """With measured costs; tasks that were not measured cost nothing."""
        tasks = tuple(
            replace(t, work_ops=seconds.get(t.name, 0.0) * self.power_ops) for t in self.graph.tasks
        )
        return replace(self, graph=replace(self.graph, tasks=tasks))


def describe(
    model: onnx.ModelProto, graph: TaskGraph, pieces: Sequence[Piece], emulated: bool = False, **setting: Any
) -> Cut:
    """What `write_split` writes.

    Args:
        emulated: pieces are stand-ins, and take the time that their costs say.
        setting: power_ops, link_bps, rate_qps and policy of `Cut`.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    takes_s = {task.name: task.work_ops / setting["power_ops"] for task in graph.tasks} if emulated else {}
    return Cut(
        graph,
        tuple(
            Part(f"piece{i}" if p.model is not None else "", p.task, p.inputs, p.outputs, takes_s.get(p.task))
            for i, p in enumerate(pieces)
        ),
        tuple(value.name for value in model.graph.input if value.name not in weights),
        tuple(value.name for value in model.graph.output),
        **setting,
    )


def write_split(folder: Path, model: onnx.ModelProto, pieces: Sequence[Piece], cut: Cut) -> None:
    """Write a network, its sub-models and how they belong together."""
    import onnx  # an extra

    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / WHOLE)
    for part, piece in zip(cut.parts, pieces, strict=True):
        if piece.model is not None:
            onnx.save(piece.model, folder / f"{part.name}.onnx")
    write_about(folder, cut)


def write_about(folder: Path, cut: Cut) -> None:
    """Write how queries are to be split; the sub-models stay."""
    (folder / ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(cut)))


def read_split(folder: Path) -> Cut:
    """What `write_split` wrote.

    Raises:
        ScenarioError: a file is missing or damaged.
    """
    try:
        found = msgspec.json.decode((folder / ABOUT).read_bytes(), type=Cut)
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{folder / ABOUT}: cannot be read ({error}); write it anew") from error
    missing = [
        n for n in (WHOLE, *(f"{p.name}.onnx" for p in found.parts if p.name)) if not (folder / n).is_file()
    ]
    if missing:
        raise ScenarioError(f"{folder / missing[0]}: is missing; cut the network anew")
    return found


def _model_of(part: Part, folder: Path) -> OnnxModel:
    where = part.name, folder / f"{part.name}.onnx", folder
    return OnnxModel(*where) if part.emulated_s is None else SlowModel(*where, Profile(part.emulated_s))


class PieceWorker:
    """A worker of a network that also serves the network's sub-models.

    It runs one thing at a time, be it the network or a sub-model, and takes the oldest query first.

    Args:
        whole: serves the network; everything that names no sub-model is for it.
        folder: of the sub-models.
        parts: which.
        line: that `whole` was made with.
    """

    def __init__(self, whole: LiveWorker, folder: Path, parts: Sequence[Part], line: Line) -> None:
        self.whole, self.tracing = whole, whole.tracing
        self.pieces = {
            part.name: LiveWorker(
                _model_of(part, folder),
                MAX_QUEUE,
                tracing=whole.tracing,
                line=line,
            )
            for part in parts
            if part.name
        }
        self._registry = CollectorRegistry()
        self._registry.register(_Together((whole, *self.pieces.values())))

    async def handle(self, request: http.HttpRequest) -> http.Response:
        """Answer one HTTP request."""
        parts = request.parts
        if parts[:2] == ["v2", "models"] and len(parts) > 2 and parts[2] in self.pieces:
            return await self.pieces[parts[2]].handle(request)
        if parts == ["metrics"] and request.method == "GET":
            return page(self._registry)
        return await self.whole.handle(request)

    async def drain(self) -> None:
        """Take no more queries and wait for those accepted."""
        await asyncio.gather(*(worker.drain() for worker in (self.whole, *self.pieces.values())))


class _Together(Collector):
    """The metrics of several models: families of one name, samples of all."""

    def __init__(self, workers: Sequence[LiveWorker]) -> None:
        self._workers = workers

    def collect(self) -> Iterable[Metric]:
        found: dict[str, Metric] = {}
        for worker in self._workers:
            for metric in worker.metrics.registry.collect():
                if metric.name in found:
                    found[metric.name].samples.extend(metric.samples)
                else:
                    found[metric.name] = metric
        return found.values()


async def calibrate(
    cut: Cut, client: http.Client, inputs: Mapping[str, Array], runs: int = 5
) -> dict[str, float]:
    """Median seconds of each task at a worker, one at a time, requests and all.

    With these as costs (`Cut.with_seconds`) the forecast contains what the live system adds.

    Raises:
        EdgewiseError: the worker refuses.
    """
    times: dict[str, list[float]] = {part.task: [] for part in cut.parts if part.name}
    for _ in range(runs + 1):
        known = dict(inputs)
        for part in cut.parts:
            if part.name:
                began = perf_counter()
                headers, body = encode_request(
                    InferRequest({name: known[name] for name in part.inputs}, part.outputs)
                )
                answer = await client.request("POST", f"/v2/models/{part.name}/infer", headers, body)
                if answer.status != 200:
                    text = answer.body[:500].decode(errors="replace")
                    raise EdgewiseError(f"{part.name} at {client.url}: {text}")
                known |= decode_response(answer.headers, answer.body).outputs
                times[part.task].append(perf_counter() - began)
    return {task: median(seen[1:]) for task, seen in times.items()}  # the first run warms up
