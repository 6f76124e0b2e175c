"""Replicas of services at sites: what orchestration changes and sees of them, and how sites hear of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.desks import DROPPED
from edgewise.core.dispatch.events import ReplicaChanged, ReplicaForgotten, RequestEvent
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.orchestrate.events import ReplicaSeen, RequestsCounted
from edgewise.model.services import Services
from edgewise.sim.requests.news import do_now
from edgewise.sim.requests.notes import Note
from edgewise.sim.requests.queues import ReplicaQueues
from edgewise.sim.requests.seen import gone, seen_of
from edgewise.sim.requests.state import HEARD, NONE
from edgewise.sim.slots import replica_state as k

MOST = 10_000  # replicas that may be added in a frame: no limit


class OrchestratedReplicas(ABC):
    """Those of one run; see `RequestSites`, which has them."""

    services: Services
    queues: ReplicaQueues
    cores: Sequence[RequestCore]
    going: set[str]
    pooled: set[str]
    log: list[Note]
    tally: Floats
    frame_s: float
    _counted: Ints  # at the last frame

    @property
    @abstractmethod
    def now_s(self) -> float:
        """Everything before it has happened."""

    @abstractmethod
    def _change(self) -> None:
        """Replicas or nodes are about to change."""

    @abstractmethod
    def _read_notes(self) -> None:
        """Read what sites were told and said."""

    # how sites hear of them

    def _tell(self, d: int, event: RequestEvent) -> None:
        self.cores[d].handle(event)
        self.log += [(d, event, [])] if self.queues.run.notes.size else []

    def tell(self) -> None:
        """All sites hear at once how replicas are."""
        run = self.queues.run
        news = run.tellers.size - 1  # a place that no news have that are on their way
        do_now(run, NONE, news)
        self._hear(news)

    def _hear(self, news: int) -> None:
        """News reach every site: replicas that were not there, have changed or are gone."""
        told = self.queues.run.told[news][: self.queues.run.tellers[news]].tolist()
        names = [self.queues.name(row) for row, *_ in told]
        for d, core in enumerate(self.cores):
            run = self.queues.run
            desk, row_of = run.desks.replica[d].view(np.ndarray), run.row_of[d].tolist()
            known = list(zip(desk["wanted"].tolist(), desk["up"].tolist(), strict=True))
            for name, (row, wanted, up, *_) in zip(names, told, strict=True):
                old = core.replicas.get(name)
                if old is None or known[old.row] != (wanted, up):
                    server = run.server[row]
                    self._tell(d, self._changed(name, server, bool(wanted), bool(up)))
                if row_of[row] == NONE:
                    self.queues.know(d, row, core.replicas[name].row)
            for name in core.replicas.keys() - set(names):
                self._tell(d, ReplicaForgotten(self.now_s, name))
                if name not in core.replicas:
                    self.queues.know(d, self.queues.row(name), NONE)
        do_now(self.queues.run, HEARD, news)
        self._read_notes()

    # what orchestration sees and changes

    def _settle(self) -> None:
        """Replicas that are to go end where they may."""
        going = [each for name, each in self.queues.replicas.items() if name in self.going]
        for server in gone(self.queues.run, going) if going else ():
            self.queues.forget(server)
            self.going.remove(server.name)

    def seen(self) -> dict[str, ReplicaSeen]:
        """Replicas as gateways report them to the controller, by name."""
        servers = [each for name, each in self.queues.replicas.items() if name not in self.pooled]
        return seen_of(self.queues.run, servers)

    def seen_as(self, name: str) -> ReplicaSeen:
        """One of these."""
        return seen_of(self.queues.run, [self.queues.replicas[name]])[name]

    def counted(self) -> RequestsCounted:
        """What gateways counted since they were asked before."""
        x = self.queues.run.desks
        total: Ints = np.stack([x.arrived.sum(axis=0), x.ended[:, DROPPED].sum(axis=0)])
        (arrived, dropped), self._counted = total - self._counted, total
        delay_s = float(x.seen.cloud_delay_s.mean())
        return RequestsCounted(arrived, delay_s, self.services.service_s, MOST, dropped)

    def add_replica(self, node: int, service: int) -> str:
        """Pull the layers that lack, start a replica, and give its name."""
        self._change()
        before = self.queues.image_bytes
        name = self.queues.add(node, service)
        frame = min(int(self.now_s / self.frame_s), len(self.tally) - 1)
        self.tally[frame, k.IMAGE_BYTES] += self.queues.image_bytes - before
        return name

    def keep_replica(self, name: str) -> None:
        """One that was to go stays."""
        self._change()
        self.queues.replicas[name].wanted = 1
        self.going.discard(name)

    def remove_replica(self, name: str) -> None:
        """It gets no more requests of who has heard of it, and goes when all have and none is left there."""
        self._change()
        self.queues.replicas[name].wanted = 0
        self.going.add(name)
        self._settle()

    def set_worker(self, name: str, wanted: bool, up: bool) -> None:
        """See `ReplicaQueues`."""
        self._change()
        self.queues.set_worker(name, wanted, up)

    def tell_of(self, name: str, wanted: bool, up: bool) -> None:
        """All sites hear of a worker of a pool."""
        self._change()
        for d in range(len(self.cores)):
            self._tell(d, self._changed(name, self.queues.replicas[name].record, wanted, up))

    def _changed(self, name: str, server: Any, wanted: bool, up: bool) -> ReplicaChanged:
        where = int(server.service), int(server.station)
        return ReplicaChanged(self.now_s, name, *where, wanted, up, int(server.serves))

    def held(self, name: str) -> int:
        """Requests that sites have sent to a replica and wait for."""
        return seen_of(self.queues.run, [self.queues.replicas[name]])[name].held

    def fail_node(self, node: int) -> None:
        """Replicas there break; what they had, its sites send elsewhere."""
        self._change()
        self.queues.fail_node(node)

    def repair_node(self, node: int) -> None:
        """Its replicas start again."""
        self._change()
        self.queues.repair_node(node)

    def fail_workers(self, node: str) -> None:
        """Streams' workers there fail; what they had, its sites send elsewhere."""
        self._change()
        for name in self.queues.workers_on(node):
            self.queues.fail_worker(name)
