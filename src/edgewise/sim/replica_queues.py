"""Replicas with a queue each, event by event: what the cloud and nodes are to sites that send them requests.

Links aside, the truth of one world: who works on what, what is free on which machine, which images are where.
A queue goes by deadline and drops what could not end in time, as in the engine of slots; but a request is
bound to its replica, as live, not to a station. A node that fails takes what its replicas have.
Forbidden here: rules about scheduling; they are the cores'.
"""

from __future__ import annotations

import itertools
import math
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.request_rules import CLOUD, in_time, too_late
from edgewise.core.ledger import has_room
from edgewise.core.pulls import Pull, Pulls
from edgewise.model.services import Services
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replica_kernels import varied_s


class Order(IntEnum):
    """What happens at one time happens in this order."""

    ENDED, READY, REACHED, BEGUN, RETURNED, NEWS, ARRIVED, AGAIN = range(8)


Outages = Mapping[int, Sequence[tuple[float, float]]]
"""Of the way from the cloud to a site, by its index: from when to when, in order."""
NO_OUTAGES: Outages = MappingProxyType({})


def after_outages(begin_s: float, end_s: float, outages: Sequence[tuple[float, float]]) -> float:
    """When what would last from `begin_s` to `end_s` ends, if it stands still in outages, in order."""
    for down_s, up_s in outages:
        if begin_s < up_s and down_s < end_s:
            end_s += up_s - max(down_s, begin_s)
    return end_s


def answer(row: Any, end_s: float) -> None:
    """A request, a `RequestRow`, ends with an answer."""
    row.end_s, row.state = end_s, k.IN_TIME if in_time(end_s, row.deadline_s) else k.LATE


class Agenda:
    """What is to happen, by time, and at one time in its `Order`, then as it was told.

    Attributes:
        now_s: everything before it has happened.
    """

    def __init__(self) -> None:
        self.now_s, self._count = 0.0, itertools.count()
        self._events: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []

    def next_s(self) -> float:
        """When something happens next; infinite: never."""
        return self._events[0][0] if self._events else math.inf

    def push(self, time_s: float, order: Order, what: Callable[..., None], *arguments: Any) -> None:
        """Call `what` then."""
        heappush(self._events, (time_s, order, next(self._count), what, arguments))

    def advance(self, to_s: float) -> None:
        """Let everything happen before `to_s`."""
        while self.next_s() < to_s:
            self.step()
        self.now_s = to_s

    def step(self) -> None:
        """Let what is next happen."""
        self.now_s, _, _, what, arguments = heappop(self._events)
        what(*arguments)


@dataclass(slots=True, eq=False)
class ReplicaServer:
    """A replica as it really is; the cloud has one for each service that works on many requests at once.

    Attributes:
        serves: requests that it works on at once.
        waiting: requests in its queue.
        work: by request the machine on which it is worked on.
        starts: how often it broke; what is due of an earlier process is void.
    """

    name: str
    service: int
    station: int
    serves: int = 1
    wanted: bool = True
    up: bool = False
    waiting: int = 0
    work: dict[int, int] = field(default_factory=dict)
    starts: int = 0

    @property
    def queued(self) -> int:
        """Requests there, as it says itself."""
        return self.waiting + len(self.work)


class Images(NamedTuple):
    """How images come to nodes where links are shared: all at once, with reserved rates.

    Attributes:
        ways: (N,) to each node, as `pulls` calls them.
        paths: (N,) links of these.
    """

    pulls: Pulls
    ways: tuple[int, ...]
    paths: tuple[Ints, ...]


