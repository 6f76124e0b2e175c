"""The profiler: runs each task of a job in a process of its own, held to the processors of a kind of node.

A task is `def task(input): return True, output`. The first tasks get the sample frame; every other task
gets the output of its predecessor, or the list of outputs when it has several. Times are the medians of
repeated calls after a warm-up; an output's size is that of what goes over the wire (`workloads.payload`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.model.jobs import Pipeline, PipelineDescription
from edgewise.workloads.job_files import task_functions
from edgewise.workloads.payload import encode


@dataclass(frozen=True, slots=True)
class TaskProfile:
    """What one task does on one kind of node.

    Attributes:
        task: its name.
        time_s: median time per frame.
        output_bytes: size of its output.
    """

    task: str
    time_s: float
    output_bytes: float


def profile_job(
    description: PipelineDescription,
    code: str | Path,
    frame: bytes,
    cores: Mapping[str, float],
    repeats: int = 5,
    timeout_s: float = 120.0,
) -> dict[str, tuple[TaskProfile, ...]]:
    """Profile every task on every kind of node.

    Args:
        description: tasks and edges; the k-th task is the k-th function that `code` exports.
        code: Python file with `job = [...]`. It is run: only profile code you trust.
        frame: sample input.
        cores: processors of each kind of node. A kind with 2.5 is run on 3 processors and its times are
            scaled by 3 / 2.5; at least one processor is used.
        repeats: calls that are timed.
        timeout_s: for one kind of node.
    Returns:
        For each kind of node a profile of each task.
    Raises:
        ScenarioError: tasks and functions do not match, a task fails, or it takes too long.
    """
    names = task_functions(code)
    if len(names) != len(description.tasks):
        raise ScenarioError(
            f"{code}: exports {len(names)} functions for {len(description.tasks)} tasks of job "
            f"{description.job!r}; write one for each"
        )
    if repeats < 1:
        raise ScenarioError(f"repeats: {repeats} must be at least 1")
    return {
        kind: _on_kind(description, Path(code), names, frame, kind, amount, repeats, timeout_s)
        for kind, amount in cores.items()
    }


def profiled_job(
    description: PipelineDescription,
    profile: tuple[TaskProfile, ...],
    speed_ops: float,
    source: str | None = None,
    frames: float | None = None,
    duration_s: float | None = None,
) -> Pipeline:
    """The job with work C_i = time x speed of the kind of node that was measured.

    Args:
        description: what the user wrote.
        profile: of one kind of node.
        speed_ops: PS of that kind.
        source: node of the input when the description leaves it empty.
        frames, duration_s: length; exactly one.
    """
    work = {p.task: p.time_s * speed_ops for p in profile}
    return description.profiled(work, {p.task: p.output_bytes for p in profile}, source, frames, duration_s)


def _on_kind(
    description: PipelineDescription,
    code: Path,
    functions: tuple[str, ...],
    frame: bytes,
    kind: str,
    cores: float,
    repeats: int,
    timeout_s: float,
) -> tuple[TaskProfile, ...]:
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    whole = max(1, int(-(-cores // 1)))
    if cores <= 0 or (available and whole > len(available)):
        raise ScenarioError(f"cores.{kind}: {cores:g}; give more than 0 and at most {len(available)} here")
    task = {
        "code": str(code.resolve()),
        "functions": dict(zip((name for name, _, _ in description.tasks), functions, strict=True)),
        "downstream": {name: list(down) for name, down, _ in description.tasks},
        "cores": available[:whole],
        "repeats": repeats,
    }
    rows = _in_process(task, frame, kind, timeout_s)
    return tuple(TaskProfile(name, time_s * whole / cores, size) for name, time_s, size in rows)


def _in_process(
    task: Mapping[str, object], frame: bytes, kind: str, timeout_s: float
) -> list[tuple[str, float, float]]:
    """(name, time, output size) of each task, measured in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "frame").write_bytes(frame)
        (Path(folder) / "task.json").write_text(json.dumps(task))
        command = [sys.executable, "-m", "edgewise.workloads.job_profiler", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise ScenarioError(
                f"{task['code']}: took more than {timeout_s:g} s on {kind!r}; raise timeout_s"
            ) from None
        result = Path(folder) / "result.json"
        if done.returncode or not result.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ScenarioError(f"{task['code']}: failed on {kind!r}: {last}")
        rows: list[tuple[str, float, float]] = json.loads(result.read_text())
        return rows


def _child(folder: Path) -> None:
    """Run in the process of its own: limit it, then run and time the tasks in topological order."""
    import importlib.util
    import statistics
    import time

    task = json.loads((folder / "task.json").read_text())
    if task["cores"]:
        os.sched_setaffinity(0, task["cores"])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(max(len(task["cores"]), 1))
    spec = importlib.util.spec_from_file_location("edgewise_user_job", task["code"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    frame = (folder / "frame").read_bytes()
    output: dict[str, object] = {}
    rows = []
    for name in _order(task["downstream"]):
        feeds = [output[other] for other, down in task["downstream"].items() if name in down]
        given = frame if not feeds else feeds[0] if len(feeds) == 1 else feeds
        function = getattr(module, task["functions"][name])
        times = []
        for _ in range(task["repeats"] + 1):  # the first call warms up
            began = time.perf_counter()
            result = function(given)
            times.append(time.perf_counter() - began)
        if not isinstance(result, tuple) or len(result) != 2 or result[0] is not True:
            sys.exit(f"{name} returned {str(result)[:60]!r}; a task returns True, output")
        output[name] = result[1]
        size = len(encode(result[1])) - 1  # without its kind
        rows.append((name, statistics.median(times[1:]), size))
    (folder / "result.json").write_text(json.dumps(rows))


def _order(downstream: Mapping[str, list[str]]) -> list[str]:
    done: list[str] = []
    while len(done) < len(downstream):  # the description is known to have no cycle
        for name in downstream:
            if name not in done and all(o in done for o, down in downstream.items() if name in down):
                done.append(name)
    return done


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
