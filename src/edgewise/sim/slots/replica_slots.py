"""A slot of every world, compiled: dispatch, work, arrive; and what a frame adds and removes.

Worlds share nothing that is written, so results do not depend on the number of threads.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from edgewise.arrays import Bools, Ints
from edgewise.core.dispatch.request_rules import CLOUD, possible
from edgewise.core.ledger import book, has_room
from edgewise.core.orchestrate import HOLD, ReplicaView
from edgewise.core.orchestrate.counting import AT_ONCE, NOTHING, keeps, may_change, removal
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.model.orchestration import System
from edgewise.policies.requests.features import by_weights
from edgewise.policies.requests.rules import at_sites, by_rule, rule_at_sites, weights_at_sites
from edgewise.sim.slots.replica_kernels import arrive, imbalance, noise_s, send, work
from edgewise.sim.slots.replica_state import IMAGE_BYTES, ReplicaBatch, Truth


@inner
def queues_fit(truth: Truth, world: int) -> bool:
    """Whether no queue of a world can overflow in one slot."""
    for k in range(truth.station.shape[1]):
        station = truth.station[world, k]
        if station.queued + station.running + truth.waiting.shape[1] > truth.place.shape[2]:
            return False
    return True


@inner
def begin_slot(system: System, x: ReplicaBatch, world: int, slot: int) -> None:
    """What is seen at the start of a slot: arrivals, drops at sites, the measured delay to the cloud."""
    now_s, clock = slot * system.slot_s, x.seen.world[world]
    frame = min(slot // system.frame_slots, x.truth.tally.shape[1] - 1)
    arrive(system, x, world, now_s, frame)
    clock.clock_s = now_s
    mean_s = 0.0
    for b in range(system.delay_s.shape[0]):
        mean_s += system.delay_s[b, 0] / system.delay_s.shape[0]
    seed, deviation_s = x.truth.links[world].seed, system.deviation_s[0, 0]
    differs_s = noise_s(deviation_s, seed, 0, slot - 1) if slot > 0 else 0.0
    clock.cloud_delay_s = max(0.0, mean_s + differs_s) + max(0.0, x.truth.links[world].up_free_s - now_s)


@inner
def pass_slot(system: System, x: ReplicaBatch, world: int, stations: Ints, slot: int) -> None:
    """Dispatch (B,) `stations` of a world, work through the slot, and begin the next one."""
    if slot % system.frame_slots == 0:
        x.seen.arrived[world, :] = 0  # orchestration has seen the last frame's
    x.truth.ended[world, 0] = 0
    x.truth.ended[world, 1] = 0
    for b in range(stations.size):
        if stations[b] >= 0:
            send(system, x, world, b, stations[b], slot)
    begin_s, end_s, frame = slot * system.slot_s, (slot + 1) * system.slot_s, slot // system.frame_slots
    for k in range(x.truth.station.shape[1]):
        station = x.truth.station[world, k]
        if station.queued + station.running + station.starts > 0:
            work(system, x, world, k, begin_s, end_s, frame)
    begin_slot(system, x, world, slot + 1)
    x.truth.links[world].imbalance = imbalance(system, x, world)


@inner
def instead(x: ReplicaBatch, world: int, b: int) -> int:
    """What stands in for a decision that cannot be carried out: the cloud, where there is a head."""
    return CLOUD if x.seen.site[world, b].head >= 0 else HOLD


@kernel(allocates=False)
def pass_all(
    system: System, seen: ReplicaView, truth: Truth, stations: Ints, slot: int, strict: bool
) -> tuple[int, int]:
    """One slot of every world under (W, B) stations; slot -1 only begins the first.

    Args:
        strict: stop at a decision that cannot be carried out, before anything has changed; else the cloud
            stands in.

    Returns:
        How many decisions cannot be carried out, and world * B + b of the last of them.
    """
    p, x, wrong, where = held(system), held(ReplicaBatch(seen, truth)), 0, -1
    for world in range(stations.shape[0]):
        for b in range(stations.shape[1]):
            if slot >= 0 and not possible(x.seen, world, b, stations[world, b]):
                wrong, where = wrong + 1, world * stations.shape[1] + b
                if strict:
                    return wrong, where
                stations[world, b] = instead(x, world, b)
    for world in range(stations.shape[0]):
        if slot < 0:
            begin_slot(p, x, world, 0)
        else:
            pass_slot(p, x, world, stations[world], slot)
    return wrong, where


@inner
def goes_on(system: System, x: ReplicaBatch, world: int, span: Any) -> bool:
    """Pass one slot of a world of a `Span` under its stations; False where one is not possible."""
    for b in range(span.stations.shape[1]):
        span.asked[world] += x.seen.site[world, b].head >= 0
        if not possible(x.seen, world, b, span.stations[world, b]):
            span.wrong[world] += 1
            if span.strict:
                return False
            span.stations[world, b] = instead(x, world, b)
    pass_slot(system, x, world, span.stations[world], span.slots[world])
    span.slots[world] += 1
    return True


class Span(NamedTuple):
    """Slots that some worlds are to pass.

    Attributes:
        first, end: worlds first … end - 1 pass.
        slots: (W,) next slot of each world; advanced.
        until: the first slot not to pass; a world also stops where a queue may overflow.
        memory: of who decides.
        stations: (W, B) for its decisions.
        asked, wrong: (W,) decisions, and of these such that were not possible: the cloud stands in.
        strict: a world stops there instead.
    """

    first: int
    end: int
    slots: Ints
    until: int
    memory: Any
    stations: Ints
    asked: Ints
    wrong: Ints
    strict: bool


@kernel(allocates=False, nogil=True)
def pass_by_rule(system: System, seen: ReplicaView, truth: Truth, span: Span) -> None:
    """`passing` for the shipped rules, cached on disk."""
    p, x = held(system), held(ReplicaBatch(seen, truth))
    for world in range(span.first, span.end):
        while span.slots[world] < span.until and queues_fit(x.truth, world):
            rule_at_sites(p, x.seen, world, span.memory, span.stations[world])
            if not goes_on(p, x, world, span):
                break


@kernel(allocates=False, nogil=True)
def pass_by_weights(system: System, seen: ReplicaView, truth: Truth, span: Span) -> None:
    """`passing` for weights, cached on disk; see `pass_by_rule`."""
    p, x = held(system), held(ReplicaBatch(seen, truth))
    for world in range(span.first, span.end):
        while span.slots[world] < span.until and queues_fit(x.truth, world):
            weights_at_sites(p, x.seen, world, span.memory, span.stations[world])
            if not goes_on(p, x, world, span):
                break


def passing(rule: Callable[..., int]) -> Callable[..., None]:
    """Kernel that passes slots of some worlds, each deciding for itself, see `pass_by_rule`.

    A kernel that is not shipped is compiled once in every process.
    """
    if rule is by_weights:
        return pass_by_weights
    return pass_by_rule if rule is by_rule else _passing(rule)


@cache
def _passing(rule: Callable[..., int]) -> Callable[..., None]:
    decide_at_sites = at_sites(rule)

    @kernel(allocates=False, nogil=True, cache=False)
    def pass_deciding(system: System, seen: ReplicaView, truth: Truth, span: Span) -> None:
        p, x = held(system), held(ReplicaBatch(seen, truth))
        for world in range(span.first, span.end):
            while span.slots[world] < span.until and queues_fit(x.truth, world):
                decide_at_sites(p, x.seen, world, span.memory, span.stations[world])
                if not goes_on(p, x, world, span):
                    break

    return pass_deciding


@inner
def scale_one(system: System, x: ReplicaBatch, world: int, node: int, change: int, slot: int) -> bool:
    """Carry out one command, see `ReplicaPolicy.decide`; False if it was not possible."""
    service = abs(change) - 1
    if change == 0 or node < 0 or node >= system.site_of.size or service >= system.service_memory_bytes.size:
        return False
    if change < 0:
        return remove(system, x, world, node + 1, service)
    return add(system, x, world, node + 1, service, slot)


@inner
def remove(system: System, x: ReplicaBatch, world: int, k: int, service: int) -> bool:
    """Delete an idle replica, or mark that one goes when it is idle."""
    replicas = x.seen.replicas[world, k, service]
    what = removal(replicas.ready, replicas.busy, replicas.starting, replicas.removing)
    if what == NOTHING:
        return False
    if what == AT_ONCE:
        replicas.ready -= 1
        machine = x.seen.machine[world, system.first_machine[k]]
        book(machine, -system.replica_cpu_cores[service], -system.service_memory_bytes[service])
    else:
        replicas.removing += 1
    return True


@inner
def add(system: System, x: ReplicaBatch, world: int, k: int, service: int, slot: int) -> bool:
    """Keep a replica that was to go, or start one: pull the layers that lack, then the start delay."""
    m, station, replicas = (
        system.first_machine[k],
        x.truth.station[world, k],
        x.seen.replicas[world, k, service],
    )
    if keeps(replicas.removing):
        replicas.removing -= 1
        return True
    machine, cores = x.seen.machine[world, m], system.replica_cpu_cores[service]
    if not has_room(system.service_memory_bytes[service], machine.free_memory_bytes, system.memory_bytes[m]):
        return False
    if cores > 0.0 and not has_room(cores, machine.free_cpu_cores, system.cpu_cores[m]):
        return False
    if station.starts == x.truth.start.shape[2] or not make_room(system, x, world, k, service):
        return False
    book(machine, cores, system.service_memory_bytes[service])
    start = x.truth.start[world, k, station.starts]
    start.service = service
    start.ready_s = pull(system, x, world, k, service, slot) + system.start_delay_s
    station.starts += 1
    replicas.starting += 1
    return True


@inner
def pull(system: System, x: ReplicaBatch, world: int, k: int, service: int, slot: int) -> float:
    """Pull the layers that station k lacks over the shared way from the cloud; when the image is there."""
    links, now_s = x.truth.links[world], slot * system.slot_s
    site, there_s = system.site_of[k - 1], now_s
    delay_s = system.delay_s[site, 0]
    for i in range(system.layer_bytes.size):
        if not system.needs_layer[service, i]:
            continue
        layer = x.seen.layer[world, k, i]
        if layer.on_disk == 0:
            size_bytes = system.layer_bytes[i]
            layer.on_disk = 1
            x.seen.free_disk_bytes[world, k] -= size_bytes
            x.truth.tally[world, slot // system.frame_slots, IMAGE_BYTES] += size_bytes
            links.down_free_s = max(now_s, links.down_free_s) + 8.0 * size_bytes / system.rate_bps[site, 0]
            layer.ready_s = links.down_free_s + delay_s
        there_s = max(there_s, layer.ready_s)
    return there_s


@inner
def make_room(system: System, x: ReplicaBatch, world: int, k: int, service: int) -> bool:
    """Delete layers that no replica on station k needs, lowest first, until the image fits on its disk."""
    lack_bytes, idle_bytes, disk_bytes = -x.seen.free_disk_bytes[world, k], 0.0, system.disk_bytes[k]
    for i in range(system.layer_bytes.size):
        if system.needs_layer[service, i] and x.seen.layer[world, k, i].on_disk == 0:
            lack_bytes += system.layer_bytes[i]
        elif deletable(system, x, world, k, service, i):
            idle_bytes += system.layer_bytes[i]
    if not has_room(lack_bytes, idle_bytes, disk_bytes):
        return False
    for i in range(system.layer_bytes.size):
        if has_room(lack_bytes, 0.0, disk_bytes):
            break
        if deletable(system, x, world, k, service, i):
            x.seen.layer[world, k, i].on_disk = 0
            x.seen.free_disk_bytes[world, k] += system.layer_bytes[i]
            lack_bytes -= system.layer_bytes[i]
    return True


@inner
def deletable(system: System, x: ReplicaBatch, world: int, k: int, service: int, layer: int) -> bool:
    """Whether a layer is on station k, and neither `service` nor any replica there needs it."""
    if x.seen.layer[world, k, layer].on_disk == 0 or system.needs_layer[service, layer]:
        return False
    for other in range(system.service_memory_bytes.size):
        replicas = x.seen.replicas[world, k, other]
        if system.needs_layer[other, layer] and replicas.ready + replicas.starting > 0:
            return False
    return True


@kernel(allocates=False)
def scale_all(
    system: System, seen: ReplicaView, truth: Truth, commands: Ints, slot: int, most: int, valid: Bools
) -> None:
    """(W, K, 2) commands in order, on at most so many nodes; (W, K) `valid` says which were carried out."""
    p, x = held(system), held(ReplicaBatch(seen, truth))
    for world in range(commands.shape[0]):
        for i in range(commands.shape[1]):
            if may_change(commands[world], valid[world], i, most):
                valid[world, i] = scale_one(p, x, world, commands[world, i, 0], commands[world, i, 1], slot)
