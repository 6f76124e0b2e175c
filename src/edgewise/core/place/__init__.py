"""Placement of pipelines: what happens, what a policy sees, what it decides, and the judge of it.

A pipeline is held as arrays (`PipelineArrays`), a decision as a `Placement`. `validate` refuses those that
exceed a link or a node; `throughput` is the only place where frames per second are computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core import ledger, link_ledger
from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.keyed import Key
from edgewise.core.link_ledger import unrounded
from edgewise.errors import CapacityError
from edgewise.kernels.compiled import kernel
from edgewise.model.pipelines import Network, Pipeline
from edgewise.model.work import task_holds

TOLERANCE = link_ledger.TOLERANCE
UNBOUNDED_FPS = 1e9  # of a pipeline without work and data


class PipelineArrays(NamedTuple):
    """A pipeline in topological order.

    Attributes:
        id: index of the pipeline in the run.
        source: node index of the input.
        work_ops, memory_bytes: (T,) of each task.
        tail, head: (E,) task indices of each edge; tail -1 is the source. Edges are sorted by head.
        volume_bits: (E,) data per frame.
    """

    id: int
    source: int
    work_ops: Floats
    memory_bytes: Floats
    tail: Ints
    head: Ints
    volume_bits: Floats


def arrays_of(pipeline: Pipeline, number: int, network: Network) -> PipelineArrays:
    """The pipeline as arrays; the input is one edge to every task without predecessor.

    Raises:
        ScenarioError: the source is not a node of the network.
    """
    order = pipeline.graph.order()
    place = {name: i for i, name in enumerate(order)}
    by_name = {task.name: task for task in pipeline.graph.tasks}
    edges = [(place[e.source], place[e.target], 8.0 * e.size_bytes) for e in pipeline.graph.edges]
    heads = {head for _, head, _ in edges}
    edges += [(-1, i, 8.0 * pipeline.input_bytes) for i in range(len(order)) if i not in heads]
    edges.sort(key=lambda edge: (edge[1], edge[0]))
    return PipelineArrays(
        number,
        network.node(pipeline.source),
        np.array([by_name[name].work_ops for name in order], dtype=np.float64),
        np.array([task_holds(by_name[name]).resources.memory_bytes for name in order], dtype=np.float64),
        np.array([edge[0] for edge in edges], dtype=np.int64),
        np.array([edge[1] for edge in edges], dtype=np.int64),
        np.array([edge[2] for edge in edges], dtype=np.float64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A pipeline's tasks on nodes, and each flow's path and bandwidth.

    Attributes:
        pipeline: the pipeline's arrays.
        node: (T,) node of each task.
        start: (E + 1,) where each edge's path begins in `links`; empty when both ends share a node.
        links: link indices of all paths, one after another, from tail to head.
        bandwidth_bps: (E,) of each flow; infinite when both ends share a node.
    """

    pipeline: PipelineArrays
    node: Ints
    start: Ints
    links: Ints
    bandwidth_bps: Floats

    def path(self, edge: int) -> Ints:
        """Links of one edge's path."""
        return self.links[self.start[edge] : self.start[edge + 1]]

    @property
    def tail_node(self) -> Ints:
        """(E,) node where each edge begins."""
        return np.where(self.pipeline.tail < 0, self.pipeline.source, self.node[self.pipeline.tail])

    @property
    def head_node(self) -> Ints:
        """(E,) node where each edge ends."""
        return self.node[self.pipeline.head]


class Reserving(NamedTuple):
    """What flows may reserve of links, whatever the policy.

    Attributes:
        capped: no more than what their pipeline can use, x_J V_f; False: all that the policy gives them.
        kept: part of each link that no flow gets, nor an image pull, for messages of other work.
    """

    capped: bool = True
    kept: float = 0.1


PUBLISHED = Reserving(capped=False, kept=0.0)
"""As in ENTS, where nobody else uses the links."""


@dataclass(frozen=True, slots=True)
class NetworkView:
    """What placement sees: the network, what is free, and who waits and runs.

    Attributes:
        now_s: time.
        network: nodes, and what flows may have of links; a failed link has bandwidth 0.
        free_memory_bytes: (N,) not held by running pipelines.
        free_bps: (L,) not given to running flows.
        waiting: pipelines not yet placed, longest waiting first.
        running: placements in force, oldest first.
    """

    now_s: float
    network: Network
    free_memory_bytes: Floats
    free_bps: Floats
    waiting: Sequence[PipelineArrays]
    running: Sequence[Placement]


