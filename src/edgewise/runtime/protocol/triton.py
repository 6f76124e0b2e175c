"""What clients of Triton ask for beyond the protocol: a model's configuration, statistics, the index.

    GET  /v2/models/{model}/config         datatypes, shapes without their batch axis, the largest batch
    GET  /v2/models/{model}/stats          queries, batches and their times since the server began
    GET  /v2/models/stats                  of all models
    POST /v2/repository/index              the models and whether they are ready; {"ready": true}: only those

Names and shapes are those of Triton's extensions `model_configuration`, `statistics` and `model_repository`;
models are neither loaded nor unloaded here. One inference is one query, whatever its rows.
"""

from collections.abc import Sequence
from typing import Any

from edgewise.runtime import clock
from edgewise.runtime.protocol.bodies import IndexWanted, read
from edgewise.runtime.protocol.shown_bodies import ModelState

EXTENSIONS = ("model_configuration", "statistics")
DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit",
             "cache_miss")  # fmt: skip
COMPUTE = ("compute_input", "compute_infer", "compute_output")
Tree = dict[str, Any]
Sum = tuple[int, float]  # how many, and their seconds


def model_config(metadata: Tree, max_batch: int = 0, batch_timeout_s: float = 0.0) -> Tree:
    """A model's configuration.

    Args:
        metadata: of the protocol.
        max_batch: rows that may run together; 0 where shapes are fixed, or not known to be free.
        batch_timeout_s: how long a query waits for others.
    """
    config: Tree = {
        "name": metadata["name"], "platform": metadata.get("platform", ""), "backend": "",
        "version_policy": {"latest": {"num_versions": 1}}, "max_batch_size": max_batch,
        "input": [_tensor(tensor, max_batch > 0) for tensor in metadata.get("inputs", ())],
        "output": [_tensor(tensor, max_batch > 0) for tensor in metadata.get("outputs", ())],
    }  # fmt: skip
    if max_batch > 1:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": round(1e6 * batch_timeout_s)}
    return config


def _tensor(tensor: Tree, batched: bool) -> Tree:
    datatype = "STRING" if tensor["datatype"] == "BYTES" else tensor["datatype"]
    dims = [int(size) for size in tensor["shape"]]
    return {"name": tensor["name"], "data_type": f"TYPE_{datatype}", "dims": dims[1:] if batched else dims}


class Statistics:
    """Counts of one model since its server began; times in seconds until they are reported."""

    def __init__(self) -> None:
        self._ended: dict[str, Sum] = {"success": (0, 0.0), "fail": (0, 0.0)}
        self._queue: Sum = (0, 0.0)
        self._batches: dict[int, Sum] = {}  # queries of a batch → batches, and their time
        self._last_ms = 0

    def ran(self, run_s: float, waits_s: Sequence[float]) -> None:
        """A batch was run, whose queries had waited so long."""
        count, total_s = self._batches.get(len(waits_s), (0, 0.0))
        self._batches[len(waits_s)] = count + 1, total_s + run_s
        self._queue = self._queue[0] + len(waits_s), self._queue[1] + sum(waits_s)
        self._last_ms = int(clock.unix_s() * 1e3)

    def answered(self, good: bool, took_s: float) -> None:
        """A query was answered."""
        kind = "success" if good else "fail"
        self._ended[kind] = self._ended[kind][0] + 1, self._ended[kind][1] + took_s

    def report(self, name: str) -> Tree:
        """As one entry of `model_stats`."""
        queries = sum(size * n for size, (n, _) in self._batches.items())
        infer_s = sum(size * run_s for size, (_, run_s) in self._batches.items())
        known = {kind: (queries, 0.0) for kind in COMPUTE}  # perf_analyzer wants their counts to be the same
        known |= {**self._ended, "queue": self._queue, "compute_infer": (queries, infer_s)}
        return {
            "name": name, "version": "1", "last_inference": self._last_ms, "inference_count": queries,
            "execution_count": sum(n for n, _ in self._batches.values()),
            "inference_stats": {kind: _duration(*known.get(kind, (0, 0.0))) for kind in DURATIONS},
            "batch_stats": [
                {"batch_size": size}
                | {kind: _duration(n, run_s if kind == "compute_infer" else 0.0) for kind in COMPUTE}
                for size, (n, run_s) in sorted(self._batches.items())
            ],
        }  # fmt: skip


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(1e9 * seconds)}


def together(name: str, entries: Sequence[Tree]) -> Tree:
    """Entries of several workers as that of one model.

    Raises:
        KeyError, TypeError, ValueError: one is no such entry.
    """
    batches: dict[int, Tree] = {}
    for entry in entries:
        for batch in entry["batch_stats"]:
            size = int(batch["batch_size"])
            old = batches.get(size, {"batch_size": size})
            batches[size] = old | {kind: _added([old.get(kind), batch[kind]]) for kind in COMPUTE}
    stats = [entry["inference_stats"] for entry in entries]
    return {
        "name": name, "version": "1",
        "last_inference": max((int(entry["last_inference"]) for entry in entries), default=0),
        "inference_count": sum(int(entry["inference_count"]) for entry in entries),
        "execution_count": sum(int(entry["execution_count"]) for entry in entries),
        "inference_stats": {kind: _added([each.get(kind) for each in stats]) for kind in DURATIONS},
        "batch_stats": [batches[size] for size in sorted(batches)],
    }  # fmt: skip


def _added(durations: Sequence[Tree | None]) -> dict[str, int]:
    known = [each for each in durations if each]
    return {key: sum(int(each.get(key, 0)) for each in known) for key in ("count", "ns")}


def index(body: bytes, models: dict[str, str]) -> list[ModelState]:
    """The repository's index.

    Args:
        body: of the request; may be empty.
        models: name → why it is not ready, "" when it is.
    Raises:
        ProtocolError: the body is no JSON object, or `ready` no truth value.
    """
    only_ready = read(body or b"{}", IndexWanted).ready
    return [
        ModelState(name, "1", "UNAVAILABLE" if why else "READY", why)
        for name, why in models.items()
        if not (why and only_ready)
    ]
