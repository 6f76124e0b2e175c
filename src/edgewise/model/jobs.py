"""Streaming jobs and the job description a user writes (ENTS, fig. 4 and 5).

A description is a list. Its first entry is the job: `job`, `image`, `total_memory_request`, `source`,
`input_size`. Every other entry is a task: `id`, `downstream`, `memory_resource`. Work per frame and
output sizes are not written by hand: the profiler measures them. Forbidden here: I/O.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.errors import ScenarioError
from edgewise.model.problems import listed, nearest, shown
from edgewise.model.work import Edge, Task, TaskGraph

UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
JOB_FIELDS = ("job", "image", "total_memory_request", "source", "input_size")
TASK_FIELDS = ("id", "downstream", "memory_resource")
DEFAULT_INPUT_UNIT = "MB"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A task graph through which frames stream from a source node (ENTS J = (T, P)).

    Attributes:
        name: what the user calls it.
        graph: tasks with work per frame (C_i) and memory (R_i); edges with data per frame (D_ij).
        source: name of the node where the input arises (s_J).
        input_bytes: input per frame, sent to every task without predecessor.
        frames: length of the job in frames; None when `duration_s` gives it.
        duration_s: length in seconds of running; None when `frames` gives it.
        arrival_s: when it is submitted.

    Raises:
        ScenarioError: not exactly one of `frames` and `duration_s`, or a value is not positive.
    """

    name: str
    graph: TaskGraph
    source: str
    input_bytes: float
    frames: float | None = None
    duration_s: float | None = None
    arrival_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.frames is None) == (self.duration_s is None):
            raise ScenarioError(f"job {self.name!r}: give either frames or duration_s, not both or none")
        length = self.frames if self.frames is not None else self.duration_s
        if not (length is not None and length > 0):
            raise ScenarioError(f"job {self.name!r}: its length is {length!r}; make it positive")
        if not self.graph.tasks:
            raise ScenarioError(f"job {self.name!r}: has no task; add at least one")
        if not self.input_bytes >= 0:
            raise ScenarioError(f"job {self.name!r}: input_bytes {self.input_bytes!r} must be >= 0")

    @property
    def memory_bytes(self) -> float:
        """Memory of all tasks together."""
        return sum(task.memory_bytes for task in self.graph.tasks)


@dataclass(frozen=True, slots=True)
class PipelineDescription:
    """What the user wrote, checked; `profiled` turns it into a job.

    Attributes:
        job, image, source: as written; an empty source means "not said".
        memory_bytes: the total memory request.
        input_bytes: input per frame.
        tasks: (id, downstream ids, memory in bytes) of each task, as written.
    """

    job: str
    image: str
    source: str
    memory_bytes: float
    input_bytes: float
    tasks: tuple[tuple[str, tuple[str, ...], float], ...]

    def profiled(
        self,
        work_ops: Mapping[str, float],
        output_bytes: Mapping[str, float],
        source: str | None = None,
        frames: float | None = None,
        duration_s: float | None = None,
    ) -> Pipeline:
        """The job, with the measured work and output of each task.

        Args:
            work_ops: operations per frame of each task id.
            output_bytes: bytes per frame that each task sends to every downstream task.
            source: node of the input when the description leaves it empty.
            frames, duration_s: length of the job; exactly one.
        Raises:
            ScenarioError: no source, or a task was not profiled.
        """
        node = self.source or source or ""
        if not node:
            raise ScenarioError(f"job {self.job!r}: source is empty; name the node where its input arises")
        for table, what in ((work_ops, "work_ops"), (output_bytes, "output_bytes")):
            missing = [name for name, _, _ in self.tasks if name not in table]
            if missing:
                raise ScenarioError(
                    f"job {self.job!r}: {what} of {missing[0]!r} is missing; profile the task"
                )
        tasks = tuple(Task(name, float(work_ops[name]), memory) for name, _, memory in self.tasks)
        edges = tuple(
            Edge(name, to, float(output_bytes[name])) for name, down, _ in self.tasks for to in down
        )
        graph = TaskGraph(self.job, tasks, edges)
        return Pipeline(self.job, graph, node, self.input_bytes, frames, duration_s)


