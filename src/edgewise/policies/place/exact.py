"""The exact optimum on small networks, by mixed-integer programming: the yardstick of all policies.

Variables: X_iu task i on node u; y_ep edge e on path p (among the candidate paths of every pair of nodes,
and the empty path of every node); b_ep its bandwidth; x_J throughput; s_J whether the pipeline runs.

    max Σ_J x_J
    Σ_u X_iu = s_J                                   each task of a pipeline that runs on one node
    Σ_i R_i X_iu <= R_u                              memory
    x_J <= Σ_u X_iu PS_u / C_i                       compute (ENTS eq. 3)
    Σ_p out of u y_ep = X_iu, Σ_p into v y_ep = X_jv every edge's path joins its tasks
    V_e x_J <= Σ_p b_ep, b_ep <= most_p y_ep         communication (eq. 4)
    Σ_{e, p through l} b_ep <= B_l                   links (eq. 7)

With shared processors also Σ_i z_iu <= PS_u, where z_iu >= C_i x_J - C_i most (1 - X_iu).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.place import PipelineArrays, Placement
from edgewise.errors import PolicyError
from edgewise.model.network import Network
from edgewise.policies.place.paths import PathTable

MBIT = 1e6  # keeps coefficients near one
LEAST_SHARE = 0.5  # a binary above this is one


class Optimum(NamedTuple):
    """An optimal decision.

    Attributes:
        total_fps: Σ_J x_J.
        bound_fps: proven upper bound; equals `total_fps` up to the gap when solved to the end.
        throughput_fps: (J,) of each pipeline, 0 when it does not run.
        placements: of the pipelines that run.
    """

    total_fps: float
    bound_fps: float
    throughput_fps: Floats
    placements: tuple[Placement, ...]


class _Route(NamedTuple):
    source: int
    target: int
    links: Ints
    most: float  # Mbit/s


def optimum(
    network: Network,
    pipelines: Sequence[PipelineArrays],
    candidates: int = 4,
    share_cpu: bool = False,
    most_nodes: int = 10_000,
    gap: float = 1e-6,
) -> Optimum:
    """Placement, paths and bandwidth of greatest total throughput when all pipelines are there at once.

    Args:
        network: small: the program has about E N² k columns per pipeline.
        pipelines: which of them run is part of the decision.
        candidates: paths of each pair of nodes.
        share_cpu: tasks on a node share it.
        most_nodes: of the search; no seconds, so that every machine finds the same.
        gap: relative, at which it stops.
    Raises:
        PolicyError: nothing was found within `most_nodes`.
    """
    return _ExactModel(network, pipelines, PathTable(network, candidates), share_cpu).solve(most_nodes, gap)


class _ExactModel:
    def __init__(
        self, network: Network, pipelines: Sequence[PipelineArrays], table: PathTable, share_cpu: bool
    ) -> None:
        self.network, self.pipelines = network, pipelines
        self.solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        self.columns = 0
        self.routes = self._all_routes(table)
        self.memory_rows: list[list[tuple[int, float]]] = [[] for _ in network.names]
        self.link_rows: list[list[tuple[int, float]]] = [[] for _ in network.bandwidth_bps]
        self.cpu_rows: list[list[tuple[int, float]]] = [[] for _ in network.names]
        self.fastest = float(network.speed_ops.max())
        self.parts = [self._pipeline(pipeline, share_cpu) for pipeline in pipelines]
        for rows, limits, unit in (
            (self.memory_rows, network.memory_bytes, 1e9),
            (self.link_rows, network.bandwidth_bps, MBIT),
            (self.cpu_rows, network.speed_ops, 1e9),
        ):
            for row, limit in zip(rows, limits.tolist(), strict=True):
                self._at_most(row, limit / unit)

    def _all_routes(self, table: PathTable) -> list[_Route]:
        count = len(self.network.names)
        routes = [_Route(u, u, np.zeros(0, dtype=np.int64), np.inf) for u in range(count)]
        for u in range(count):
            for v in range(count):
                for links in table.paths(u, v):
                    most = float(self.network.bandwidth_bps[links].min()) / MBIT
                    routes.append(_Route(u, v, links.astype(np.int64), most))
        return routes

    def _column(self, cost: float, upper: float, whole: bool = False) -> int:
        self.solver.addCol(cost, 0.0, upper, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        if whole:
            self.solver.changeColIntegrality(self.columns, highspy.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def _row(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        index = np.array([term[0] for term in terms], dtype=np.int32)
        self.solver.addRow(lower, upper, len(terms), index, np.array([term[1] for term in terms]))

    def _at_most(self, terms: Sequence[tuple[int, float]], upper: float) -> None:
        if terms:
            self._row(terms, -highspy.kHighsInf, upper)

    def _pipeline(
        self, pipeline: PipelineArrays, share_cpu: bool
    ) -> tuple[int, Ints, list[list[tuple[int, int]]]]:
        """Columns of a pipeline: x, X (T, N), and (y, b) of each route of each edge."""
        nodes = range(len(self.network.names))
        hardest = float(pipeline.work_ops.max())
        most = self.fastest / hardest if hardest > 0 else 1e3
        rate, runs = self._column(-1.0, most), self._column(0.0, 1.0, whole=True)
        self._at_most([(rate, 1.0), (runs, -most)], 0.0)
        on = np.array([[self._column(0.0, 1.0, whole=True) for _ in nodes] for _ in pipeline.work_ops])
        for i, (work, memory) in enumerate(
            zip(pipeline.work_ops.tolist(), pipeline.memory_bytes.tolist(), strict=True)
        ):
            self._row([*((int(c), 1.0) for c in on[i]), (runs, -1.0)], 0.0, 0.0)
            for u in nodes:
                self.memory_rows[u].append((int(on[i, u]), memory / 1e9))
            if work > 0:
                speeds = np.minimum(self.network.speed_ops / work, most)
                self._at_most([(rate, 1.0), *((int(on[i, u]), -speeds[u]) for u in nodes)], 0.0)
            if share_cpu and work > 0:
                self._shared(rate, on[i], work / 1e9, most)
        return rate, on, [self._edge(pipeline, e, rate, runs, on, most) for e in range(len(pipeline.head))]

    def _shared(self, rate: int, on: Ints, work: float, most: float) -> None:
        for u, here in enumerate(on.tolist()):
            used = self._column(0.0, highspy.kHighsInf)
            self._at_most([(rate, work), (here, work * most), (used, -1.0)], work * most)
            self.cpu_rows[u].append((used, 1.0))

    def _edge(
        self, pipeline: PipelineArrays, e: int, rate: int, runs: int, on: Ints, most: float
    ) -> list[tuple[int, int]]:
        volume, tail, head = (
            float(pipeline.volume_bits[e]) / MBIT,
            int(pipeline.tail[e]),
            int(pipeline.head[e]),
        )
        made = []
        for route in self.routes:
            limit = min(route.most, volume * most)
            chosen, width = self._column(0.0, 1.0, whole=True), self._column(0.0, limit)
            self._at_most([(width, 1.0), (chosen, -limit)], 0.0)
            for link in route.links.tolist():
                self.link_rows[link].append((width, 1.0))
            made.append((chosen, width))
        for u in range(len(self.network.names)):
            out = [(c, 1.0) for r, (c, _) in zip(self.routes, made, strict=True) if r.source == u]
            into = [(c, 1.0) for r, (c, _) in zip(self.routes, made, strict=True) if r.target == u]
            if tail >= 0:
                self._row([*out, (int(on[tail, u]), -1.0)], 0.0, 0.0)
            else:  # from the source, when the pipeline runs
                self._row([*out, (runs, -1.0)] if u == pipeline.source else out, 0.0, 0.0)
            self._row([*into, (int(on[head, u]), -1.0)], 0.0, 0.0)
        self._at_most([(rate, volume), *((b, -1.0) for _, b in made)], 0.0)
        return made

    def solve(self, most_nodes: int, gap: float) -> Optimum:
        self.solver.setOptionValue("mip_max_nodes", most_nodes)
        self.solver.setOptionValue("mip_rel_gap", gap)
        self.solver.run()
        info = self.solver.getInfo()
        if info.primal_solution_status != 2:
            raise PolicyError(
                f"no solution within {most_nodes} nodes; use a smaller network or raise most_nodes"
            )
        value = np.asarray(self.solver.getSolution().col_value)
        rates = np.array([value[rate] for rate, _, _ in self.parts])
        made = [
            self._placement(pipeline, value, on, edges)
            for pipeline, (_, on, edges) in zip(self.pipelines, self.parts, strict=True)
            if value[on[0]].max() > LEAST_SHARE
        ]
        return Optimum(float(rates.sum()), -float(info.mip_dual_bound), rates, tuple(made))

    def _placement(
        self,
        pipeline: PipelineArrays,
        value: Floats,
        on: Ints,
        edges: list[list[tuple[int, int]]],
    ) -> Placement:
        start, links, width = [0], [], []
        for made in edges:
            chosen = int(np.argmax([value[c] for c, _ in made]))
            route = self.routes[chosen]
            links.append(route.links)
            start.append(start[-1] + len(route.links))
            width.append(value[made[chosen][1]] * MBIT if len(route.links) else np.inf)
        node = value[on].argmax(axis=1)
        return Placement(pipeline, node, np.array(start), np.concatenate(links), np.array(width))
