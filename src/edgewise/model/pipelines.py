"""Pipelines (ENTS's streaming jobs), what is checked of those that a scenario holds, and what they run on.

Their network (G of ENTS) is a lens on a scenario: its nodes that have a speed, which compute and forward, and
the undirected links between two of them. Forbidden here: I/O.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import PipelineSpec, PipelineTaskSpec
from edgewise.model.grammar.scenario import ScenarioSpec
from edgewise.model.problems import nearest, unique
from edgewise.model.services import free_of
from edgewise.model.topology import Catalog, Topology
from edgewise.model.values import most_of
from edgewise.model.ways import Routes, plain
from edgewise.model.work import Edge, Task, TaskGraph

if TYPE_CHECKING:
    from edgewise.model.scenario import Scenario


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes and undirected links; the capacity of a link is shared by both directions.

    Attributes:
        names: N node names, unique.
        speed_ops: (N,) operations per second (PS_j), > 0.
        memory_bytes: (N,) memory (R_max), >= 0.
        ends: (L, 2) node indices of each link.
        bandwidth_bps: (L,) bits per second (B_l), >= 0.
        cores: (N,) cores that tasks share, each at most `task_cores` of them; None, as in ENTS: each task has
            the whole node.
        task_cores: (N,) cores that a task takes at the node's speed, > 0; one where it is not said.

    Raises:
        ScenarioError: shapes differ, a name occurs twice, a link has an unknown end or the ends are equal.
    """

    names: tuple[str, ...]
    speed_ops: Floats
    memory_bytes: Floats
    ends: Ints
    bandwidth_bps: Floats
    cores: Floats | None = None
    task_cores: Floats = field(default_factory=lambda: np.ones(1))

    def __post_init__(self) -> None:
        count = len(self.names)
        if self.task_cores.shape != (count,):
            object.__setattr__(self, "task_cores", np.broadcast_to(self.task_cores, count))
        if len(set(self.names)) < count:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ScenarioError(f"network.names: {twice!r} occurs twice; give every node its own name")
        for each in ("speed_ops", "memory_bytes"):
            values = getattr(self, each)
            if values.shape != (count,):
                raise ScenarioError(
                    f"network.{each}: shape {values.shape}; give one value per node ({count})"
                )
        if self.ends.shape != (len(self.bandwidth_bps), 2):
            raise ScenarioError(f"network.ends: shape {self.ends.shape}; give two nodes for every bandwidth")
        if not ((self.ends >= 0) & (self.ends < count)).all() or (self.ends[:, 0] == self.ends[:, 1]).any():
            raise ScenarioError("network.ends: a link must join two different nodes of the network")
        if not (self.speed_ops > 0).all():
            raise ScenarioError(f"network.speed_ops: {self.speed_ops.min():g} is not positive")
        if not (self.bandwidth_bps >= 0).all() or not (self.memory_bytes >= 0).all():
            raise ScenarioError("network: bandwidth_bps and memory_bytes must be >= 0")

    @property
    def shared_ops(self) -> Floats | None:
        """(N,) operations per second that tasks share; None where they do not."""
        return None if self.cores is None else self.speed_ops * self.cores / self.task_cores

    def alike(self, other: "Network") -> bool:
        """Whether another one has the same nodes and links, whatever is free of the nodes."""
        return (
            self.names == other.names
            and np.array_equal(self.speed_ops, other.speed_ops)
            and np.array_equal(self.task_cores, other.task_cores)
            and (self.cores is None) == (other.cores is None)
            and np.array_equal(self.ends, other.ends)
            and np.array_equal(self.bandwidth_bps, other.bandwidth_bps)
        )

    def node(self, name: str) -> int:
        """Index of the node `name`.

        Raises:
            ScenarioError: no node has that name.
        """
        if name not in self.names:
            raise ScenarioError(f"node {name!r} is not in the network; {nearest(name, self.names)}")
        return self.names.index(name)

    def link(self, one: str, other: str) -> int:
        """Index of the link between two nodes, in either order.

        Raises:
            ScenarioError: they are not neighbours.
        """
        wanted = {self.node(one), self.node(other)}
        for i, ends in enumerate(self.ends):
            if {int(ends[0]), int(ends[1])} == wanted:
                return i
        raise ScenarioError(f"no link between {one!r} and {other!r}; add it to network.ends")


def network_of(scenario: "Scenario") -> Network:
    """The network that a scenario's pipelines run on, as `network_on` says."""
    return network_on(scenario.topology, scenario.catalog, scenario.reservations.cores == "used")