def size_bytes(value: object, field: str, default_unit: str = "") -> float:
    """Bytes of "2GB", "512 MiB", "10" or a number; `default_unit` applies when none is written.

    Raises:
        ScenarioError: it is not a size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?I?)(B?)\s*", str(value).upper())
    if match is None:
        raise ScenarioError(f'{field}: {shown(value)} is not a size; write for example "512MB" or "2GB"')
    number, prefix, byte = match.groups()
    if prefix not in UNITS:
        raise ScenarioError(f'{field}: {shown(value)} has no known unit; write for example "512MB" or "2GB"')
    if not prefix and not byte and default_unit:
        prefix = default_unit.upper().rstrip("B")
    return float(number) * UNITS[prefix]


def downstream_of(value: object, field: str) -> tuple[str, ...]:
    """Task ids of `["a", "b"]`, of the string "['a','b']" (the paper's form), or of "" (none).

    Raises:
        ScenarioError: it is neither.
    """
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value) if value.strip() else []
        except (ValueError, SyntaxError):
            value = [value]  # a single bare name
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ScenarioError(f'{field}: {shown(value)} is not a list of task ids; write ["task1", "task2"]')
    return tuple(value)


def parse_description(data: Any, where: str = "job") -> PipelineDescription:
    """Check the list a user wrote.

    Args:
        data: the list, or a mapping with the list under `job` (TOML has no top-level list).
        where: file name for messages.
    Raises:
        ScenarioError: everything that is wrong, each with field, value and fix.
    """
    problems: list[str] = []
    _check_keys(data, where)
    head, tasks = data[0], data[1:]

    def checked(parse: Any, value: object, field: str, *more: str) -> Any:
        try:
            return parse(value, field, *more)
        except ScenarioError as error:
            problems.append(str(error))
            return None

    total = checked(size_bytes, head["total_memory_request"], "[0].total_memory_request")
    size = checked(size_bytes, head["input_size"], "[0].input_size", DEFAULT_INPUT_UNIT)
    rows = [
        (
            str(task["id"]),
            checked(downstream_of, task["downstream"], f"[{i}].downstream") or (),
            checked(size_bytes, task["memory_resource"], f"[{i}].memory_resource"),
        )
        for i, task in enumerate(tasks, 1)
    ]
    problems += _graph_problems(rows)
    if not problems and sum(row[2] for row in rows) > total:
        problems.append(
            f"[0].total_memory_request: {shown(head['total_memory_request'])} is less than the "
            f"{sum(row[2] for row in rows):g} bytes of all tasks; raise it or lower a memory_resource"
        )
    if problems:
        raise ScenarioError(listed(where, problems))
    return PipelineDescription(
        str(head["job"]), str(head["image"]), str(head["source"]), total, size, tuple(rows)
    )


def _check_keys(data: Any, where: str) -> None:
    if not isinstance(data, Sequence) or isinstance(data, str) or len(data) < 2:
        raise ScenarioError(f"{where}: needs a list: first the job, then at least one task")
    wrong = [
        p for i, entry in enumerate(data) for p in _unknown(entry, f"[{i}]", TASK_FIELDS if i else JOB_FIELDS)
    ]
    if wrong:
        raise ScenarioError(listed(where, wrong))


def _unknown(entry: Any, where: str, fields: Sequence[str]) -> list[str]:
    if not isinstance(entry, Mapping):
        return [f"{where}: {shown(entry)} is not a mapping; its keys are {', '.join(fields)}"]
    wrong = [f"{where}.{key}: unknown key; {nearest(key, fields)}" for key in entry if key not in fields]
    missing = [f"{where}.{key}: is missing; add it" for key in fields if key not in entry]
    return wrong + missing


def _graph_problems(rows: Sequence[tuple[str, tuple[str, ...], Any]]) -> list[str]:
    ids = [row[0] for row in rows]
    problems = [
        f"[{i + 1}].id: {name!r} occurs twice; give every task its own id"
        for i, name in enumerate(ids)
        if name in ids[:i]
    ]
    problems += [
        f"[{i}].downstream: {to!r} is not a task; {nearest(to, ids)}"
        for i, (_, down, _) in enumerate(rows, 1)
        for to in down
        if to not in ids
    ]
    problems += [
        f"[{i}].downstream: {to!r} is listed twice; list it once"
        for i, (_, down, _) in enumerate(rows, 1)
        for to in sorted({to for to in down if down.count(to) > 1})
    ]
    if problems:
        return problems
    try:
        TaskGraph(
            "job",
            tuple(Task(name, 0.0) for name in ids),
            tuple(Edge(r[0], t, 0.0) for r in rows for t in r[1]),
        )
    except ValueError as error:
        return [
            f"downstream: {str(error).split(': ')[-1].removeprefix('task graph ')}; remove one of its edges"
        ]
    return []
