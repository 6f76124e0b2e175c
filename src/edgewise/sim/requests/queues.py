"""Replicas and nodes as they are: who is there, and which images are where.

What becomes of requests there is `replicas`'; here replicas come, go and break, rarely. A node that
fails takes what its replicas have. Forbidden here: rules about scheduling; they are the cores'.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from edgewise.arrays import Floats, figure
from edgewise.core.dispatch.request_flow import LOST
from edgewise.core.dispatch.request_rules import CLOUD
from edgewise.core.dispatch.requests import DeskRoom
from edgewise.model.services import Services
from edgewise.sim.images import NO_OUTAGES, Images, NodeImages, Outages, Part, Parts
from edgewise.sim.requests import replicas as compiled
from edgewise.sim.requests.state import CLOCK, NONE, RequestRun, longer
from edgewise.sim.slots.replica_state import WORKED_ON
from edgewise.sim.streams.guests import Guests


class ReplicaServer:
    """A replica as it really is: a row of `RequestRun.server`.

    A cloud that is a pool has one for each service that works on many requests at once. A worker of streams
    that serves requests is one, too, also while its pool does not have it: then it is not wanted, nor up.
    """

    service, station, serves, wanted, up = map(figure, ("service", "station", "serves", "wanted", "up"))
    waiting, working, starts, broken = map(figure, ("waiting", "working", "starts", "broken"))
    worker = figure("worker")

    def __init__(self, name: str, queues: ReplicaQueues, row: int) -> None:
        self.name, self._queues, self.row = name, queues, row

    @property
    def record(self) -> Any:
        """The row."""
        return self._queues.run.server[self.row]

    @property
    def work(self) -> list[int]:
        """Requests that are worked on, in the order in which that began."""
        run = self._queues.run
        mine = np.flatnonzero((run.stands["server"] == self.row) & (run.request["state"] == WORKED_ON))
        found: list[int] = mine[np.argsort(run.stands["begun"][mine])].tolist()
        return found


class ReplicaQueues:
    """Stations of one world.

    Args:
        services: those without workers in the cloud have as many replicas there as fit.
        run: without replicas.
        room: where its desks grow.
        images: how they come, see `NodeImages`.
        guests: queues of streams' workers that services use, if there are any.
    Attributes:
        replicas: by name, those of the cloud included.
        clock: of the run; read and written sooner than as an array of records.
    """

    def __init__(
        self,
        services: Services,
        run: RequestRun,
        room: DeskRoom,
        images: Images | Outages = NO_OUTAGES,
        guests: Guests | None = None,
    ) -> None:
        self.services, self.system, self._run, self._room = services, services.system, run, room
        self._guests, self.clock = guests, run.clock.view(CLOCK).view(np.ndarray)[0]
        self._numbers, self._names = itertools.count(), list[str]()
        self._images = NodeImages(images, self.system, self._image_came, in_turn=True)
        self.replicas: dict[str, ReplicaServer] = {}
        self._at_workers: list[int] = []  # rows of those that have a worker's queue
        for s in range(self.system.services):
            self._first_replicas(s)

    def _first_replicas(self, s: int) -> None:
        first, workers = self.system.first_machine[1], [w for w in self.services.workers if w.service == s]
        if all(each.station != CLOUD for each in workers):
            needs = [max(self.system.service_cpu_cores[s], 1e-9), self.system.service_memory_bytes[s]]
            room = int(np.floor(self._run.has[:first] / needs).min(axis=1).sum())
            self._add(f"cloud-{self.services.names[s]}", s, CLOUD, max(room, 1)).up = True
        for each in workers:
            server = self._add(each.name, s, each.station)
            server.wanted = server.up = each.at_first
            if self._guests is not None:
                server.worker = self._guests.workers[each.name]
                server.serves = self._guests.serves(server.worker)
                self._at_workers.append(server.row)
            if each.station != CLOUD:
                self._leave_room(each.station)
        for n in np.flatnonzero(self.system.initial[:, s]).tolist():
            self._images.have(n, self._layers(s))
            for _ in range(self.system.initial[n, s]):
                self._new(n, s).up = True

    @property
    def run(self) -> RequestRun:
        """All of the run; its desks may have grown."""
        if self._run.desks is not self._room.desks:
            self._run = self._run._replace(desks=self._room.desks)
        return self._run

    @property
    def now_s(self) -> float:
        """The time."""
        return float(self.clock["now_s"])

    @property
    def image_bytes(self) -> float:
        """Of images, fetched so far."""
        return self._images.fetched_bytes

    def name(self, row: int) -> str:
        """Of a replica that there is or was."""
        return self._names[row]

    def make_room(self, events: int) -> None:
        """Make room for so many more events; where there is none, for twice as many as there was."""
        held, needed = self._run.events.size, int(self.clock["events"]) + events
        if needed > held:
            self._run = self._run._replace(events=longer(self._run.events, max(needed, 2 * held)))

    def row(self, name: str) -> int:
        """The other way."""
        return self._names.index(name)

    def know(self, d: int, server: int, row: int) -> None:
        """A desk knows a replica by a row of its own; -1: no longer."""
        run = self.run
        if run.server_of.shape[1] < run.desks.order.shape[1]:
            run = self._run = run._replace(server_of=longer(run.server_of, run.desks.order.shape[1]))
        run.row_of[d, server] = row
        if row != NONE:
            run.server_of[d, row] = server

    # replicas

    def add(self, node: int, service: int) -> str:
        """Pull the layers that lack, start a replica, and give its name."""
        server = self._new(node, service)
        self._fetch(server)
        return server.name

    def forget(self, server: ReplicaServer) -> None:
        """A replica's process has ended."""
        run, clock = self.run, self.run.clock[0]
        kept = run.alive[: clock.servers]
        kept = kept[kept != server.row]
        run.alive[: kept.size], clock.servers = kept, kept.size
        del self.replicas[server.name]
        self._leave_room(server.station)

    def fail_node(self, node: int) -> None:
        """Replicas there break, and what they had is lost."""
        run, station = self.run, node + 1
        run.down[station] = True
        self._images.lose(node, self.now_s)
        had, i = list[int](), int(run.first[station])
        while i != NONE:
            had.append(i)
            i = int(run.stands[i].behind)
        run.first[station], run.clock[0].waiting = NONE, run.clock[0].waiting - len(had)
        for server in self._on(node):
            had += (work := server.work)
            server.up, server.waiting, server.starts = False, 0, server.starts + 1
            for i in work:
                compiled.release(run, i)
        self.make_room(len(had))
        for i in had:
            compiled.leave(self.run, i, LOST)

    # streams' workers

    def share(self, i: int) -> None:
        """A request waits among the queries of streams, first come first served, as live."""
        run, guests = self.run, self._guests
        assert guests is not None, "whose worker it is has guests"
        worker, took_s, begin_by_s = compiled.asks(run, i)
        guests.come(i, worker, self.now_s, took_s, begin_by_s)

    def left(self, i: int, at_s: float, dropped: bool, queued: int) -> None:
        """What becomes of a request among queries is known."""
        self.make_room(1)
        compiled.left(self.run, i, at_s, dropped, queued)

    def look(self, queue: Floats) -> None:
        """Note how many are at (W,) workers."""
        server = self.run.server
        server["waiting"][self._at_workers] = queue[server["worker"][self._at_workers]]

    def set_worker(self, name: str, wanted: bool, up: bool) -> None:
        """A worker of a pool is to stay or to go, and answers or not, from now on."""
        server = self.replicas[name]
        server.wanted, server.up = wanted, up
        if server.station != CLOUD:
            self._leave_room(server.station)

    def workers_on(self, node: str) -> list[str]:
        """Streams' workers there that serve requests."""
        nodes = {} if self._guests is None else self._guests.nodes
        return [name for name in self.replicas if nodes.get(name) == node]

    def fail_worker(self, name: str) -> None:
        """A streams' worker fails, and loses requests."""
        assert self._guests is not None, "whose worker it is has guests"
        server = self.replicas[name]
        server.up, server.waiting = False, 0
        had = self._guests.lose(server.worker)
        self.make_room(len(had))
        for i in had:
            compiled.leave(self.run, i, LOST)

    # nodes

    def repair_node(self, node: int) -> None:
        """Its replicas start again."""
        self.run.down[node + 1] = False
        for server in self._on(node):
            self._fetch(server)

    def _on(self, node: int) -> list[ReplicaServer]:
        here = (server for server in self.replicas.values() if server.station == node + 1)
        return [server for server in here if server.worker == NONE]

    def _new(self, n: int, s: int) -> ReplicaServer:
        name = f"{self.services.names[s]}-{self.services.nodes[n]}-{next(self._numbers)}"
        server = self._add(name, s, n + 1)
        self._leave_room(n + 1)
        return server

    def _add(self, name: str, s: int, station: int, serves: int = 1) -> ReplicaServer:
        run, row = self.run, len(self._names)
        if row == run.server.size:
            size = 2 * row + 8
            run = self._run = run._replace(
                server=longer(run.server, size), row_of=longer(run.row_of, size),
                alive=longer(run.alive, size), told=longer(run.told, size),
            )  # fmt: skip
        self._names.append(name)
        server = self.replicas[name] = ReplicaServer(name, self, row)
        server.service, server.station, server.serves, server.wanted = s, station, serves, True
        server.worker = NONE
        run.row_of[:, row] = NONE
        run.alive[run.clock[0].servers] = row
        run.clock[0].servers += 1
        return server

    def _leave_room(self, station: int) -> None:
        """What its replicas leave of a node is had by requests that hold cores or memory of their own."""
        machine, run = self.system.first_machine[station], self._run
        there = (each for each in self.replicas.values() if each.station == station)
        services = [each.service for each in there if each.worker == NONE or each.wanted or each.up]
        run.room[machine] = run.has[machine] - run.holds[services].sum(axis=0)

    def _layers(self, service: int) -> dict[Part, float]:
        """Of its image, and their sizes."""
        sizes_bytes = self.system.layer_bytes
        return {n: float(sizes_bytes[n]) for n in np.flatnonzero(self.system.needs_layer[service]).tolist()}

    def _fetch(self, server: ReplicaServer) -> None:
        """Pull the layers that lack; the replica starts when all are there. A dead node pulls nothing."""
        if not self.run.down[server.station]:
            there_s = self._images.fetch(server.station - 1, self._layers(server.service), self.now_s)
            self._start_if_there(server, there_s)

    def _image_came(self, node: int, layers: Parts, there_s: float) -> None:
        """Some layers are there then, and replicas that waited for them alone start."""
        for server in self._on(node):
            if not server.up:
                self._start_if_there(server, self._images.there_s(node, self._layers(server.service)))

    def _start_if_there(self, server: ReplicaServer, there_s: float) -> None:
        """Once it is known when that is; of what comes over shared links it is not when that begins."""
        if there_s < math.inf:
            self.start(server, max(there_s, self.now_s))

    def start(self, server: ReplicaServer, there_s: float) -> None:
        """A replica whose layers are there at a time is ready after the start delay."""
        self.make_room(1)
        compiled.start(self.run, server.row, there_s + self.system.start_delay_s)
