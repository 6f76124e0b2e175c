"""A network whose queries are split over live workers, as a split policy says.

Every worker of the group serves every sub-model (`serve_pieces`). `SplitService` asks the policy where the
tasks of a query go, sends tensors to the workers over the Open Inference Protocol as soon as they are
known, and tells the policy's ledger what is done. Tensors between two workers pass through the service.
A query whose tasks all go to one worker is sent whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import onnx

from edgewise.core.keyed import Key
from edgewise.errors import EdgewiseError
from edgewise.model.work import TaskGraph
from edgewise.policies.split import Ledger, Program, SplitPolicy, closed, finish, new_ledger
from edgewise.policies.split.online import RateTracker
from edgewise.profiling.cut import Piece
from edgewise.runtime import http
from edgewise.runtime.onnx_model import OnnxModel
from edgewise.runtime.protocol import InferRequest, decode_response, encode_request
from edgewise.runtime.tensors import Array
from edgewise.runtime.worker import Worker

WHOLE = "whole"


def piece_name(number: int) -> str:
    """Model name of a piece in URLs."""
    return f"piece{number}"


def load_pieces(
    model: onnx.ModelProto, pieces: Sequence[Piece], folder: Path, max_queue: int = 256
) -> dict[str, Worker]:
    """The network and its sub-models in ONNX Runtime, by model name; their files are written to `folder`."""
    models = {piece_name(i): piece.model for i, piece in enumerate(pieces) if piece.model is not None}
    found = {}
    for name, each in (models | {WHOLE: model}).items():
        file = folder / f"{name}.onnx"
        onnx.save(each, file)
        found[name] = Worker(OnnxModel(name, file), max_queue=max_queue)
    return found


async def serve_pieces(
    workers: Mapping[str, Worker], host: str = http.LOCALHOST, port: int = 0
) -> http.Server:
    """One server for several models; each answers under its own name."""

    async def handle(request: http.Request) -> http.Response:
        parts = request.parts
        name = parts[2] if parts[:2] == ["v2", "models"] and len(parts) > 2 else WHOLE
        if name not in workers:
            return http.failure(404, f"no model {name!r}; this server has {', '.join(workers)}")
        return await workers[name].handle(request)

    return await http.serve(handle, host, port)


def with_seconds(graph: TaskGraph, seconds: Mapping[str, float], power_ops: float) -> TaskGraph:
    """The graph with measured costs; tasks that were not measured cost nothing."""
    tasks = tuple(replace(task, work_ops=seconds.get(task.name, 0.0) * power_ops) for task in graph.tasks)
    return replace(graph, tasks=tasks)


class Answer(NamedTuple):
    """What became of a query.

    Attributes:
        outputs: tensor name → array, those of the network.
        servers: task → server that carried it out.
        time_s: from query to answer.
        sent_bytes: that went to other servers than the one they came from.
    """

    outputs: dict[str, Array]
    servers: dict[str, int]
    time_s: float
    sent_bytes: int


@dataclass
class SplitService:
    """Splits queries of one network over workers.

    Attributes:
        program: of one class, whose graph is the contracted network.
        policy: places the tasks of a query.
        pieces: the network's sub-models, by task.
        clients: one for each of the program's servers.
        outputs: tensors that the network answers with.
        tracker: told of every query; its policy, which follows the rate, then replaces `policy`.
        seed: of the policy's draws.
        timeout_s: of each request.
    """

    program: Program
    policy: SplitPolicy
    pieces: Sequence[Piece]
    clients: Sequence[http.Client]
    outputs: Sequence[str]
    tracker: RateTracker | None = None
    seed: int = 0
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if len(self.program.classes) != 1 or len(self.clients) != self.program.servers:
            raise EdgewiseError(
                f"a split service needs one job class and {self.program.servers} clients, "
                f"got {len(self.program.classes)} and {len(self.clients)}"
            )
        self.ledger: Ledger = new_ledger(np.full(self.program.servers, self.program.power_ops))
        self._graph = closed(self.program.classes[0].graph)
        self._place = {task.name: i for i, task in enumerate(self._graph.tasks)}
        self._queries = 0

    async def infer(self, inputs: Mapping[str, Array]) -> Answer:
        """Answer a query.

        Raises:
            EdgewiseError: a worker answers with an error.
            ConnectionError: a worker is lost.
            TimeoutError: no answer in time.
        """
        began = time.perf_counter()
        if self.tracker is not None:
            self.tracker.seen(0, began)
            self.tracker.update(began)
            self.policy = self.tracker.policy
        key, first = Key(self.seed), self._queries
        self._queries += 1
        row = self.policy.place(np.zeros(1, np.int64), self.ledger, key, first)[0]
        servers = {name: int(row[i]) for name, i in self._place.items()}
        used = {servers[piece.task] for piece in self.pieces if piece.model is not None}
        try:
            if len(used) == 1:
                outputs, sent = await self._ask(used.pop(), WHOLE, inputs, self.outputs), 0
            else:
                outputs, sent = await self._run(inputs, servers)
        finally:
            for name, i in self._place.items():
                finish(self.ledger, servers[name], self._graph.tasks[i].work_ops)
        return Answer(outputs, servers, time.perf_counter() - began, sent)

    async def calibrate(self, inputs: Mapping[str, Array], runs: int = 5) -> dict[str, float]:
        """Median seconds of each task at the first worker, one at a time, requests and all.

        With these as costs (`with_seconds`) the forecast contains what the live system adds.
        """
        times: dict[str, list[float]] = {piece.task: [] for piece in self.pieces if piece.model is not None}
        for _ in range(runs + 1):
            known = dict(inputs)
            for number, piece in enumerate(self.pieces):
                if piece.model is not None:
                    began = time.perf_counter()
                    feeds = {name: known[name] for name in piece.inputs}
                    known |= await self._ask(0, piece_name(number), feeds, piece.outputs)
                    times[piece.task].append(time.perf_counter() - began)
        return {task: median(seen[1:]) for task, seen in times.items()}  # the first run warms up

    async def _run(
        self, inputs: Mapping[str, Array], servers: Mapping[str, int]
    ) -> tuple[dict[str, Array], int]:
        """Every piece as soon as its tensors are known."""
        known: dict[str, asyncio.Future[Array]] = {}
        loop = asyncio.get_running_loop()
        came_from: dict[str, int] = {}
        for piece in self.pieces:
            for name in piece.outputs:
                known[name], came_from[name] = loop.create_future(), servers[piece.task]
        for name, array in inputs.items():
            known[name] = loop.create_future()
            known[name].set_result(array)
        sent = 0

        async def carry_out(number: int, piece: Piece) -> None:
            nonlocal sent
            here = servers[piece.task]
            feeds = {name: await known[name] for name in piece.inputs}
            sent += sum(a.nbytes for name, a in feeds.items() if came_from.get(name, here) != here)
            answer = await self._ask(here, piece_name(number), feeds, piece.outputs)
            for name, array in answer.items():
                known[name].set_result(array)

        async with asyncio.TaskGroup() as group:
            for number, piece in enumerate(self.pieces):
                if piece.model is not None:
                    group.create_task(carry_out(number, piece))
        return {name: await known[name] for name in self.outputs}, sent

    async def _ask(
        self, server: int, model: str, inputs: Mapping[str, Array], outputs: Sequence[str]
    ) -> dict[str, Array]:
        headers, body = encode_request(InferRequest(dict(inputs), tuple(outputs)))
        path = f"/v2/models/{quote(model, safe='')}/infer"
        answer = await self.clients[server].request("POST", path, headers, body, self.timeout_s)
        if answer.status != 200:
            raise EdgewiseError(
                f"{model} at {self.clients[server].url}: {answer.body[:500].decode(errors='replace')}"
            )
        return decode_response(answer.headers, answer.body).outputs
