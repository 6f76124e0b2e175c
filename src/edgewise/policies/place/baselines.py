"""ENTS: task allocation (alg. 1); LR, BR and TP, its rivals (section VI); OTFS and OTFA (alg. 3 and 4).

The baselines reserve nothing: flows on a link share it equally. OTFS and OTFA route and reserve.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.place import NetworkView, PipelineArrays, Placement
from edgewise.kernels.compiled import inner, kernel
from edgewise.model.pipelines import Network
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
from edgewise.policies.place.paths import PathRows, PathTable
from edgewise.policies.place.speeds import Speeds
from edgewise.policies.registry import policy


def allocate(
    pipeline: PipelineArrays,
    table: PathTable,
    free_memory_bytes: Floats,
    bandwidth_bps: Floats,
    speed_ops: Floats,
) -> Ints | None:
    """(T,) node of each task by ENTS alg. 1; None when some task fits on no node.

    Task by task in topological order: the node with available > required memory, cores for it, and the least
    t_comp + max over predecessors t_comm, where the bandwidth between two nodes is the mean over the links of
    their candidate paths. The input from the source counts as a predecessor.

    Args:
        pipeline: tasks and edges.
        table: candidate paths; rows are found as they are needed.
        free_memory_bytes: (N,) left unchanged.
        bandwidth_bps: (L,) of each link, all of it or what is left.
        speed_ops: (N,) that a task has on each node, see `Speeds`.
    """
    tasks = len(pipeline.work_ops)
    missing = pipeline.source
    while missing >= 0:
        table.need(missing)
        node, mean = np.full(tasks, -1), np.zeros((tasks + 1, len(speed_ops)))
        left = free_memory_bytes.copy()
        missing = _greedy(pipeline, speed_ops, left, bandwidth_bps, table.rows(), mean, node)
    return node if node[-1] >= 0 else None


@inner
def _mean_bps(rows: PathRows, source: int, bandwidth: Floats, out: Floats) -> None:
    """Mean bandwidth over the links of the paths from `source` to each node; 0 when there is none."""
    for target in range(out.size):
        a, b = rows.start[source, target * rows.k], rows.start[source, target * rows.k + rows.k]
        total = 0.0
        for i in range(rows.offset[source] + a, rows.offset[source] + b):
            total += bandwidth[rows.links[i]]
        out[target] = total / (b - a) if b > a else 0.0
    out[source] = np.inf


@kernel(allocates=False)
def _greedy(
    pipeline: PipelineArrays,
    speed: Floats,
    left: Floats,
    bandwidth: Floats,
    rows: PathRows,
    mean: Floats,
    node: Ints,
) -> int:
    """Fill in the nodes, the last -1 if nothing fits; returns the node whose paths are missing, or -1.

    Args:
        left: (N,) memory, of which the tasks take.
        mean: (T + 1, N) for the bandwidth from each task's node; the last row (tail -1) is the source's.
    """
    first, at = 0, pipeline.source
    for task in range(node.size):
        if rows.offset[at] < 0:
            return at
        _mean_bps(rows, at, bandwidth, mean[task - 1])
        last = first
        while last < pipeline.head.size and pipeline.head[last] == task:
            last += 1
        best, best_s = -1, np.inf
        for j in range(speed.size):
            if left[j] <= pipeline.memory_bytes[task] or (pipeline.work_ops[task] > 0.0 and speed[j] <= 0.0):
                continue
            comm_s = 0.0
            for e in range(first, last):
                if pipeline.volume_bits[e] > 0.0:
                    comm_s = max(comm_s, pipeline.volume_bits[e] / mean[pipeline.tail[e], j])
            total_s = pipeline.work_ops[task] / speed[j] + comm_s
            if total_s < best_s:
                best, best_s = j, total_s
        if best < 0:
            return -1
        node[task] = at = best
        left[best] -= pipeline.memory_bytes[task]
        first = last
    return -1


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
        free, speeds = view.free_memory_bytes.copy(), Speeds(view)
        pipelines: list[Assigned] = [(p.pipeline, p.node) for p in view.running]
        for pipeline in view.waiting:
            node = self.nodes(view, pipeline, free, pipelines, speeds)
            if node is not None:
                np.subtract.at(free, node, pipeline.memory_bytes)
                speeds.take(pipeline, node)
                pipelines.append((pipeline, node))
        if not pipelines:
            return []
        flows = flows_of(pipelines, self.table)
        equal = np.ones_like(flows.volume)
        return shared(flows, self.table, shortest(flows), equal, view.network.bandwidth_bps)

    def nodes(
        self,
        view: NetworkView,
        pipeline: PipelineArrays,
        free: Floats,
        pipelines: Sequence[Assigned],
        speeds: Speeds,
    ) -> Ints | None:
        """Nodes of a pipeline's tasks; None: it waits."""
        raise NotImplementedError


