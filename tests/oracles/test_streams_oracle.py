"""The two-level loop equals a naive simulator."""

from dataclasses import replace

import pytest
from naive_streams import Naive

import edgewise as ew
from edgewise import policies
from edgewise.core.world import World
from edgewise.sim.simulate import Simulation


@pytest.mark.parametrize("timeout_s", [0.0, 0.004])
@pytest.mark.parametrize("policy", ["closest", "least-impedance", "power-of-two"])
@pytest.mark.parametrize("name", ["tiny", "three-tier"])
def test_outcomes_equal_a_naive_simulator(name, policy, timeout_s):
    scenario = ew.load_scenario(name, {"duration_s": 20})
    variants = tuple(replace(v, batch_timeout_s=timeout_s) for v in scenario.catalog.variants)
    scenario = replace(scenario, catalog=replace(scenario.catalog, variants=variants))
    world = World.build(scenario.catalog, scenario.topology)
    simulation = Simulation(scenario, policies.load("dispatch", policy), 5, world=world)
    outcome = simulation.run()
    naive = Naive(world, simulation.trace, simulation.bound, 5).run()
    assert sum(o["ok"] for o in naive) > 100
    for key in ("ok", "failed", "rejected"):
        assert outcome.streams[key] == [o[key] for o in naive], key
