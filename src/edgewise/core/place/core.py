"""`PlaceCore`: what happens to pipelines, links and nodes goes in, what is to be done comes out.

Simulation and test beds drive the same core: they tell it what happened, then that a decision is due, and
carry out its commands. Forbidden here: clocks, I/O, threads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.guard import Guard, begin
from edgewise.core.keyed import Key
from edgewise.core.place import (
    NetworkView,
    PipelineArrays,
    Placement,
    PlacementPolicy,
    free_of,
    throughput,
    validate,
)
from edgewise.core.shadow import Shadow
from edgewise.errors import PolicyError
from edgewise.model.network import Network

ENOUGH_FRAMES = 10  # before a measured time counts for more than the profile


class PipelineSubmitted(NamedTuple):
    """A pipeline waits from now on; `pipeline.id` is not that of another."""

    pipeline: PipelineArrays


class PipelineEnded(NamedTuple):
    """A pipeline, by its id, neither waits nor runs any more."""

    pipeline: int


class BandwidthChanged(NamedTuple):
    """A link has another bandwidth; 0: it is down."""

    link: int
    bandwidth_bps: float


class MemoryChanged(NamedTuple):
    """A node has another amount of memory for tasks; 0: it is gone."""

    node: int
    memory_bytes: float


class TaskMeasured(NamedTuple):
    """A task took `time_s` for a frame on a node, the mean of so many frames since it was started there."""

    pipeline: int
    task: int
    node: int
    frames: int
    time_s: float


class PlacementDue(NamedTuple):
    """All that happened up to now was told."""

    time_s: float


class StartPipeline(NamedTuple):
    """A pipeline that waited runs from now on."""

    placement: Placement


class MovePipeline(NamedTuple):
    """Tasks of a running pipeline go to other nodes."""

    placement: Placement


class ReroutePipeline(NamedTuple):
    """Flows of a running pipeline take other paths or have other rates; its tasks stay."""

    placement: Placement


class StopPipeline(NamedTuple):
    """A running pipeline, by its id, waits again: a node lacks the memory that its tasks hold."""

    pipeline: int


PlaceEvent = (
    PipelineSubmitted | PipelineEnded | BandwidthChanged | MemoryChanged | TaskMeasured | PlacementDue
)
PlaceCommand = StartPipeline | MovePipeline | ReroutePipeline | StopPipeline


class PlaceCore:
    """Decides where pipelines run, by a policy.

    Args:
        network: where they run.
        policy: begins anew.
        seed: of the policy's own draws.
        guard: asks the policy; what runs goes on as it is when there is no answer that can be carried out.
            None: what is wrong with the policy is raised.
    Attributes:
        network: as it is now; a link that is down has bandwidth 0.
        pipelines: all that wait or run, by id, in the order in which they came, with their work as measured.
        running: the placements in force, oldest first.
        shadow: watches what is decided, if there is one.
    """

    def __init__(
        self, network: Network, policy: PlacementPolicy, seed: int = 0, guard: Guard | None = None
    ) -> None:
        self.network, self.policy, self._guard, self._key = network, policy, guard, Key(seed)
        self.pipelines: dict[int, PipelineArrays] = {}
        self.running: dict[int, Placement] = {}
        self.shadow: Shadow[Mapping[int, Placement]] | None = None
        self._planned: dict[int, Placement] = {}  # with the rates that were decided
        policy.reset(network, self._key)

    def watch_with(self, policy: PlacementPolicy | None, guard: Guard | None = None) -> None:
        """Ask a second policy the same from now on, and compare; None: no longer.

        Raises:
            PolicyError: it cannot begin.
        """
        self.shadow = None
        if policy is not None:
            begin(policy, self.network, self._key)
            self.shadow = Shadow(policy, guard or Guard(), self._nodes_of, self._planned_of)

    def _nodes_of(self, placed: Mapping[int, Placement]) -> dict[Hashable, str]:
        names = self.network.names
        return {(i, task): names[n] for i, p in placed.items() for task, n in enumerate(p.node.tolist())}

    def _planned_of(self, placed: Mapping[int, Placement]) -> dict[str, float]:
        return {"planned_fps": float(throughput(self.network, list(placed.values())).sum())}

    def handle(self, event: PlaceEvent) -> list[PlaceCommand]:
        """Take note of an event; commands follow a decision and what takes memory from tasks.

        Raises:
            PolicyError: without a guard: the policy places a pipeline that neither waits nor runs.
            CapacityError, ValueError: without a guard: its answer cannot be carried out, see `validate`.
        """
        match event:
            case PlacementDue(time_s):
                return self._decide(self.view(time_s))
            case PipelineSubmitted(pipeline):
                self.pipelines[pipeline.id] = pipeline
            case PipelineEnded(number):
                self.pipelines.pop(number, None)
                self.running.pop(number, None)
                self._planned.pop(number, None)
            case BandwidthChanged(link, bandwidth_bps):
                changed = _changed(self.network.bandwidth_bps, link, bandwidth_bps)
                self.network = replace(self.network, bandwidth_bps=changed)
            case MemoryChanged(node, memory_bytes):
                changed = _changed(self.network.memory_bytes, node, memory_bytes)
                self.network = replace(self.network, memory_bytes=changed)
                return self._evict()
            case TaskMeasured():
                self._note(event)
        return []

    def view(self, now_s: float) -> NetworkView:
        """What a policy sees now."""
        running, memory, link = self._in_force()
        waiting = tuple(pipeline for number, pipeline in self.pipelines.items() if number not in self.running)
        return NetworkView(now_s, self.network, memory, link, waiting, tuple(running))

    def validate(self) -> None:
        """Check that what runs is known, and that it fits on nodes and links; see `core.place.validate`."""
        assert self.running.keys() == self._planned.keys() <= self.pipelines.keys()
        validate(self.network, self._in_force()[0])

    def _in_force(self) -> tuple[list[Placement], Floats, Floats]:
        """What runs, at rates that its links still carry: where they do not, flows share a link by rate.

        Also what that leaves, as `free_of`.
        """
        running = list(self._planned.values())
        memory, left_bps = free_of(self.network, running)
        short = left_bps < 0
        if short.any():
            bandwidth = self.network.bandwidth_bps
            share = np.divide(bandwidth, bandwidth - left_bps, out=np.ones_like(left_bps), where=short)
            running = [replace(p, bandwidth_bps=p.bandwidth_bps * _least(share, p)) for p in running]
            memory, left_bps = free_of(self.network, running)
        return running, memory, left_bps

    def _decide(self, view: NetworkView) -> list[PlaceCommand]:
        if self._guard is None:
            decided = _checked(self.policy, view)
        else:
            decided = self._guard.ask(lambda: _checked(self.policy, view), dict[int, Placement])
        self._planned |= decided
        before, self.running = self.running, _by_id(view.running) | decided
        if (shadow := self.shadow) is not None:
            known = _by_id(view.running)
            shadow.watch(lambda: known | _checked(shadow.policy, view), self.running, view.now_s)
        commands = (_command(before.get(number), placed) for number, placed in self.running.items())
        return [command for command in commands if command is not None]

    def _note(self, measured: TaskMeasured) -> None:
        """Work is what it was measured to be, time of a frame x speed of the node, once that is certain."""
        pipeline = self.pipelines.get(measured.pipeline)
        if pipeline is None or measured.frames < ENOUGH_FRAMES:
            return
        work_ops = measured.time_s * float(self.network.speed_ops[measured.node])
        pipeline = pipeline._replace(work_ops=_changed(pipeline.work_ops, measured.task, work_ops))
        self.pipelines[pipeline.id] = pipeline
        if pipeline.id in self._planned:
            self._planned[pipeline.id] = replace(self._planned[pipeline.id], pipeline=pipeline)

    def _evict(self) -> list[PlaceCommand]:
        """Of pipelines with tasks on a node that lacks memory, those that started last wait again."""
        stopped: list[PlaceCommand] = []
        for number, placed in reversed(list(self.running.items())):
            memory, _ = free_of(self.network, list(self.running.values()))
            if (memory[placed.node] < 0).any():
                del self.running[number], self._planned[number]
                stopped.append(StopPipeline(number))
        return stopped


def _checked(policy: PlacementPolicy, view: NetworkView) -> dict[int, Placement]:
    """What a policy decides, by pipeline.

    Raises:
        PolicyError, CapacityError, ValueError: it cannot be carried out.
    """
    decided, known = _by_id(policy.decide(view)), _by_id(view.running)
    if unknown := decided.keys() - known.keys() - {pipeline.id for pipeline in view.waiting}:
        raise PolicyError(
            f"policy {policy.name!r} placed pipeline {min(unknown)}, which neither waits nor runs"
        )
    validate(view.network, list((known | decided).values()))
    return decided


def _by_id(placements: Sequence[Placement]) -> dict[int, Placement]:
    return {p.pipeline.id: p for p in placements}


def _changed(values: Floats, at: int, value: float) -> Floats:
    made = values.copy()
    made[at] = value
    return made


def _least(share: Floats, placed: Placement) -> Floats:
    """(E,) the least share along each edge's path."""
    return np.array([share[placed.path(e)].min(initial=1.0) for e in range(len(placed.bandwidth_bps))])


def _command(before: Placement | None, now: Placement) -> PlaceCommand | None:
    if before is None:
        return StartPipeline(now)
    if before.node.tolist() != now.node.tolist():
        return MovePipeline(now)
    return None if before is now or _flows(before) == _flows(now) else ReroutePipeline(now)


def _flows(placed: Placement) -> tuple[bytes, ...]:
    """What paths and rates are told by; bytes are compared in a tenth of the time that arrays take."""
    return placed.start.tobytes(), placed.links.tobytes(), placed.bandwidth_bps.tobytes()