@policy("tp")
class TaskPartition(EqualShares):
    """TP: tasks by alg. 1, the default shortest path, equal shares of every link."""

    def nodes(
        self,
        view: NetworkView,
        pipeline: PipelineArrays,
        free: Floats,
        pipelines: Sequence[Assigned],
        speeds: Speeds,
    ) -> Ints | None:
        """Those that algorithm 1 fills."""
        return allocate(pipeline, self.table, free, view.network.bandwidth_bps, speeds.ops())


@policy("lr")
class LeastRequested(EqualShares):
    """LR: the whole pipeline to the node with the least mean use of processor and memory.

    Use of a node is measured after placement, as the Kubernetes scheduler does. A task asks for the processor
    time of one frame per second, so use of the processor is Σ C / PS.
    """

    def nodes(
        self,
        view: NetworkView,
        pipeline: PipelineArrays,
        free: Floats,
        pipelines: Sequence[Assigned],
        speeds: Speeds,
    ) -> Ints | None:
        """The one that is left with the best use; none when the pipeline fits on none."""
        total, need = view.network.memory_bytes, float(pipeline.memory_bytes.sum())
        load = np.zeros(len(free))
        for other, node in pipelines:
            np.add.at(load, node, other.work_ops)
        with np.errstate(divide="ignore", invalid="ignore"):
            shared_ops, whole_ops = view.network.shared_ops, view.network.speed_ops
            cpu = (load + pipeline.work_ops.sum()) / (whole_ops if shared_ops is None else shared_ops)
            score = self.score(cpu, (total - free + need) / total)
        score = np.where(free > need, score, np.inf)
        best = int(score.argmin())
        return np.full(len(pipeline.work_ops), best) if np.isfinite(score[best]) else None

    def score(self, cpu: Floats, memory: Floats) -> Floats:
        """(N,) the least is best, of the use of each node's processor and memory."""
        return (cpu + memory) / 2


@policy("br")
class Balanced(LeastRequested):
    """BR: the whole pipeline to the node whose use of processor and of memory are most alike."""

    def score(self, cpu: Floats, memory: Floats) -> Floats:
        """(N,) how far apart they are."""
        return np.abs(np.minimum(cpu, 1.0) - memory)


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
        memory, link, speeds = view.free_memory_bytes.copy(), view.free_bps.copy(), Speeds(view)
        started = []
        for pipeline in view.waiting:
            placed = self._one(view, pipeline, memory, link, speeds.ops())
            if placed is None:
                continue
            np.subtract.at(memory, placed.node, pipeline.memory_bytes)
            np.subtract.at(link, placed.links, np.repeat(placed.bandwidth_bps, np.diff(placed.start)))
            speeds.take(pipeline, placed.node)
            link[link < 1e-6 * view.network.bandwidth_bps] = 0.0  # rounding is not free bandwidth
            started.append(placed)
        return started

    def _one(
        self, view: NetworkView, pipeline: PipelineArrays, memory: Floats, link: Floats, speed_ops: Floats
    ) -> Placement | None:
        node = allocate(pipeline, self.table, memory, link, speed_ops)
        if node is None and not self.wait:
            node = allocate(pipeline, self.table, memory, view.network.bandwidth_bps, speed_ops)
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
        memory, speeds = view.free_memory_bytes.copy(), Speeds(view)
        pipelines: list[Assigned] = [(p.pipeline, p.node) for p in view.running]
        for pipeline in view.waiting:
            speed_ops = speeds.ops()
            node = allocate(pipeline, self.table, memory, view.free_bps, speed_ops)
            if node is None:  # no bandwidth is left, but all of it is about to be shared anew
                node = allocate(pipeline, self.table, memory, view.network.bandwidth_bps, speed_ops)
            if node is not None and self._joined_up(pipeline, node, view):
                np.subtract.at(memory, node, pipeline.memory_bytes)
                speeds.take(pipeline, node)
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
