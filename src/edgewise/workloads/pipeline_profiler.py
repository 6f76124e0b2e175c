"""The profiler: runs each task of a pipeline in a process of its own, held to the processors of a node.

A task is `def task(input): return True, output`. The first tasks get the sample frame; every other task
gets the output of its predecessor, or the list of outputs when it has several. Times are the medians of
repeated calls after a warm-up; an output's size is that of what goes over the wire.

A pipeline's tasks: the functions of its Python file, which is read, not run; and what they pass on.

What tasks of a pipeline pass on, as bytes: for the wire, and for the profiler that measures sizes.

    b  bytes, as they are
    j  JSON: text, numbers, lists and mappings of them
    z  a mapping of names to arrays (or one array, called ""), in NumPy's own format without pickles
    n  nothing: the task dropped the frame, and the tasks after it skip it

Nothing that arrives is ever unpickled, so a frame cannot run code.
"""

import ast
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import PipelineSpec


def load_code(path: str) -> ModuleType:
    """The module that a pipeline's file of Python makes; it is run."""
    spec = importlib.util.spec_from_file_location("edgewise_user_pipeline", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def task_functions(path: str | Path) -> tuple[str, ...]:
    """Names of the functions that a Python file exports as `job = [task_0, ...]`; the file is not run.

    Raises:
        ScenarioError: no such file, it is not Python, or `job` is missing or is not a list of its functions.
    """
    file = Path(path)
    try:
        tree = ast.parse(_text(file), str(file))
    except SyntaxError as error:
        raise ScenarioError(f"{file}: line {error.lineno} is not Python: {error.msg}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    value = _exported(tree, file, functions)
    names = tuple(element.id for element in value if isinstance(element, ast.Name))
    for name in names:
        if name not in functions:
            from edgewise.model.problems import nearest  # slow to load, for each task's process

            raise ScenarioError(
                f"{file}: job names {name!r}, which is no function; {nearest(name, functions)}"
            )
        arguments = functions[name].args
        if len(arguments.posonlyargs + arguments.args) != 1:
            raise ScenarioError(f"{file}: {name} must take one argument, its input; write def {name}(input):")
    if len(set(names)) < len(names):
        raise ScenarioError(f"{file}: job lists a function twice; list each once")
    return names


def _exported(tree: ast.Module, file: Path, functions: Iterable[str]) -> list[ast.expr]:
    """What the list `job` holds."""
    found = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "job" for t in node.targets)
    ]
    if not found:
        raise ScenarioError(
            f"{file}: exports no job; end it with: job = [{', '.join(functions) or 'task_0'}]"
        )
    value = found[-1]
    if (
        not isinstance(value, ast.List)
        or not value.elts
        or not all(isinstance(e, ast.Name) for e in value.elts)
    ):
        raise ScenarioError(f"{file}: job is not a list of functions; write job = [task_0, task_1]")
    return value.elts


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ScenarioError(f"{file}: cannot be read: {reason}; check the path") from None


NOTHING = b"n"


def encode(value: Any) -> bytes:
    """The bytes of one output.

    Raises:
        TypeError: it is none of the kinds above.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return b"b" + bytes(value)
    if isinstance(value, np.ndarray):
        return encode({"": value})
    if isinstance(value, dict) and any(isinstance(v, np.ndarray) for v in value.values()):
        out = io.BytesIO()
        np.savez(out, **{str(k): np.asarray(v) for k, v in value.items()})  # type: ignore[arg-type]
        return b"z" + out.getvalue()
    try:
        return b"j" + json.dumps(value).encode()
    except (TypeError, ValueError):
        raise TypeError(
            f"output of type {type(value).__name__} cannot be sent; return bytes, text, numbers, lists, "
            "mappings of these, an array or a mapping of names to arrays"
        ) from None


def decode(data: bytes) -> Any:
    """The value of bytes that `encode` made.

    Raises:
        ValueError: they are not.
    """
    kind, body = data[:1], data[1:]
    if kind == b"b":
        return body
    if kind == b"j":
        return json.loads(body)
    if kind == b"z":
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        return found[""] if set(found) == {""} else found
    raise ValueError(f"payload of unknown kind {kind!r}")


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


def functions_of(spec: PipelineSpec) -> dict[str, str]:
    """Task → function of the pipeline's code, the k-th task the k-th function.

    Raises:
        ScenarioError: it has no code, or tasks and functions do not match.
    """
    if spec.code is None:
        raise ScenarioError(
            f"pipeline {spec.name!r}: code is missing; name a Python file with a function for each task"
        )
    names = task_functions(spec.code)
    if len(names) != len(spec.tasks):
        raise ScenarioError(
            f"{spec.code}: exports {len(names)} functions for {len(spec.tasks)} tasks of pipeline "
            f"{spec.name!r}; write one for each"
        )
    return dict(zip((task.name for task in spec.tasks), names, strict=True))


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
