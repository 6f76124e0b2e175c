"""Frames through placed tasks and shaped flows, on the general engine.

Every task is a station with the whole speed of its node, as in ENTS; every flow is a station whose rate is
its bandwidth. Both hold few frames, so a slow station stops those before it. The rate at which frames leave
is measured, not computed: it must agree with `edgewise.core.placement.throughput`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.placement import Placement
from edgewise.model.network import Network
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.network import GraphClass, Station
from edgewise.sim.stations.network import StationNetwork as Stations

ROOM = 2  # frames that may wait before a task or a flow


@dataclass(frozen=True, slots=True)
class FrameRun:
    """What frames met.

    Attributes:
        throughput_fps: (J,) frames per second that leave each job, over the second half of its frames.
        done_s: (J, frames) when each frame left.
    """

    throughput_fps: Floats
    done_s: Floats


def simulate_frames(
    network: Network, placements: Sequence[Placement], frames: int = 100, room: int = ROOM
) -> FrameRun:
    """Send frames through jobs as fast as they are taken.

    Args:
        network: nodes of the placements.
        placements: jobs that run; a flow without bandwidth never delivers, so its job is refused.
        frames: of each job; the first half fills the pipeline and is not measured.
        room: frames that may wait before each station.
    Raises:
        ValueError: fewer than 4 frames, or a flow with data has no bandwidth.
    """
    if frames < 4:
        raise ValueError(f"frames is {frames}; at least 4 are needed to measure a rate")
    if not placements:
        return FrameRun(np.zeros(0), np.zeros((0, frames)))
    parts = [_Part(network, p, j, room) for j, p in enumerate(placements)]
    stations = Stations(
        [station for part in parts for station in part.tasks],
        [station for part in parts for station in part.flows],
        places=network.names,
        routes={("*", "*"): []},  # a flow without data takes no time
    )
    engine = GraphEngine(
        stations,
        [part.graph for part in parts],
        np.zeros(frames * len(parts)),
        graph=np.tile(np.arange(len(parts)), frames),
        placement=_rows(parts),
        source=np.tile([stations.place_names.index(part.source) for part in parts], frames),
    )
    engine.run()
    done_s = np.sort(engine.queries.done_s.reshape(frames, len(parts)).T, axis=1)
    half = frames // 2
    return FrameRun((frames - half) / (done_s[:, -1] - done_s[:, half - 1]), done_s)


def _rows(parts: Sequence[_Part]) -> Ints:
    """(J, most tasks) the station of every task; stations are counted job by job."""
    begin = np.cumsum([0, *(len(part.tasks) for part in parts)])
    rows = np.zeros((len(parts), max(len(part.tasks) for part in parts)), dtype=np.int64)
    for j, part in enumerate(parts):
        rows[j, : len(part.tasks)] = np.arange(begin[j], begin[j + 1])
    return rows


class _Part:
    """One job: stations of its tasks and flows, and the graph with a route for each flow."""

    def __init__(self, network: Network, placed: Placement, number: int, room: int) -> None:
        job = placed.job
        self.source = network.names[job.source]
        names = [f"{number}.{i}" for i in range(len(job.work_ops))]
        self.tasks = [
            Station(f"task {name}", float(network.speed_ops[node]), room=room, place=network.names[node])
            for name, node in zip(names, placed.node.tolist(), strict=True)
        ]
        self.flows: list[Station] = []
        routes: dict[tuple[str | None, str | None], list[str]] = {}
        edges, input_bytes = [], None
        for e, (tail, head) in enumerate(zip(job.tail.tolist(), job.head.tolist(), strict=True)):
            volume, rate = float(job.volume_bits[e]), float(placed.bandwidth_bps[e])
            if volume > 0 and not rate > 0:
                raise ValueError(f"job {job.id}: edge {e} has data and no bandwidth; its frames never arrive")
            if tail < 0:
                input_bytes = volume / 8.0
            else:
                edges.append(Edge(names[tail], names[head], volume / 8.0))
            if volume > 0 and placed.start[e] < placed.start[e + 1]:
                self.flows.append(Station(f"flow {number}.{e}", rate, room=room))
                routes[names[tail] if tail >= 0 else None, names[head]] = [self.flows[-1].name]
        tasks = tuple(Task(name, work) for name, work in zip(names, job.work_ops.tolist(), strict=True))
        graph = TaskGraph(f"job {number}", tasks, tuple(edges))
        self.graph = GraphClass(graph, input_bytes, routes=routes)
