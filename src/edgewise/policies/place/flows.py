"""From tasks on nodes to flows, and back to placements; paths by a linear program.

The program is the relaxed flow problem P3; it lives from decision to decision.

    min TH   s.t.  Σ_{i,k: l ∈ P_i^k} m_i^k - B_l TH <= 0   for every link l          (ENTS eq. 10-14)
                   Σ_k m_i^k >= V_i                         for every flow i
                   m >= 0

Flows between the same two nodes have the same candidate paths, so the program holds one row per pair of
nodes with their total volume; splitting its solution over the flows (`route`) gives an optimal solution of
the program per flow.

The slowest flow alone decides TH, so optimal solutions abound: the others may go almost any way. Of all of
them `solve` takes one that crosses the fewest links, min Σ m_i^k |P_i^k| at the best TH. The paper takes
whatever its solver finds.

Between decisions only volumes and bandwidths change: rows and columns are added when a
pair is new, bounds are changed otherwise, and HiGHS starts from the last basis.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.place import PipelineArrays, Placement
from edgewise.kernels.compiled import kernel
from edgewise.policies.place.paths import PathRows, PathTable
from edgewise.policies.programs import Program, solution, solver

Assigned = tuple[PipelineArrays, Ints]  # a pipeline and the node of each of its tasks
UNIT = 1e6  # volumes in Mbit and bandwidths in Mbit/s keep the coefficients near one
SLACK = 1e-7  # relative, of TH in the second program; its solution is the feasible one of the first
NONE = np.zeros(0, dtype=np.int32)
SPARE = 4  # rebuilt when it holds this many times more pairs than are in use


class Flows(NamedTuple):
    """All edges of placed pipelines, one after the other; one between nodes is a flow.

    Attributes:
        pipelines: the pipelines and their nodes.
        begin: (J + 1,) first edge of each pipeline.
        source, target: (E,) nodes of each edge.
        volume: (E,) bits per frame.
        moving: indices of the edges that are flows with something to carry.
    """

    pipelines: Sequence[Assigned]
    begin: Ints
    source: Ints
    target: Ints
    volume: Floats
    moving: Ints


def flows_of(pipelines: Sequence[Assigned], table: PathTable) -> Flows:
    """The flows of pipelines whose tasks are placed; their rows of candidate paths are made known."""
    ends = [np.where(pipeline.tail < 0, pipeline.source, node[pipeline.tail]) for pipeline, node in pipelines]
    source = np.concatenate(ends)
    target = np.concatenate([node[pipeline.head] for pipeline, node in pipelines])
    volume = np.concatenate([pipeline.volume_bits for pipeline, _ in pipelines])
    begin = np.cumsum([0, *(len(e) for e in ends)])
    moving = np.flatnonzero((source != target) & (volume > 0))
    for node in np.unique(source[moving]).tolist():
        table.need(node)
    return Flows(pipelines, begin, source, target, volume, moving)


def shortest(flows: Flows) -> Ints:
    """(E,) the first candidate path for every edge."""
    return np.zeros(len(flows.source), dtype=np.int64)


def jrba_paths(flows: Flows, program: "FlowProgram", bandwidth_bps: Floats) -> Ints | None:
    """(E,) path of each edge from the rounded relaxation (ENTS alg. 2); None when a flow has no way left."""
    chosen = shortest(flows)
    if not len(flows.moving):
        return chosen
    volume = flows.volume[flows.moving]
    ends = flows.source[flows.moving], flows.target[flows.moving]
    u, v, total, pair = joined(*ends, volume, len(program.table.hops))
    possible = all_open(flows, program.table, bandwidth_bps)
    solution = program.solve(u, v, total, bandwidth_bps) if possible else None
    if solution is None:
        return None
    order = np.argsort(-volume, kind="stable")
    chosen[flows.moving] = route(solution.amount, pair, volume, order)
    return chosen


def all_open(flows: Flows, table: PathTable, bandwidth_bps: Floats) -> bool:
    """Whether each flow has a candidate path all of whose links have bandwidth left."""
    moving = flows.moving
    return bool(_all_open(table.rows(), flows.source[moving], flows.target[moving], bandwidth_bps))


@kernel
def _all_open(rows: PathRows, source: Ints, target: Ints, bandwidth: Floats) -> bool:
    """Whether each pair has a candidate path all of whose links have bandwidth left."""
    for i in range(source.size):
        some = False
        for path in range(target[i] * rows.k, target[i] * rows.k + rows.k):
            first, last = rows.start[source[i], path], rows.start[source[i], path + 1]
            clear = last > first
            for j in range(first, last):
                clear = clear and bandwidth[rows.links[rows.offset[source[i]] + j]] > 0.0
            some = some or clear
        if not some:
            return False
    return True


def paths_of(flows: Flows, table: PathTable, chosen: Ints) -> tuple[Ints, Ints]:
    """(E + 1,) begins and the links of every edge's path; edges that are no flow have none."""
    moving = flows.moving
    source, path = flows.source[moving], flows.target[moving] * table.k + chosen[moving]
    begin = table.start[source, path].astype(np.int64)
    hops = np.zeros(len(flows.source) + 1, dtype=np.int64)
    hops[moving + 1] = table.start[source, path + 1] - begin
    start = np.cumsum(hops)
    first = np.repeat(table.offset[source] + begin - start[moving], hops[moving + 1])
    return start, table.links[first + np.arange(start[-1])].astype(np.int64)


