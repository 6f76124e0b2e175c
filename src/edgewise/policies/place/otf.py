"""OTFS and OTFA: task allocation with routed and reserved flows (ENTS alg. 3 and 4)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.place import NetworkView, PipelineArrays, Placement
from edgewise.model.network import Network
from edgewise.policies.place.baselines import allocate
from edgewise.policies.place.flows import (
    Assigned,
    FlowProgram,
    all_open,
    capped,
    flows_of,
    jrba_paths,
    shared,
    shortest,
)
from edgewise.policies.place.paths import PathTable
from edgewise.policies.registry import policy


class _Reserving:
    """Shared by both.

    Args:
        candidates: paths of each pair of nodes.
        cap: limit a flow to what its pipeline's compute rate can use (the paper's rule does not).
    """

    decision = "place"
    name = ""

    def __init__(self, candidates: int = 4, cap: bool = False) -> None:
        self.candidates, self.cap = candidates, cap

    def reset(self, network: Network, key: Key) -> None:
        """Forget everything; the paths of the new network are found as they are needed."""
        self.table = PathTable(network, self.candidates)
        self.program = FlowProgram(self.table)


@policy("otfs")
class Otfs(_Reserving):
    """Alg. 3: waiting pipelines one by one, longest waiting first, on the memory and bandwidth that are left.

    Running flows keep what they have. A pipeline that fits on no node, or a flow of which finds no path with
    bandwidth left, waits.

    Args:
        candidates, cap: as for OTFA.
        wait: False starts a pipeline whose flows find nothing left; it then gets nothing. The paper
            does not say which, and its waiting times speak for False.
    """

    def __init__(self, candidates: int = 4, cap: bool = False, wait: bool = True) -> None:
        super().__init__(candidates, cap)
        self.wait = wait

    def decide(self, view: NetworkView) -> Sequence[Placement]:
        """Placements of the waiting pipelines that start now."""
        memory, link = view.free_memory_bytes.copy(), view.free_bps.copy()
        started = []
        for pipeline in view.waiting:
            placed = self._one(view, pipeline, memory, link)
            if placed is None:
                continue
            np.subtract.at(memory, placed.node, pipeline.memory_bytes)
            np.subtract.at(link, placed.links, np.repeat(placed.bandwidth_bps, np.diff(placed.start)))
            link[link < 1e-6 * view.network.bandwidth_bps] = 0.0  # rounding is not free bandwidth
            started.append(placed)
        return started

    def _one(
        self, view: NetworkView, pipeline: PipelineArrays, memory: Floats, link: Floats
    ) -> Placement | None:
        node = allocate(pipeline, self.table, memory, link)
        if node is None and not self.wait:
            node = allocate(pipeline, self.table, memory, view.network.bandwidth_bps)
        if node is None:
            return None
        flows = flows_of([(pipeline, node)], self.table)
        chosen = jrba_paths(flows, self.program, link)
        if chosen is None and not self.wait:
            chosen = shortest(flows)
        if chosen is None:
            return None
        made = shared(flows, self.table, chosen, flows.volume, link)
        return capped(made, view.network.speed_ops)[0] if self.cap else made[0]


@policy("otfa")
class Otfa(_Reserving):
    """Alg. 4: allocate as OTFS, then route and share bandwidth for all flows, running and new, together."""

    def decide(self, view: NetworkView) -> Sequence[Placement]:
        """Placements of all pipelines: paths and bandwidth of running ones may change, their nodes do not."""
        memory = view.free_memory_bytes.copy()
        pipelines: list[Assigned] = [(p.pipeline, p.node) for p in view.running]
        for pipeline in view.waiting:
            node = allocate(pipeline, self.table, memory, view.free_bps)
            if node is None:  # no bandwidth is left, but all of it is about to be shared anew
                node = allocate(pipeline, self.table, memory, view.network.bandwidth_bps)
            if node is not None and self._joined_up(pipeline, node, view):
                np.subtract.at(memory, node, pipeline.memory_bytes)
                pipelines.append((pipeline, node))
        return self._shared(view, pipelines)

    def _shared(self, view: NetworkView, pipelines: Sequence[Assigned]) -> list[Placement]:
        if not pipelines:
            return []
        flows, bandwidth_bps = flows_of(pipelines, self.table), view.network.bandwidth_bps
        chosen = jrba_paths(flows, self.program, bandwidth_bps)
        if chosen is not None:
            made = shared(flows, self.table, chosen, flows.volume, bandwidth_bps)
            return capped(made, view.network.speed_ops) if self.cap else made
        # A link failed under a running pipeline: it stands still, the others share.
        whole = [pair for pair in pipelines if self._joined_up(*pair, view)]
        assert len(whole) < len(pipelines)
        going = {pipeline.id for pipeline, _ in whole}
        halted = [
            replace(p, bandwidth_bps=np.where(np.isinf(p.bandwidth_bps), np.inf, 0.0))
            for p in view.running
            if p.pipeline.id not in going
        ]
        return [*self._shared(view, whole), *halted]

    def _joined_up(self, pipeline: PipelineArrays, node: Ints, view: NetworkView) -> bool:
        """Whether each flow of the pipeline has a path whose links all have bandwidth."""
        flows = flows_of([(pipeline, node)], self.table)
        return all_open(flows, self.table, view.network.bandwidth_bps)
