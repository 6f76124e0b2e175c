"""Nona's problem written down from its page, slowly: every set partition, every sum, no shared code."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
from scipy.optimize import linprog

from edgewise.model.work import Edge, Task, TaskGraph


def random_graph(rng: np.random.Generator, tasks: int, density: float = 0.4) -> TaskGraph:
    """Random DAG with one source and one sink."""
    names = [f"t{i}" for i in range(tasks)]
    pairs = [(i, j) for i in range(tasks) for j in range(i + 1, tasks) if rng.random() < density]
    for i in range(1, tasks):
        if not any(b == i for _, b in pairs):
            pairs.append((int(rng.integers(i)), i))
    for i in range(tasks - 1):
        if not any(a == i for a, _ in pairs):
            pairs.append((i, int(rng.integers(i + 1, tasks))))
    # Few distinct sizes, so that branches of one kind occur.
    size = [0.25e6, 0.5e6, 1e6]
    return TaskGraph(
        "random",
        tuple(Task(name, float(rng.integers(1, 4)) * 1e9) for name in names),
        tuple(Edge(names[a], names[b], float(rng.choice(size))) for a, b in sorted(pairs)),
    )


def set_partitions(items: list[str]) -> list[list[list[str]]]:
    if not items:
        return [[]]
    found = []
    for rest in set_partitions(items[1:]):
        found.append([[items[0]], *rest])
        found += [[*rest[:i], [items[0], *rest[i]], *rest[i + 1 :]] for i in range(len(rest))]
    return found


def sub_graphs(graph: TaskGraph) -> list[tuple[str, str, list[str]]]:
    """(root, sink, interior): tasks on all paths, found by listing all paths."""
    g = nx.DiGraph([(e.source, e.target) for e in graph.edges])
    g.add_nodes_from(t.name for t in graph.tasks)
    (source,) = [n for n in g if g.in_degree(n) == 0]
    (sink,) = [n for n in g if g.out_degree(n) == 0]
    if source == sink:
        return []
    paths = [set(path) for path in nx.all_simple_paths(g, source, sink)]
    on_all = [n for n in nx.topological_sort(g) if all(n in path for path in paths)]
    return [
        (a, b, [t.name for t in graph.tasks if t.name in nx.descendants(g, a) & nx.ancestors(g, b)])
        for a, b in itertools.pairwise(on_all)
    ]


def placements(graph: TaskGraph, sub: tuple[str, str, list[str]], servers: int) -> list[dict[str, int]]:
    """Every placement: task → part. Parts that depend on each other are left out."""
    root, sink, interior = sub
    found = []
    for partition in set_partitions(interior):
        part = {task: i for i, tasks in enumerate(partition) for task in tasks}
        if any(
            part.get(e.source, -1) != part.get(e.target, -1)
            for e in graph.edges
            if {e.source, e.target} <= set(part)
        ):
            continue
        m = len(partition)
        for k, j in [*itertools.product(range(m + 1), repeat=2), (m, m + 1)]:
            placed = {**part, root: k, sink: j}
            if len(set(placed.values())) <= servers:
                found.append(placed)
    return found


def cost_s(
    graph: TaskGraph,
    sub: tuple[str, str, list[str]],
    part: dict[str, int],
    power: float,
    link: float,
    wait: float,
) -> float:
    """max over the parts of χ, and the direct edges."""
    root, sink, interior = sub
    work = {t.name: t.work_ops / power for t in graph.tasks}
    chi = {part[t]: 0.0 for t in interior}
    direct = 0.0
    for t in interior:
        chi[part[t]] += work[t]
    for e in graph.edges:
        if e.source not in part or e.target not in part or part[e.source] == part[e.target]:
            continue
        c = wait + 8 * e.size_bytes / link
        if e.source == root and e.target == sink:
            direct += c
        elif e.source == root:
            chi[part[e.target]] += c
        elif e.target == sink:
            chi[part[e.source]] += c
    return max([0.0, direct, *chi.values()])


def sent(graph: TaskGraph, part: dict[str, int], link: float) -> tuple[float, float]:
    """(ΣS, ΣS²) of the edges that cross servers."""
    sizes = [
        8 * e.size_bytes / link
        for e in graph.edges
        if e.source in part and e.target in part and part[e.source] != part[e.target]
    ]
    return sum(sizes), sum(s * s for s in sizes)


class Naive:
    """All placements of one class in lists."""

    def __init__(self, graph: TaskGraph, rate: float, servers: int, power: float, link: float) -> None:
        self.graph, self.rate, self.power, self.link = graph, rate, power, link
        self.subs = sub_graphs(graph)
        self.options = [(i, p) for i, sub in enumerate(self.subs) for p in placements(graph, sub, servers)]
        self.loads = np.array([sent(graph, p, link) for _, p in self.options]).reshape(-1, 2)
        self.owner = np.array([i for i, _ in self.options], dtype=int)
        inner = {t for _, _, interior in self.subs for t in interior}
        self.fixed = sum(t.work_ops / power for t in graph.tasks if t.name not in inner)

    def costs(self, wait: float) -> np.ndarray:
        """(placements,) at a waiting time."""
        return np.array(
            [cost_s(self.graph, self.subs[i], p, self.power, self.link, wait) for i, p in self.options]
        )

    def value(self, theta: np.ndarray) -> float:
        """β τ of these probabilities."""
        if not self.options:
            return self.rate * self.fixed
        load, square = self.rate * theta @ self.loads
        if load >= 1:
            return np.inf
        return float(self.rate * (self.fixed + theta @ self.costs(square / (2 * (1 - load)))))

    def at(self, wait: float) -> tuple[float, np.ndarray]:
        """(V(φ), θ): the linear program at a waiting time, by a general solver."""
        if not self.options:
            return self.rate * self.fixed, np.zeros(0)
        same = (self.owner[None, :] == np.arange(len(self.subs))[:, None]).astype(float)
        row = self.rate * (self.loads[:, 1] + 2 * wait * self.loads[:, 0])
        solved = linprog(
            self.costs(wait),
            A_ub=[row],
            b_ub=[2 * wait],
            A_eq=same,
            b_eq=np.ones(len(self.subs)),
            method="highs",
        )
        return float(self.rate * (self.fixed + solved.fun)), solved.x
