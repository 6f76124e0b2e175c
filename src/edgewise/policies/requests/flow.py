"""Minimum cost: the heads of all sites are assigned together (Firmament's flow network, solved exactly).

Each head is a unit of flow. It goes to a station over the station's idle replicas of its service (cost:
travel), over its queue (cost: travel and expected wait, one unit per slot), or it stays unscheduled. An arc
that misses the deadline costs 100 s more. Idle replicas and free cores bound what a station takes at once.
A slot has a handful of heads: all assignments are gone through, the cheapest arcs first, and cut off where
even the cheapest arcs of the heads that are left cannot improve on the best one; after 5,000 steps that one
counts.

GSP-SS's dispatch: shares of a shadow schedule (Farhadi et al.; a baseline of KaiS).

Once a frame, rates y of services to stations are chosen for the replicas that are there, as if requests came
evenly:

    max Σ_sn y_sn + 0.9 Σ_s y_s0
    Σ_k y_sk <= arrivals of s
    y_sn · time_s <= replicas of s on n
    Σ_s y_sn · time_s · cores_s <= cores of n
    Σ_s y_s0 · payload bits <= rate of the way to the cloud

Each request is sent by a draw from its service's shares; a service that the schedule serves nowhere goes to
the cloud. Queues are not looked at, as in the paper: arrival rates and times are taken as known.
"""

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import inner, kernel
from edgewise.core.dispatch.request_rules import stays
from edgewise.core.keyed import Key
from edgewise.core.ledger import has_room
from edgewise.core.orchestrate import HOLD, ReplicaView, Requests, hosts
from edgewise.core.order import argsort
from edgewise.model.orchestration import System
from edgewise.policies.registry import policy
from edgewise.policies.requests.features import draws
from edgewise.policies.requests.rules import RequestDispatch, travel_s

MISSED = 100.0  # cost in s of missing a deadline: above any wait
STEPS = 5000


class Arcs(NamedTuple):
    """Of H heads to A = 2 (N + 1) + 1 ends: idle replicas of each station, its queue, unscheduled.

    Attributes:
        site: (H,) of each head.
        cost: (H, A) in s; inf where there is no arc.
        order: (H, A) ends of each head, the cheapest first.
        least: (H + 1,) cheapest arcs of head h and all after it.
    """

    site: Ints
    cost: Floats
    order: Ints
    least: Floats