class PlacementPolicy(Protocol):
    """Tasks of pipelines → nodes, flows → paths and bandwidth, in seconds."""

    name: str

    def reset(self, network: Network, key: Key) -> None:
        """Start anew on a network; all randomness comes from `key`."""

    def decide(self, view: NetworkView) -> Sequence[Placement]:
        """Placements of waiting pipelines that start now, and changed ones of running pipelines."""


def free_of(network: Network, placements: Sequence[Placement]) -> tuple[Floats, Floats]:
    """(N,) memory and (L,) bandwidth that the placements leave; negative when over capacity."""
    memory = network.memory_bytes.astype(np.float64)
    link = network.bandwidth_bps.astype(np.float64)
    if placements:
        node = np.concatenate([p.node for p in placements])
        held = np.concatenate([p.pipeline.memory_bytes for p in placements])
        memory -= np.bincount(node, held, len(memory))
        links = np.concatenate([p.links for p in placements])
        hops = np.concatenate([p.start[1:] - p.start[:-1] for p in placements])
        rate = np.concatenate([p.bandwidth_bps for p in placements])
        link -= np.bincount(links, np.repeat(rate, hops), len(link))
    return free_memory(memory, network), unrounded(link, TOLERANCE * network.bandwidth_bps)


def free_memory(left: Floats, network: Network) -> Floats:
    """(N,) memory that is left, where what may be rounding counts as nothing."""
    return unrounded(left, ledger.TOLERANCE * np.maximum(network.memory_bytes, 1.0))


def validate(network: Network, placements: Sequence[Placement]) -> None:
    """Check that no node and no link is over capacity and that every path leads where it must.

    Raises:
        CapacityError: a node or link is over capacity.
        ValueError: a node is none of the network, a path does not join the nodes of its tasks, or a bandwidth
            is negative.
    """
    node = np.concatenate([np.zeros(0, dtype=np.int64), *(p.node for p in placements)])
    if node.size and not 0 <= node.min() <= node.max() < len(network.names):
        raise ValueError(f"a task is on a node that is none of 0 to {len(network.names) - 1}")
    memory, link = free_of(network, placements)
    if (memory < 0).any():
        j = int(memory.argmin())
        raise CapacityError(
            f"node {network.names[j]!r}: tasks need {-memory[j]:g} bytes more than its "
            f"{network.memory_bytes[j]:g}; place fewer tasks there"
        )
    if (link < 0).any():
        i = int(link.argmin())
        one, other = (network.names[j] for j in network.ends[i])
        raise CapacityError(
            f"link {one}-{other}: flows take {network.bandwidth_bps[i] - link[i]:g} bit/s of "
            f"{network.bandwidth_bps[i]:g}; lower their bandwidth"
        )
    for p in placements:
        tail, head, source = p.pipeline.tail, p.pipeline.head, p.pipeline.source
        edge = _misrouted(network.ends, source, tail, head, p.node, p.start, p.links)
        if edge >= 0:
            raise ValueError(
                f"pipeline {p.pipeline.id}: the path of edge {edge} does not join the nodes of its tasks"
            )
        if p.bandwidth_bps.size and not p.bandwidth_bps.min() >= 0:
            raise ValueError(f"pipeline {p.pipeline.id}: a flow has a negative bandwidth")


@kernel(allocates=False)
def _misrouted(ends: Ints, source: int, tail: Ints, head: Ints, node: Ints, start: Ints, links: Ints) -> int:
    """First edge whose path is not a walk from its tail's node to its head's, or -1."""
    for e in range(tail.size):
        at = source if tail[e] < 0 else node[tail[e]]
        for i in range(start[e], start[e + 1]):
            one, other = ends[links[i], 0], ends[links[i], 1]
            if at == one:
                at = other
            elif at == other:
                at = one
            else:
                return e
        if at != node[head[e]]:
            return e
    return -1


def nodes_of(network: Network, placed: Placement) -> Ints:
    """Nodes that frames meet: their source, those of tasks, and those that they pass through."""
    return np.concatenate([placed.node, [placed.pipeline.source], network.ends[placed.links].ravel()])


