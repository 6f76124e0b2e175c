"""Streaming pipelines over time: arrivals, waiting, completion, re-planning; one judge for all policies.

Between two events every running pipeline makes progress at the throughput that the judge computes from the
placements in force. A pipeline that starts, also on a node that is back, waits for the images that its nodes
fetch, and then takes its `start_s`. One whose tasks move to other nodes waits for images, and then stands
still for `migration_s`; one whose frames meet a dead node until that is back or they go elsewhere. Who runs
for a time does not run meanwhile, but for `migration_s`, which counts, as in ENTS.
What runs where is decided by `core.place.core`, as on a test bed and in a joint run (`PipelinesPart`).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.place import (
    PUBLISHED,
    MovePipeline,
    PipelineEnded,
    PipelineSubmitted,
    PlaceCommand,
    PlaceEvent,
    Placement,
    PlacementDue,
    PlacementPolicy,
    ReroutePipeline,
    Reserving,
    StartPipeline,
    StopPipeline,
    arrays_of,
    nodes_of,
    throughput,
)
from edgewise.core.place.core import PlaceCore
from edgewise.model.pipelines import Network, Pipeline
from edgewise.sim.images import NodeImages, Parts
from edgewise.sim.parts.outcomes import DONE, PipelineRecord, PipelineRun
from edgewise.sim.parts.part import Bystander, Rank


def simulate_streaming(
    network: Network,
    pipelines: Sequence[Pipeline],
    policy: PlacementPolicy,
    seed: int = 0,
    migration_s: float = 2.0,
    reserving: Reserving = PUBLISHED,
) -> PipelineRun:
    """Run pipelines under a policy until none is left that can still make progress.

    Args:
        network: where they run.
        pipelines: in any order.
        policy: is reset first.
        seed: of the policy's own draws.
        migration_s: a pipeline whose tasks move stands still for so long.
        reserving: what flows may have of links.
    Raises:
        CapacityError: the policy exceeds a node or a link.
        PolicyError: it places a pipeline that neither waits nor runs.
    """
    core = PlaceCore(network, policy, seed, reserving=reserving)
    run = PipelineWorld(pipelines, core, migration_s)
    while run.advance():
        run.decide()
    return run.outcome()


class PipelineWorld:
    """A run: arrays over all pipelines, and the core, which holds the placements in force.

    Alone, `advance` and `decide` tell the core; in a joint run its driver does, by the other methods.

    Args:
        pipelines, migration_s: as `simulate_streaming`.
        core: decides, on its network.
    """

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        core: PlaceCore,
        migration_s: float = 2.0,
    ) -> None:
        self.core, network = core, core.network
        self.pipelines, self.migration_s = pipelines, migration_s
        self.arrays = [arrays_of(pipeline, i, network) for i, pipeline in enumerate(pipelines)]
        self.arrivals = sorted(range(len(pipelines)), key=lambda i: (pipelines[i].arrival_s, i))
        count = len(pipelines)
        self.target = np.array(
            [np.inf if pipeline.frames is None else pipeline.frames for pipeline in pipelines]
        )
        self.length_s = np.array(
            [np.inf if pipeline.duration_s is None else pipeline.duration_s for pipeline in pipelines]
        )
        self.frames, self.rate, self.resume_s, self._starts_s = np.zeros((4, count))
        self.start_s, self.finish_s, self._stopped_s = np.full((3, count), np.nan)
        self.migrations = np.zeros(count, dtype=np.int64)
        self.decision_s: list[float] = []
        self.now_s, self.arrived = 0.0, 0
        self.down = np.zeros(len(network.names), dtype=np.bool_)
        self._stuck = np.zeros(count, dtype=np.bool_)  # frames meet a dead node, or an image has to come
        self._images: NodeImages | None = None
        self._node_of: Sequence[int] = ()  # as images call them, -1: has all of them
        self._comes: dict[int, dict[int, float]] = {}  # by pipeline and node, when its image is there
        self._then_s: dict[int, tuple[float, float]] = {}  # how long it starts after that, and stands still
        self._next_s: float | None = None  # None: something has changed since it was worked out

    def fetches(self, images: NodeImages, node_of: Sequence[int]) -> None:
        """Nodes, as `node_of` says that `images` calls them, fetch images; -1: all are there."""
        self._images, self._node_of = images, node_of

    def advance(self) -> bool:
        """On to the next event, where pipelines come or end; False if nothing can make progress any more."""
        next_s = self.next_s()
        if not np.isfinite(next_s):
            return False
        for event in self.happened(next_s):
            self.core.handle(event)
        return True

    def decide(self) -> None:
        """Let the core decide, and do as it says."""
        began = time.perf_counter()
        commands = self.core.handle(PlacementDue(self.now_s))
        self.decision_s.append(time.perf_counter() - began)
        for command in commands:
            self.take(command, self.now_s)
        self.settle()

    def next_s(self) -> float:
        """When a pipeline comes or ends, at the present rates."""
        if self._next_s is None:
            left = self.arrivals[self.arrived :]
            arrival_s = self.pipelines[left[0]].arrival_s if left else np.inf
            self._next_s = min(arrival_s, float(self._ends().min(initial=np.inf)))
        return self._next_s

    def happened(self, to_s: float) -> Iterator[PlaceEvent]:
        """Which pipelines ended at a time, and which came until then."""
        yield from self.bring_up(to_s)
        for i in self.arrivals[self.arrived :]:
            if self.pipelines[i].arrival_s <= to_s:
                self.arrived, self._next_s = self.arrived + 1, None
                yield PipelineSubmitted(self.arrays[i])

    def bring_up(self, to_s: float) -> Iterator[PipelineEnded]:
        """Count the frames up to a time; pipelines that ended then."""
        i, end_s, self._next_s = self._active(), self._ends(), None
        # The core may just have stopped one that made progress up to now.
        self.frames += self.rate * np.maximum(to_s - np.maximum(self.now_s, self.resume_s), 0.0)
        starts_s = np.clip(self._starts_s - self.now_s, 0.0, to_s - self.now_s)
        self.length_s += np.where(self._stuck, to_s - self.now_s, starts_s)
        self.now_s = to_s
        for pipeline in i[(end_s <= to_s * (1 + DONE)) & np.isnan(self.finish_s[i])].tolist():
            self.finish_s[pipeline], self.rate[pipeline] = to_s, 0.0
            if np.isfinite(self.target[pipeline]):
                self.frames[pipeline] = self.target[pipeline]
            yield PipelineEnded(pipeline)

    def take(self, command: PlaceCommand, now_s: float) -> None:
        """Carry a command out."""
        self._next_s = None
        match command:
            case StartPipeline(placed):
                i = placed.pipeline.id
                if np.isnan(self.start_s[i]):
                    self.start_s[i] = now_s
                else:  # it goes on where it was stopped
                    self.length_s[i] += now_s - self._stopped_s[i]
                self._begin(placed, now_s, starts=True)
            case MovePipeline(placed):
                self.migrations[placed.pipeline.id] += 1
                self._begin(placed, now_s, starts=False)
            case StopPipeline(i):
                self._stopped_s[i], self.rate[i], self._stuck[i] = now_s, 0.0, False
                self._starts_s[i] = 0.0
                del self._comes[i]

    def change_node(self, node: int, up: bool, now_s: float) -> None:
        """Pipelines whose frames meet a dead node stand still, and start with a task once it is back."""
        self.down[node], self._next_s = not up, None
        if self._images is not None and not up and self._node_of[node] >= 0:
            self._images.lose(self._node_of[node], now_s)
        for placed in self.core.running.values():
            if up and (placed.node == node).any():
                self._begin(placed, now_s, starts=True)

    def image_came(self, node: int, images: Parts, there_s: float) -> None:
        """An image is there then, and pipelines that waited for it alone start."""
        for i, comes in self._comes.items():
            if self.pipelines[i].image in images and node in comes:
                comes[node] = there_s
                self._starts(i, self.now_s)

    def _begin(self, placed: Placement, now_s: float, starts: bool) -> None:
        """Tasks begin on their nodes; a pipeline that only moves stands still for `migration_s` instead."""
        i, images = placed.pipeline.id, self._images
        pipeline = self.pipelines[i]
        self._comes[i] = {}
        if images is not None:
            for n in sorted({self._node_of[n] for n in placed.node.tolist()} - {-1}):
                self._comes[i][n] = images.fetch(n, {pipeline.image: pipeline.image_bytes}, now_s)
        self._then_s[i] = (pipeline.start_s, 0.0) if starts else (0.0, self.migration_s)
        self._starts(i, now_s)

    def _starts(self, i: int, now_s: float) -> None:
        """When a pipeline whose images come makes progress again, once that is known."""
        there_s, (start_s, stands_s) = max(self._comes[i].values(), default=now_s), self._then_s[i]
        if there_s < np.inf:
            self._starts_s[i] = max(there_s, now_s) + start_s
            self.resume_s[i] = max(self.resume_s[i], self._starts_s[i] + stands_s)

    def settle(self) -> None:
        """Rates of the placements in force."""
        active, placed, self._next_s = self._active(), list(self.core.running.values()), None
        self.rate[active] = throughput(self.core.network, placed)
        self._stuck[:] = False
        if self._images is not None or self.down.any():
            self._stuck[[p.pipeline.id for p in placed if self._stands(p)]] = True
            self.rate[self._stuck] = 0.0

    def _stands(self, placed: Placement) -> bool:
        """Whether an image comes, or frames meet a dead node: their source, a task's, one on the way."""
        if max(self._comes[placed.pipeline.id].values(), default=0.0) == np.inf:
            return True
        return bool(self.down[nodes_of(self.core.network, placed)].any())

    def outcome(self) -> PipelineRun:
        """What became of the pipelines."""
        records = [
            PipelineRecord(
                pipeline.name,
                pipeline.arrival_s,
                None if np.isnan(self.start_s[i]) else float(self.start_s[i]),
                None if np.isnan(self.finish_s[i]) else float(self.finish_s[i]),
                float(self.frames[i]),
                int(self.migrations[i]),
            )
            for i, pipeline in enumerate(self.pipelines)
        ]
        return PipelineRun(self.core.policy.name, tuple(records), self.now_s, tuple(self.decision_s))

    def _active(self) -> Ints:
        return np.fromiter(self.core.running, dtype=np.int64, count=len(self.core.running))

    def _ends(self) -> Floats:
        """(R,) when each running pipeline would end at its present rate."""
        i = self._active()
        left = np.maximum(self.target[i] - self.frames[i], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            by_frames = np.maximum(self.now_s, self.resume_s[i]) + left / self.rate[i]
        by_frames[self.rate[i] <= 0] = np.inf
        start_s = self.start_s[i] + np.maximum(self._starts_s[i] - self.now_s, 0.0)
        by_time = np.where(self._stuck[i], np.inf, start_s + self.length_s[i])
        return np.asarray(np.minimum(by_frames, by_time))


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
