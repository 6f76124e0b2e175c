"""The rules of requests and replicas, said plainly: objects and lists, one world, no compiler.

Written from the rules in docs/orchestration.md, sharing with the engine only the inputs and the hash that
draws delays and service times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from edgewise.core.keyed import Purpose, normal
from edgewise.core.orchestrate import Requests
from edgewise.model.orchestration import System

EPS = 1e-9


@dataclass
class Request:
    id: int
    arrival: float
    site: int
    service: int
    deadline: float
    took: float
    cores: float
    memory: float
    size: float
    status: str = "unseen"
    station: int = -1
    ready: float = math.nan
    end: float = math.nan
    machine: int = -1


@dataclass
class Station:
    machines: list[list[float]]  # free cores, free memory
    disk: float
    queue: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    starting: list[tuple[float, int]] = field(default_factory=list)
    ready: dict[int, int] = field(default_factory=dict)
    removing: dict[int, int] = field(default_factory=dict)
    layers: dict[int, float] = field(default_factory=dict)

    def busy(self, service: int) -> int:
        return sum(r.service == service for r in self.running)


class NaiveWorld:
    def __init__(self, system: System, requests: Requests, w: int, seed: int) -> None:
        self.system, self.seed, self.slot, self.next = system, seed, 0, 0
        count = int(requests.count[w])
        self.requests = [
            Request(
                i,
                float(requests.arrival_s[w, i]),
                int(requests.site[w, i]),
                int(requests.service[w, i]),
                float(requests.deadline_s[w, i]),
                float(requests.work_core_s[w, i] / requests.cpu_cores[w, i]),
                0.0 if system.replica_cpu_cores.any() else float(requests.cpu_cores[w, i]),
                float(requests.memory_bytes[w, i]),
                float(requests.payload_bytes[w, i]),
            )
            for i in range(count)
        ]
        self.sites: list[list[Request]] = [[] for _ in range(system.sites)]
        self.stations = [self._station(k) for k in range(system.stations)]
        self.up_free = self.down_free = 0.0
        self.lan_free = [0.0] * system.sites
        self.bytes = {"forwarded": 0.0, "local": 0.0, "image": 0.0}
        self._begin_slot()

    def _station(self, k: int) -> Station:
        system = self.system
        ms = range(system.first_machine[k], system.first_machine[k + 1])
        machines = [[float(system.cpu_cores[m]), float(system.memory_bytes[m])] for m in ms]
        station = Station(machines, float(system.disk_bytes[k]))
        for s in range(system.services):
            number = int(system.initial[k - 1, s]) if k else 0
            station.ready[s], station.removing[s] = number, 0
            self._hold(station.machines[0], s, number)
            if number:
                for layer in self._layers(s):
                    station.layers.setdefault(layer, 0.0)
        station.disk -= sum(float(system.layer_bytes[i]) for i in station.layers)
        return station

    def _hold(self, machine: list[float], s: int, number: int) -> None:
        machine[0] -= number * float(self.system.replica_cpu_cores[s])
        machine[1] -= number * float(self.system.service_memory_bytes[s])

    def _layers(self, s: int) -> list[int]:
        return [i for i in range(self.system.layer_bytes.size) if self.system.needs_layer[s, i]]

    @property
    def now(self) -> float:
        return self.slot * self.system.slot_s

    def _hopeless(self, r: Request, begin: float) -> bool:
        return bool(self.system.drops) and begin + r.took > r.deadline + EPS

    def _begin_slot(self) -> None:
        fastest = self.system.rate_bps.max()
        while self.next < len(self.requests) and self.requests[self.next].arrival <= self.now:
            r = self.requests[self.next]
            r.status = "site"
            self.sites[r.site].append(r)
            self.next += 1
        for b, queue in enumerate(self.sites):
            for r in list(queue):
                if self._hopeless(r, self.now + (min(self.system.delay_s[b]) + 8 * r.size / fastest)):
                    queue.remove(r)
                    r.status, r.end = "dropped", self.now

    def scale(self, node: int, change: int) -> bool:
        if change == 0:
            return False
        s, station = abs(change) - 1, self.stations[node + 1]
        starting = sum(service == s for _, service in station.starting)
        if change < 0:
            if station.ready[s] + starting - station.removing[s] <= 0:
                return False
            if station.ready[s] > station.busy(s):
                station.ready[s] -= 1
                self._hold(station.machines[0], s, -1)
            else:
                station.removing[s] += 1
            return True
        if station.removing[s]:
            station.removing[s] -= 1
            return True
        m = self.system.first_machine[node + 1]
        for free, need, whole in zip(
            station.machines[0],
            (self.system.replica_cpu_cores[s], self.system.service_memory_bytes[s]),
            (self.system.cpu_cores[m], self.system.memory_bytes[m]),
            strict=True,
        ):
            if need and free < need - EPS * whole:
                return False
        if not self._make_room(station, node, s):
            return False
        self._hold(station.machines[0], s, 1)
        there = self.now
        for layer in self._layers(s):
            if layer not in station.layers:
                volume = float(self.system.layer_bytes[layer])
                way = self.system.site_of[node], 0
                self.down_free = max(self.now, self.down_free) + 8 * volume / self.system.rate_bps[way]
                delay = float(self.system.delay_s[way])
                station.layers[layer] = self.down_free + delay
                station.disk -= volume
                self.bytes["image"] += volume
            there = max(there, station.layers[layer])
        station.starting.append((there + self.system.start_delay_s, s))
        return True

    def _make_room(self, station: Station, node: int, s: int) -> bool:
        used = {service for service, number in station.ready.items() if number}
        used |= {service for _, service in station.starting} | {s}
        needed = {layer for service in used for layer in self._layers(service)}
        lack = sum(float(self.system.layer_bytes[i]) for i in self._layers(s) if i not in station.layers)
        lack -= station.disk
        spare = sorted(set(station.layers) - needed)
        slack = EPS * float(self.system.disk_bytes[node + 1])
        if lack > sum(float(self.system.layer_bytes[i]) for i in spare) + slack:
            return False
        for layer in spare:
            if lack <= slack:
                break
            del station.layers[layer]
            station.disk += float(self.system.layer_bytes[layer])
            lack -= float(self.system.layer_bytes[layer])
        return True

    def step(self, stations: list[int]) -> None:
        for b, k in enumerate(stations):
            if k >= 0:
                self._send(b, k)
        for k in range(len(self.stations)):
            self._work(k, self.now, (self.slot + 1) * self.system.slot_s)
        self.slot += 1
        self._begin_slot()

    def _send(self, b: int, k: int) -> None:
        r = self.sites[b].pop(0)
        delay = float(self.system.delay_s[b, k])
        if k == 0:
            sent = max(self.now, self.up_free) + 8 * r.size / self.system.rate_bps[b, 0]
            self.up_free = sent
            if self.system.deviation_s[b, 0]:
                draw = normal(self.seed, Purpose.NETWORK, 0, self.slot)
                delay = max(0.0, delay + self.system.deviation_s[b, 0] * draw)
        else:
            sent = max(self.now, self.lan_free[b]) + 8 * r.size / self.system.rate_bps[b, k]
            self.lan_free[b] = sent
        own = k > 0 and self.system.site_of[k - 1] == b
        self.bytes["local" if own else "forwarded"] += r.size
        r.status, r.station, r.ready = "sent", k, sent + delay
        self.stations[k].queue.append(r)

    def _work(self, k: int, now: float, until: float) -> None:
        station = self.stations[k]
        while now < until:
            for r in [r for r in station.running if r.end <= now]:
                self._finish(k, r)
            for start in [start for start in station.starting if start[0] <= now]:
                station.starting.remove(start)
                s = start[1]
                if station.removing[s]:
                    station.removing[s] -= 1
                    self._hold(station.machines[0], s, -1)
                else:
                    station.ready[s] += 1
            for r in sorted(station.queue, key=lambda r: (r.deadline, r.id)):
                if r.ready <= now:
                    self._try(k, r, now)
            later = [r.end for r in station.running] + [at for at, _ in station.starting]
            later += [r.ready for r in station.queue if r.ready > now]
            now = min(later, default=math.inf)

    def _try(self, k: int, r: Request, now: float) -> None:
        station, system = self.stations[k], self.system
        if self._hopeless(r, now):
            station.queue.remove(r)
            r.status, r.end = "dropped", now
            return
        own = k == 0  # the cloud starts a replica for it
        cores = r.cores + own * float(system.replica_cpu_cores[r.service])
        memory = r.memory + own * float(system.service_memory_bytes[r.service])
        if k and station.ready[r.service] <= station.busy(r.service):
            return
        for m, machine in enumerate(station.machines):
            whole = system.first_machine[k] + m
            has_cores = machine[0] >= cores - EPS * system.cpu_cores[whole]
            if has_cores and machine[1] >= memory - EPS * system.memory_bytes[whole]:
                self._begin(station, r, m, (cores, memory), now)
                return

    def _begin(self, station: Station, r: Request, m: int, taken: tuple[float, float], now: float) -> None:
        station.machines[m][0] -= taken[0]
        station.machines[m][1] -= taken[1]
        took = r.took
        if self.system.service_deviation:
            variance = math.log(1 + self.system.service_deviation**2)
            draw = normal(self.seed, Purpose.SERVICE, r.id)
            took *= math.exp(math.sqrt(variance) * draw - variance / 2)
        station.queue.remove(r)
        station.running.append(r)
        r.status, r.end, r.machine = "working", now + took, m

    def _finish(self, k: int, r: Request) -> None:
        station = self.stations[k]
        machine = station.machines[r.machine]
        station.running.remove(r)
        if self.system.returns_cpu or k == 0:
            machine[0] += r.cores
        machine[1] += r.memory
        if k == 0:
            self._hold(machine, r.service, -1)
        if k and station.removing[r.service]:
            station.removing[r.service] -= 1
            station.ready[r.service] -= 1
            self._hold(machine, r.service, -1)
        r.status = "in time" if r.end <= r.deadline + EPS else "late"

    def hosts(self, b: int) -> list[int]:
        """Stations to which the head of site b may be sent."""
        s = self.sites[b][0].service
        return [0] + [k for k, x in enumerate(self.stations) if k and x.ready[s] > x.removing[s]]
