"""Rules for requests, each one kernel: the same in thousands of simulated worlds and at a live gateway.

A new one is a kernel `rule(system, view, world, b, memory) -> station` and a subclass of `KernelDispatch`
that names it, with the decorator `@policy("name")`. The batched simulation compiles the kernel in;
`decide` calls the same kernel on any view, live too.

Index b is the site, k the station (0 the cloud), s the service of the head.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.request_rules import stays, way_s
from edgewise.core.keyed import Key, Purpose, uniform_of
from edgewise.core.ledger import has_room
from edgewise.core.orchestrate import HOLD, ReplicaView
from edgewise.errors import PolicyError
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.model.orchestration import System
from edgewise.policies.registry import policy
from edgewise.policies.requests.features import STATION_FEATURES, by_weights


class RequestDispatch:
    """Base of all that ship: they see many worlds at once."""

    decision, batched = "requests", True
    name = ""

    def reset(self, world: System, key: Key) -> None:
        """Remember the system; draws come from `view.seed`."""
        self.system = world


class KernelDispatch(RequestDispatch):
    """Base of policies that are one kernel.

    Attributes:
        rule: rule(system, view, world, b, memory) -> station of the head of site b, or HOLD.
        memory: arrays of the kernel's own.
    """

    rule: Any  # a numba dispatcher, or under EDGEWISE_JIT=0 a plain function: set as a staticmethod
    in_worlds: Any = None  # a kernel that fills (W, B) stations and is kept on disk; None: made of `rule`
    memory: Floats = np.zeros(1)

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) what the kernel decides for each head."""
        stations = np.empty(view.site.shape, dtype=np.int64)
        (self.in_worlds or in_worlds(self.rule))(self.system, view, self.memory, stations)
        return stations


@cache
def at_sites(rule: Callable[..., int]) -> Callable[..., None]:
    """Kernel (system, view, world, memory, stations) that fills (B,) with what `rule` says for world w."""

    @kernel(allocates=False, cache=False)
    def decide_at_sites(system: System, view: ReplicaView, world: int, memory: Any, stations: Ints) -> None:
        for b in range(stations.size):
            stations[b] = rule(system, view, world, b, memory) if view.site[world, b].head >= 0 else HOLD

    return decide_at_sites


@cache
def in_worlds(rule: Callable[..., int]) -> Callable[..., None]:
    """Kernel (system, view, memory, stations) that fills (W, B) stations."""
    decide_at_sites = at_sites(rule)

    @kernel(allocates=False, cache=False)
    def decide_in_worlds(system: System, view: ReplicaView, memory: Any, stations: Ints) -> None:
        for world in range(stations.shape[0]):
            decide_at_sites(system, view, world, memory, stations[world])

    return decide_in_worlds


POLICY = int(Purpose.POLICY)


@inner
def fits(system: System, view: ReplicaView, world: int, b: int, k: int) -> bool:
    """Whether node k has the cores and memory for the head of site b now."""
    head, m = view.site[world, b], system.first_machine[k]
    machine = view.machine[world, m]
    cores = has_room(head.head_cpu_cores, machine.free_cpu_cores, system.cpu_cores[m])
    return bool(cores and has_room(head.head_memory_bytes, machine.free_memory_bytes, system.memory_bytes[m]))


@inner
def use(system: System, view: ReplicaView, world: int, k: int) -> float:
    """Mean of the shares of cores and memory in use on node k."""
    m = system.first_machine[k]
    cpu = 1.0 - view.machine[world, m].free_cpu_cores / system.cpu_cores[m]
    memory = 1.0 - view.machine[world, m].free_memory_bytes / system.memory_bytes[m]
    return float(0.5 * (cpu + memory))


@inner
def travel_s(system: System, view: ReplicaView, world: int, b: int, k: int) -> float:
    """Time for the head of site b to reach station k, the wait for the WAN as last measured."""
    return way_s(system, view.world[world].cloud_delay_s, b, k, view.site[world, b].head_payload_bytes)


