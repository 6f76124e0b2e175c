"""The tasks of the pipelines that run, as processes, with their flows, paths and rates."""

import json
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from secrets import token_urlsafe

import numpy as np

from edgewise.core.place import (
    MovePipeline,
    PipelineArrays,
    PlaceCommand,
    Placement,
    ReroutePipeline,
    StartPipeline,
    StopPipeline,
    arrays_of,
)
from edgewise.errors import RunError
from edgewise.runtime.backends.tasks import TaskBackend, WantedTask
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.running import RunningPipeline, StartedTask
from edgewise.runtime.pipelines.task import FlowTarget, TaskSetting
from edgewise.runtime.process.lifecycle import Lifecycle
from edgewise.runtime.testbeds import Flow, LocalTestbed, Testbed
from edgewise.runtime.testbeds.tasks import BedTasks

READY_S = 60.0  # a task must have loaded its code within


class PipelineTasks:
    """Tasks of the pipelines that run, each a process, and their flows; so is the source of each.

    Several pipelines may be started and ended at a time, from threads of their own.

    Args:
        backend: nodes and links.
        tasks: runs them; None: this machine, on these nodes.
    Attributes:
        running: by the pipeline's number.
    """

    def __init__(self, backend: Testbed, tasks: TaskBackend | None = None) -> None:
        self.backend = backend
        self.running: dict[int, RunningPipeline] = {}
        self._there = tasks or BedTasks(lambda: self.backend)
        self._tasks = Lifecycle(self._there, self._there.patience_s)
        self._paces_s: dict[int, float] = {}
        self._secret = token_urlsafe(24)  # by which tasks know each other
        self._changing = threading.Lock()  # `running`, and what the backend knows of its flows

    def carry_out(self, commands: Sequence[PlaceCommand], known: Mapping[int, LivePipeline]) -> None:
        """Start, move and end processes, and have flows take their paths; returns when all are ready.

        Raises:
            RunError: a task cannot start, or failed.
            OSError: no process can be started now.
        """
        for command in commands:
            match command:
                case StopPipeline(number):
                    self.stop(number)
                case MovePipeline(placed):
                    self.stop(placed.pipeline.id)
        with self._changing:
            fresh = [each for each in (self._take_up(command, known) for command in commands) if each]
            self.backend.apply(self.flows())
        for each in fresh:
            self._begin(each)
        for each in fresh:
            for process in each.processes.values():
                process.wait_ready(READY_S)
        with self._changing:
            for each in fresh:
                each.works = True
                for process in each.processes.values():
                    process.tell("go")
                self._tell_pace(each)
            self._tell_rates()

    def _take_up(self, command: PlaceCommand, known: Mapping[int, LivePipeline]) -> RunningPipeline | None:
        """Give a pipeline its new place; the processes of one that starts."""
        match command:
            case ReroutePipeline(placed):
                self.running[placed.pipeline.id].placed = placed
            case StartPipeline(placed) | MovePipeline(placed):
                self.running[placed.pipeline.id] = self._started(known[placed.pipeline.id], placed)
                return self.running[placed.pipeline.id]
        return None

    def pace(self, rates_fps: Mapping[int, float]) -> None:
        """Have sources send so many frames a second: where tasks share cores, this machine acts as their
        nodes do.

        Args:
            rates_fps: of all pipelines that are placed, by number; those that are left out go on unpaced.
        """
        paces_s = {number: 1.0 / fps if fps > 0.0 else math.inf for number, fps in rates_fps.items()}
        with self._changing:
            before, self._paces_s = self._paces_s, paces_s
            for number, pipeline in self.running.items():
                if pipeline.works and paces_s.get(number) != before.get(number):
                    self._tell_pace(pipeline)

    def _tell_pace(self, pipeline: RunningPipeline) -> None:
        pace_s = self._paces_s.get(pipeline.placed.pipeline.id, 0.0)
        pipeline.processes[""].tell(json.dumps({"pace_s": pace_s}))

    def stop(self, *numbers: int) -> None:
        """End the processes of pipelines that run, side by side, and their flows."""
        with self._changing:
            ended = [self.running.pop(number) for number in numbers if number in self.running]
        if ended:
            self._end([process for each in ended for process in each.processes.values()])
            with self._changing:
                self.backend.apply(self.flows())

    def set_link(self, link: int, up: bool) -> None:
        """A link is cut, or mended."""
        with self._changing:
            self.backend.set_link(link, up)
            self._tell_rates()

    def lay(self, backend: Testbed, down: Iterable[int]) -> None:
        """Have flows on another backend of the same nodes and links, of which some are down."""
        with self._changing:
            self.backend = backend
            for link in down:
                backend.set_link(link, up=False)
            backend.apply(self.flows())

    def _end(self, tasks: Iterable[StartedTask]) -> None:
        left = list(tasks)
        self._tasks.end_and_wait(each.handle for each in left)
        for each in left:
            each.hang_up()

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
            for process in pipeline.processes.values() if pipeline.works else ():
                process.tell(json.dumps(rates))

    def _started(self, live: LivePipeline, placed: Placement) -> RunningPipeline:
        """The processes of a pipeline and of its source, which are to be told what they are."""
        ports = [self.backend.port() for _ in placed.pipeline.head]
        running, names = RunningPipeline(live, placed, ports, {}), self.backend.network.names
        memory_bytes = placed.pipeline.memory_bytes
        for task, name in _tasks_of(live):
            code = () if live.code is None else (live.code,)
            wanted = WantedTask(
                f"pipeline-{placed.pipeline.id}-{f'task-{name}' if name else 'source'}",
                names[int(placed.node[task]) if name else placed.pipeline.source],
                float(memory_bytes[task]) if name else 0.0,
                code if name else live.frames,
            )
            label = f"pipeline {live.pipeline.name!r}, {f'task {name!r}' if name else 'its source'}"
            try:
                handle = self._tasks.start(wanted)
            except (OSError, RunError):
                self._end(running.processes.values())
                raise
            running.processes[name] = StartedTask(handle, label)
        return running

    def _begin(self, running: RunningPipeline) -> None:
        """Tell each process of a pipeline what it is, once all of them have an address.

        A task takes at least work / speed of its node, as profiled: so what runs it acts as slow nodes do.

        Raises:
            RunError: one of them has ended.
        """
        live, placed = running.live, running.placed
        where = {name: process.reach(self._there) for name, process in running.processes.items()}
        profiled = arrays_of(live.pipeline, placed.pipeline.id, self.backend.network)
        speed_ops = self.backend.network.speed_ops
        for task, name in _tasks_of(live):
            setting = TaskSetting(
                code=self._there.path(live.code) if name and live.code else None,
                function=live.functions.get(name) if name else None,
                frames=[] if name else [self._there.path(file) for file in live.frames],
                address=where[name],
                inputs=[running.ports[e] for e in np.flatnonzero(profiled.head == task)],
                outputs=[
                    self._output(running, profiled, e, where)
                    for e in np.flatnonzero(profiled.tail == task).tolist()
                ],
                least_s=float(profiled.work_ops[task] / speed_ops[int(placed.node[task])]) if name else 0.0,
                secret=self._secret,
            )
            running.processes[name].tell(json.dumps(setting))

    def _output(
        self, running: RunningPipeline, profiled: PipelineArrays, e: int, where: Mapping[str, str]
    ) -> FlowTarget:
        placed, order = running.placed, running.live.pipeline.graph.order()
        paced = not self.backend.shapes and placed.tail_node[e] != placed.head_node[e]
        return FlowTarget(
            address=where[order[profiled.head[e]]],
            port=running.ports[e],
            rate_bps=float(placed.bandwidth_bps[e]) if paced else None,
            size_bytes=int(profiled.volume_bits[e] / 8.0) if running.live.code is None else None,
        )


def _tasks_of(live: LivePipeline) -> list[tuple[int, str]]:
    """Number and name of each task; the source, which has no name, is task -1."""
    return list(enumerate(("", *live.pipeline.graph.order()), start=-1))
