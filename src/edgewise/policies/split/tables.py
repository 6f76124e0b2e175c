"""What a scheduler needs to place queries, as arrays: drawn placements and the graphs themselves."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.split import closed
from edgewise.model.work import TaskGraph
from edgewise.policies.split.layout import ALONE, LayoutProgram
from edgewise.policies.split.program import SplitProgram
from edgewise.policies.split.subgraphs import SubGraph, subgraphs


class Table(NamedTuple):
    """Placements with positive probability, by class and sub-graph. Tasks are those of `closed(graph)`.

    Attributes:
        entry: (J,) first task of each class.
        first_sub: (J + 1,) sub-graphs of each class.
        first_row: (G + 1,) rows of each sub-graph.
        chance: (R,) cumulative probability, 1 in the last row of each sub-graph; on a layout the probability
            itself, as rows are drawn given the group of the root.
        part: (R, W) part of each column's task; 0 is the root's.
        task: (G, W) task of each column: the interior's, then the sink; -1 fills up.
        level: (S + 1,) which of the plans is drawn from when so many servers are free; class j of plan l
            is row j * plans + l of `entry` and `first_sub`.
        unit_s: outstanding work that counts as one busy server.
        keep: (J * plans,) how many servers the queries of each class and plan keep to; 0: any, anew in each
            sub-graph.
    """

    entry: Ints
    first_sub: Ints
    first_row: Ints
    chance: Floats
    part: Ints
    task: Ints
    level: Ints
    unit_s: float
    keep: Ints


class Groups(NamedTuple):
    """Groups of servers, for placements on a layout.

    Attributes:
        group: (R, M) group of servers of each part of each row of the table; -1 fills up.
        first_server: (C + 1,) servers of each group.
    """

    group: Ints
    first_server: Ints


class Graphs(NamedTuple):
    """Work and data of the classes. Tasks are numbered within their class, edges sorted by target.

    Attributes:
        tasks: (J,) number of tasks.
        work_ops: (J, T) of each task.
        order: (J, T) tasks by falling upward rank, a topological order; -1 fills up.
        first_in: (J, T + 1) first edge into each task, into the next two.
        source: (E,) task that an edge comes from.
        bits: (E,) data on it.
    """

    tasks: Ints
    work_ops: Floats
    order: Ints
    first_in: Ints
    source: Ints
    bits: Floats


class Drawn(NamedTuple):
    """The placements of one sub-graph that may be drawn: K of them, B branches, M parts.

    Attributes:
        piece: the sub-graph.
        part: (K, B + 1) part of each branch and of the sink.
        group: (K, M) group of each part.
        chance: (K,) see `Table`.
    """

    piece: SubGraph
    part: Ints
    group: Ints
    chance: Floats


def make_table(
    program: SplitProgram | LayoutProgram,
    theta: Floats,
    level: Ints | None = None,
    unit_s: float = 1.0,
    keep: bool = False,
) -> tuple[Table, Groups | None]:
    """The placements that `theta` ((N,), see the program) gives a positive probability.

    With them, on a layout, the groups of servers. `level`, `unit_s`: see `Table`; None: one plan. `keep`:
    queries keep to as many servers as the largest of their placements has parts.
    """
    if isinstance(program, LayoutProgram):
        classes, sizes = _of_stages(program, theta), [group.servers for group in program.layout.groups]
    else:
        classes, sizes = _of_groups(program, theta), []
    drawn = [each for stages in classes for each in stages]
    widest = [1 + max([int(each.part.max()) for each in stages], default=0) for stages in classes]
    rows = _padded([row for each in drawn for row in each.group.tolist()])
    groups = Groups(rows, np.cumsum([0, *sizes])) if sizes else None
    table = Table(
        np.array([stages[0].piece.root if stages else 0 for stages in classes], dtype=np.int64),
        np.cumsum([0, *(len(stages) for stages in classes)]),
        np.cumsum([0, *(len(each.chance) for each in drawn)]),
        np.concatenate([np.zeros(0), *(each.chance for each in drawn)]),
        _padded([row for each in drawn for row in _by_task(each).tolist()]),
        _padded([[*(t for b in each.piece.branches for t in b.tasks), each.piece.sink] for each in drawn]),
        np.zeros(1, np.int64) if level is None else level,
        unit_s,
        np.array(widest if keep else [0] * len(widest), dtype=np.int64),
    )
    return table, groups


def _by_task(drawn: Drawn) -> Ints:
    """(K, T) part of each task between root and sink, and of the sink."""
    return np.repeat(drawn.part, [*(len(branch.tasks) for branch in drawn.piece.branches), 1], axis=1)


def _of_groups(program: SplitProgram, theta: Floats) -> list[list[Drawn]]:
    """By class and sub-graph; equal servers are one group."""
    classes: list[dict[int, Drawn]] = [{} for _ in program.classes]
    pieces = [subgraphs(job.graph) for job in program.classes]
    for group, first, last in zip(
        program.groups, program.arrays.start, program.arrays.start[1:], strict=False
    ):
        rows = np.flatnonzero(theta[first:last] > 0)
        part, chance = group.lines.part[rows], np.cumsum(theta[first + rows]) / theta[first + rows].sum()
        chance[-1] = 1.0
        for place in group.subgraphs:
            drawn = Drawn(pieces[group.job][place], part, 0 * part[:, :1], chance)
            classes[group.job][place] = drawn
    return [[found[place] for place in sorted(found)] for found in classes]


def _of_stages(program: LayoutProgram, theta: Floats) -> list[list[Drawn]]:
    """By class and sub-graph; in that of a graph of one task nothing is drawn but the group."""
    classes: list[list[Drawn]] = [[] for _ in program.classes]
    pieces = [subgraphs(job.graph) or (ALONE,) for job in program.classes]
    first = 0
    for stage in program.stages:
        rows, drawn = np.flatnonzero(theta[first : first + len(stage.root)] > 0), classes[stage.job]
        piece = pieces[stage.job][len(drawn)]
        drawn.append(Drawn(piece, stage.part[rows], stage.group[rows], theta[first + rows]))
        first += len(stage.root)
    return classes


def make_graphs(graphs: Sequence[TaskGraph], power_ops: float, link_bps: float) -> Graphs:
    """The graphs as arrays; upward ranks (Topcuoglu et al., HEFT, 2002) at this power and capacity."""
    whole = [closed(graph) for graph in graphs]
    most = max(len(graph.tasks) for graph in whole)
    work = np.zeros((len(whole), most))
    first_in = np.zeros((len(whole), most + 1), dtype=np.int64)
    orders: list[list[int]] = []
    sources: list[int] = []
    bits: list[float] = []
    for job, graph in enumerate(whole):
        index = {task.name: i for i, task in enumerate(graph.tasks)}
        work[job, : len(graph.tasks)] = [task.work_ops for task in graph.tasks]
        edges = sorted((index[e.target], index[e.source], 8.0 * e.size_bytes) for e in graph.edges)
        counts = (
            np.bincount([target for target, _, _ in edges], minlength=most) if edges else np.zeros(most, int)
        )
        first_in[job] = len(sources) + np.concatenate([[0], np.cumsum(counts)])
        sources += [source for _, source, _ in edges]
        bits += [size for _, _, size in edges]
        topological = [index[name] for name in graph.order()]
        orders.append(_by_rank(topological, edges, work[job] / power_ops, link_bps))
    return Graphs(
        np.array([len(graph.tasks) for graph in whole], dtype=np.int64),
        work,
        _padded(orders),
        first_in,
        np.array(sources, dtype=np.int64),
        np.array(bits, dtype=np.float64),
    )


def _by_rank(
    order: list[int], edges: list[tuple[int, int, float]], work_s: Floats, link_bps: float
) -> list[int]:
    """Tasks by falling upward rank: rank = work + max over successors (transfer + rank)."""
    after: dict[int, list[tuple[int, float]]] = {task: [] for task in order}
    for target, source, size in edges:
        after[source].append((target, size / link_bps))
    rank: dict[int, float] = {}
    for task in reversed(order):
        rank[task] = work_s[task] + max((s + rank[target] for target, s in after[task]), default=0.0)
    return sorted(order, key=lambda task: -rank[task])


def _padded(rows: Sequence[Sequence[int]]) -> Ints:
    wide = np.full((len(rows), max([1, *(len(row) for row in rows)])), -1, dtype=np.int64)
    for i, row in enumerate(rows):
        wide[i, : len(row)] = row
    return wide
