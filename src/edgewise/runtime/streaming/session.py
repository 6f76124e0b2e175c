"""A session of streaming jobs on a backend: decide, start, shape, watch, decide again.

The scheduler is any placement policy; it sees the same view as in simulation. When a job comes or goes or a
link changes it decides anew. Flows that only change their path or rate go on while it happens; a job whose
tasks move is started anew on its new nodes, and frames on their way are lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgewise.core.keyed import Key
from edgewise.core.placement import (
    JobArrays,
    NetworkView,
    Placement,
    PlacementPolicy,
    arrays_of,
    free_of,
    throughput,
    validate,
)
from edgewise.errors import RunError, ScenarioError
from edgewise.runtime.streaming.job import LiveJob
from edgewise.runtime.streaming.process import Process
from edgewise.runtime.streaming.task import PERIOD_S, Output, Setting
from edgewise.runtime.testbeds.base import Backend, Flow
from edgewise.runtime.testbeds.local import LocalBackend

READY_S = 60.0  # a task must have loaded its code within
SOURCE = "source"  # name of the process that sends frames


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
class JobRates:
    """One job over a measurement.

    Attributes:
        name: of the job.
        nodes: task → node name.
        planned_fps: what `core.placement.throughput` says of its placement.
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
class _Running:
    """A job and its processes; the source is one of them."""

    live: LiveJob
    placed: Placement
    ports: list[int]
    processes: dict[str, Process]


