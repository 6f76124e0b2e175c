"""The processes of pipelines on a test bed: what the commands of `PlaceCore` come to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from secrets import token_urlsafe

import numpy as np

from edgewise.core.place import PipelineArrays, Placement, arrays_of
from edgewise.core.place.events import (
    MovePipeline,
    PlaceCommand,
    ReroutePipeline,
    StartPipeline,
    StopPipeline,
)
from edgewise.runtime.pipelines.live import LivePipeline, RunningPipeline, StartedTask
from edgewise.runtime.pipelines.task import FlowTarget, TaskSetting
from edgewise.runtime.testbeds import Flow, LocalTestbed, Testbed

READY_S = 60.0  # a task must have loaded its code within


class PipelineProcesses:
    """A process for each task of the pipelines that run, and for the source of each.

    Args:
        backend: nodes and links.
    Attributes:
        running: by the pipeline's number.
    """

    def __init__(self, backend: Testbed) -> None:
        self.backend = backend
        self.running: dict[int, RunningPipeline] = {}
        self._secret = token_urlsafe(24)  # by which tasks know each other

    def carry_out(self, commands: Sequence[PlaceCommand], known: Mapping[int, LivePipeline]) -> None:
        """Start, move and end processes, and have flows take their paths; returns when all are ready.

        Raises:
            RunError: a task cannot start.
        """
        fresh: list[RunningPipeline] = []
        for command in commands:
            match command:
                case ReroutePipeline(placed):
                    self.running[placed.pipeline.id].placed = placed
                case StopPipeline(number):
                    self.stop(number)
                case StartPipeline(placed) | MovePipeline(placed):
                    number = placed.pipeline.id
                    if isinstance(command, MovePipeline):
                        self.stop(number)
                    self.running[number] = self._started(known[number], placed)
                    fresh.append(self.running[number])
        self.backend.apply(self.flows())
        for each in fresh:
            for process in each.processes.values():
                process.wait_ready(READY_S)
            for process in each.processes.values():
                process.tell("go")
        self._tell_rates()

    def stop(self, number: int) -> None:
        """End the processes of a pipeline that runs."""
        for process in self.running.pop(number).processes.values():
            process.stop()

    def flows(self) -> list[Flow]:
        """What passes between nodes."""
        return [flow for each in self.running.values() for flow in self._flows(each)]

    def _flows(self, pipeline: RunningPipeline) -> list[Flow]:
        """Flows between nodes; the bandwidth of the plan is what the network manager enforces."""
        p = pipeline.placed
        return [
            Flow(port, int(u), int(v), tuple(p.path(e).tolist()), float(p.bandwidth_bps[e]))
            for e, (port, u, v) in enumerate(zip(pipeline.ports, p.tail_node, p.head_node, strict=True))
            if u != v
        ]

    def _tell_rates(self) -> None:
        if not isinstance(self.backend, LocalTestbed):
            return
        rates = {str(flow.port): self.backend.sender_rate_bps(flow.port) for flow in self.flows()}
        for pipeline in self.running.values():
            for process in pipeline.processes.values():
                process.tell(json.dumps(rates))

    def _started(self, live: LivePipeline, placed: Placement) -> RunningPipeline:
        """The processes of a pipeline and of its source, which is task -1.

        A task takes at least work / speed of its node, as profiled: so this machine acts as slow nodes do.
        """
        profiled = arrays_of(live.pipeline, placed.pipeline.id, self.backend.network)
        running = RunningPipeline(live, placed, [self.backend.port() for _ in profiled.head], {})
        order, speed_ops = live.pipeline.graph.order(), self.backend.network.speed_ops
        for task, name in enumerate(("", *order), start=-1):
            node = int(placed.node[task]) if name else profiled.source
            setting = TaskSetting(
                code=live.code if name else None,
                function=live.functions.get(name) if name else None,
                frames=[] if name else list(live.frames),
                address=self.backend.address(node),
                inputs=[running.ports[e] for e in np.flatnonzero(profiled.head == task)],
                outputs=[
                    self._output(running, profiled, e) for e in np.flatnonzero(profiled.tail == task).tolist()
                ],
                least_s=float(profiled.work_ops[task] / speed_ops[node]) if name else 0.0,
                secret=self._secret,
            )
            label = f"pipeline {live.pipeline.name!r}, {f'task {name!r}' if name else 'its source'}"
            running.processes[name] = StartedTask(self.backend, node, label, setting)
        return running

    def _output(self, running: RunningPipeline, profiled: PipelineArrays, e: int) -> FlowTarget:
        placed = running.placed
        paced = not self.backend.shapes and placed.tail_node[e] != placed.head_node[e]
        return FlowTarget(
            address=self.backend.address(int(placed.head_node[e])),
            port=running.ports[e],
            rate_bps=float(placed.bandwidth_bps[e]) if paced else None,
            size_bytes=int(profiled.volume_bits[e] / 8.0) if running.live.code is None else None,
        )
