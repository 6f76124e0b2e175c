"""Requests in a joint run: `RequestSites` sends and serves, `OrchestrateCore` decides on replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import (
    EndReplica,
    FrameBegan,
    KeepReplica,
    OrchestrateCommand,
    ReplicaGone,
    ReplicaSeen,
    StartReplica,
)
from edgewise.sim.parts.part import Rank, StartTimes
from edgewise.sim.requests.sites import RequestSites


class RequestsPart:
    """Requests of services on replicas.

    Args:
        sites: before the first request.
        core: decides; it is only read here.
        start_s: of workers that are there for good, by name, on a node that is back.
        every: every frame is told of, as somebody else has news then.
    """

    commands = (StartReplica, KeepReplica, EndReplica)

    def __init__(
        self, sites: RequestSites, core: OrchestrateCore, start_s: Mapping[str, float], every: bool = False
    ) -> None:
        self.sites, self.core, self._start_s, self._every = sites, core, start_s, every
        self._frame, self._look_s = 0.0, 0.0
        self._stirred = -1  # `RequestSites.stirred` at the last frame
        self._end_s = len(sites.tally) * sites.frame_s
        self._nodes = {name: n for n, name in enumerate(sites.services.nodes)}
        self._starting = StartTimes()  # workers on nodes that are back

    def next_s(self) -> float:
        """The next frame that could change something; before it looks at those that are to go, with news."""
        frame_s = self._frame * self.sites.frame_s
        if frame_s < self._idle_s:
            frame_s = self._from(self._idle_s) * self.sites.frame_s
        look_s = self._look_s if self.sites.going else math.inf
        next_s = min(frame_s, look_s, self._starting.next_s())
        return next_s if next_s < self._end_s else math.inf

    @property
    def _idle_s(self) -> float:
        """Frames that begin before change nothing, unless something else happens."""
        return self.sites.calm_s if self.core.settled and not self._every else -math.inf

    def _from(self, now_s: float) -> float:
        """The first frame that begins then or later."""
        frame = math.ceil(now_s / self.sites.frame_s) if now_s < math.inf else math.inf
        return frame - 1 if (frame - 1) * self.sites.frame_s >= now_s else frame

    def advance(self, to_s: float) -> None:
        """Requests that come are sent, replicas work, up to the end of the last frame."""
        self.sites.advance(min(to_s, self._end_s))

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Replicas of a dead node break; they start again when it is back."""
        if node in self._nodes:
            (self.sites.repair_node if up else self.sites.fail_node)(self._nodes[node])
        here = self.sites.queues.workers_on(node)
        if up:
            self._starting.update({n: now_s + self._start_s[n] for n in here if n in self._start_s})
            self._begin_workers(now_s)
        else:
            for name in here:
                self._starting.pop(name, None)
            self.sites.fail_workers(node)

    def _begin_workers(self, now_s: float) -> None:
        """Those that have started answer from now on."""
        for name in self._starting.up(now_s):
            self.sites.set_worker(name, wanted=True, up=True)

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """What has changed of replicas, and at the beginning of a frame what was counted, and the frame."""
        self._begin_workers(now_s)
        there, news = self.sites.queues.replicas, self.sites.news
        self._look_s = now_s + news.period_s
        if self.sites.counts:
            self._look_s = news.after(now_s - news.lag_s) + news.lag_s
        known, mine = self.core.replicas, self.sites.system.services
        for name in [n for n, each in known.items() if n not in there and each.service < mine]:
            yield Rank.ENDED, ReplicaGone(name)
        self._frame = max(self._frame, self._from(now_s))  # in those left out, nothing would have happened
        if self._frame * self.sites.frame_s <= now_s < self._end_s and now_s >= self._idle_s:
            if self.sites.stirred != self._stirred:
                for name, replica in self.sites.seen().items():
                    if self.core.replicas.get(name) != replica:
                        yield Rank.NEWS, replica
                self._stirred = self.sites.stirred
            yield Rank.NEWS, self.sites.counted()
            yield Rank.TICK, FrameBegan(now_s)
            self._frame += 1

    def takes(self, command: OrchestrateCommand) -> bool:
        """Whether it is about a replica of a service."""
        if isinstance(command, StartReplica):
            return command.service < self.sites.system.services
        return command.replica in self.sites.queues.replicas and command.replica not in self.sites.pooled

    def take(self, command: OrchestrateCommand, now_s: float) -> Iterator[ReplicaSeen | ReplicaGone]:
        """Carry out what orchestration wants."""
        match command:
            case StartReplica(node, service):
                name = self.sites.add_replica(node, service)
            case KeepReplica(name):
                self.sites.keep_replica(name)
            case EndReplica(name):
                self.sites.remove_replica(name)
        yield self.sites.seen_as(name) if name in self.sites.queues.replicas else ReplicaGone(name)

    def finish(self) -> None:
        """To the end of the last frame."""
        self.advance(self._end_s)
