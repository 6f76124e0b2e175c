"""Task allocation: the greedy of ENTS alg. 1, and whole jobs to one node as Kubernetes scores them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgewise.core.compiled import kernel
from edgewise.core.placement import JobArrays
from edgewise.policies.place.paths import PathTable


def allocate(
    job: JobArrays, table: PathTable, free_memory_bytes: NDArray[np.float64]
) -> NDArray[np.int64] | None:
    """(T,) node of each task by ENTS alg. 1; None when some task fits on no node.

    Task by task in topological order: the node with available > required memory and the least
    t_comp + max over predecessors t_comm, where the bandwidth between two nodes is the mean over the links of
    their candidate paths (`table.mean_bps`). The input from the source counts as a predecessor.

    Args:
        job: tasks and edges.
        table: candidate paths; rows are found as they are needed.
        free_memory_bytes: (N,) left unchanged.
    """
    table.need(job.source)
    while True:
        node, missing = _greedy(
            job.source,
            job.work_ops,
            job.memory_bytes,
            job.tail,
            job.head,
            job.volume_bits,
            table.network.speed_ops,
            free_memory_bytes,
            table.mean_bps,
            table.offset,
        )
        if missing < 0:
            return node if node[-1] >= 0 else None
        table.need(missing)


@kernel
def _greedy(
    source: int,
    work: NDArray[np.float64],
    memory: NDArray[np.float64],
    tail: NDArray[np.int64],
    head: NDArray[np.int64],
    volume: NDArray[np.float64],
    speed: NDArray[np.float64],
    free: NDArray[np.float64],
    mean_bps: NDArray[np.float64],
    offset: NDArray[np.int64],
) -> tuple[NDArray[np.int64], int]:
    """The nodes, and the node whose row of paths is missing (-1: none); the last node is -1 if nothing fits."""
    left = free.copy()
    node = np.full(work.size, -1)
    first = 0
    for task in range(work.size):
        last = first
        while last < head.size and head[last] == task:
            at = source if tail[last] < 0 else node[tail[last]]
            if offset[at] < 0:
                return node, at
            last += 1
        best, best_s = -1, np.inf
        for j in range(speed.size):
            if left[j] <= memory[task]:
                continue
            comm_s = 0.0
            for e in range(first, last):
                at = source if tail[e] < 0 else node[tail[e]]
                if volume[e] > 0.0:
                    comm_s = max(comm_s, volume[e] / mean_bps[at, j])
            total_s = work[task] / speed[j] + comm_s
            if total_s < best_s:
                best, best_s = j, total_s
        if best < 0:
            node[-1] = -1
            return node, -1
        node[task] = best
        left[best] -= memory[task]
        first = last
    return node, -1


def whole_job(
    job: JobArrays,
    speed_ops: NDArray[np.float64],
    memory_bytes: NDArray[np.float64],
    free_memory_bytes: NDArray[np.float64],
    load_ops: NDArray[np.float64],
    balanced: bool,
) -> int | None:
    """The node for a whole job; None when it fits on none.

    Use of a node is measured after placement, as the Kubernetes scheduler does. A task asks for the processor
    time of one frame per second, so CPU use is Σ C / PS.

    Args:
        job: the job.
        speed_ops, memory_bytes: (N,) of the nodes.
        free_memory_bytes: (N,) now.
        load_ops: (N,) Σ C of the tasks placed on each node.
        balanced: least |CPU use - memory use| (BR); otherwise least mean of the two (LR).
    """
    need = float(job.memory_bytes.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        memory = (memory_bytes - free_memory_bytes + need) / memory_bytes
    cpu = (load_ops + job.work_ops.sum()) / speed_ops
    score = np.abs(np.minimum(cpu, 1.0) - memory) if balanced else (cpu + memory) / 2
    score = np.where(free_memory_bytes > need, score, np.inf)
    best = int(score.argmin())
    return best if np.isfinite(score[best]) else None
