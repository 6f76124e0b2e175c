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

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.place import PipelineArrays, Placement
from edgewise.errors import PolicyError
from edgewise.model.pipelines import Network
from edgewise.policies.place.paths import PathTable
from edgewise.policies.programs import FEASIBLE, solver

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


def optimum(
    network: Network,
    pipelines: Sequence[PipelineArrays],
    candidates: int = 4,
    most_nodes: int = 10_000,
    gap: float = 1e-6,
) -> Optimum:
    """Placement, paths and bandwidth of greatest total throughput when all pipelines are there at once.

    Args:
        network: small: the program has about E N² k columns per pipeline.
        pipelines: which of them run is part of the decision.
        candidates: paths of each pair of nodes.
        most_nodes: of the search; no seconds, so that every machine finds the same.
        gap: relative, at which it stops.
    Raises:
        PolicyError: nothing was found within `most_nodes`.
    """
    model = _ExactModel(network, pipelines, PathTable(network, candidates), most_nodes, gap)
    highs = model.highs
    highs.maximize(highs.qsum(part.rate for part in model.parts))
    info = highs.getInfo()
    if info.primal_solution_status != FEASIBLE:
        raise PolicyError(f"no solution within {most_nodes} nodes; use a smaller network or raise most_nodes")
    rates = np.array([highs.val(part.rate) for part in model.parts])
    placed = [
        model.placement(pipeline, part)
        for pipeline, part in zip(pipelines, model.parts, strict=True)
        if highs.val(part.runs) > LEAST_SHARE
    ]
    return Optimum(float(rates.sum()), float(info.mip_dual_bound), rates, tuple(placed))


class _Part(NamedTuple):
    """Variables of a pipeline: x, s, X (T, N), and y and b of each route of each edge."""

    rate: Any
    runs: Any
    on: list[Any]
    edges: list[tuple[Any, Any]]


class _ExactModel:
    """The program of the module's text."""

    def __init__(
        self,
        network: Network,
        pipelines: Sequence[PipelineArrays],
        table: PathTable,
        most_nodes: int,
        gap: float,
    ) -> None:
        self.network, self.highs = network, solver(mip_max_nodes=most_nodes, mip_rel_gap=gap)
        # Amounts are counted in those of the largest node and link, which keeps coefficients near one.
        self.bytes, self.ops = float(network.memory_bytes.max()) or 1.0, float(network.speed_ops.max())
        self.bps = float(network.bandwidth_bps.max(initial=1.0))
        self.nodes = range(len(network.names))
        none = np.zeros(0, dtype=np.int32)
        self.routes = [(u, u, none) for u in self.nodes]  # from a node to a node over links
        self.routes += [(u, v, path) for u in self.nodes for v in self.nodes for path in table.paths(u, v)]
        self.memory: list[list[Any]] = [[] for _ in self.nodes]  # terms of each node's and link's row
        self.cpu: list[list[Any]] = [[] for _ in self.nodes]
        self.link: list[list[Any]] = [[] for _ in network.bandwidth_bps]
        self.parts = [self._pipeline(pipeline) for pipeline in pipelines]
        for rows, limits, unit in (
            (self.memory, network.memory_bytes, self.bytes),
            (self.link, network.bandwidth_bps, self.bps),
            (self.cpu, network.shared_ops, self.ops),
        ):
            for terms, limit in zip(
                rows, () if limits is None else limits.tolist(), strict=limits is not None
            ):
                if terms:
                    self._add(self._sum(terms) <= limit / unit)

    def _add(self, constraint: Any) -> None:
        self.highs.addConstr(constraint)

    def _sum(self, terms: Iterable[Any]) -> Any:
        return self.highs.qsum(terms)

    def _pipeline(self, pipeline: PipelineArrays) -> _Part:
        hardest, speed = float(pipeline.work_ops.max()), self.network.speed_ops
        most = self.ops / hardest if hardest > 0 else 1e3
        rate, runs = self.highs.addVariable(ub=most), self.highs.addBinary()
        self._add(rate <= most * runs)
        on = [self.highs.addBinaries(len(self.nodes)) for _ in pipeline.work_ops]
        for here, work, memory in zip(on, pipeline.work_ops, pipeline.memory_bytes, strict=True):
            self._add(self._sum(here) == runs)
            for u in self.nodes:
                self.memory[u].append(here[u] * (memory / self.bytes))
            if work > 0:
                self._add(rate <= self._sum(here[u] * min(speed[u] / work, most) for u in self.nodes))
            for u in self.nodes if self.network.cores is not None and work > 0 else ():
                used = self.highs.addVariable()
                self._add(used >= work / self.ops * (rate - most * (1 - here[u])))
                self.cpu[u].append(used)
        edges = [self._edge(pipeline, e, rate, runs, on, most) for e in range(len(pipeline.head))]
        return _Part(rate, runs, on, edges)

    def _edge(
        self, pipeline: PipelineArrays, e: int, rate: Any, runs: Any, on: list[Any], most: float
    ) -> tuple[Any, Any]:
        volume, tail, head = float(pipeline.volume_bits[e]) / self.bps, pipeline.tail[e], pipeline.head[e]
        chosen = self.highs.addBinaries(len(self.routes))
        width = []
        for (_, _, links), taken in zip(self.routes, chosen, strict=True):
            narrowest = float(self.network.bandwidth_bps[links].min(initial=np.inf)) / self.bps
            width.append(self.highs.addVariable(ub=min(narrowest, volume * most)))
            self._add(width[-1] <= min(narrowest, volume * most) * taken)
            for link in links.tolist():
                self.link[link].append(width[-1])
        for u in self.nodes:
            out = self._sum(y for (begin, _, _), y in zip(self.routes, chosen, strict=True) if begin == u)
            into = self._sum(y for (_, end, _), y in zip(self.routes, chosen, strict=True) if end == u)
            begins = on[tail][u] if tail >= 0 else runs if u == pipeline.source else 0
            self._add(out == begins)
            self._add(into == on[head][u])
        self._add(volume * rate <= self._sum(width))
        return chosen, width

    def placement(self, pipeline: PipelineArrays, part: _Part) -> Placement:
        """What the solution says of a pipeline that runs."""
        start, links, width = [0], [], []
        for chosen, bandwidth in part.edges:
            best = int(np.argmax(self.highs.vals(chosen)))
            links.append(self.routes[best][2])
            start.append(start[-1] + len(links[-1]))
            width.append(self.highs.val(bandwidth[best]) * self.bps if len(links[-1]) else np.inf)
        node = np.array([int(np.argmax(self.highs.vals(here))) for here in part.on])
        return Placement(pipeline, node, np.array(start), np.concatenate(links), np.array(width))
