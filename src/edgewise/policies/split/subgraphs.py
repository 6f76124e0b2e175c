"""Sub-graphs of a task graph that can be placed almost independently.

A graph with one source and one sink is cut at its articulation points, the tasks that lie on every path
from source to sink (Nona, "closest common descendant"). Between two consecutive ones lies a sub-graph:
its root, its sink, and an interior. The interior falls into *branches*, its weakly connected components;
no data passes between branches.

Placements of a sub-graph (Ω in Nona): which of its branches share a server with what.

A placement says who shares a server, not which server: parts are numbered 0 (the root's server), 1, 2, …
and the number of placements does not depend on the number of servers. Placements that put more parts
than there are servers are left out, and so are those that only exchange branches of one kind.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.split import closed
from edgewise.errors import PolicyError
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


LIMIT = 50_000
Counts = tuple[int, ...]


class Lines(NamedTuple):
    """All placements of a sub-graph and what each costs.

    The time from the end of the root to the start of the sink is max(0, max_i base_i + messages_i * φ),
    over the parts i and the direct messages (Nona eq. 10, before ν and μ are known):
    base_i = work_i / ν + bits_i / μ.

    Attributes:
        part: (K, B + 1) part of each branch and, last, of the sink; 0 is the root's.
        work_ops, bits, messages: (K, P) of each part; the last column stands for the direct messages.
        visits: (K, P) how often the part, and then the sink, wait for a server.
        sent_bits, sent_bits2: (K,) sum over the messages of their bits and of their squares.

    With `bursts` the messages that a task sends at the same moment are one customer of the link: they
    wait once, and all have passed before any receiver starts.
    """

    part: Ints
    work_ops: Floats
    bits: Floats
    messages: Floats
    visits: Floats
    sent_bits: Floats
    sent_bits2: Floats


def count_placements(branches: int) -> int:
    """Placements of a sub-graph with that many branches, all of different kinds, and servers enough.

    Σ_m S(branches, m) ((m + 1)² + 1) with Stirling numbers S of the second kind: a set partition into m
    parts, times the places of root and sink.
    """
    row = [1]
    for _ in range(branches):
        row = [a + m * b for m, (a, b) in enumerate(zip([0, *row], [*row, 0], strict=True))]
    return sum(count * ((m + 1) ** 2 + 1) for m, count in enumerate(row))


def placements(
    sub: SubGraph, servers: int, limit: int = LIMIT, name: str = "", bursts: bool = False
) -> Lines:
    """Every placement of `sub` on at most `servers` servers; the first has everything on one server.

    Args:
        sub: the sub-graph.
        servers: >= 1.
        limit: most placements.
        name: of the sub-graph, for the error.
        bursts: see `Lines`.
    Raises:
        PolicyError: there are more than `limit`.
    """
    kinds = [(kind, len(list(same))) for kind, same in itertools.groupby(b.kind for b in sub.branches)]
    total = count_placements(len(sub.branches))
    certain = len(kinds) == len(sub.branches) and servers >= len(kinds) + 2  # then none is left out
    counts = tuple(number for _, number in kinds)
    rows = [] if certain and total > limit else list(itertools.islice(_rows(counts, servers), limit + 1))
    if not 0 < len(rows) <= limit:
        most = _branches_within(limit)
        raise PolicyError(
            f"{name or 'the sub-graph'} has {len(sub.branches)} branches of {len(kinds)} kinds and therefore "
            f"up to {total:,} placements, more than the limit of {limit:,}; contract further with "
            f"limit_branches(…, most={most}), or graphs.branches {most}"
        )
    part = np.array(rows, dtype=np.int64).reshape(len(rows), len(sub.branches) + 1)
    return _lines(sub, part, bursts)


def _branches_within(limit: int) -> int:
    return max(n for n in range(1, 20) if n == 1 or count_placements(n) <= limit)


def _rows(counts: Counts, servers: int) -> Iterator[list[int]]:
    """Parts of each branch and of the sink. `counts`: branches of each kind."""
    for apart in (0, 1)[: min(servers, 2)]:
        with_root = itertools.product(*(range(n, -1, -1) for n in counts))
        for first in with_root:
            left = [n - a for n, a in zip(counts, first, strict=True)]
            with_sink = itertools.product(*(range(n + 1) if apart else (0,) for n in left))
            for second in with_sink:
                rest = tuple(n - a for n, a in zip(left, second, strict=True))
                for others in _multiset_partitions(rest, rest, servers - 1 - apart):
                    yield _row(counts, [first, *([second] if apart else []), *others], apart)


def _row(counts: Counts, parts: Sequence[Counts], sink: int) -> list[int]:
    """Branches of a kind are dealt to the parts in turn."""
    row = []
    for kind in range(len(counts)):
        for number, part in enumerate(parts):
            row += [number] * part[kind]
    return [*row, sink]


def _multiset_partitions(rest: Counts, largest: Counts, most: int) -> Iterator[list[Counts]]:
    """Ways to split `rest` into at most `most` non-empty parts, each not above the one before."""
    if not any(rest):
        yield []
        return
    if most <= 0:
        return
    for part in itertools.product(*(range(n, -1, -1) for n in rest)):
        if any(part) and part <= largest:
            left = tuple(n - a for n, a in zip(rest, part, strict=True))
            for others in _multiset_partitions(left, part, most - 1):
                yield [part, *others]


def _lines(sub: SubGraph, part: Ints, bursts: bool) -> Lines:
    count, columns = len(part), int(part.max()) + 2  # parts, and the direct messages
    work, bits, messages = (np.zeros((count, columns)) for _ in range(3))
    sent, sent2, from_root = np.zeros(count), np.zeros(count), np.zeros(count)
    rows = np.arange(count)
    sink = part[:, -1]
    last = np.full(count, columns - 1)

    def send(sizes_bytes: Sequence[float], cut: Bools, column: Ints, root: bool) -> None:
        """Messages on the line of `column` where `cut`; a burst of them waits once."""
        data = 8.0 * np.array(sizes_bytes)
        np.add.at(bits, (rows, column), cut * data.sum())
        sent[:] += cut * data.sum()
        if bursts and root:
            from_root[:] += cut * data.sum()
            messages[rows[cut], column[cut]] = 1.0 if len(data) else messages[rows[cut], column[cut]]
        else:
            np.add.at(messages, (rows, column), cut * float(min(len(data), 1) if bursts else len(data)))
            sent2[:] += cut * (data.sum() ** 2 if bursts else (data**2).sum())

    send(sub.direct_bytes, sink != 0, last, True)
    for branch, mine in zip(sub.branches, part.T, strict=False):
        send(branch.into_bytes, mine != 0, mine, True)
    if bursts:  # a part has its data when all that the root sends has passed
        bits[:] = np.where(messages > 0, from_root[:, None], 0.0)
        sent2 += from_root**2
    for branch, mine in zip(sub.branches, part.T, strict=False):
        np.add.at(work, (rows, mine), branch.work_ops)
        send(branch.out_bytes, mine != sink, mine, False)
    visits = np.zeros((count, columns))
    visits[:] = (sink != 0)[:, None]
    visits[:, 1:-1] += work[:, 1:-1] > 0
    return Lines(part, work, bits, messages, visits, sent, sent2)
