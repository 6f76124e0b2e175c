"""Pipelines in a joint run: `PipelineWorld` knows how fast they are, `PlaceCore` where their tasks run."""

from collections.abc import Callable, Iterable
from typing import Any

from edgewise.arrays import Floats
from edgewise.core.place import (
    MovePipeline,
    PipelineEnded,
    PlaceCommand,
    PlacementDue,
    ReroutePipeline,
    StartPipeline,
    StopPipeline,
)
from edgewise.sim.images import Parts
from edgewise.sim.parts.part import Bystander, Rank
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
        self._ended: list[Any] = []  # and was not told yet
        self._changed = False  # rates are those of earlier placements
        self._untold = False  # and so are those of flows
        self._cores = world.core.network.cores  # that other work left when rates were found

    def next_s(self) -> float:
        """When a pipeline comes or ends, or at once: those that wait may find room on changed nodes."""
        if (cores := self.world.core.network.cores) is not self._cores:
            self._bring_up(self._now_s)
            self._cores, self._changed = cores, True
        if self._changed:
            self.world.settle()
            self._changed = False
        if self._untold and self._tell is not None:
            self._tell(self._now_s, self.world.core.flows_bps())
        self._untold = False
        if self._ended or self.world.core.due:
            return self._now_s
        return self.world.next_s()

    def advance(self, to_s: float) -> None:
        """Ends are known; nothing is done on the way."""
        self._now_s = to_s

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Pipelines with a task on a dead node stand still."""
        if node in (names := self.world.core.network.names):
            self._bring_up(now_s)
            self.world.change_node(names.index(node), up, now_s)
            self._changed = True

    def image_came(self, node: int, images: Parts, there_s: float) -> None:
        """See `NodeImages`; this is heard at the moment at which its last byte is sent."""
        self._bring_up(self._now_s)
        self.world.image_came(node, images, there_s)
        self._changed = True

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Ends, submissions, and the decision on them."""
        if self.next_s() > now_s:
            return
        self._untold = self._changed = True  # who goes on may have cores of one that has ended
        for event in (*self._ended, *self.world.happened(now_s)):
            yield Rank.ENDED if isinstance(event, PipelineEnded) else Rank.OPENED, event
        yield Rank.TICK, PlacementDue(now_s)
        self._ended = []

    def take(self, command: PlaceCommand, now_s: float) -> Iterable[Any]:
        """Carry a command out; tasks that move stand still for a while."""
        self._bring_up(now_s)
        self.world.take(command, now_s)
        self._changed = self._untold = True
        return ()

    def _bring_up(self, now_s: float) -> None:
        if self.world.now_s < now_s:
            self._ended += self.world.bring_up(now_s)