@policy("flow")
class MinCostFlow(RequestDispatch):
    """All heads of a slot assigned together at least cost (Firmament)."""

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) the assignment of each world."""
        stations = np.full(view.site.shape, HOLD, dtype=np.int64)
        assign_worlds(self.system, view, stations)
        return stations


@kernel
def assign_worlds(system: System, view: ReplicaView, stations: Ints) -> None:
    """Fill (W, B) stations."""
    for world in range(stations.shape[0]):
        heads = count_heads(view, world)
        if heads > 0:
            arcs = arcs_of(system, view, world, heads)
            ends = cheapest(system, view, world, arcs)
            for h in range(heads):
                if ends[h] < arcs.cost.shape[1] - 1:
                    stations[world, arcs.site[h]] = ends[h] // 2


@inner
def count_heads(view: ReplicaView, world: int) -> int:
    """Sites of a world with a request to send."""
    count = 0
    for b in range(view.site.shape[1]):
        count += view.site[world, b].head >= 0
    return count


@inner(allocates=True)
def arcs_of(system: System, view: ReplicaView, world: int, heads: int) -> Arcs:
    """Costs of all arcs in a world; end 2k are idle replicas of station k, 2k + 1 its queue."""
    ends = 2 * view.replicas.shape[1] + 1
    site, cost = np.zeros(heads, dtype=np.int64), np.full((heads, ends), np.inf)
    order, least = np.zeros((heads, ends), dtype=np.int64), np.zeros(heads + 1)
    h = 0
    for b in range(view.site.shape[1]):
        if view.site[world, b].head >= 0:
            site[h] = b
            for k in range(view.replicas.shape[1]):
                if stays(view, world, k, view.site[world, b].head_service):
                    cost[h, 2 * k] = with_deadline(view, world, b, travel_s(system, view, world, b, k))
                    cost[h, 2 * k + 1] = with_deadline(view, world, b, queue_s(system, view, world, b, k))
            cost[h, ends - 1] = 2.0 * MISSED
            argsort(cost[h], 0, ends, order[h])
            h += 1
    for h in range(heads - 1, -1, -1):
        least[h] = least[h + 1] + cost[h, order[h, 0]]
    return Arcs(site, cost, order, least)


@inner
def with_deadline(view: ReplicaView, world: int, b: int, begin_s: float) -> float:
    """Cost of beginning the head of site b then."""
    head = view.site[world, b]
    left_s = head.head_deadline_s - view.world[world].clock_s - head.head_service_s
    return begin_s + MISSED if begin_s > left_s else begin_s


@inner
def queue_s(system: System, view: ReplicaView, world: int, b: int, k: int) -> float:
    """Travel and expected wait, at least a slot; half of the work under way is left."""
    head = view.site[world, b]
    replicas, wait_s = view.replicas[world, k, head.head_service], 0.0
    if k > 0:
        ahead_s = replicas.waiting_s + 0.5 * replicas.busy * head.head_service_s
        wait_s = ahead_s / max(replicas.ready - replicas.removing, 1)
    return travel_s(system, view, world, b, k) + max(wait_s, system.slot_s)


@inner
def takes(system: System, view: ReplicaView, world: int, arcs: Arcs, ends: Ints, h: int, end: int) -> bool:
    """Whether `end` can take head h besides the heads before it."""
    k = end // 2
    if k == 0 or end == arcs.cost.shape[1] - 1:
        return True
    head = view.site[world, arcs.site[h]]
    replicas = view.replicas[world, k, head.head_service]
    idle = 1 if end % 2 else replicas.ready - replicas.busy - replicas.waiting
    m, cores = system.first_machine[k], head.head_cpu_cores
    for other in range(h):
        if ends[other] == end:
            before = view.site[world, arcs.site[other]]
            idle -= before.head_service == head.head_service
            cores += before.head_cpu_cores
    free_cores = view.machine[world, m].free_cpu_cores
    return idle > 0 and (end % 2 == 1 or has_room(cores, free_cores, system.cpu_cores[m]))


@inner(allocates=True)
def cheapest(system: System, view: ReplicaView, world: int, arcs: Arcs) -> Any:
    """(H,) ends of least total cost, depth first."""
    heads, count = arcs.cost.shape
    ends, best = np.zeros(heads, dtype=np.int64), np.full(heads, count - 1)
    tried, spent = np.zeros(heads, dtype=np.int64), np.zeros(heads + 1)
    most, h = np.inf, 0
    for _ in range(STEPS):
        if h < 0:
            break
        if tried[h] == count:
            h -= 1
            continue
        end = arcs.order[h, tried[h]]
        total = spent[h] + arcs.cost[h, end]
        if total + arcs.least[h + 1] >= most - 1e-9:  # no dearer end is better either
            h -= 1
            continue
        tried[h] += 1
        if not takes(system, view, world, arcs, ends, h, end):
            continue
        ends[h], spent[h + 1] = end, total
        if h == heads - 1:
            most = total
            for other in range(heads):
                best[other] = ends[other]
        else:
            h += 1
            tried[h] = 0
    return best


CLOUD_WORTH = 0.9  # of a request in the cloud, so that nodes are filled first


@policy("gsp-ss", live=False)  # the rates of the whole system; a gateway sees its own requests
class ShadowDispatch(RequestDispatch):
    """Draws from the shares of a shadow schedule (GSP-SS); what is not told is estimated."""

    def __init__(self) -> None:
        self._known: tuple[Floats, Floats, float] | None = None

    def know(self, requests: Requests, system: System, horizon_s: float) -> None:
        """Take rates, times and payloads of these requests as known, as the paper does."""
        real = np.arange(requests.arrival_s.shape[1]) < requests.count[:, None]
        shape = (requests.worlds, system.services)
        rate, time_s = np.zeros(shape), np.ones(shape)
        took = np.where(real, requests.service_s(), 0.0)
        for world in range(requests.worlds):
            number = np.bincount(requests.service[world][real[world]], minlength=system.services)
            total_s = np.bincount(requests.service[world], weights=took[world], minlength=system.services)
            rate[world] = number / horizon_s
            time_s[world] = np.where(number > 0, total_s / np.maximum(number, 1), 1.0)
        self._known = (rate, time_s, float(requests.payload_bytes[real].mean()))

    def reset(self, world: System, key: Key) -> None:
        """Forget the schedule."""
        self.system = world
        self._shares: Floats = np.zeros((0, 0, 0))
        self._from = -1

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) a draw from the shares of each head's service, among stations that host it now."""
        frame = int(view.clock_s[0] / (self.system.slot_s * self.system.frame_slots) + 1e-6)
        if frame != self._from or self._shares.shape[0] != view.worlds:
            self._from, self._shares = (
                frame,
                np.stack([self._schedule(view, world) for world in range(view.worlds)]),
            )
        service = np.maximum(view.head_service, 0)
        shares = np.take_along_axis(self._shares, service[:, :, None], axis=1) * hosts(view)
        shares[:, :, 0] += shares.sum(axis=2) <= 0.0
        total = shares.cumsum(axis=2)
        drawn = draws(view, 1) * total[:, :, -1:]
        return np.where(view.head >= 0, (drawn > total).sum(axis=2), HOLD)

    def _schedule(self, view: ReplicaView, world: int) -> Floats:
        """(S, N + 1) shares of a world."""
        from scipy.optimize import linprog  # slow to import, and few processes decide with it
        from scipy.sparse import coo_matrix

        system = self.system
        rate, time_s, payload_bytes = self._told(view, world)
        replicas = np.maximum(view.ready + view.starting - view.removing, 0)[world].T.astype(np.float64)
        replicas[:, 0] = 1.0
        s, k = np.nonzero((replicas > 0) & (rate > 0)[:, None])
        if not s.size:
            return np.zeros(replicas.shape)
        cores = np.append(np.inf, system.cpu_cores[system.first_machine[1] :])
        edge = np.flatnonzero(k > 0)
        rows = np.concatenate([s, system.services + k[edge], np.full((k == 0).sum(), system.services)])
        columns = np.concatenate([np.arange(s.size), edge, np.flatnonzero(k == 0)])
        work = (time_s * system.service_cpu_cores)[s[edge]]
        values = np.concatenate([np.ones(s.size), work, np.full((k == 0).sum(), 8.0 * payload_bytes)])
        limit = np.concatenate([rate, [system.rate_bps[:, 0].min()], cores[1:]])
        found = linprog(
            -np.where(k == 0, CLOUD_WORTH, 1.0),
            A_ub=coo_matrix((values, (rows, columns)), shape=(limit.size, s.size)),
            b_ub=limit,
            bounds=np.stack([np.zeros(s.size), np.where(k == 0, np.inf, replicas[s, k] / time_s[s])], axis=1),
            method="highs",
        )
        shares = np.zeros(replicas.shape)
        shares[s, k] = np.maximum(found.x, 0.0)
        return shares

    def _told(self, view: ReplicaView, world: int) -> tuple[Floats, Floats, float]:
        if self._known is not None:
            rate, time_s, payload_bytes = self._known
            return rate[world], time_s[world], payload_bytes
        seen = view.arrived[world] / (self.system.slot_s * self.system.frame_slots)
        return seen, np.ones(seen.size), float(view.head_payload_bytes[world].max(initial=0.0))
