"""Frames through placed tasks: each node serves one frame at a time, task by task.

A task may work when a frame lies ready on each of its inputs and each output has room; a node takes its
tasks in turn and skips those that may not, so tasks that are always ready get equal frames per second. Where
tasks do not share nodes, each has one of its own with the whole speed, as in ENTS. Flows carry one frame
after another at their bandwidth. Rates are measured; they must agree with
`edgewise.core.place.throughput`, and fall short of it where one frame holds a node for longer than `room`
frames of another pipeline last.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.place import Placement
from edgewise.kernels.compiled import kernel
from edgewise.model.pipelines import Network

ROOM = 8  # frames at either end of a flow; turns make gaps that frames in store fill


class Pipes(NamedTuple):
    """All tasks and edges of some placed pipelines.

    Attributes:
        service_s, pipeline: (T,) of each task; on its node alone a frame takes `service_s`.
        tail: (E,) task of each edge, sorted by the task that it leads to; -1 always has frames.
        ins: (T + 1,) where the edges into each task begin.
        outs, out_edge: (T + 1,), (E,) where the edges out of each task begin in `out_edge`.
        hosts, hosted: (N + 1,), (T,) where the tasks of each node begin in `hosted`.
        transfer_s: (E,) of a frame; 0 within a node.
        last: (T,) whether a task has no output.
    """

    service_s: Floats
    pipeline: Ints
    tail: Ints
    ins: Ints
    outs: Ints
    out_edge: Ints
    hosts: Ints
    hosted: Ints
    transfer_s: Floats
    last: Bools


def simulate_frames(
    network: Network,
    placements: Sequence[Placement],
    frames: int = 200,
    room: int = ROOM,
) -> Floats:
    """(J,) frames per second that leave each pipeline; where tasks share a node, one computes at a time.

    Args:
        network: nodes of the placements; each has as many cores as one task takes.
        placements: pipelines that run.
        frames: of the slowest pipeline; rates are those of the second half of the time.
        room: frames that may wait at either end of a flow.
    Raises:
        ValueError: fewer than 8 frames, or a flow with data has no bandwidth.
    """
    if frames < 8:
        raise ValueError(f"frames is {frames}; at least 8 are needed to measure a rate")
    if network.cores is None and len(placements) != 1:
        return np.concatenate(
            [np.zeros(0), *(simulate_frames(network, [p], frames, room) for p in placements)]
        )
    if not placements:
        return np.zeros(0)
    pipes = _pipes(network, placements)
    quarter_s, _ = _run(pipes, frames // 4, room, 0.0, np.inf)
    _, measured = _run(pipes, 0, room, 2.0 * quarter_s, 4.0 * quarter_s)
    return measured


def _pipes(network: Network, placements: Sequence[Placement]) -> Pipes:
    begin = np.cumsum([0, *(len(p.node) for p in placements)])
    shift = np.repeat(begin[:-1], [len(p.pipeline.head) for p in placements])
    tail = np.concatenate([p.pipeline.tail for p in placements])
    head = np.concatenate([p.pipeline.head for p in placements]) + shift
    tail = np.where(tail < 0, -1, tail + shift)
    volume = np.concatenate([p.pipeline.volume_bits for p in placements])
    rate = np.concatenate([p.bandwidth_bps for p in placements])
    if ((volume > 0) & ~(rate > 0)).any():
        edge = int(np.flatnonzero((volume > 0) & ~(rate > 0))[0])
        raise ValueError(f"edge {edge} has data and no bandwidth; its frames never arrive")
    node = np.concatenate([p.node for p in placements])
    work = np.concatenate([p.pipeline.work_ops for p in placements])
    host = np.arange(len(node)) if network.cores is None else node
    last = np.ones(len(node), dtype=np.bool_)
    last[tail[tail >= 0]] = False
    return Pipes(
        service_s=work / network.speed_ops[node],
        pipeline=np.repeat(np.arange(len(placements)), np.diff(begin)),
        tail=tail,
        ins=np.searchsorted(head, np.arange(len(node) + 1)),
        outs=np.searchsorted(np.sort(tail), np.arange(len(node) + 1)),
        out_edge=np.argsort(tail, kind="stable"),
        hosts=np.searchsorted(np.sort(host), np.arange(host.max() + 2)),
        hosted=np.argsort(host, kind="stable"),
        transfer_s=np.divide(volume, rate, out=np.zeros_like(volume), where=volume > 0),
        last=last,
    )


@kernel
def _run(pipes: Pipes, least: int, room: int, from_s: float, to_s: float) -> tuple[float, Floats]:
    """Until every pipeline has done `least` frames (0: until `to_s`); the time, and rates since `from_s`."""
    tasks, edges, nodes = pipes.pipeline.size, pipes.tail.size, pipes.hosts.size - 1
    out, ready = np.where(pipes.tail < 0, room, 0), np.zeros(edges, dtype=np.int64)
    flow_s, node_s = np.full(edges, np.inf), np.full(nodes, np.inf)  # when what is under way ends
    at, done = np.zeros(nodes, dtype=np.int64), np.zeros(tasks, dtype=np.int64)  # turn of each node, frames
    first_s, latest_s = np.full(tasks, np.inf), np.zeros(tasks)
    count = np.zeros(tasks, dtype=np.int64)
    now_s = 0.0
    while True:
        _start(pipes, out, ready, flow_s, node_s, at, room, now_s)
        now_s = min(flow_s.min(), node_s.min())
        if now_s > to_s or now_s == np.inf:
            return now_s, _rates(pipes, first_s, latest_s, count)
        for e in range(edges):
            if flow_s[e] <= now_s:
                flow_s[e] = np.inf
                ready[e] += 1
        for u in range(nodes):
            if node_s[u] > now_s:
                continue
            node_s[u] = np.inf
            t = pipes.hosted[pipes.hosts[u] + at[u]]
            done[t] += 1
            for i in range(pipes.outs[t], pipes.outs[t + 1]):
                out[pipes.out_edge[i]] += 1
            if now_s >= from_s:
                if first_s[t] == np.inf:
                    first_s[t] = now_s
                else:
                    count[t] += 1
                latest_s[t] = now_s
        if least > 0 and done.min() >= least:
            return now_s, _rates(pipes, first_s, latest_s, count)


@kernel
def _start(
    pipes: Pipes,
    out: Ints,
    ready: Ints,
    flow_s: Floats,
    node_s: Floats,
    at: Ints,
    room: int,
    now_s: float,
) -> None:
    """Begin every transfer and every frame that can begin; repeated, as one may make room for another."""
    changed = True
    while changed:
        changed = False
        for e in range(out.size):
            if out[e] > 0 and flow_s[e] == np.inf and ready[e] < room:
                out[e] -= 0 if pipes.tail[e] < 0 else 1
                changed = True
                if pipes.transfer_s[e] == 0.0:
                    ready[e] += 1
                else:
                    flow_s[e] = now_s + pipes.transfer_s[e]
        for u in range(node_s.size):
            if node_s[u] != np.inf:
                continue
            first, many = pipes.hosts[u], pipes.hosts[u + 1] - pipes.hosts[u]
            for i in range(1, many + 1):
                turn = (at[u] + i) % many
                t = pipes.hosted[first + turn]
                if _may_work(pipes, out, ready, t, room):
                    ready[pipes.ins[t] : pipes.ins[t + 1]] -= 1
                    at[u], node_s[u], changed = turn, now_s + pipes.service_s[t], True
                    break


@kernel
def _may_work(pipes: Pipes, out: Ints, ready: Ints, task: int, room: int) -> bool:
    for e in range(pipes.ins[task], pipes.ins[task + 1]):
        if ready[e] == 0:
            return False
    free = True
    for i in range(pipes.outs[task], pipes.outs[task + 1]):
        free = free and out[pipes.out_edge[i]] < room
    return free


@kernel
def _rates(pipes: Pipes, first_s: Floats, latest_s: Floats, count: Ints) -> Floats:
    """(J,) of the slowest last task of each pipeline."""
    rate = np.full(pipes.pipeline[-1] + 1, np.inf)
    for t in range(pipes.pipeline.size):
        if pipes.last[t]:
            j = pipes.pipeline[t]
            rate[j] = min(rate[j], count[t] / (latest_s[t] - first_s[t]) if count[t] > 0 else 0.0)
    return rate
