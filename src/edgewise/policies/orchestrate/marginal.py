"""Marginal value: one replica after the other, where the next one is worth most for its image's bytes (ours).

A service whose requests come in bursts has N of them at once, N negative binomial with mean m = headroom ·
load and variance m + dispersion · m². Its c-th replica works while N >= c, so it ends

    value = P(N >= c) / time                                                     requests per second

Each frame, replicas are added while the best of all (node, service) has a positive

    score = value · (1 - crowd · cores in use there) - memory price · bytes - image price · bytes not on disk

and the images to be pulled fit into the frame's budget. Where memory is scarce, idle replicas make room whose
last one is worth less than `keep` of what comes. The load is what has arrived, frame by frame, and what is
known beforehand, weighed as so many frames; replicas on a node that has the image cost no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaView
from edgewise.errors import PolicyError
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.model.orchestration import System
from edgewise.policies.orchestrate.base import Orchestration
from edgewise.policies.registry import policy

MOST = 64  # commands of a frame
TERMS = ("headroom", "dispersion", "crowd", "memory_price", "image_price", "budget", "known_frames", "keep")


@dataclass(frozen=True, slots=True)
class Terms:
    """How values are weighed; all are found by search, see `edgewise_studies.training.kais.train`.

    Attributes:
        headroom: mean requests at once over the load.
        dispersion: variance beyond Poisson's, over the square of the mean.
        crowd: what a node's used cores take off a value.
        memory_price, image_price: requests per second that a GB in memory, and a GB to pull, must be worth.
        budget: image bytes of a frame over what the way from the cloud carries in it.
        known_frames: frames that the load known beforehand counts for.
        keep: a replica goes if its value is less than this share of what takes its place.
    """

    headroom: float = 1.5
    dispersion: float = 1.0
    crowd: float = 0.8
    memory_price: float = 0.02
    image_price: float = 0.1
    budget: float = 1.5
    known_frames: float = 4.0
    keep: float = 0.3

    def vector(self) -> Floats:
        """(8,) in the order of TERMS."""
        return np.array([getattr(self, name) for name in TERMS], dtype=np.float64)


@policy("marginal")
class MarginalValue(Orchestration):
    """Replicas where the next one is worth most.

    Args:
        terms: see there.
        rate_qps, time_s: (S,) arrivals and mean service times known beforehand, by service; without them each
            request is taken to last a second, and the load is what has arrived.
        name: of the policy.
    """

    def __init__(
        self,
        terms: Terms = Terms(),
        rate_qps: Floats | None = None,
        time_s: Floats | None = None,
        name: str = "marginal",
    ) -> None:
        self.name, self._terms = name, terms.vector()
        self._known, self._time_s = rate_qps, time_s

    def reset(self, world: System, key: Key) -> None:
        """Forget what arrived.

        Raises:
            PolicyError: what is known is of another number of services.
        """
        for known in (self._known, self._time_s):
            if known is not None and known.shape != (world.services,):
                raise PolicyError(
                    f"{self.name}: knows {known.size} services, this system has {world.services}, pools of "
                    "streams' workers among them; train it on this scenario, or use marginal"
                )
        self.system, self._frames = world, 0
        self._arrived: Floats | None = None

    def decide(self, view: ReplicaView) -> Ints:
        """Removals and additions of each world, the most valuable first."""
        services = self.system.services
        time_s = np.ones(services) if self._time_s is None else self._time_s
        load = self._rate_qps(view) * time_s
        if view.pools.size:  # streams last, so what they ask is known: not arrivals, but what is there
            load[:, -view.pools.shape[1] :] = view.pools.load + view.pools.unserved
        commands = np.zeros((view.worlds, MOST, 2), dtype=np.int64)
        most, x = 0, self._empty(time_s)
        for world in range(view.worlds):
            most = max(most, plan(self.system, view, world, x._replace(load=load[world]), commands[world]))
        return commands[:, :most]

    def _empty(self, time_s: Floats) -> Draft:
        """Made here, since a kernel that makes arrays of four kinds compiles for a second longer."""
        system, nodes, services = self.system, self.system.site_of.size, self.system.services
        there, total = np.zeros((nodes, services), dtype=np.int64), np.zeros(services, dtype=np.int64)
        planned = np.zeros((nodes, system.layer_bytes.size), dtype=np.bool_)
        used, room, cores = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
        return Draft(time_s, time_s, self._terms, there, total, used, room, cores, planned)

    def _rate_qps(self, view: ReplicaView) -> Floats:
        """(W, S) arrivals per second: known beforehand and seen since."""
        frame_s = self.system.slot_s * self.system.frame_slots
        known = 0.0 if self._known is None else self._known * frame_s * self._terms[6]
        weight = 0.0 if self._known is None else self._terms[6]
        if self._arrived is None or self._arrived.shape != view.arrived.shape:
            self._arrived = np.zeros(view.arrived.shape)
        else:
            self._arrived, self._frames = self._arrived + view.arrived, self._frames + 1
        return np.asarray((known + self._arrived) / max(weight + self._frames, 1e-9) / frame_s)


@kernel(allocates=False)
def at_least(count: int, mean: float, dispersion: float) -> float:
    """P(N >= count) of a negative binomial N; Poisson's limit for a small dispersion."""
    size = 1.0 / max(dispersion, 1e-3)
    share = mean / (size + mean)
    chance, below = (1.0 - share) ** size, 0.0
    for number in range(count):
        below += chance
        chance *= (number + size) / (number + 1.0) * share
    return max(0.0, 1.0 - below)


