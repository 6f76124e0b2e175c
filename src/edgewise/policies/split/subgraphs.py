"""Sub-graphs of a task graph that can be placed almost independently.

A graph with one source and one sink is cut at its articulation points, the tasks that lie on every path
from source to sink (Nona, "closest common descendant"). Between two consecutive ones lies a sub-graph:
its root, its sink, and an interior. The interior falls into *branches*, its weakly connected components;
no data passes between branches.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from edgewise.core.split import closed
from edgewise.model.work import TaskGraph


class Branch(NamedTuple):
    """Tasks between root and sink that share a server.

    Attributes:
        tasks: indices into `closed(graph).tasks`, topological order.
        work_ops: their work.
        into_bytes: sizes of the messages from the root; messages without data are left out.
        out_bytes: sizes of the messages to the sink.
    """

    tasks: tuple[int, ...]
    work_ops: float
    into_bytes: tuple[float, ...]
    out_bytes: tuple[float, ...]

    @property
    def kind(self) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
        """Branches of one kind can be exchanged for each other."""
        return self.work_ops, self.into_bytes, self.out_bytes


class SubGraph(NamedTuple):
    """What lies between two consecutive articulation points.

    Attributes:
        root, sink: indices into `closed(graph).tasks`.
        branches: those of one kind beside each other.
        direct_bytes: sizes of the messages from root to sink.
    """

    root: int
    sink: int
    branches: tuple[Branch, ...]
    direct_bytes: tuple[float, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """Sub-graphs of one kind have the same placements at the same cost."""
        return tuple(branch.kind for branch in self.branches), self.direct_bytes


def subgraphs(graph: TaskGraph) -> tuple[SubGraph, ...]:
    """The sub-graphs from source to sink; none for a graph of one task.

    Raises:
        ValueError: the graph has no tasks.
    """
    graph = closed(graph)
    if not graph.tasks:
        raise ValueError(f"task graph {graph.name!r} has no tasks")
    index = {task.name: i for i, task in enumerate(graph.tasks)}
    order = [index[name] for name in graph.order()]
    place = {task: i for i, task in enumerate(order)}
    ends = [(index[edge.source], index[edge.target], edge) for edge in graph.edges]
    starts = _articulation_places([(place[a], place[b]) for a, b, _ in ends], len(order))
    section = [0] * len(order)  # by place: index of the sub-graph whose root is the last one before or at it
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(order)], strict=True)):
        section[start:stop] = [number] * (stop - start)
    messages: list[list[tuple[int, int, float]]] = [[] for _ in starts]
    for a, b, edge in ends:
        messages[section[place[a]]].append((a, b, edge.size_bytes))
    return tuple(
        _subgraph(graph, order[start : stop + 1], messages[number])
        for number, (start, stop) in enumerate(itertools.pairwise(starts))
    )


def _articulation_places(edges: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Places that no edge jumps over: with one source and one sink, exactly those on every path."""
    change = [0] * (count + 1)
    for a, b in edges:
        change[a + 1] += 1
        change[b] -= 1
    found, over = [], 0
    for i in range(count):
        over += change[i]
        if over == 0:
            found.append(i)
    return found


def _subgraph(graph: TaskGraph, order: Sequence[int], messages: list[tuple[int, int, float]]) -> SubGraph:
    """`order` is root, interior in topological order, sink."""
    root, inner, sink = order[0], order[1:-1], order[-1]
    leader = {task: task for task in inner}

    def lead(task: int) -> int:
        while leader[task] != task:
            leader[task] = leader[leader[task]]
            task = leader[task]
        return task

    into: dict[int, list[float]] = defaultdict(list)
    out: dict[int, list[float]] = defaultdict(list)
    direct: list[float] = []
    for a, b, size in messages:
        if a != root and b != sink:
            leader[lead(b)] = lead(a)
        elif size > 0:
            (direct if (a, b) == (root, sink) else into[b] if a == root else out[a]).append(size)
    groups: dict[int, list[int]] = defaultdict(list)
    for task in inner:
        groups[lead(task)].append(task)
    branches = [
        Branch(
            tuple(tasks),
            sum(graph.tasks[task].work_ops for task in tasks),
            tuple(sorted(size for task in tasks for size in into[task])),
            tuple(sorted(size for task in tasks for size in out[task])),
        )
        for tasks in groups.values()
    ]
    return SubGraph(root, sink, tuple(sorted(branches, key=lambda b: b.kind)), tuple(sorted(direct)))
