"""What the tasks of pipelines say of themselves, beside what was planned for them.

A task that has code takes what it takes: once it has done enough frames, decisions count with that in place
of what was profiled, also those of a controller that takes over. A stand-in takes what the pipeline says.
"""

from collections import deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from edgewise.core.place import TaskMeasured
from edgewise.core.place.core import PlaceCore
from edgewise.model.pipelines import Network
from edgewise.runtime.pipelines.rates import PipelineRates, rates_of
from edgewise.runtime.pipelines.running import RunningPipeline
from edgewise.runtime.store.pipelines import KeptPipeline

Reports = Mapping[str, Mapping[str, float]]  # of each task
OVER_S = 5.0  # rates are measured, however often somebody looks


class PipelinesSeen:
    """The last reports of the tasks of the pipelines that run.

    Args:
        network: they run on.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self._seen: dict[int, tuple[RunningPipeline, deque[Reports]]] = {}

    def look(self, running: Mapping[int, RunningPipeline]) -> None:
        """Take the newest report of each task; those of tasks that were started anew begin anew."""
        for number in self._seen.keys() - running.keys():
            del self._seen[number]
        for number, pipeline in list(running.items()):
            reports = {name: process.latest for name, process in pipeline.processes.items()}
            if number not in self._seen or self._seen[number][0] is not pipeline:
                self._seen[number] = pipeline, deque()
            if reports and all(reports.values()):
                _take(self._seen[number][1], reports)

    def forget(self, number: int) -> None:
        """What a pipeline did counts from its next report on."""
        self._seen.pop(number, None)

    def measured(self, number: int) -> dict[str, tuple[str, float, float]] | None:
        """Node, frames and mean time of a frame of each task since it was started; None: it is no news."""
        if number not in self._seen or self._seen[number][0].live.code is None:
            return None
        pipeline, reports = self._seen[number]
        names = self.network.names
        nodes = zip(pipeline.live.pipeline.graph.order(), pipeline.placed.node.tolist(), strict=True)
        last = reports[-1] if reports else {}
        return {
            task: (names[node], last[task]["frames"], last[task]["busy_s"] / last[task]["frames"])
            for task, node in nodes
            if last and last[task]["frames"] > 0
        } or None

    def rates(self, core: PlaceCore) -> dict[int, PipelineRates]:
        """What pipelines and flows did in the last seconds, beside what is planned."""
        planned_fps, names = core.rates_fps(), self.network.names
        return {
            number: rates_of(pipeline, names, planned_fps[number], reports[0], reports[-1])
            for number, (pipeline, reports) in self._seen.items()
            if len(reports) > 1 and number in planned_fps
        }

    def report(self, core: PlaceCore, number: int) -> dict[str, Any] | None:
        """The same of one pipeline for JSON, paths as the nodes that their links join; None: nothing yet."""
        if (rates := self.rates(core).get(number)) is None:
            return None
        names, ends = self.network.names, self.network.ends.tolist()
        flows = [
            asdict(flow) | {"path": [[names[node] for node in ends[link]] for link in flow.path]}
            for flow in rates.flows
        ]
        return asdict(rates) | {"flows": flows}

    def links(self, core: PlaceCore, down: Container[int]) -> list[dict[str, Any]]:
        """What there is of each link, what flows reserve of it and what they carry, both ways together."""
        reserved_bps = core.flows_bps().sum(axis=0)
        carried_bps = np.zeros(len(reserved_bps))
        for rates in self.rates(core).values():
            for flow in rates.flows:
                carried_bps[list(flow.path)] += flow.measured_bps
        return [
            {
                "ends": [self.network.names[node] for node in ends], "up": link not in down,
                "bandwidth_bps": float(self.network.bandwidth_bps[link]),
                "reserved_bps": float(reserved_bps[link]), "carried_bps": float(carried_bps[link]),
            }
            for link, ends in enumerate(self.network.ends.tolist())
        ]  # fmt: skip


def _take(known: deque[Reports], reports: Reports) -> None:
    """Keep what is news, and what was said in the last seconds."""
    if known and known[-1] == reports:
        return
    known.append(reports)
    while _said_s(known[0]) < _said_s(reports) - OVER_S:
        known.popleft()


def _said_s(reports: Reports) -> float:
    return min(each["at_s"] for each in reports.values())


def told(core: PlaceCore, kept: KeptPipeline) -> Iterator[TaskMeasured]:
    """What a core is to hear of the tasks of a pipeline."""
    order, nodes = kept.live.pipeline.graph.order(), core.network.names
    for task, (node, frames, time_s) in kept.measured.items():
        if node in nodes and task in order:
            yield TaskMeasured(kept.id, order.index(task), nodes.index(node), int(frames), time_s)
