"""Pipelines (ENTS's streaming jobs), and what is checked of those that a scenario holds. Forbidden: I/O."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.errors import ScenarioError
from edgewise.model.catalog import Catalog
from edgewise.model.grammar.pipelines import PipelineSpec, PipelineTaskSpec
from edgewise.model.grammar.scenario import ScenarioSpec
from edgewise.model.network import network_on
from edgewise.model.problems import nearest, unique
from edgewise.model.topology import Topology
from edgewise.model.work import Edge, Task, TaskGraph


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A graph of tasks through which frames stream from a source node (ENTS J = (T, P)).

    A placed task holds memory on its node for life, and nothing else there (as published); its flows hold
    bits/s on their paths.

    Attributes:
        name: what the user calls it.
        graph: tasks with work per frame (C_i) and memory (R_i); edges with data per frame (D_ij).
        source: name of the node where the input arises (s_J).
        input_bytes: input per frame, sent to every task without predecessor.
        frames: length in frames; None when `duration_s` gives it.
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
            raise ScenarioError(f"pipeline {self.name!r}: give either frames or duration_s, not both or none")
        length = self.frames if self.frames is not None else self.duration_s
        if not (length is not None and length > 0):
            raise ScenarioError(f"pipeline {self.name!r}: its length is {length!r}; make it positive")
        if not self.graph.tasks:
            raise ScenarioError(f"pipeline {self.name!r}: has no task; add at least one")
        if not self.input_bytes >= 0:
            raise ScenarioError(f"pipeline {self.name!r}: input_bytes {self.input_bytes!r} must be >= 0")

    @property
    def memory_bytes(self) -> float:
        """Memory of all tasks together."""
        return sum(task.memory_bytes for task in self.graph.tasks)


def pipeline_of(spec: PipelineSpec) -> Pipeline:
    """The pipeline that is written out.

    Raises:
        ScenarioError: the work or output of a task is not known yet.
    """
    for i, task in enumerate(spec.tasks):
        for key in ("work_ops", "output_bytes"):
            if getattr(task, key) is None:
                raise ScenarioError(
                    f"pipeline {spec.name!r}: tasks[{i}].{key} of {task.name!r} is missing; profile the task"
                )
    tasks = tuple(Task(task.name, task.work_ops or 0.0, task.memory_bytes) for task in spec.tasks)
    graph = TaskGraph(spec.name, tasks, _edges(spec.tasks))
    return Pipeline(
        spec.name, graph, spec.source, spec.input_bytes, spec.frames, spec.length_s, spec.arrive_s
    )


def check_pipelines(spec: ScenarioSpec, catalog: Catalog, topology: Topology, problems: list[str]) -> None:
    """Their nodes and links can carry them, names are unique, graphs have no cycle: else problems."""
    if spec.pipelines is None:
        return
    try:
        nodes = network_on(topology, catalog).names
    except ScenarioError as error:
        problems.append(str(error))
        nodes = tuple(node.name for node in topology.nodes)
    names: list[str] = []
    for i, each in enumerate(spec.pipelines):
        if not isinstance(each, PipelineSpec):
            names += [f"{each.name}-{k}" for k in range(each.count)]
            continue
        names.append(each.name)
        if each.source not in nodes:
            problems.append(
                f"pipelines[{i}].source: {each.source!r} is no node with speed_ops; "
                f"{nearest(each.source, nodes)}"
            )
        if each.arrive_s >= spec.duration_s:
            problems.append(
                f"pipelines[{i}].arrive_s: {each.arrive_s:g} is not before the end; "
                f"use less than {spec.duration_s:g}"
            )
        problems += [f"pipelines[{i}].{problem}" for problem in _graph_problems(each.tasks)]
    unique("pipelines", names, problems)


def _graph_problems(tasks: Sequence[PipelineTaskSpec]) -> list[str]:
    names = [task.name for task in tasks]
    problems: list[str] = []
    unique("tasks", names, problems)
    for i, task in enumerate(tasks):
        where = f"tasks[{i}].downstream"
        problems += [
            f"{where}: {to!r} is not a task; {nearest(to, names)}"
            for to in task.downstream
            if to not in names
        ]
        problems += [
            f"{where}: {to!r} is listed twice; list it once"
            for to, n in Counter(task.downstream).items()
            if n > 1
        ]
    if problems:
        return problems
    try:
        TaskGraph("", tuple(Task(name, 0.0) for name in names), _edges(tasks))
    except ValueError as error:
        return [f"tasks: the {str(error).replace(repr('') + ' ', '')}; remove one of its edges"]
    return []


def _edges(tasks: Sequence[PipelineTaskSpec]) -> tuple[Edge, ...]:
    return tuple(Edge(task.name, to, task.output_bytes or 0.0) for task in tasks for to in task.downstream)