@inner
def wait_s(system: System, view: ReplicaView, world: int, b: int, k: int) -> float:
    """Expected time until the head of site b begins on node k.

    Requests of its service before it share the replicas, all requests share the cores; the longer wait
    counts. A request that is worked on has, in the mean, half of its time left.
    """
    head = view.site[world, b]
    replicas = view.replicas[world, k, head.head_service]
    stays = replicas.ready - replicas.removing
    ahead_s = replicas.waiting_s + 0.5 * replicas.busy * head.head_service_s
    by_replica_s = 0.0 if replicas.busy + replicas.waiting < stays else ahead_s / stays
    if fits(system, view, world, b, k):
        return float(by_replica_s)
    core_s = 0.0
    for s in range(view.replicas.shape[2]):
        other = view.replicas[world, k, s]
        core_s += system.service_cpu_cores[s] * (other.waiting_s + 0.5 * other.busy * head.head_service_s)
    return float(max(by_replica_s, core_s / system.cpu_cores[system.first_machine[k]]))


@inner
def nearest(system: System, view: ReplicaView, world: int, b: int, memory: Any) -> int:
    """The nearest node that hosts the service and has room; of equal ones the least used; else the cloud."""
    best, best_s, least, s = 0, np.inf, np.inf, view.site[world, b].head_service
    for k in range(1, view.replicas.shape[1]):
        if system.delay_s[b, k] <= best_s and stays(view, world, k, s) and fits(system, view, world, b, k):
            used = use(system, view, world, k)
            if system.delay_s[b, k] < best_s or used < least:
                best, best_s, least = k, system.delay_s[b, k], used
    return best


@inner
def least_used(system: System, view: ReplicaView, world: int, b: int, memory: Any) -> int:
    """The least used node that hosts the service and has room, else the cloud."""
    best, least, s = 0, np.inf, view.site[world, b].head_service
    for k in range(1, view.replicas.shape[1]):
        if stays(view, world, k, s) and fits(system, view, world, b, k):
            used = use(system, view, world, k)
            if used < least:
                best, least = k, used
    return best


@inner
def draw_stays(view: ReplicaView, world: int, s: int, count: int, draw: float) -> int:
    """The node at `draw` in (0, 1) among `count` that host service s."""
    left = int(draw * count)
    for k in range(1, view.replicas.shape[1]):
        if stays(view, world, k, s):
            if left == 0:
                return k
            left -= 1
    return 0


@inner
def count_stays(view: ReplicaView, world: int, s: int) -> int:
    """Nodes that host service s."""
    count = 0
    for k in range(1, view.replicas.shape[1]):
        count += stays(view, world, k, s)
    return count


@inner
def slot_of(system: System, view: ReplicaView, world: int) -> int:
    """Number of the slot."""
    return int(view.world[world].clock_s / system.slot_s + 0.5)


@inner
def better_of_two(system: System, view: ReplicaView, world: int, b: int, memory: Any) -> int:
    """Of two random nodes that host the service, where it begins first; the cloud where none does."""
    s, slot, seed = view.site[world, b].head_service, slot_of(system, view, world), view.world[world].seed
    count = count_stays(view, world, s)
    if count == 0:
        return 0
    one = draw_stays(view, world, s, count, uniform_of(seed, POLICY, b, 2 * slot))
    two = draw_stays(view, world, s, count, uniform_of(seed, POLICY, b, 2 * slot + 1))
    return two if wait_s(system, view, world, b, two) < wait_s(system, view, world, b, one) else one


@inner
def anywhere(system: System, view: ReplicaView, world: int, b: int, memory: Any) -> int:
    """A random node that hosts the service and has room, or the cloud, all as likely (the context mask)."""
    s, count = view.site[world, b].head_service, 1
    for k in range(1, view.replicas.shape[1]):
        count += stays(view, world, k, s) and fits(system, view, world, b, k)
    left = int(count * uniform_of(view.world[world].seed, POLICY, b, slot_of(system, view, world)))
    if left > 0:
        for k in range(1, view.replicas.shape[1]):
            if stays(view, world, k, s) and fits(system, view, world, b, k):
                left -= 1
                if left == 0:
                    return k
    return 0