def network_on(topology: Topology, catalog: Catalog, shared: bool = True) -> Network:
    """Nodes that have a speed, with the memory and cores that workers leave, and links between two nodes.

    Links between clusters are for requests, delays of links do not matter to the rate of a stream of frames.

    Args:
        shared: tasks share the cores of their nodes.
    Raises:
        ScenarioError: no node has a speed, one of them has no memory or no cores, or a link cannot be in the
            network.
    """
    nodes = [node for node in topology.nodes if node.speed_ops > 0]
    if not nodes:
        raise ScenarioError("clusters: no node has speed_ops, in which work of pipelines is counted; add it")
    for node in nodes:
        if not node.resources.memory_bytes > 0:
            raise ScenarioError(
                f"clusters: node {node.name!r} has speed_ops and no memory for tasks; "
                "add resources: {memory_bytes: …}"
            )
        if shared and not node.resources.cpu_cores > 0:
            raise ScenarioError(
                f"clusters: node {node.name!r} has speed_ops and no cores for tasks; add "
                "resources: {cpu_cores: …}, or give each task a whole node by reservations: {cores: none}"
            )
    names, known = [node.name for node in nodes], {node.name for node in topology.nodes}
    links = [link for link in topology.links if link.ends[0] in known]
    for link in links:
        where = f"links: between [{', '.join(link.ends)}]"
        if slow := [end for end in link.ends if end not in names]:
            raise ScenarioError(
                f"{where}: node {slow[0]!r} has no speed_ops; add it, flows pass through nodes"
            )
        if not link.shared:
            raise ScenarioError(
                f"{where}: shared is 'each', flows of pipelines take one bandwidth for both directions; "
                "write shared: both"
            )
    over = [name for link in links for name in plain(link.over)]
    if twice := next((name for name in over if over.count(name) > 1), None):
        raise ScenarioError(
            f"links: cable {twice!r} carries two links between nodes, whose flows together might exceed it; "
            "lay each over cables of its own"
        )
    free = free_of(nodes, catalog, topology)
    return Network(
        tuple(names),
        np.array([node.speed_ops for node in nodes]),
        free[:, 1].copy(),
        np.array([[names.index(end) for end in link.ends] for link in links], dtype=np.int64).reshape(-1, 2),
        np.array([link.bandwidth_bps for link in links], dtype=np.float64),
        free[:, 0].copy() if shared else None,
        np.array([node.speed_cores for node in nodes]),
    )


def carried_over(network: Network, routes: Routes) -> Floats:
    """(2, K, L) 1 where what goes over one of K links of a network takes one of L links of routes, else 0.

    First towards its second node, then towards its first. A link over no cables takes none.
    """
    found = np.zeros((2, len(network.ends), len(routes.names)))
    for k, (one, other) in enumerate(network.ends.tolist()):
        for back, (first, second) in enumerate(((one, other), (other, one))):
            route = routes.between.get((network.names[first], network.names[second]))
            if route is not None:
                links = routes.link[route]
                found[back, k, links[links >= 0]] = 1.0
    return found


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A graph of tasks through which frames stream from a source node (ENTS J = (T, P)).

    A placed task holds memory on its node for life, and the cores that it uses, which give way to workers,
    replicas and servers; its flows hold bits/s on their paths.

    Attributes:
        name: what the user calls it.
        graph: tasks with work per frame (C_i) and memory (R_i); edges with data per frame (D_ij).
        source: name of the node where the input arises (s_J).
        input_bytes: input per frame, sent to every task without predecessor.
        frames: length in frames; None when `duration_s` gives it.
        duration_s: length in seconds of running; None when `frames` gives it.
        arrival_s: when it is submitted.
        image: name of what its nodes fetch before they run tasks of it.
        image_bytes: size of that.
        start_s: from the last byte of it, or from a node that is back, to the first frame.

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
    image: str = ""
    image_bytes: float = 0.0
    start_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.frames is None) == (self.duration_s is None):
            raise ScenarioError(f"pipeline {self.name!r}: give either frames or duration_s, not both or none")
        length = self.frames if self.frames is not None else self.duration_s
        if not (length is not None and length > 0):
            raise ScenarioError(f"pipeline {self.name!r}: its length is {length!r}; make it positive")
        if (self.duration_s or 0.0) > (most_s := most_of("duration_s")):
            raise ScenarioError(
                f"pipeline {self.name!r}: lasts {self.duration_s:g} s; use at most {most_s:g}"
            )
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
    length, start = (spec.frames, spec.length_s, spec.arrive_s), (spec.image_bytes, spec.start_s)
    return Pipeline(spec.name, graph, spec.source, spec.input_bytes, *length, spec.image or spec.name, *start)


def check_pipelines(spec: ScenarioSpec, catalog: Catalog, topology: Topology, problems: list[str]) -> None:
    """Their nodes and links can carry them, names are unique, graphs have no cycle: else problems."""
    if spec.pipelines is None:
        return
    try:
        nodes = network_on(topology, catalog, spec.reservations.cores == "used").names
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
