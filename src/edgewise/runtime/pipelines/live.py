"""A pipeline that can run, its processes on a test bed, and what it and its flows do beside the plan."""

import contextlib
import json
import math
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

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
from edgewise.errors import RunError, ScenarioError
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.pipelines import Pipeline
from edgewise.runtime.pipelines.task import LOST, PERIOD_S, FlowTarget, TaskSetting
from edgewise.runtime.testbeds import Flow, LocalTestbed, Testbed
from edgewise.workloads.task_code import functions_of

READY_S = 60.0  # a task must have loaded its code within
SOURCE = "source"  # in names of flows: the process that sends frames


@dataclass(frozen=True, slots=True)
class LivePipeline:
    """What a session needs of a pipeline.

    Attributes:
        pipeline: tasks, edges, source; from the profiler.
        code: path of a Python file with a function for each task; None: stand-ins take the time and send the
            bytes that the pipeline says.
        functions: task name → function name.
        frames: files that the source sends in turn.
    """

    pipeline: Pipeline
    code: str | None = None
    functions: dict[str, str] = field(default_factory=dict)
    frames: tuple[str, ...] = ()


def live_pipeline(pipeline: Pipeline, spec: PipelineSpec) -> LivePipeline:
    """A pipeline with its code and the files that its source sends, checked.

    Raises:
        ScenarioError: tasks and functions do not match, or there is no file to send.
    """
    functions = functions_of(spec)
    if not spec.inputs:
        raise ScenarioError(f"pipeline {spec.name!r}: inputs is empty; name a file that its source sends")
    missing = [frame for frame in spec.inputs if not Path(frame).is_file()]
    if missing:
        raise ScenarioError(f"pipeline {spec.name!r}: inputs: {missing[0]} is no file; check the path")
    frames = tuple(str(Path(frame).resolve()) for frame in spec.inputs)
    return LivePipeline(pipeline, str(Path(spec.code or "").resolve()), functions, frames)


