"""No policy ends more requests in time than the hindsight program says, and it is not idle talk."""

from __future__ import annotations

import numpy as np
import pytest
from replica_scenarios import a_system, some_commands, some_requests
from replicas_bound import hindsight_bound

from edgewise import policies
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import Requests
from edgewise.policies import cards
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate

SLOTS = 40


@pytest.mark.parametrize("seed", range(6))
def test_no_policy_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    system = a_system(rng)
    drawn = some_requests(rng, system, 2, SLOTS, 60)
    bound = [hindsight_bound(system, drawn, w, SLOTS, w, bin_s=0.5) for w in range(2)]
    for name in policies.names("requests"):
        for scaling in {*policies.names("orchestrate")} - {*cards.shipped("orchestrate")}:
            worlds = ReplicaWorlds(system, drawn, SLOTS, range(2))
            outcome = simulate(worlds, policies.load("requests", name), policies.load("orchestrate", scaling))
            assert (outcome.in_time.sum(axis=1) <= np.array(bound) + 1e-6).all(), (name, scaling)
    assert (np.array(bound) <= drawn.count).all()


def _crowd(system_seed: int, number: int) -> tuple[float, Requests]:
    """Requests that all want one second of all cores within two seconds."""
    system = a_system(np.random.default_rng(system_seed))
    ways = np.zeros_like(system.delay_s)
    system = system._replace(deviation_s=ways, service_deviation=0.0, rate_bps=ways + 1e9)
    first = system.first_machine[1]
    shape = (1, number)
    cores = np.full(shape, float(system.cpu_cores.min()))
    drawn = Requests(
        np.array([number]),
        np.zeros(shape),
        np.arange(number)[None] % system.sites,
        np.zeros(shape, dtype=np.int64),
        np.full(shape, 2.0),
        cores.copy(),
        cores,
        np.zeros(shape),
        np.zeros(shape),
    )
    total = float(system.cpu_cores[first:].sum() + system.cpu_cores[:first].sum())
    assert system.slot_s == 0.25
    dispatched = 4.0 * system.sites  # within the first second, 0.25 s apart
    most = min(2.0 * total / cores[0, 0], dispatched + system.sites)
    return most - hindsight_bound(system, drawn, 0, SLOTS, bin_s=0.25), drawn


@pytest.mark.parametrize("seed", range(3))
def test_cores_and_dispatch_bind(seed: int) -> None:
    """A crowd of 100 at once: the bound is what cores and one dispatch per slot allow, not 100."""
    gap, drawn = _crowd(seed, 100)
    assert -1e-2 <= gap <= 4.0  # windows are a microsecond wide of the deadline, bins a slot
    assert int(drawn.count[0]) == 100


def test_commands_of_any_kind_stay_below() -> None:
    rng = np.random.default_rng(11)
    system = a_system(rng)
    drawn = some_requests(rng, system, 1, SLOTS, 60)
    worlds, policy = (
        ReplicaWorlds(system, drawn, SLOTS, [3]),
        policies.load("requests", "deadline-queue"),
    )
    policy.reset(system, Key(0))
    while not worlds.done:
        if worlds.frame_begins:
            worlds.scale(some_commands(rng, system, 1))
        worlds.step(policy.decide(worlds.view))
    assert worlds.outcome().in_time.sum() <= hindsight_bound(system, drawn, 0, SLOTS, 3) + 1e-6