class StreamSession:
    """Streaming jobs on a backend under a placement policy. Use it with `with`, or call `close`.

    Args:
        backend: nodes and links.
        policy: is reset for the backend's network.
        seed: of the policy's own draws.
        emulate: a task takes at least work / speed of its node, so that this machine acts as the slow nodes
            of the plan.
    """

    def __init__(
        self, backend: Backend, policy: PlacementPolicy, seed: int = 0, emulate: bool = True
    ) -> None:
        self.backend, self.policy, self.emulate = backend, policy, emulate
        self.network = backend.network
        self.running: dict[int, _Running] = {}
        self._jobs: dict[int, LiveJob] = {}
        self._waiting: list[JobArrays] = []
        policy.reset(self.network, Key(seed))
        self._began_s = time.monotonic()

    def __enter__(self) -> StreamSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, jobs: Sequence[LiveJob]) -> None:
        """Add jobs and decide; those that find no room wait.

        Raises:
            ScenarioError: a job's source is no node.
            RunError: a task cannot start.
        """
        for live in jobs:
            number = len(self._jobs)
            self._waiting.append(arrays_of(live.job, number, self.network))
            self._jobs[number] = live
        self.decide()

    def finish(self, name: str) -> None:
        """End a running job, and decide anew.

        Raises:
            ScenarioError: none of that name runs.
        """
        found = [number for number, r in self.running.items() if r.live.job.name == name]
        if not found:
            raise ScenarioError(f"job {name!r}: does not run; running: {', '.join(self.names()) or 'none'}")
        for process in self.running.pop(found[0]).processes.values():
            process.stop()
        self.decide()

    def names(self) -> list[str]:
        """Jobs that run."""
        return [r.live.job.name for r in self.running.values()]

    def set_link(self, link: int, up: bool) -> None:
        """A link fails or returns; what runs is planned anew around it."""
        bandwidth = self.network.bandwidth_bps.copy()
        bandwidth[link] = self.backend.network.bandwidth_bps[link] if up else 0.0
        self.network = replace(self.network, bandwidth_bps=bandwidth)
        self.backend.set_link(link, up)
        self.decide()

    def decide(self) -> None:
        """Ask the policy, check its answer, and carry it out.

        Raises:
            CapacityError: the policy exceeds a node or link.
            RunError: a task cannot start.
        """
        placements = [self._fitting(r.placed) for r in self.running.values()]
        memory, link = free_of(self.network, placements)
        view = NetworkView(
            time.monotonic() - self._began_s,
            self.network,
            memory,
            np.maximum(link, 0.0),
            tuple(self._waiting),
            tuple(placements),
        )
        decided = {p.job.id: p for p in self.policy.place(view)}
        now = {p.job.id: p for p in placements} | decided
        validate(self.network, list(now.values()))
        self._carry_out(decided)
        self._waiting = [job for job in self._waiting if job.id not in self.running]

    def measure(self, seconds: float, settle_s: float = 1.0) -> tuple[JobRates, ...]:
        """What jobs and flows do, over `seconds` after a while of settling.

        Raises:
            RunError: a task failed.
        """
        time.sleep(settle_s)
        before = self._reports()
        time.sleep(seconds)
        after = self._reports()
        planned = throughput(self.network, [r.placed for r in self.running.values()])
        return tuple(
            self._rates(number, float(fps), before[number], after[number])
            for number, fps in zip(self.running, planned, strict=True)
        )

    def close(self) -> None:
        """End all processes and remove the backend's traces."""
        for job in self.running.values():
            for process in job.processes.values():
                process.stop()
        self.running.clear()
        self.backend.close()

    def _fitting(self, placed: Placement) -> Placement:
        """The placement, with nothing for flows over links that are down."""
        down = self.network.bandwidth_bps[placed.links] <= 0
        cut = [bool(down[a:b].any()) for a, b in zip(placed.start, placed.start[1:], strict=False)]
        return replace(placed, bandwidth_bps=np.where(cut, 0.0, placed.bandwidth_bps))

    def _carry_out(self, decided: Mapping[int, Placement]) -> None:
        fresh: list[_Running] = []
        for number, placed in decided.items():
            old = self.running.get(number)
            if old is not None and (old.placed.node == placed.node).all():
                old.placed = placed
                continue
            if old is not None:
                for process in old.processes.values():
                    process.stop()
            self.running[number] = self._started(self._jobs[number], placed)
            fresh.append(self.running[number])
        self.backend.apply([flow for job in self.running.values() for flow in self._flows(job)])
        for job in fresh:
            for process in job.processes.values():
                process.wait_ready(READY_S)
            for process in job.processes.values():
                process.tell("go")
        self._tell_rates()

    def _flows(self, job: _Running) -> list[Flow]:
        """Flows between nodes; the bandwidth of the plan is what the network manager enforces."""
        p = job.placed
        return [
            Flow(port, int(u), int(v), tuple(p.path(e).tolist()), float(p.bandwidth_bps[e]))
            for e, (port, u, v) in enumerate(zip(job.ports, p.tail_node, p.head_node, strict=True))
            if u != v
        ]

    def _tell_rates(self) -> None:
        if not isinstance(self.backend, LocalBackend):
            return
        rates = {
            str(flow.port): self.backend.sender_rate_bps(flow.port)
            for job in self.running.values()
            for flow in self._flows(job)
        }
        for job in self.running.values():
            for process in job.processes.values():
                process.tell_json(rates)

    def _started(self, live: LiveJob, placed: Placement) -> _Running:
        ports = [self.backend.port() for _ in placed.job.head]
        order = live.job.graph.order()
        job = _Running(live, placed, ports, {})
        for task in range(-1, len(order)):
            node = placed.job.source if task < 0 else int(placed.node[task])
            name = SOURCE if task < 0 else order[task]
            label = f"job {live.job.name!r}, {'its source' if task < 0 else f'task {name!r}'}"
            job.processes[_key(task, order)] = Process(
                self.backend, node, label, self._setting(live, placed, ports, task, order)
            )
        return job

    def _setting(
        self, live: LiveJob, placed: Placement, ports: Sequence[int], task: int, order: Sequence[str]
    ) -> Setting:
        job = placed.job
        node = job.source if task < 0 else int(placed.node[task])
        ins = [ports[e] for e in range(len(job.head)) if task >= 0 and job.head[e] == task]
        outs = [self._output(placed, ports, e) for e in range(len(job.head)) if job.tail[e] == task]
        least_s = job.work_ops[task] / self.network.speed_ops[node] if task >= 0 and self.emulate else 0.0
        return Setting(
            code=None if task < 0 else str(live.code),
            function=None if task < 0 else live.functions[order[task]],
            frames=[str(frame) for frame in live.frames] if task < 0 else [],
            address=self.backend.address(node),
            inputs=ins,
            outputs=outs,
            least_s=float(least_s),
        )

    def _output(self, placed: Placement, ports: Sequence[int], e: int) -> Output:
        same = placed.tail_node[e] == placed.head_node[e]
        paced = not self.backend.shapes and not same
        return Output(
            address=self.backend.address(int(placed.head_node[e])),
            port=ports[e],
            rate_bps=float(placed.bandwidth_bps[e]) if paced else None,
        )

    def _reports(self) -> dict[int, dict[str, dict[str, float]]]:
        try:
            return {
                number: {name: process.report() for name, process in job.processes.items()}
                for number, job in self.running.items()
            }
        except RunError:
            time.sleep(4 * PERIOD_S)  # whoever failed first may not have said so yet
            for job in self.running.values():
                for process in job.processes.values():
                    if process.culprit:
                        process.check()
            raise

    def _rates(
        self,
        number: int,
        planned_fps: float,
        before: Mapping[str, dict[str, float]],
        after: Mapping[str, dict[str, float]],
    ) -> JobRates:
        job = self.running[number]
        order, p = job.live.job.graph.order(), job.placed

        def gained(task: str, what: str) -> float:
            return after[task].get(what, 0.0) - before[task].get(what, 0.0)

        def rate(task: str, what: str) -> float:
            return gained(task, what) / max(gained(task, "at_s"), 1e-9)

        last = [name for i, name in enumerate(order) if i not in p.job.tail]
        flows = [
            FlowRate(
                f"{SOURCE if p.job.tail[e] < 0 else order[p.job.tail[e]]}->{order[p.job.head[e]]}",
                tuple(p.path(e).tolist()),
                float(p.job.volume_bits[e]) * planned_fps,
                float(p.bandwidth_bps[e]),
                8.0 * rate(order[p.job.head[e]], str(job.ports[e])),
            )
            for e in range(len(p.job.head))
            if p.tail_node[e] != p.head_node[e]
        ]
        return JobRates(
            job.live.job.name,
            {name: self.network.names[int(p.node[i])] for i, name in enumerate(order)},
            planned_fps,
            min(rate(name, "frames") for name in last),
            {name: gained(name, "busy_s") / max(gained(name, "frames"), 1.0) for name in order},
            tuple(flows),
        )


def _key(task: int, order: Sequence[str]) -> str:
    """A task may itself be called "source"; the process that sends frames has no name of a task."""
    return "" if task < 0 else order[task]
