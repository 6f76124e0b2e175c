"""The profiler: runs each task of a pipeline in a process of its own, held to the processors of a node.

A task is `def task(input): return True, output`. The first tasks get the sample frame; every other task
gets the output of its predecessor, or the list of outputs when it has several. Times are the medians of
repeated calls after a warm-up; an output's size is that of what goes over the wire.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.pipelines import network_of
from edgewise.model.scenario import Scenario
from edgewise.workloads.payloads import encode
from edgewise.workloads.task_code import functions_of, load_code


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


def profile_pipeline(
    spec: PipelineSpec,
    frame: bytes,
    cores: Mapping[str, float],
    repeats: int = 5,
    timeout_s: float = 120.0,
) -> dict[str, tuple[TaskProfile, ...]]:
    """Profile every task on every kind of node.

    Args:
        spec: tasks, and the Python file with their functions. It is run: only profile code you trust.
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
    if repeats < 1:
        raise ScenarioError(f"repeats: {repeats} must be at least 1")
    task = {
        "code": str(Path(spec.code or "").resolve()),
        "functions": functions_of(spec),
        "downstream": {task.name: list(task.downstream) for task in spec.tasks},
        "repeats": repeats,
    }
    return {kind: _on_kind(task, frame, kind, amount, timeout_s) for kind, amount in cores.items()}


def profiled(spec: PipelineSpec, profile: tuple[TaskProfile, ...], speed_ops: float) -> PipelineSpec:
    """The pipeline with work C_i = time x speed, and outputs, of the kind of node that was measured.

    What is written out already stays as it is.

    Args:
        spec: what the user wrote.
        profile: of one kind of node.
        speed_ops: PS of that kind.
    """
    found = {p.task: {"work_ops": p.time_s * speed_ops, "output_bytes": p.output_bytes} for p in profile}
    tasks = tuple(
        task.model_copy(update=found[task.name] | task.model_dump(exclude_none=True)) for task in spec.tasks
    )
    return spec.model_copy(update={"tasks": tasks})


def with_figures(scenario: Scenario, say: Callable[[str], None]) -> Scenario:
    """A scenario whose pipelines have all figures: what they leave out is profiled, on one processor.

    The fastest node stands for this machine.

    Args:
        say: is told what will make frames/s differ from the plan.
    Raises:
        ScenarioError: a frame cannot be read, or see `profile_pipeline`.
    """
    speed_ops = float(network_of(scenario).speed_ops.max())
    made = tuple(
        _with_figures(spec, speed_ops, say) if isinstance(spec, PipelineSpec) and spec.code else spec
        for spec in scenario.pipelines or ()
    )
    return replace(scenario, pipelines=made)


def _with_figures(spec: PipelineSpec, speed_ops: float, say: Callable[[str], None]) -> PipelineSpec:
    where = f"pipeline {spec.name!r}: inputs"
    if not spec.inputs:
        raise ScenarioError(f"{where}: is missing; name a file that its source sends")
    try:
        sample = Path(spec.inputs[0]).read_bytes()
    except OSError as error:
        raise ScenarioError(
            f"{where}: {spec.inputs[0]}: cannot be read: {error.strerror}; check it"
        ) from None
    if abs(len(sample) - spec.input_bytes) > 0.05 * spec.input_bytes:
        size = f"{len(sample):,} bytes, input_bytes of the pipeline says {spec.input_bytes:,.0f}"
        say(f"{spec.inputs[0]} has {size}: frames/s will differ from the plan")
    if any(None in (task.work_ops, task.output_bytes) for task in spec.tasks):
        return profiled(spec, profile_pipeline(spec, sample, {"here": 1})["here"], speed_ops)
    return spec


def _on_kind(
    task: Mapping[str, object], frame: bytes, kind: str, cores: float, timeout_s: float
) -> tuple[TaskProfile, ...]:
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    whole = max(1, int(-(-cores // 1)))
    if cores <= 0 or (available and whole > len(available)):
        raise ScenarioError(f"cores.{kind}: {cores:g}; give more than 0 and at most {len(available)} here")
    rows = _in_process({**task, "cores": available[:whole]}, frame, kind, timeout_s)
    return tuple(TaskProfile(name, time_s * whole / cores, size) for name, time_s, size in rows)


def _in_process(
    task: Mapping[str, object], frame: bytes, kind: str, timeout_s: float
) -> list[tuple[str, float, float]]:
    """(name, time, output size) of each task, measured in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "frame").write_bytes(frame)
        (Path(folder) / "task.json").write_text(json.dumps(task))
        command = [sys.executable, "-m", "edgewise.workloads.pipeline_profiler", folder]
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
        found: list[tuple[str, float, float]] = json.loads(result.read_text())
        return found


def _child(folder: Path) -> None:
    """Run in the process of its own: limit it, then run and time the tasks in topological order."""
    import statistics
    import time

    task = json.loads((folder / "task.json").read_text())
    if task["cores"]:
        os.sched_setaffinity(0, task["cores"])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(max(len(task["cores"]), 1))
    module = load_code(task["code"])
    frame = (folder / "frame").read_bytes()
    output: dict[str, object] = {}
    rows = []
    before = {n: [o for o, down in task["downstream"].items() if n in down] for n in task["downstream"]}
    for name in TopologicalSorter(before).static_order():
        feeds = [output[other] for other in before[name]]
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


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