def placements_of(flows: Flows, start: Ints, links: Ints, bandwidth_bps: Floats) -> list[Placement]:
    """One placement for each pipeline of `flows`."""
    made = []
    for (pipeline, node), a, b in zip(
        flows.pipelines, flows.begin[:-1].tolist(), flows.begin[1:].tolist(), strict=True
    ):
        first, last = start[a], start[b]
        made.append(
            Placement(pipeline, node, start[a : b + 1] - first, links[first:last], bandwidth_bps[a:b])
        )
    return made


def shared(
    flows: Flows, table: PathTable, chosen: Ints, weight: Floats, bandwidth_bps: Floats
) -> list[Placement]:
    """Placements where the flows on a link have parts of it by weight.

    Args:
        chosen: (E,) path of each edge.
        weight: (E,) their volume for eq. 15; all equal for the default of TP, LR and BR.
        bandwidth_bps: (L,) of each link.
    """
    start, links = paths_of(flows, table, chosen)
    return placements_of(flows, start, links, proportional(start, links, weight, bandwidth_bps))


def capped(placements: Sequence[Placement], speed_ops: Floats) -> list[Placement]:
    """The placements with every flow limited to what the compute rate of its pipeline can use."""
    made = []
    for p in placements:
        slowest_s = float((p.pipeline.work_ops / speed_ops[p.node]).max())
        most = 1.0 / slowest_s * p.pipeline.volume_bits if slowest_s > 0 else np.inf
        rate = np.where(np.isfinite(p.bandwidth_bps), np.minimum(p.bandwidth_bps, most), np.inf)
        made.append(Placement(p.pipeline, p.node, p.start, p.links, rate))
    return made


class FlowSolution(NamedTuple):
    """An optimal solution of the relaxation.

    Attributes:
        per_frame_s: TH, the smallest possible max V_i / b_i.
        amount: (P, k) bits m of each pair on each of its paths.
        link_dual: (L,) <= 0, change of TH per unit of each link row.
        pair_dual: (P,) >= 0, change of TH per bit of volume.
    """

    per_frame_s: float
    amount: Floats
    link_dual: Floats
    pair_dual: Floats