class Draft(NamedTuple):
    """What a world has while it is planned.

    Attributes:
        load, time_s: (S,) requests at once in the mean, and mean service times.
        terms: (8,) of `Terms`.
        there: (N, S) replicas that stay.
        total: (S,) replicas of each service.
        used: (N,) share of a node's cores in use.
        room: (N,) free bytes, -1 where none can be made.
        cores: (N,) that no replica holds.
        planned: (N, L) layers that will be pulled.
    """

    load: Any
    time_s: Any
    terms: Any
    there: Any
    total: Any
    used: Any
    room: Any
    cores: Any
    planned: Any


@inner
def least_to_cloud_bps(system: System) -> float:
    """Of all sites."""
    least_bps = system.rate_bps[0, 0]
    for b in range(1, system.rate_bps.shape[0]):
        least_bps = min(least_bps, system.rate_bps[b, 0])
    return float(least_bps)


@kernel(allocates=False)
def plan(system: System, view: ReplicaView, world: int, empty: Draft, commands: Any) -> int:
    """Fill (MOST, 2) commands of a world, with load, times and terms of a plan; how many."""
    p, v, x = held(system), held(view), held(empty)
    as_it_is(p, v, world, x)
    budget = x.terms[5] * least_to_cloud_bps(system) / 8.0 * system.slot_s * system.frame_slots
    count = 0
    while count < MOST:
        n, s, lack = best_addition(p, v, world, x, budget)
        if n < 0:
            break
        change = s + 1
        if lacks_room(system, x, n, s):
            other = least_worth(v, world, n, x)
            if other < 0 or worth(other, x, 0) > x.terms[7] * worth(s, x, 1):
                x.room[n] = -1.0
                continue
            change = -(other + 1)
        else:
            budget -= lack
        commands[count, 0], commands[count, 1] = n, change
        count += 1
        note(system, x, n, change)
    return count


