"""Pipelines in a joint run: `PipelineWorld` knows how fast they are, `PlaceCore` where their tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from edgewise.arrays import Floats
from edgewise.core.place.events import (
    MovePipeline,
    PipelineEnded,
    PlaceCommand,
    PlacementDue,
    ReroutePipeline,
    StartPipeline,
    StopPipeline,
)
from edgewise.sim.joint.parts import Bystander, Rank
from edgewise.sim.pipelines import PipelineWorld


class PipelinesPart(Bystander):
    """Pipelines on nodes and links.

    Progress is counted only where it changes, so that other work's moments leave it to the last digit.

    Args:
        world: before its first pipeline; its core is read only here.
        tell: is told what flows have of links from now on, if anybody shares these.
    """

    commands = (StartPipeline, MovePipeline, ReroutePipeline, StopPipeline)

    def __init__(self, world: PipelineWorld, tell: Callable[[float, Floats], None] | None = None) -> None:
        self.world, self._tell = world, tell
        self._now_s = 0.0
        self._network = world.core.network  # of the last decision
        self._ended: list[Any] = []  # and was not told yet
        self._changed = False  # rates are those of earlier placements
        self._untold = False  # and so are those of flows

    def next_s(self) -> float:
        """When a pipeline comes or ends, or at once: those that wait may find room on changed nodes."""
        if self._changed:
            self.world.settle()
            self._changed = False
        if self._untold and self._tell is not None:
            self._tell(self._now_s, self.world.core.flows_bps())
        self._untold = False
        core = self.world.core
        waiting = len(core.running) < len(core.pipelines)
        if self._ended or (waiting and core.network is not self._network):
            return self._now_s
        return self.world.next_s()

    def advance(self, to_s: float) -> None:
        """Ends are known; nothing is done on the way."""
        self._now_s = to_s

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Pipelines with a task on a dead node stand still."""
        if node in (names := self.world.core.network.names):
            self._bring_up(now_s)
            self.world.down[names.index(node)] = not up
            self._changed = True

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Ends, submissions, and the decision on them."""
        if self.next_s() > now_s:
            return
        self._untold = True
        for event in (*self._ended, *self.world.happened(now_s)):
            yield Rank.ENDED if isinstance(event, PipelineEnded) else Rank.OPENED, event
        yield Rank.TICK, PlacementDue(now_s)
        self._ended, self._network = [], self.world.core.network

    def take(self, command: PlaceCommand, now_s: float) -> Iterable[Any]:
        """Carry a command out; tasks that move stand still for a while."""
        self._bring_up(now_s)
        self.world.take(command, now_s)
        self._changed = self._untold = True
        return ()

    def _bring_up(self, now_s: float) -> None:
        if self.world.now_s < now_s:
            self._ended += self.world.bring_up(now_s)