class FlowProgram:
    """P3-relax over the candidate paths of a table; `solve` may be called any number of times."""

    def __init__(self, table: PathTable) -> None:
        self.table = table
        self._build()

    def _build(self) -> None:
        links = len(self.table.network.bandwidth_bps)
        # Least TH, and fewest links at a given TH; each goes on from its own last basis.
        self._least, self._fewest = self._both = (_solver(1.0, links), _solver(0.0, links))
        self._bandwidth = np.zeros(links)  # of the coefficients now in the program
        # Pair code -> place among pair rows; its columns follow in the same order.
        self._row: dict[int, int] = {}
        self._columns = np.zeros((0, self.table.k), dtype=np.int64)  # -1: no such path
        self._count = 1  # columns
        self._active: dict[int, float] = {}

    def solve(
        self,
        source: Ints,
        target: Ints,
        volume_bits: Floats,
        bandwidth_bps: Floats,
    ) -> FlowSolution | None:
        """Least max V / b over pairs of nodes.

        Args:
            source, target: (P,) distinct pairs of different nodes.
            volume_bits: (P,) total volume of each pair, > 0.
            bandwidth_bps: (L,) of each link now.
        Returns:
            None when some pair has no path with bandwidth left.
        """
        codes = (source * len(self.table.hops) + target).tolist()
        if len(self._row) > SPARE * len(codes) + 64:
            self._build()
        self._set_bandwidth(bandwidth_bps)
        for code, u, v in zip(codes, source.tolist(), target.tolist(), strict=True):
            if code not in self._row:
                self._add(code, u, v)
        self._set_volumes(dict(zip(codes, (volume_bits / UNIT).tolist(), strict=True)))
        first = solution(self._least)
        if first is None:
            return None
        dual, links = np.asarray(first.row_dual), len(self._bandwidth)
        self._fewest.changeColBounds(0, 0.0, first.col_value[0] * (1 + SLACK))
        second = solution(self._fewest) or first
        value = np.append(np.asarray(second.col_value), 0.0)  # the last: of absent paths (-1)
        rows = np.array([self._row[code] for code in codes], dtype=np.int64)
        amount = np.maximum(value[self._columns[rows]] * UNIT, 0.0)
        return FlowSolution(float(first.col_value[0]), amount, dual[:links], dual[links + rows])

    def _set_bandwidth(self, bandwidth_bps: Floats) -> None:
        wanted = bandwidth_bps / UNIT
        for i in np.flatnonzero(wanted != self._bandwidth).tolist():
            for program in self._both:
                program.changeCoeff(i, 0, -wanted[i])
        self._bandwidth = wanted.copy()

    def _set_volumes(self, wanted: dict[int, float]) -> None:
        links = len(self._bandwidth)
        changed = dict.fromkeys(self._active.keys() - wanted.keys(), 0.0)
        changed |= {code: v for code, v in wanted.items() if self._active.get(code) != v}
        for code, volume in changed.items():
            for program in self._both:
                program.changeRowBounds(links + self._row[code], volume, np.inf)
        self._active = wanted

    def _add(self, code: int, source: int, target: int) -> None:
        row = len(self._bandwidth) + len(self._row)
        self._row[code] = len(self._row)
        for program in self._both:
            program.addRow(0.0, np.inf, 0, NONE, np.zeros(0))
        columns = np.full(self.table.k, -1)
        for i, path in enumerate(self.table.paths(source, target)):
            rows = np.append(np.sort(path), row).astype(np.int32)
            for program, cost in zip(self._both, (0.0, float(len(path))), strict=True):
                program.addCol(cost, 0.0, np.inf, len(rows), rows, np.ones(len(rows)))
            columns[i] = self._count
            self._count += 1
        self._columns = np.vstack([self._columns, columns])


def _solver(cost: float, links: int) -> Program:
    """A program of so many empty link rows, and TH at a cost."""
    highs = solver(presolve="off", solver="simplex")
    for _ in range(links):
        highs.addRow(-np.inf, 0.0, 0, NONE, np.zeros(0))
    highs.addCol(cost, 0.0, np.inf, 0, NONE, np.zeros(0))
    return highs


def joined(source: Ints, target: Ints, volume_bits: Floats, count: int) -> tuple[Ints, Ints, Floats, Ints]:
    """Flows by pair of nodes: source, target and total volume of each pair, and (F,) the pair of each."""
    codes, pair = np.unique(source * count + target, return_inverse=True)
    total = np.asarray(np.bincount(pair, volume_bits, len(codes)), dtype=np.float64)
    return codes // count, codes % count, total, pair.astype(np.int64)


@kernel
def route(
    amount: Floats,
    pair: Ints,
    volume: Floats,
    order: Ints,
) -> Ints:
    """(F,) path of each flow: k* = argmax_k m_i^k (ENTS alg. 2), the first when equal.

    The amounts of a pair are dealt out to its flows in `order`, each flow taking what is left of the first
    paths: a solution per flow with the same totals, hence optimal too.
    """
    left = amount.copy()
    chosen = np.zeros(volume.size, dtype=np.int64)
    for i in order:
        p = pair[i]
        need = volume[i]
        most = -1.0
        for k in range(left.shape[1]):
            take = min(need, left[p, k])
            if take > most + 1e-9 * volume[i]:
                most = take
                chosen[i] = k
            need -= take
            left[p, k] -= take
    return chosen


@kernel
def proportional(
    start: Ints,
    links: Ints,
    volume: Floats,
    bandwidth: Floats,
) -> Floats:
    """(F,) bandwidth b_i = min over links l of its path of B_l V_i / Σ_{flows on l} V (ENTS eq. 15).

    Infinite for a flow without links.
    """
    load = np.zeros(bandwidth.size)
    for i in range(volume.size):
        for j in range(start[i], start[i + 1]):
            load[links[j]] += volume[i]
    rate = np.full(volume.size, np.inf)
    for i in range(volume.size):
        for j in range(start[i], start[i + 1]):
            share = 0.0
            if load[links[j]] > 0.0:
                share = bandwidth[links[j]] * volume[i] / load[links[j]]
            rate[i] = min(rate[i], share)
    return rate
