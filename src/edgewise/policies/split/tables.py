"""What a scheduler needs to place queries, as arrays: drawn placements and the graphs themselves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.model.work import TaskGraph
from edgewise.policies.split.program import SplitProgram
from edgewise.policies.split.subgraphs import SubGraph, closed, subgraphs


class Table(NamedTuple):
    """Placements with positive probability, by class and sub-graph. Tasks are those of `closed(graph)`.

    Attributes:
        entry: (J,) first task of each class.
        first_sub: (J + 1,) sub-graphs of each class.
        first_row: (G + 1,) rows of each sub-graph.
        chance: (R,) cumulative probability; 1 in the last row of each sub-graph.
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


def make_table(
    program: SplitProgram, theta: Floats, level: Ints | None = None, unit_s: float = 1.0, keep: bool = False
) -> Table:
    """The placements that `theta` ((N,), see `SplitProgram`) gives a positive probability.

    `level`, `unit_s`: see `Table`; None: one plan. `keep`: queries keep to as many servers as the largest of
    their placements has parts.
    """
    rows: list[list[tuple[float, list[int]]]] = []
    tasks: list[list[int]] = []
    entry, first_sub, widest = [], [0], []
    for job, item in enumerate(program.classes):
        pieces = subgraphs(item.graph)
        entry.append(pieces[0].root if pieces else 0)
        group_of = {
            place: number
            for number, group in enumerate(program.groups)
            if group.job == job
            for place in group.subgraphs
        }
        for place, piece in enumerate(pieces):
            number = group_of[place]
            first, last = program.arrays.start[number : number + 2]
            rows.append(_rows(piece, program.groups[number].lines.part, theta[first:last]))
            tasks.append([*(task for branch in piece.branches for task in branch.tasks), piece.sink])
        widest.append(
            1 + max([part for _, row in itertools.chain(*rows[first_sub[-1] :]) for part in row], default=0)
        )
        first_sub.append(len(tasks))
    return Table(
        np.array(entry, dtype=np.int64),
        np.array(first_sub, dtype=np.int64),
        np.cumsum([0, *(len(group) for group in rows)]),
        np.array([chance for group in rows for chance, _ in group]),
        _padded([part for group in rows for _, part in group]),
        _padded(tasks),
        np.zeros(program.servers + 1, np.int64) if level is None else level,
        unit_s,
        np.array(widest if keep else [0] * len(widest), dtype=np.int64),
    )


def _rows(piece: SubGraph, parts: Ints, theta: Floats) -> list[tuple[float, list[int]]]:
    """(cumulative probability, part of each task) of the placements that may be drawn."""
    chosen = np.flatnonzero(theta > 0)
    chances = np.cumsum(theta[chosen]) / theta[chosen].sum()
    chances[-1] = 1.0
    found = []
    for chance, n in zip(chances, chosen, strict=True):
        spread = [int(p) for b, p in zip(piece.branches, parts[n], strict=False) for _ in b.tasks]
        found.append((float(chance), [*spread, int(parts[n, -1])]))
    return found


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
