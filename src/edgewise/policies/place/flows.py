"""From tasks on nodes to flows, and back to placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.place import PipelineArrays, Placement
from edgewise.policies.place.paths import PathRows, PathTable
from edgewise.policies.place.program import FlowProgram, gather, joined, proportional, route

Assigned = tuple[PipelineArrays, Ints]  # a pipeline and the node of each of its tasks


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


def jrba_paths(flows: Flows, program: FlowProgram, bandwidth_bps: Floats) -> Ints | None:
    """(E,) path of each edge from the rounded relaxation (ENTS alg. 2); None when a flow has no way left."""
    chosen = shortest(flows)
    if not len(flows.moving):
        return chosen
    source, target, volume = (
        flows.source[flows.moving],
        flows.target[flows.moving],
        flows.volume[flows.moving],
    )
    u, v, total, pair = joined(source, target, volume, len(program.table.hops))
    if not _all_open(program.table.rows(), u, v, bandwidth_bps):
        return None
    solution = program.solve(u, v, total, bandwidth_bps)
    if solution is None:
        return None
    order = np.argsort(-volume, kind="stable")
    chosen[flows.moving] = route(solution.amount, pair, volume, order)
    return chosen


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
    start, links = gather(table.rows(), flows.source[moving], flows.target[moving], chosen[moving])
    full = np.zeros(len(flows.source) + 1, dtype=np.int64)
    full[moving + 1] = np.diff(start)
    return np.cumsum(full), links


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


def shared_by_volume(flows: Flows, table: PathTable, chosen: Ints, bandwidth_bps: Floats) -> list[Placement]:
    """Placements with the bandwidth of eq. 15 on the chosen paths."""
    start, links = paths_of(flows, table, chosen)
    rate = proportional(start, links, flows.volume, bandwidth_bps)
    return placements_of(flows, start, links, rate)


def shared_equally(flows: Flows, table: PathTable, chosen: Ints, bandwidth_bps: Floats) -> list[Placement]:
    """Placements where the flows on a link have equal parts of it (the default of TP, LR and BR)."""
    start, links = paths_of(flows, table, chosen)
    rate = proportional(start, links, np.ones_like(flows.volume), bandwidth_bps)
    return placements_of(flows, start, links, rate)


def compute_cap(pipeline: PipelineArrays, node: Ints, speed_ops: Floats) -> float:
    """Frames per second that the nodes of the tasks allow, each task having its whole node."""
    slowest_s = float((pipeline.work_ops / speed_ops[node]).max())
    return 1.0 / slowest_s if slowest_s > 0 else np.inf


def capped(placements: Sequence[Placement], speed_ops: Floats) -> list[Placement]:
    """The placements with every flow limited to what the compute rate of its pipeline can use."""
    made = []
    for p in placements:
        most = compute_cap(p.pipeline, p.node, speed_ops) * p.pipeline.volume_bits
        rate = np.where(np.isfinite(p.bandwidth_bps), np.minimum(p.bandwidth_bps, most), np.inf)
        made.append(Placement(p.pipeline, p.node, p.start, p.links, rate))
    return made