class StartedTask:
    """One process of `edgewise.runtime.pipelines.task`.

    Args:
        backend, node: where it runs.
        label: for messages.
        setting: what it is told first.
    Attributes:
        latest: its newest report, however old; empty before the first.
        died: it ended without a word, as what is killed does.
    """

    def __init__(self, backend: Testbed, node: int, label: str, setting: TaskSetting) -> None:
        self.label = label
        command = backend.command(node, [sys.executable, "-m", "edgewise.runtime.pipelines.task"])
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.latest: dict[str, float] = {}
        self._error: str | None = None
        self.died = False
        self._ready = threading.Event()
        self._fresh = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self.tell(json.dumps(setting))

    def tell(self, line: str) -> None:
        """A line on its standard input."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # it has ended; `report` says why
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()

    def wait_ready(self, timeout_s: float) -> None:
        """Until it listens.

        Raises:
            RunError: it failed, or takes too long.
        """
        if not self._ready.wait(timeout_s):
            raise RunError(f"{self.label}: did not start within {timeout_s:g} s; load less at import")
        self.check()

    def report(self) -> dict[str, float]:
        """Its newest report, not older than a few periods: frames, busy_s, at_s and bytes by port.

        Raises:
            RunError: it failed, or no longer says anything.
        """
        self._fresh.clear()
        if not self._fresh.wait(20 * PERIOD_S):
            self.check()
            raise RunError(f"{self.label}: says nothing any more; the machine may be too busy")
        self.check()
        return self.latest

    @property
    def culprit(self) -> bool:
        """Whether it failed by itself, not because a neighbour did."""
        return self._error is not None and not self._error.startswith(LOST)

    @property
    def said(self) -> str | None:
        """Which task it is and why it has ended; None while it has not."""
        return None if self._error is None else f"{self.label}: {self._error}"

    def stop(self) -> None:
        """End it, by closing its input and then by force."""
        with contextlib.suppress(OSError):
            if self._popen.stdin is not None:
                self._popen.stdin.close()
        try:
            self._popen.wait(0.5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def check(self) -> None:
        """Raise RunError when it has failed."""
        if self.said is not None:
            raise RunError(self.said)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            said: dict[str, Any] = json.loads(line)
            if "error" in said:
                self._error = said["error"]
            elif "at_s" in said:
                self.latest = said
            self._ready.set()
            self._fresh.set()
        if self._error is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(1.0)
            self.died = True
            self._error = f"ended with status {self._popen.returncode}"
        self._ready.set()
        self._fresh.set()


@dataclass(frozen=True, slots=True)
class FlowRate:
    """One flow between two nodes over a measurement.

    Attributes:
        edge: "tail->head".
        path: links.
        planned_bps: volume of a frame times the planned throughput.
        allowed_bps: bandwidth in the plan.
        measured_bps: payload that arrived.
    """

    edge: str
    path: tuple[int, ...]
    planned_bps: float
    allowed_bps: float
    measured_bps: float


@dataclass(frozen=True, slots=True)
class PipelineRates:
    """One pipeline over a measurement.

    Attributes:
        name: of the pipeline.
        nodes: task → node name.
        planned_fps: what `core.place.throughput` says of its placement.
        measured_fps: frames that its last tasks finished.
        busy_s: task → mean time of a frame in its function.
        flows: between different nodes.
    """

    name: str
    nodes: Mapping[str, str]
    planned_fps: float
    measured_fps: float
    busy_s: Mapping[str, float]
    flows: tuple[FlowRate, ...]


@dataclass(slots=True)
class RunningPipeline:
    """A pipeline and its processes by task; that of the source has no name, for a task may be called so.

    Attributes:
        works: all of its processes were told to go, and take rates from then on.
    """

    live: LivePipeline
    placed: Placement
    ports: list[int]
    processes: dict[str, StartedTask]
    works: bool = False

    def edge(self, e: int) -> str:
        """Name of an edge, "tail->head"."""
        order, pipeline = self.live.pipeline.graph.order(), self.placed.pipeline
        return f"{SOURCE if pipeline.tail[e] < 0 else order[pipeline.tail[e]]}->{order[pipeline.head[e]]}"


def rates_of(
    pipeline: RunningPipeline,
    names: Sequence[str],
    planned_fps: float,
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
) -> PipelineRates:
    """What a pipeline did between two reports of its processes.

    Args:
        pipeline: as it runs now.
        names: of the nodes.
        planned_fps: throughput of its placement.
        before, after: by task.
    """
    order, p = pipeline.live.pipeline.graph.order(), pipeline.placed

    def gained(task: str, what: str) -> float:
        return after[task].get(what, 0.0) - before[task].get(what, 0.0)

    def rate(task: str, what: str) -> float:
        return gained(task, what) / max(gained(task, "at_s"), PERIOD_S)

    last = [name for i, name in enumerate(order) if i not in p.pipeline.tail]
    flows = [
        FlowRate(
            pipeline.edge(e),
            tuple(p.path(e).tolist()),
            float(p.pipeline.volume_bits[e]) * planned_fps,
            float(p.bandwidth_bps[e]),
            8.0 * rate(order[p.pipeline.head[e]], str(pipeline.ports[e])),
        )
        for e in range(len(p.pipeline.head))
        if p.tail_node[e] != p.head_node[e]
    ]
    return PipelineRates(
        pipeline.live.pipeline.name,
        {name: names[int(p.node[i])] for i, name in enumerate(order)},
        planned_fps,
        min(rate(name, "frames") for name in last),
        {name: gained(name, "busy_s") / max(gained(name, "frames"), 1.0) for name in order},
        tuple(flows),
    )


class PipelineProcesses:
    """A process for each task of the pipelines that run, and for the source of each.

    Several pipelines may be started and ended at a time, from threads of their own.

    Args:
        backend: nodes and links.
    Attributes:
        running: by the pipeline's number.
    """

    def __init__(self, backend: Testbed) -> None:
        self.backend = backend
        self.running: dict[int, RunningPipeline] = {}
        self._paces_s: dict[int, float] = {}
        self._secret = token_urlsafe(24)  # by which tasks know each other
        self._changing = threading.Lock()  # `running`, and what the backend knows of its flows

    def carry_out(self, commands: Sequence[PlaceCommand], known: Mapping[int, LivePipeline]) -> None:
        """Start, move and end processes, and have flows take their paths; returns when all are ready.

        Raises:
            RunError: a task cannot start, or failed.
            OSError: this machine starts no process now.
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

    def stop(self, number: int) -> None:
        """End the processes of a pipeline that runs."""
        with self._changing:
            ended = self.running.pop(number, None)
        for process in ended.processes.values() if ended else ():
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
            for process in pipeline.processes.values() if pipeline.works else ():
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
            try:
                running.processes[name] = StartedTask(self.backend, node, label, setting)
            except OSError:
                for process in running.processes.values():
                    process.stop()
                raise
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
