"""A slot of every world, compiled: dispatch, work, arrive.

Worlds share nothing that is written, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from edgewise.arrays import Bools, Ints
from edgewise.core.compiled import inner, kernel
from edgewise.core.dispatch.requests import possible
from edgewise.core.held import held
from edgewise.core.orchestrate import ReplicaView
from edgewise.core.orchestrate.counting import may_change
from edgewise.model.orchestration import System
from edgewise.policies.dispatch.requests.base import at_sites
from edgewise.policies.dispatch.requests.rules import by_rule, rule_at_sites, weights_at_sites
from edgewise.policies.dispatch.requests.stations import by_weights
from edgewise.sim.slots.replica_kernels import arrive, cloud_noise_s, imbalance, send, work
from edgewise.sim.slots.replica_scaling import scale_one
from edgewise.sim.slots.replica_state import ReplicaBatch, Truth


@inner
def has_room(truth: Truth, world: int) -> bool:
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
    noise_s = cloud_noise_s(system, x, world, slot - 1) if slot > 0 else 0.0
    clock.cloud_delay_s = max(0.0, mean_s + noise_s) + max(0.0, x.truth.links[world].up_free_s - now_s)


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


@kernel(allocates=False)
def pass_all(system: System, seen: ReplicaView, truth: Truth, stations: Ints, slot: int) -> int:
    """One slot of every world under (W, B) stations; slot -1 only begins the first.

    Returns:
        world * B + b of the first decision that cannot be carried out, when nothing has changed; or -1.
    """
    p, x = held(system), held(ReplicaBatch(seen, truth))
    for world in range(stations.shape[0]):
        for b in range(stations.shape[1]):
            if slot >= 0 and not possible(x.seen, world, b, stations[world, b]):
                return int(world * stations.shape[1] + b)
    for world in range(stations.shape[0]):
        if slot < 0:
            begin_slot(p, x, world, 0)
        else:
            pass_slot(p, x, world, stations[world], slot)
    return -1


@inner
def goes_on(system: System, x: ReplicaBatch, world: int, stations: Ints, slots: Ints, wrong: Ints) -> bool:
    """Pass one slot of a world under (B,) stations; False, and `wrong` 1, where they are not possible."""
    for b in range(stations.size):
        if not possible(x.seen, world, b, stations[b]):
            wrong[world] = 1
            return False
    pass_slot(system, x, world, stations, slots[world])
    slots[world] += 1
    return True


class Span(NamedTuple):
    """Slots that some worlds are to pass.

    Attributes:
        first, end: worlds first … end - 1 pass.
        slots: (W,) next slot of each world; advanced.
        until: the first slot not to pass; a world also stops where a queue may overflow.
        memory: of who decides.
        stations: (W, B) for its decisions.
        wrong: (W,) 1 where a decision was not possible; that world stops.
    """

    first: int
    end: int
    slots: Ints
    until: int
    memory: Any
    stations: Ints
    wrong: Ints


@kernel(allocates=False, nogil=True)
def pass_by_rule(system: System, seen: ReplicaView, truth: Truth, span: Span) -> None:
    """`passing` for the shipped rules, cached on disk."""
    p, x = held(system), held(ReplicaBatch(seen, truth))
    for world in range(span.first, span.end):
        while span.slots[world] < span.until and has_room(x.truth, world):
            rule_at_sites(p, x.seen, world, span.memory, span.stations[world])
            if not goes_on(p, x, world, span.stations[world], span.slots, span.wrong):
                break


@kernel(allocates=False, nogil=True)
def pass_by_weights(system: System, seen: ReplicaView, truth: Truth, span: Span) -> None:
    """`passing` for weights, cached on disk; see `pass_by_rule`."""
    p, x = held(system), held(ReplicaBatch(seen, truth))
    for world in range(span.first, span.end):
        while span.slots[world] < span.until and has_room(x.truth, world):
            weights_at_sites(p, x.seen, world, span.memory, span.stations[world])
            if not goes_on(p, x, world, span.stations[world], span.slots, span.wrong):
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
            while span.slots[world] < span.until and has_room(x.truth, world):
                decide_at_sites(p, x.seen, world, span.memory, span.stations[world])
                if not goes_on(p, x, world, span.stations[world], span.slots, span.wrong):
                    break

    return pass_deciding


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
