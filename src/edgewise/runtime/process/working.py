"""The worker that a process is to be, from its settings."""

from pathlib import Path

from edgewise.model.topology import CPU, Profile
from edgewise.runtime.store import Process
from edgewise.runtime.watch.collector import tracing_to
from edgewise.runtime.worker.batching import Line
from edgewise.runtime.worker.onnx_model import OnnxModel, SlowModel
from edgewise.runtime.worker.pieces import PieceWorker, read_split
from edgewise.runtime.worker.reservations import Reservations
from edgewise.runtime.worker.worker import LiveWorker


def worker_of(process: Process) -> LiveWorker | PieceWorker:
    """Load its model, try it out, and be ready to serve it."""
    settings = process.settings
    file, profile = Path(settings["file"]), settings["profile"]
    where = settings["model"], file, file.parent
    providers = tuple(settings.get("providers", (CPU,)))  # a state of 0.1 does not say
    model = (
        SlowModel(*where, Profile(**profile), settings["seed"], settings["entity"], providers)
        if profile
        else OnnxModel(*where, providers=providers)
    )
    line = Line() if settings["split"] else None
    worker = LiveWorker(
        model,
        max_batch=settings["max_batch"],
        batch_timeout_s=settings["batch_timeout_s"],
        reservations=Reservations(settings["capacity_qps"]),
        by_deadline=process.kind == "replica",
        tracing=tracing_to(settings.get("otlp"), process.name),
        line=line,
    )
    model.rehearse()
    if line is None:
        return worker
    return PieceWorker(worker, file.parent, read_split(file.parent).parts, line)
