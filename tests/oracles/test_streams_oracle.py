"""The two-level loop equals a naive simulator."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from naive_failing import NaiveFailing
from naive_shared import NaiveBoth, NaiveShared
from naive_streams import Naive

import edgewise as ew
from edgewise import policies
from edgewise.core.world import World
from edgewise.model.topology import NodeChange
from edgewise.model.ways import routes_of
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


@pytest.mark.parametrize(("policy", "lag_s"), [("power-of-two", 0.04), ("least-loaded-feasible", 0.08)])
def test_queries_of_streams_that_move_and_of_workers_that_die_equal_a_naive_simulator(policy, lag_s):
    """Two nodes fail, the second while what the first has lost is on its way there; one comes back."""
    changes = {"duration_s": 20, "telemetry.lag_s": lag_s, "streams.arrivals.clients_per_min": 60}
    scenario = ew.load_scenario("three-tier", changes)
    fails = [(9.02, "office-0", False), (9.02 + lag_s + 0.02, "cloud-0", False), (16.3, "office-0", True)]
    scenario = replace(scenario, timeline=tuple(NodeChange(*each) for each in fails))
    simulation = Simulation(scenario, policies.load("dispatch", policy), 5)
    outcome = simulation.run()
    given = outcome.commands, scenario.timeline, lag_s
    naive = NaiveFailing(simulation.world, simulation.trace, *given, 5)
    found = naive.run()
    for key in ("ok", "failed", "rejected"):
        assert outcome.streams[key] == [o[key] for o in found], key
    assert naive.again > 5 and sum(o["failed"] for o in found) > 0


CABLES = """
- {name: "lan-{site}", bandwidth_bps: 40Mbps, delay_s: 0.5ms}
- {name: wan, bandwidth_bps: 30Mbps, delay_s: 4ms, deviation_s: 1ms, buffer_bytes: 1MB}
- {site: "*", cluster: access-0, over: "lan-{site}"}
- {site: "*", cluster: access-1, over: ["lan-{site}"], delay_s: 1ms}
- {site: "*", cluster: central-office, over: ["lan-{site}", wan]}
- {site: "*", cluster: cloud, over: ["lan-{site}", wan], delay_s: 20ms, deviation_s: 2ms}
"""


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
@pytest.mark.parametrize("policy", ["closest", "least-impedance", "power-of-two"])
def test_over_shared_links_outcomes_equal_a_naive_simulator(policy, sharing):
    scenario = ew.load_scenario(
        "three-tier", {"duration_s": 20, "sharing": sharing, "links": yaml.safe_load(CABLES)}
    )
    streams = scenario.streams
    kinds = tuple(kind.model_copy(update={"answer_bytes": 3e4}) for kind in streams.applications)
    scenario = replace(scenario, streams=replace(streams, applications=kinds))
    world = World.build(scenario.catalog, scenario.topology, sharing)
    simulation = Simulation(scenario, policies.load("dispatch", policy), 5, world=world)
    outcome = simulation.run()
    routes = routes_of(scenario.topology)
    naive = NaiveShared(world, simulation.trace, simulation.bound, 5, routes, sharing).run()
    for key in ("ok", "failed", "rejected"):
        assert outcome.streams[key] == [o[key] for o in naive], key
    assert sum(o["ok"] for o in naive) > 100
    assert simulation.carrier.wires.net.links.carried_bits.min() > 0 or policy != "power-of-two"


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
@pytest.mark.parametrize(
    ("both", "timeout_s"),
    [(("wan",), 0.0), (("wan",), 0.004), (("wan", "lan-{site}"), 0.0), (("wan", "lan-{site}"), 0.004)],
)
def test_answers_on_links_of_payloads_equal_a_naive_simulator(both, timeout_s, sharing):
    """A link of one capacity for both directions: what is answered holds up what is asked."""
    links = [
        {k: v for k, v in each.items() if k != "buffer_bytes"}
        | ({"shared": "both"} if each.get("name") in both else {})
        for each in yaml.safe_load(CABLES)
    ]
    scenario = ew.load_scenario("three-tier", {"duration_s": 12, "sharing": sharing, "links": links})
    streams = scenario.streams
    kinds = tuple(kind.model_copy(update={"answer_bytes": 3e4}) for kind in streams.applications)
    variants = tuple(replace(v, batch_timeout_s=timeout_s) for v in scenario.catalog.variants)
    scenario = replace(
        scenario, streams=replace(streams, applications=kinds),
        catalog=replace(scenario.catalog, variants=variants),
    )  # fmt: skip
    world = World.build(scenario.catalog, scenario.topology, sharing)
    simulation = Simulation(scenario, policies.load("dispatch", "power-of-two"), 5, world=world)
    assert simulation.carrier.carried.feeds_back
    outcome = simulation.run()
    naive = NaiveBoth(world, simulation.trace, simulation.bound, 5, routes_of(scenario.topology), sharing)
    found = naive.run()
    for key in ("ok", "failed", "rejected"):
        assert outcome.streams[key] == [o[key] for o in found], key
    assert sum(o["ok"] for o in found) > 100
    means = [np.mean(naive.took.get(s, [np.nan])) for s in range(len(found))]
    seen = [np.nan if mean_s is None else mean_s for mean_s in outcome.streams["delay_mean_s"]]
    np.testing.assert_allclose(seen, means, rtol=0, atol=1e-9)
