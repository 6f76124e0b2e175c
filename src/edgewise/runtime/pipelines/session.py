"""A session of pipelines on a backend: decide, start, shape, watch, decide again.

The scheduler is any placement policy; it sees the same view as in simulation. When a job comes or goes or a
link changes it decides anew. Flows that only change their path or rate go on while it happens; a job whose
tasks move is started anew on its new nodes, and frames on their way are lost.

With a `MetaStore` all of it is kept: a session that was killed is taken up with `resume`, and every decision
takes the work of tasks as it was measured instead of as it was profiled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from secrets import token_urlsafe

import numpy as np

from edgewise.core.keyed import Key
from edgewise.core.placement import (
    NetworkView,
    PipelineArrays,
    Placement,
    PlacementPolicy,
    arrays_of,
    free_of,
    throughput,
    validate,
)
from edgewise.errors import RunError, ScenarioError
from edgewise.runtime.pipelines.live import (
    SOURCE,
    LivePipeline,
    PipelineRates,
    RunningPipeline,
    process_key,
    rates_of,
)
from edgewise.runtime.pipelines.meta import ENDED, RUNNING, MetaStore, Monitor, link_status
from edgewise.runtime.pipelines.process import StartedTask
from edgewise.runtime.pipelines.task import PERIOD_S, FlowTarget, TaskSetting
from edgewise.runtime.testbeds.base import Flow, LocalTestbed, Testbed

ENOUGH_FRAMES = 10  # before a measured time counts for more than the profile
READY_S = 60.0  # a task must have loaded its code within


class PipelineSession:
    """Streaming jobs on a backend under a placement policy. Use it with `with`, or call `close`.

    Args:
        backend: nodes and links.
        policy: is reset for the backend's network.
        seed: of the policy's own draws.
        emulate: a task takes at least work / speed of its node, so that this machine acts as the slow nodes
            of the plan.
        meta: keeps what is decided and seen; None keeps nothing.
    """

    def __init__(
        self,
        backend: Testbed,
        policy: PlacementPolicy,
        seed: int = 0,
        emulate: bool = True,
        meta: MetaStore | None = None,
    ) -> None:
        self.backend, self.policy, self.emulate, self.meta = backend, policy, emulate, meta
        self.network = backend.network
        self.running: dict[int, RunningPipeline] = {}
        self._jobs: dict[int, LivePipeline] = {}
        self._profiled: dict[int, PipelineArrays] = {}
        self._waiting: list[int] = []
        policy.reset(self.network, Key(seed))
        self._monitor: Monitor | None = None
        self._secret = token_urlsafe(24)  # by which tasks know each other
        self._began_s = time.monotonic()

    def __enter__(self) -> PipelineSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, jobs: Sequence[LivePipeline]) -> None:
        """Add jobs and decide; those that find no room wait.

        Raises:
            ScenarioError: a job's source is no node.
            RunError: a task cannot start.
        """
        for live in jobs:
            self.network.node(live.job.source)  # refused before it is kept
            self._add(len(self._jobs) if self.meta is None else self.meta.add_job(live), live)
        self.decide()

    def resume(self) -> list[str]:
        """Take up the jobs that an earlier session on the same database left; links that were down stay so.

        Returns:
            names of these jobs.
        Raises:
            ScenarioError: a job's source is no node.
            RunError: the session keeps nothing, or a task cannot start.
        """
        if self.meta is None:
            raise RunError("resume: this session keeps nothing; give it a MetaStore")
        left = self.meta.unfinished()
        for number, live in left:
            self._add(number, live)
        for row in self.meta.links():
            if not row.up and {row.one, row.other} <= set(self.network.names):
                self._switch(self.network.link(row.one, row.other), up=False)
        self.decide()
        return [live.job.name for _, live in left]

    def _add(self, number: int, live: LivePipeline) -> None:
        self._profiled[number] = arrays_of(live.job, number, self.network)
        self._jobs[number] = live
        self._waiting.append(number)

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
        self._note(found[0], ENDED)
        self.decide()

    def names(self) -> list[str]:
        """Jobs that run."""
        return [r.live.job.name for r in self.running.values()]

    def set_link(self, link: int, up: bool) -> None:
        """A link fails or returns; what runs is planned anew around it."""
        self._switch(link, up)
        self.decide()

    def _switch(self, link: int, up: bool) -> None:
        bandwidth = self.network.bandwidth_bps.copy()
        bandwidth[link] = self.backend.network.bandwidth_bps[link] if up else 0.0
        self.network = replace(self.network, bandwidth_bps=bandwidth)
        self.backend.set_link(link, up)
        if self.meta is not None:
            self.meta.put_link(link_status(self, link, 0.0))

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
            tuple(self._measured(number) for number in self._waiting),
            tuple(placements),
        )
        decided = {p.pipeline.id: p for p in self.policy.place(view)}
        now = {p.pipeline.id: p for p in placements} | decided
        validate(self.network, list(now.values()))
        self._carry_out(decided)
        self._waiting = [number for number in self._waiting if number not in self.running]
        for number in self.running:
            self._note(number, RUNNING)
        if self.meta is not None and self._monitor is None:
            self._monitor = Monitor(self, self.meta.file)

    def measure(self, seconds: float, settle_s: float = 1.0) -> tuple[PipelineRates, ...]:
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
            rates_of(job, self.network.names, float(fps), before[number], after[number])
            for (number, job), fps in zip(self.running.items(), planned, strict=True)
        )

    def close(self) -> None:
        """End all processes and jobs, and remove the backend's traces."""
        if self._monitor is not None:
            self._monitor.stop()
        for job in self.running.values():
            for process in job.processes.values():
                process.stop()
        for number in self._jobs:
            self._note(number, ENDED)
        self.running.clear()
        self.backend.close()

    def _note(self, number: int, state: str) -> None:
        if self.meta is not None:
            self.meta.set_state(number, state)

    def _measured(self, number: int) -> PipelineArrays:
        """The job with the work its tasks turned out to be, time of a frame x speed of the node."""
        job = self._profiled[number]
        if self.meta is None:
            return job
        order, work = self._jobs[number].job.graph.order(), job.work_ops.copy()
        for row in self.meta.tasks(number):
            if row.frames >= ENOUGH_FRAMES and row.node in self.network.names:
                speed = self.network.speed_ops[self.network.node(row.node)]
                work[order.index(row.name)] = row.time_s * speed
        return job._replace(work_ops=work)

    def _fitting(self, placed: Placement) -> Placement:
        """The placement, with nothing for flows over links that are down and work as it was measured."""
        down = self.network.bandwidth_bps[placed.links] <= 0
        cut = [bool(down[a:b].any()) for a, b in zip(placed.start, placed.start[1:], strict=False)]
        return replace(
            placed,
            pipeline=self._measured(placed.pipeline.id),
            bandwidth_bps=np.where(cut, 0.0, placed.bandwidth_bps),
        )

    def _carry_out(self, decided: Mapping[int, Placement]) -> None:
        fresh: list[RunningPipeline] = []
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

    def _flows(self, job: RunningPipeline) -> list[Flow]:
        """Flows between nodes; the bandwidth of the plan is what the network manager enforces."""
        p = job.placed
        return [
            Flow(port, int(u), int(v), tuple(p.path(e).tolist()), float(p.bandwidth_bps[e]))
            for e, (port, u, v) in enumerate(zip(job.ports, p.tail_node, p.head_node, strict=True))
            if u != v
        ]

    def _tell_rates(self) -> None:
        if not isinstance(self.backend, LocalTestbed):
            return
        rates = {
            str(flow.port): self.backend.sender_rate_bps(flow.port)
            for job in self.running.values()
            for flow in self._flows(job)
        }
        for job in self.running.values():
            for process in job.processes.values():
                process.tell_json(rates)

    def _started(self, live: LivePipeline, placed: Placement) -> RunningPipeline:
        ports = [self.backend.port() for _ in placed.pipeline.head]
        order = live.job.graph.order()
        job = RunningPipeline(live, placed, ports, {})
        for task in range(-1, len(order)):
            node = placed.pipeline.source if task < 0 else int(placed.node[task])
            name = SOURCE if task < 0 else order[task]
            label = f"job {live.job.name!r}, {'its source' if task < 0 else f'task {name!r}'}"
            job.processes[process_key(task, order)] = StartedTask(
                self.backend, node, label, self._setting(live, placed, ports, task, order)
            )
        return job

    def _setting(
        self, live: LivePipeline, placed: Placement, ports: Sequence[int], task: int, order: Sequence[str]
    ) -> TaskSetting:
        job = self._profiled[placed.pipeline.id]  # a slow node is as slow as the profile says
        node = job.source if task < 0 else int(placed.node[task])
        ins = [ports[e] for e in range(len(job.head)) if task >= 0 and job.head[e] == task]
        outs = [self._output(placed, ports, e) for e in range(len(job.head)) if job.tail[e] == task]
        least_s = job.work_ops[task] / self.network.speed_ops[node] if task >= 0 and self.emulate else 0.0
        return TaskSetting(
            code=None if task < 0 else str(live.code),
            function=None if task < 0 else live.functions[order[task]],
            frames=[str(frame) for frame in live.frames] if task < 0 else [],
            address=self.backend.address(node),
            inputs=ins,
            outputs=outs,
            least_s=float(least_s),
            secret=self._secret,
        )

    def _output(self, placed: Placement, ports: Sequence[int], e: int) -> FlowTarget:
        same = placed.tail_node[e] == placed.head_node[e]
        paced = not self.backend.shapes and not same
        return FlowTarget(
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