@inner
def soonest(system: System, view: ReplicaView, world: int, b: int, memory: Any) -> int:
    """The nearest station where it ends in time: own nodes, other nodes, the cloud; else where it ends first.

    Among nodes that are as near, the one where it begins first.
    """
    head = view.site[world, b]
    left_s = head.head_deadline_s - view.world[world].clock_s - head.head_service_s
    best, best_s, first, first_s = -1, np.inf, 0, np.inf
    for k in range(view.replicas.shape[1]):
        if k > 0 and not stays(view, world, k, head.head_service):
            continue
        begin_s, rank_s = travel_s(system, view, world, b, k), 1e6
        if k > 0:
            begin_s += wait_s(system, view, world, b, k)
            rank_s = begin_s if system.site_of[k - 1] == b else begin_s + 1e3
        if begin_s <= left_s and rank_s < best_s:
            best, best_s = k, rank_s
        if begin_s < first_s:
            first, first_s = k, begin_s
    return best if best >= 0 else first


RULES = ("cloud-only", "closest", "greedy", "two-choices", "random", "deadline-queue")


@inner
def by_rule(system: System, view: ReplicaView, world: int, b: int, memory: Any) -> int:
    """The rule that `memory[0]` numbers; one kernel for all, so that the engine is compiled once.

    Without `by_weights`, which compiles for as long as all of them.
    """
    rule = int(memory[0])
    if rule == 1:
        return nearest(system, view, world, b, memory)
    if rule == 2:
        return least_used(system, view, world, b, memory)
    if rule == 3:
        return better_of_two(system, view, world, b, memory)
    if rule == 4:
        return anywhere(system, view, world, b, memory)
    if rule == 5:
        return soonest(system, view, world, b, memory)
    return 0


@inner
def rule_at_sites(system: System, view: ReplicaView, world: int, memory: Any, stations: Ints) -> None:
    """Fill (B,) with the rule's decisions for all sites of a world, HOLD without a head."""
    for b in range(stations.size):
        stations[b] = by_rule(system, view, world, b, memory) if view.site[world, b].head >= 0 else HOLD


@kernel(allocates=False)
def _rule_in_worlds(system: System, view: ReplicaView, memory: Any, stations: Ints) -> None:
    for world in range(stations.shape[0]):
        rule_at_sites(held(system), held(view), world, memory, stations[world])


@inner
def weights_at_sites(system: System, view: ReplicaView, world: int, memory: Any, stations: Ints) -> None:
    """`rule_at_sites` of `by_weights`."""
    for b in range(stations.size):
        stations[b] = by_weights(system, view, world, b, memory) if view.site[world, b].head >= 0 else HOLD


@kernel(allocates=False)
def _weights_in_worlds(system: System, view: ReplicaView, memory: Any, stations: Ints) -> None:
    for world in range(stations.shape[0]):
        weights_at_sites(held(system), held(view), world, memory, stations[world])


class RequestRule(KernelDispatch):
    """Base of the shipped rules."""

    rule: Any = staticmethod(by_rule)
    in_worlds: Any = staticmethod(_rule_in_worlds)

    def __init__(self) -> None:
        self.memory = np.array([float(RULES.index(self.name))])


@policy("cloud-only")
class CloudOnly(RequestRule):
    """Everything goes to the cloud."""


@policy("closest")
class NearestReplica(RequestRule):
    """The nearest node that hosts the service and has cores and memory now, else the cloud."""


@policy("greedy")
class Greedy(RequestRule):
    """The least used node that hosts the service and has cores and memory now, else the cloud (KaiS, V)."""


@policy("two-choices")
class TwoChoices(RequestRule):
    """Of two random nodes that host the service, where the request begins first (Mitzenmacher)."""


@policy("random")
class RandomStation(RequestRule):
    """A random station of the context mask."""


@policy("deadline-queue")
class DeadlineQueue(RequestRule):
    """The nearest station that ends the request in time by its queue; where none does, the soonest."""


class Weighted(RequestRule):
    """The station with the largest weighted sum of its features; weights fit one system.

    Args:
        weights: (F + 1,) of STATION_FEATURES, and the log of the width of each site's own draw.
        name: of the policy.
    """

    rule = staticmethod(by_weights)
    in_worlds = staticmethod(_weights_in_worlds)

    def __init__(self, weights: Floats, name: str = "weighted") -> None:
        if weights.shape != (len(STATION_FEATURES) + 1,):
            raise PolicyError(f"{name}: {weights.shape} weights, use ({len(STATION_FEATURES) + 1},)")
        self.name = name
        self.memory = np.array(weights, dtype=np.float64)
