"""Minimum cost: the heads of all sites are assigned together (Firmament's flow network, solved exactly).

Each head is a unit of flow. It goes to a station over the station's idle replicas of its service (cost:
travel), over its queue (cost: travel and expected wait, one unit per slot), or it stays unscheduled. An arc
that misses the deadline costs 100 s more. Idle replicas and free cores bound what a station takes at once.
A slot has a handful of heads: all assignments are gone through, the cheapest arcs first, and cut off where
even the cheapest arcs of the heads that are left cannot improve on the best one; after 5,000 steps that one
counts.
"""

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.request_rules import stays
from edgewise.core.ledger import has_room
from edgewise.core.orchestrate import HOLD, ReplicaView
from edgewise.kernels.compiled import inner, kernel
from edgewise.kernels.order import argsort
from edgewise.model.orchestration import System
from edgewise.policies.registry import policy
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
