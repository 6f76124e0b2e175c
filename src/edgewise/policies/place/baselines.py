"""LR, BR and TP, the baselines of ENTS section VI: no reservations, flows on a link share it equally."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.place import NetworkView, PipelineArrays, Placement
from edgewise.model.network import Network
from edgewise.policies.place.allocate import allocate, whole_pipeline
from edgewise.policies.place.flows import Assigned, flows_of, shared_equally, shortest
from edgewise.policies.place.paths import PathTable
from edgewise.policies.registry import policy


class EqualShares:
    """Waiting pipelines start wherever their memory fits; every flow takes the shortest path."""

    decision = "place"
    name = ""

    def __init__(self, candidates: int = 4) -> None:
        self.candidates = candidates

    def reset(self, network: Network, key: Key) -> None:
        """Forget everything; the paths of the new network are found as they are needed."""
        self.table = PathTable(network, self.candidates)

    def decide(self, view: NetworkView) -> Sequence[Placement]:
        """All placements anew: equal shares change with every arrival and end."""
        free = view.free_memory_bytes.copy()
        pipelines: list[Assigned] = [(p.pipeline, p.node) for p in view.running]
        for pipeline in view.waiting:
            node = self.nodes(view, pipeline, free, pipelines)
            if node is not None:
                np.subtract.at(free, node, pipeline.memory_bytes)
                pipelines.append((pipeline, node))
        if not pipelines:
            return []
        flows = flows_of(pipelines, self.table)
        return shared_equally(flows, self.table, shortest(flows), view.network.bandwidth_bps)

    def nodes(
        self, view: NetworkView, pipeline: PipelineArrays, free: Floats, pipelines: Sequence[Assigned]
    ) -> Ints | None:
        """Nodes of a pipeline's tasks; None: it waits."""
        raise NotImplementedError


@policy("tp")
class TaskPartition(EqualShares):
    """TP: tasks by alg. 1, the default shortest path, equal shares of every link."""

    def nodes(
        self, view: NetworkView, pipeline: PipelineArrays, free: Floats, pipelines: Sequence[Assigned]
    ) -> Ints | None:
        """Those that algorithm 1 fills."""
        return allocate(pipeline, self.table, free, view.network.bandwidth_bps)


@policy("lr")
class LeastRequested(EqualShares):
    """LR: the whole pipeline to the node with the least use of processor and memory."""

    balanced = False

    def nodes(
        self, view: NetworkView, pipeline: PipelineArrays, free: Floats, pipelines: Sequence[Assigned]
    ) -> Ints | None:
        """The one that is left with the best use; see `whole_pipeline`."""
        load = np.zeros(len(free))
        for other, node in pipelines:
            np.add.at(load, node, other.work_ops)
        net = view.network
        chosen = whole_pipeline(pipeline, net.speed_ops, net.memory_bytes, free, load, self.balanced)
        return None if chosen is None else np.full(len(pipeline.work_ops), chosen)


@policy("br")
class Balanced(LeastRequested):
    """BR: the whole pipeline to the node whose use of processor and of memory are most alike."""

    balanced = True