class ReplicaQueues:
    """Stations of one world.

    Args:
        services: those without `cloud` workers have as many replicas in the cloud as fit there.
        rows: `RequestRow`, where each request stands; written.
        seed: of service times.
        agenda: what happens next.
        answer: called with a request that leaves its replica, and how: "ended", "dropped" since it could not
            end in time, or "lost" with the replica.
        images: how they come; of outages alone: one after the other over the ways from the cloud.
    Attributes:
        replicas: by name, those of the cloud included.
        at: the replica to which each request was sent.
        down: stations whose node has failed.
        image_bytes: pulled so far.
        worked_s: (services, stations) of replicas on requests.
    """

    def __init__(
        self,
        services: Services,
        rows: Sequence[Any],
        seed: np.uint64,
        agenda: Agenda,
        answer: Callable[[int, str], None],
        images: Images | Outages = NO_OUTAGES,
    ) -> None:
        self.services, self.system, self.rows, self.seed = services, services.system, rows, seed
        self._agenda, self._answer, self._names = agenda, answer, itertools.count()
        self._has = np.stack([self.system.cpu_cores, self.system.memory_bytes], axis=1)
        self._free = self._has.copy()
        self._queue: list[list[tuple[float, int]]] = [[] for _ in range(self.system.stations)]
        self._images = images if isinstance(images, Images) else None
        self._outages = NO_OUTAGES if isinstance(images, Images) else images
        self._pulls = [list[Pull]() for _ in range(self.system.nodes)]
        self._layers: list[dict[int, float]] = [{} for _ in range(self.system.nodes)]  # when they are there
        self._down_free_s = self.image_bytes = 0.0
        self.worked_s = np.zeros((self.system.services, self.system.stations))
        self.replicas: dict[str, ReplicaServer] = {}
        self.at: dict[int, ReplicaServer] = {}
        self.down: set[int] = set()
        self._due: set[int] = set()  # stations to look at
        for s in range(self.system.services):
            self._first_replicas(s)

    def _first_replicas(self, s: int) -> None:
        first, cloud = self.system.first_machine[1], self.services.cloud[s]
        if not cloud:
            needs = [max(self.system.service_cpu_cores[s], 1e-9), self.system.service_memory_bytes[s]]
            room = int(np.floor(self._has[:first] / needs).min(axis=1).sum())
            name = f"cloud-{self.services.names[s]}"
            self.replicas[name] = ReplicaServer(name, s, CLOUD, max(room, 1), up=True)
        self.replicas |= {name: ReplicaServer(name, s, CLOUD, up=True) for name in cloud}
        for n in np.flatnonzero(self.system.initial[:, s]).tolist():
            self._layers[n] |= {layer: 0.0 for layer in self._needed(s)}
            for _ in range(self.system.initial[n, s]):
                self._new(n, s).up = True

    # requests

    def reach(self, i: int) -> None:
        """A request comes to where it was sent."""
        row, server = self.rows[i], self.at[i]
        if not server.up:
            self._answer(i, "lost")
            return
        row.ready_s = self._agenda.now_s
        insort(self._queue[server.station], (row.deadline_s, i))
        server.waiting += 1
        self._look_at(server.station)

    def back_s(self, b: int, station: int) -> float:
        """An answer's way; `delay_s` is that of both ways where answers travel."""
        return 0.5 * float(self.system.delay_s[b, station]) if self.services.spec.answers else 0.0

    def answer_s(self, service: int, station: int) -> float:
        """How long an answer takes to send where nothing else is sent."""
        rate_bps = self.system.wan_bps if station == CLOUD else self.system.lan_bps
        return 8.0 * float(self.services.answer_bytes[service]) / rate_bps

    def _look_at(self, station: int) -> None:
        """Go through a station's queue once all is there that comes now."""
        if station not in self._due:
            self._due.add(station)
            self._agenda.push(self._agenda.now_s, Order.BEGUN, self._begin, station)

    def _begin(self, station: int) -> None:
        """Drop what cannot end in time and begin what can begin, by deadline."""
        self._due.discard(station)
        kept = []
        for deadline_s, i in self._queue[station]:
            row, server = self.rows[i], self.at[i]
            back_s = self.back_s(row.site, station) + self.answer_s(row.service, station)
            begin_s = self._agenda.now_s + back_s
            if too_late(self.system.drops, begin_s, row.service_s, deadline_s):
                server.waiting -= 1
                self._answer(i, "dropped")
            elif (machine := self._machine_for(server, row)) >= 0:
                server.waiting -= 1
                self._work(server, i, machine)
            else:
                kept.append((deadline_s, i))
        self._queue[station] = kept

    def _machine_for(self, server: ReplicaServer, row: Any) -> int:
        """The first machine of its station on which a request can begin now, or -1."""
        if len(server.work) < server.serves:
            held = self._holds(server, row)
            for m in range(
                self.system.first_machine[server.station], self.system.first_machine[server.station + 1]
            ):
                if all(has_room(*each) for each in zip(held, self._free[m], self._has[m], strict=True)):
                    return m
        return -1

    def _holds(self, server: ReplicaServer, row: Any) -> Floats:
        """Cores and memory of a request while it is worked on; in the cloud it has a replica of its own."""
        held = np.array([row.cpu_cores, row.memory_bytes])
        return held + self._replica_holds(server) if server.station == CLOUD else held

    def _replica_holds(self, server: ReplicaServer) -> Floats:
        return self.system.replica_holds[server.service, ::-1]

    def _work(self, server: ReplicaServer, i: int, machine: int) -> None:
        row = self.rows[i]
        took_s = varied_s(self.system.service_deviation, self.seed, i, row.service_s)
        self.worked_s[server.service, server.station] += took_s
        self._free[machine] -= self._holds(server, row)
        server.work[i], row.state = machine, k.WORKED_ON
        self._agenda.push(self._agenda.now_s + took_s, Order.ENDED, self._ended, i, server, server.starts)

    def _ended(self, i: int, server: ReplicaServer, starts: int) -> None:
        if server.starts == starts:
            row = self.rows[i]
            self._release(server, i)
            answer_s = self.answer_s(row.service, server.station)
            answer(row, self._agenda.now_s + answer_s + self.back_s(row.site, server.station))
            self._answer(i, "ended")
            self._look_at(server.station)

    def _release(self, server: ReplicaServer, i: int) -> None:
        machine, held = server.work.pop(i), self._holds(server, self.rows[i])
        held[0] *= self.system.returns_cpu or server.station == CLOUD
        self._free[machine] += held

    # replicas

    def add(self, node: int, service: int) -> str:
        """Pull the layers that lack, start a replica, and give its name."""
        server = self._new(node, service)
        self._fetch(server)
        return server.name

    def forget(self, server: ReplicaServer) -> None:
        """A replica's process has ended."""
        del self.replicas[server.name]
        self._free[self.system.first_machine[server.station]] += self._replica_holds(server)

    def fail_node(self, node: int) -> None:
        """Replicas there break, and what they had is lost."""
        self.down.add(node + 1)
        self._fetch_no_more(node)
        had = [i for _, i in self._queue[node + 1]]
        self._queue[node + 1] = []
        for server in self._on(node):
            server.up, server.waiting, server.starts = False, 0, server.starts + 1
            had += server.work
            for i in list(server.work):
                self._release(server, i)
        for i in had:
            self._answer(i, "lost")

    def repair_node(self, node: int) -> None:
        """Its replicas start again."""
        self.down.discard(node + 1)
        for server in self._on(node):
            self._fetch(server)

    def _on(self, node: int) -> list[ReplicaServer]:
        return [server for server in self.replicas.values() if server.station == node + 1]

    def _start(self, server: ReplicaServer, there_s: float) -> None:
        ready_s = there_s + self.system.start_delay_s
        self._agenda.push(ready_s, Order.READY, self._ready, server, server.starts)

    def _ready(self, server: ReplicaServer, starts: int) -> None:
        server.up |= server.starts == starts

    def _new(self, n: int, s: int) -> ReplicaServer:
        name = f"{self.services.names[s]}-{self.services.nodes[n]}-{next(self._names)}"
        server = self.replicas[name] = ReplicaServer(name, s, n + 1)
        self._free[self.system.first_machine[n + 1]] -= self._replica_holds(server)
        return server

    def _needed(self, service: int) -> list[int]:
        return [int(layer) for layer in np.flatnonzero(self.system.needs_layer[service])]

    def _fetch(self, server: ReplicaServer) -> None:
        """Pull the layers that lack; the replica starts when all are there. A dead node pulls nothing."""
        node = server.station - 1
        if server.station in self.down:
            return
        if self._images is None:
            self._start(server, self._pulled_s(node, server.service))
            return
        lacking = [layer for layer in self._needed(server.service) if layer not in self._layers[node]]
        if lacking:
            size_bytes = float(self.system.layer_bytes[lacking].sum())
            self.image_bytes += size_bytes
            self._layers[node] |= dict.fromkeys(lacking, math.inf)
            pulls, ways, paths = self._images
            given = (ways[node], paths[node], 8.0 * size_bytes, partial(self._fetched, node, lacking))
            self._pulls[node].append(pulls.begin(self._agenda.now_s, *given))
        self._start_if_there(server)

    def _fetched(self, node: int, layers: list[int]) -> None:
        """The last byte of some layers has left the cloud."""
        there_s = self._agenda.now_s + float(self.system.delay_s[self.system.site_of[node], CLOUD])
        self._layers[node] |= dict.fromkeys(layers, there_s)
        for server in self._on(node):
            if not server.up:
                self._start_if_there(server)

    def _fetch_no_more(self, node: int) -> None:
        """What a node has not got whole is lost with it."""
        if self._images is not None:
            for pull in self._pulls[node]:
                self._images.pulls.cancel(self._agenda.now_s, pull)
        self._pulls[node], now_s = [], self._agenda.now_s
        self._layers[node] = {k: at_s for k, at_s in self._layers[node].items() if at_s <= now_s}

    def _start_if_there(self, server: ReplicaServer) -> None:
        layers = self._layers[server.station - 1]
        there_s = max((layers[layer] for layer in self._needed(server.service)), default=0.0)
        if there_s < math.inf:
            self._start(server, max(self._agenda.now_s, there_s))

    def _pulled_s(self, node: int, service: int) -> float:
        """When the image is there: its layers come one after the other over the way from the cloud.

        One that stands still, for its way is down, holds up no other.
        """
        system, there_s, layers = self.system, self._agenda.now_s, self._layers[node]
        for layer in self._needed(service):
            if layer not in layers:
                size_bytes = float(system.layer_bytes[layer])
                self.image_bytes += size_bytes
                begin_s = max(self._agenda.now_s, self._down_free_s)
                self._down_free_s = begin_s + 8.0 * size_bytes / system.wan_bps
                site = int(system.site_of[node])
                got_s = after_outages(begin_s, self._down_free_s, self._outages.get(site, ()))
                layers[layer] = got_s + float(system.delay_s[site, CLOUD])
            there_s = max(there_s, layers[layer])
        return there_s