@inner
def as_it_is(system: System, view: ReplicaView, world: int, x: Draft) -> None:
    """Make the plan that of a world before any command."""
    nodes, services, first = system.site_of.size, x.load.size, system.first_machine[1]
    for s in range(services):
        x.total[s] = 0
    for n in range(nodes):
        machine = view.machine[world, first + n]
        x.room[n], x.cores[n], x.used[n] = machine.free_memory_bytes, machine.free_cpu_cores, 0.0
        for i in range(system.layer_bytes.size):
            x.planned[n, i] = False
        for s in range(services):
            replicas = view.replicas[world, n + 1, s]
            x.there[n, s] = replicas.ready + replicas.starting - replicas.removing
            x.total[s] += x.there[n, s]
    for n in range(nodes):
        for s in range(services):
            share = min(1.0, x.load[s] / max(1, x.total[s]))
            x.used[n] += x.there[n, s] * share * system.service_cpu_cores[s] / system.cpu_cores[first + n]


@inner
def note(system: System, x: Draft, n: int, change: int) -> None:
    """Count a command in."""
    s, sign = abs(change) - 1, 1 if change > 0 else -1
    x.there[n, s] += sign
    x.total[s] += sign
    x.room[n] -= sign * system.service_memory_bytes[s]
    x.cores[n] -= sign * system.replica_cpu_cores[s]
    if sign > 0:
        cores = system.service_cpu_cores[s] / system.cpu_cores[system.first_machine[1] + n]
        x.used[n] += min(1.0, x.load[s] / x.total[s]) * cores
        for i in range(system.layer_bytes.size):
            if system.needs_layer[s, i]:
                x.planned[n, i] = True


@inner
def lacks_room(system: System, x: Draft, n: int, s: int) -> bool:
    """Whether a replica has to go from node n before one of service s fits."""
    cores = system.replica_cpu_cores[s]
    return bool(x.room[n] < system.service_memory_bytes[s] or (cores > 0.0 and x.cores[n] < cores))


@inner
def worth(s: int, x: Draft, more: int) -> float:
    """Value of the last replica of service s, or with more = 1 of the next."""
    return float(at_least(x.total[s] + more, x.terms[0] * x.load[s], x.terms[1]) / x.time_s[s])


@inner
def least_worth(view: ReplicaView, world: int, n: int, x: Draft) -> int:
    """The service with an idle replica on node n whose last one is worth least; -1 for none."""
    found, least = -1, np.inf
    for s in range(x.load.size):
        replicas = view.replicas[world, n + 1, s]
        idle = replicas.ready - replicas.busy > 0 and x.there[n, s] > 0
        if idle and x.total[s] > 1 and worth(s, x, 0) < least:
            found, least = s, worth(s, x, 0)
    return found


@inner
def lacking_bytes(system: System, view: ReplicaView, world: int, n: int, s: int, planned: Any) -> float:
    """Bytes of the image of service s that node n has neither on disk nor planned."""
    lack = 0.0
    for i in range(system.layer_bytes.size):
        if system.needs_layer[s, i] and view.layer[world, n + 1, i].on_disk == 0 and not planned[n, i]:
            lack += system.layer_bytes[i]
    return lack


@inner
def best_addition(system: System, view: ReplicaView, world: int, x: Draft, budget: float) -> Any:
    """(node, service, bytes to pull) of the largest positive score; node -1 for none."""
    found, service, lacking, most = -1, -1, 0.0, 0.0
    first = system.first_machine[1]
    for s in range(x.load.size):
        value, need = worth(s, x, 1), system.service_memory_bytes[s]
        price = x.terms[3] * need / 1e9
        for n in range(x.used.size):
            score = value * max(0.0, 1.0 - x.terms[2] * x.used[n]) - price
            if lacks_room(system, x, n, s):
                score -= 0.5 * value  # a replica has to go
            if score <= most or x.room[n] < 0.0 or need > system.memory_bytes[first + n]:
                continue
            if system.replica_cpu_cores[s] > system.cpu_cores[first + n]:
                continue
            if view.replicas[world, n + 1, s].may == 0:
                continue
            lack = lacking_bytes(system, view, world, n, s, x.planned)
            score -= x.terms[4] * lack / 1e9
            if score > most and lack <= max(budget, 0.0):
                found, service, lacking, most = n, s, lack, score
    return found, service, lacking
