"""Contraction: fewer tasks, no worse optimum.

An edge that should never be cut is contracted: its two tasks become one. What its tasks send and need
is kept, so data dependencies stay as they were. Two kinds of edges are contracted, over and over until
nothing changes:

- *chains*: in the transitive reduction, the edge leads from a task to its only successor, of which it is
  the only predecessor. The transitive reduction leaves out edges that skip over others; a rule that
  reads the graph itself would stop at each skip connection.
- *branches*: both ends lie in one branch of a sub-graph. The placements exclude parts that wait for each
  other, so tasks of a branch always share a server (see `subgraphs`).

Proof that neither loses an optimum: docs/decisions/0010-exact-splitting.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgewise.core.split import closed
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split.subgraphs import subgraphs


@dataclass(frozen=True, slots=True)
class Contraction:
    """A smaller graph and what its tasks stand for.

    Attributes:
        graph: the contracted graph; a task carries the name of its first member.
        members: task of `graph` → tasks of the original graph, in topological order.
        before: tasks of the original graph.
    """

    graph: TaskGraph
    members: Mapping[str, tuple[str, ...]]
    before: int

    @property
    def after(self) -> int:
        """Tasks of the contracted graph."""
        return len(self.graph.tasks)


def contract(graph: TaskGraph, branches: bool = True) -> Contraction:
    """Contract chains and, if `branches`, branches, until nothing changes.

    Costs O(tasks * edges) bit operations, which is a few milliseconds for a network of 1,000 operators.
    """
    now = Contraction(graph, {task.name: (task.name,) for task in graph.tasks}, len(graph.tasks))
    while True:
        size = now.after
        now = _merged(now, chains(now.graph))
        if branches:
            now = _merged(now, _branches(now.graph))
        if now.after == size:
            return now


def limit_branches(contraction: Contraction, most: int) -> Contraction:
    """At most `most` branches in each sub-graph: the lightest are put on one server, over and over.

    This makes a problem small that would explode. It may lose the optimum: the branches that were put
    together can no longer run at the same time.

    Raises:
        ValueError: `most` is below 1.
    """
    if most < 1:
        raise ValueError(f"most must be at least 1, got {most}")
    names = [task.name for task in closed(contraction.graph).tasks]
    groups: list[list[str]] = []
    for part in subgraphs(contraction.graph):
        lots = [(branch.work_ops, list(branch.tasks)) for branch in part.branches]
        while len(lots) > most:
            lots.sort(key=lambda lot: lot[0])
            (a, first), (b, second) = lots[:2]
            lots = [(a + b, first + second), *lots[2:]]
        groups += [[names[task] for task in sorted(tasks)] for _, tasks in lots]
    return _merged(contraction, groups)


def reduction(graph: TaskGraph) -> dict[str, tuple[str, ...]]:
    """Task → its successors in the transitive reduction, in topological order."""
    order = graph.order()
    place = {name: i for i, name in enumerate(order)}
    after: list[set[int]] = [set() for _ in order]
    for edge in graph.edges:
        after[place[edge.source]].add(place[edge.target])
    reach = [0] * len(order)  # bit i: place i can be reached
    kept: dict[str, tuple[str, ...]] = {}
    for i in reversed(range(len(order))):
        near = []
        for j in sorted(after[i]):
            if not reach[i] >> j & 1:
                near.append(order[j])
                reach[i] |= 1 << j | reach[j]
        kept[order[i]] = tuple(near)
    return kept


def chains(graph: TaskGraph) -> list[list[str]]:
    """Tasks to merge: the longest paths of only successors that are only predecessors."""
    after = reduction(graph)
    before = {name: 0 for name in after}
    for targets in after.values():
        for target in targets:
            before[target] += 1
    inner: set[str] = set()
    found = []
    for name in graph.order():
        if name in inner:
            continue
        chain = [name]
        while len(after[chain[-1]]) == 1 and before[after[chain[-1]][0]] == 1:
            chain.append(after[chain[-1]][0])
        inner.update(chain)
        found.append(chain)
    return found


def _branches(graph: TaskGraph) -> list[list[str]]:
    names = [task.name for task in closed(graph).tasks]
    return [[names[i] for i in branch.tasks] for part in subgraphs(graph) for branch in part.branches]


def _merged(contraction: Contraction, groups: Iterable[list[str]]) -> Contraction:
    """Each group becomes one task. Edges stay apart, but the same data is sent to a task only once."""
    graph = contraction.graph
    into = {task.name: task.name for task in graph.tasks}
    for group in groups:
        for name in group:
            into[name] = group[0]
    work = {name: 0.0 for name in into.values()}
    memory = dict.fromkeys(work, 0.0)
    members: dict[str, tuple[str, ...]] = {name: () for name in work}
    tasks = {task.name: task for task in graph.tasks}
    for name in graph.order():
        work[into[name]] += tasks[name].work_ops
        memory[into[name]] += tasks[name].memory_bytes
        members[into[name]] += contraction.members[name]
    edges: list[Edge] = []
    sent: set[tuple[str, str, str]] = set()
    for edge in graph.edges:
        source, target = into[edge.source], into[edge.target]
        if source == target or (edge.tensor and (source, target, edge.tensor) in sent):
            continue
        sent.add((source, target, edge.tensor))
        edges.append(Edge(source, target, edge.size_bytes, edge.tensor))
    merged = TaskGraph(graph.name, tuple(Task(n, work[n], memory[n]) for n in work), tuple(edges))
    return Contraction(merged, members, contraction.before)