def throughput(network: Network, placements: Sequence[Placement]) -> Floats:
    """(J,) frames per second of each placed pipeline.

    x_J = 1 / max(max_i C_i / PS_u(i), max_f V_f / b_f)                     (ENTS eq. 1-4)

    Where tasks share the cores of their nodes, Σ C_i x_J <= what the cores of u do, over all tasks placed on
    u, in max-min fair shares; else each has the whole node, as in ENTS.

    Args:
        network: where the pipelines run.
        placements: one for each running pipeline.
    """
    if not placements:
        return np.zeros(0)
    pipelines = np.arange(len(placements))
    task_pipeline = np.repeat(pipelines, [len(p.node) for p in placements])
    edge_pipeline = np.repeat(pipelines, [len(p.bandwidth_bps) for p in placements])
    node = np.concatenate([p.node for p in placements])
    work = np.concatenate([p.pipeline.work_ops for p in placements])
    volume = np.concatenate([p.pipeline.volume_bits for p in placements])
    rate = np.concatenate([p.bandwidth_bps for p in placements])
    per_frame_s = np.zeros(len(placements))
    np.maximum.at(per_frame_s, task_pipeline, work / network.speed_ops[node])
    with np.errstate(divide="ignore"):
        flow_s = np.divide(volume, rate, out=np.zeros_like(volume), where=volume > 0)
        np.maximum.at(per_frame_s, edge_pipeline, flow_s)
        cap = np.minimum(1.0 / per_frame_s, UNBOUNDED_FPS)
    shared_ops = network.shared_ops
    return cap if shared_ops is None else _fair_cpu(cap, task_pipeline, node, work, shared_ops)


def used(network: Network, placements: Sequence[Placement]) -> list[Placement]:
    """The placements, where no flow has more than its pipeline could use of nodes of its own: b_f <= x_J V_f.

    The pipeline is as fast as before: its slowest task or flow keeps what it has.
    """
    alone = throughput(replace(network, cores=None), placements)
    most_bps = [x * p.pipeline.volume_bits for p, x in zip(placements, alone, strict=True)]
    return [
        replace(
            p, bandwidth_bps=np.where(np.isinf(p.bandwidth_bps), np.inf, np.minimum(p.bandwidth_bps, most))
        )
        for p, most in zip(placements, most_bps, strict=True)
    ]


def _fair_cpu(
    cap: Floats,
    task_pipeline: Ints,
    node: Ints,
    work: Floats,
    speed: Floats,
) -> Floats:
    """Max-min fair rates: all rise together, each until its own cap or until a node of its tasks is full."""
    rate = np.zeros_like(cap)
    open_ = cap > 0
    left = speed.astype(np.float64)
    while open_.any():
        need = np.bincount(node, work * open_[task_pipeline], len(speed))
        used = need > 0
        step = float(np.min(left[used] / need[used], initial=np.inf))
        step = min(step, float((cap - rate)[open_].min()))
        rate[open_] += step
        left -= step * need
        full = used & (left <= TOLERANCE * speed)
        blocked = np.zeros_like(open_)
        blocked[task_pipeline[full[node] & (work > 0)]] = True
        open_ &= ~blocked & (cap - rate > TOLERANCE * cap)
    return rate


class PipelineSubmitted(NamedTuple):
    """A pipeline waits from now on; `pipeline.id` is not that of another."""

    pipeline: PipelineArrays


class PipelineEnded(NamedTuple):
    """A pipeline, by its id, neither waits nor runs any more."""

    pipeline: int


class BandwidthChanged(NamedTuple):
    """A link has another bandwidth; 0: it is down."""

    link: int
    bandwidth_bps: float


class MemoryChanged(NamedTuple):
    """A node has another amount of memory for tasks; 0: it is gone."""

    node: int
    memory_bytes: float


class TaskMeasured(NamedTuple):
    """A task took `time_s` for a frame on a node, the mean of so many frames since it was started there."""

    pipeline: int
    task: int
    node: int
    frames: int
    time_s: float


class PlacementDue(NamedTuple):
    """All that happened up to now was told: `PlaceCore` decides if a decision is due.

    Attributes:
        decided: what the policy answered if a driver asked it apart, as it may take long
            (`PlaceCore.question`); nothing of it is done where it no longer fits. None: it is asked now.
    """

    time_s: float
    decided: Mapping[int, Placement] | None = None


class StartPipeline(NamedTuple):
    """A pipeline that waited runs from now on."""

    placement: Placement


class MovePipeline(NamedTuple):
    """Tasks of a running pipeline go to other nodes."""

    placement: Placement


class ReroutePipeline(NamedTuple):
    """Flows of a running pipeline take other paths or have other rates; its tasks stay."""

    placement: Placement


class StopPipeline(NamedTuple):
    """A running pipeline, by its id, waits again: a node lacks the memory that its tasks hold."""

    pipeline: int


PlaceEvent = (
    PipelineSubmitted
    | PipelineEnded
    | BandwidthChanged
    | MemoryChanged
    | TaskMeasured
    | PlacementDue
    | CapacityChanged
    | Evicted
)
PlaceCommand = StartPipeline | MovePipeline | ReroutePipeline | StopPipeline
