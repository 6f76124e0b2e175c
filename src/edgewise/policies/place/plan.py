"""What the joint scheduler searches: pipelines as they are placed, what they use, and what there is.

(Naming @kernel here makes the cache of kernels notice edits.)

A placed pipeline J that runs at x frames per second takes a_{J,r} x of each resource r: on a link volume of
its flows there, on a node (when tasks share it) the work of its tasks there. Bandwidth follows from x as
b_f = V_f x_J, so nothing is reserved that the pipeline cannot use.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.place import NetworkView, PipelineArrays


class PlacementPlan(NamedTuple):
    """Jobs, their present decision, and what they use; kernels change the decision in place.

    Attributes:
        task_begin, edge_begin: (J + 1,) first task and edge of each pipeline.
        source: (J,) node of the input.
        work, memory: (T,) of all tasks.
        tail, head: (E,) indices over all tasks; tail -1 is the source.
        volume: (E,) bits.
        node: (T,) node of each task.
        path: (E,) candidate path of each edge.
        home: (T,) nodes of a running pipeline now; -1 for a new pipeline.
        used, amount, uses: (J, R), (J, R), (J,) the resources that a pipeline uses, a_{J,r} of each, and how
            many; links come first, then nodes.
        cap: (J,) frames per second that the nodes allow; 0: the pipeline is not placed and uses nothing.
        price: (J,) share of all its resources that a frame takes.
        free: (N,) memory left.
        by_volume: (E,) edges, the largest of each pipeline first.
        rate: (J,) throughput as last filled.
        order: (J,) pipelines, those of least price first; the first n are always 0 to n - 1 in some order.
        left, total: (R,) for `fill`.
        kept_node, kept_path, kept_rate: as they were before a move.
        kept_left: (R,) what that left.
    """

    task_begin: Ints
    edge_begin: Ints
    source: Ints
    work: Floats
    memory: Floats
    tail: Ints
    head: Ints
    volume: Floats
    node: Ints
    path: Ints
    home: Ints
    used: NDArray[np.int32]
    amount: Floats
    uses: Ints
    cap: Floats
    price: Floats
    free: Floats
    by_volume: Ints
    rate: Floats
    order: Ints
    left: Floats
    total: Floats
    kept_rate: Floats
    kept_left: Floats
    kept_node: Ints
    kept_path: Ints


class SearchInput(NamedTuple):
    """What there is, and how the search values it.

    Attributes:
        capacity: (R,) bandwidth of links, then what the cores of nodes do together.
        speed: (N,) of nodes.
        links: how many of the resources are links.
        share_cpu: tasks share their node.
        floor: part of its equal share that every pipeline is given before the rest goes where it does most.
        penalty: part of a pipeline's throughput that moving it costs.
    """

    capacity: Floats
    speed: Floats
    links: int
    share_cpu: bool
    floor: float
    penalty: float


def make_plan(view: NetworkView, pipelines: Sequence[PipelineArrays], paths: Sequence[Ints]) -> PlacementPlan:
    """The plan of all pipelines, running ones first; waiting ones are not yet placed."""
    task_begin = np.cumsum([0, *(len(pipeline.work_ops) for pipeline in pipelines)])
    edge_begin = np.cumsum([0, *(len(pipeline.head) for pipeline in pipelines)])
    node = np.full(task_begin[-1], -1)
    path = np.zeros(edge_begin[-1], dtype=np.int64)
    for j, (placed, chosen) in enumerate(zip(view.running, paths, strict=True)):
        node[task_begin[j] : task_begin[j + 1]] = placed.node
        path[edge_begin[j] : edge_begin[j + 1]] = chosen
    shift = np.repeat(task_begin[:-1], np.diff(edge_begin))
    tail = np.concatenate([pipeline.tail for pipeline in pipelines])
    volume = np.concatenate([pipeline.volume_bits for pipeline in pipelines])
    count, resources = len(pipelines), len(view.free_bps) + len(view.free_memory_bytes)
    return PlacementPlan(
        task_begin=task_begin,
        edge_begin=edge_begin,
        source=np.array([pipeline.source for pipeline in pipelines]),
        work=np.concatenate([pipeline.work_ops for pipeline in pipelines]),
        memory=np.concatenate([pipeline.memory_bytes for pipeline in pipelines]),
        tail=np.where(tail < 0, -1, tail + shift),
        head=np.concatenate([pipeline.head for pipeline in pipelines]) + shift,
        volume=volume,
        node=node,
        path=path,
        home=node.copy(),
        used=np.zeros((count, resources), dtype=np.int32),
        amount=np.zeros((count, resources)),
        uses=np.zeros(count, dtype=np.int64),
        cap=np.zeros(count),
        price=np.zeros(count),
        free=view.free_memory_bytes.copy(),
        by_volume=np.lexsort((-volume, np.repeat(np.arange(count), np.diff(edge_begin)))),
        rate=np.zeros(count),
        order=np.arange(count),
        left=np.zeros(resources),
        total=np.zeros(resources),
        kept_rate=np.zeros(count),
        kept_left=np.zeros(resources),
        kept_node=node.copy(),
        kept_path=path.copy(),
    )
