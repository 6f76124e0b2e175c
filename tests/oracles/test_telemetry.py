"""Telemetry knows what has happened when it is taken, and nothing that comes later."""

from dataclasses import replace

import numpy as np
import pytest
from naive_streams import Naive

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import Measured, Telemetry
from edgewise.core.sojourns import BINS_PER_DECADE, DELAY_BINS, SHORTEST_S
from edgewise.core.telemetry import LONGEST_S
from edgewise.core.world import World
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.topology import NodeChange
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.telemetry import delay_bin
from edgewise.testing import queue_scenario


class Sampled(Simulation):
    """Keeps the telemetry that it sent."""

    def _told(self, site, event):
        if isinstance(event, Measured):
            self.kept = [*getattr(self, "kept", []), event.telemetry]
        return super()._told(site, event)


def test_no_sample_can_see_which_batches_will_end_or_die():
    """Every node fails a microsecond after a sample, or none does: the sample is the same."""
    scenario = ew.load_scenario("three-tier")
    samples = []
    for ups in ([], [False]):
        nodes = [node.name for node in scenario.topology.nodes]
        timeline = tuple(NodeChange(30.0 + 1e-6, node, up) for node in nodes for up in ups)
        simulation = Sampled(replace(scenario, timeline=timeline), policies.load("dispatch", "closest"), 0)
        simulation.run()
        samples.append([t for t in simulation.kept if t.measured_s == 30.0])
    (one,), (other,) = samples
    assert one.queue.sum() > 0.0  # something is in service when it is taken
    for name in Telemetry.__slots__:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_bins_are_those_that_logarithms_give():
    delays_s = np.concatenate([np.geomspace(1e-6, 1e4, 4001), LONGEST_S * (1 - 1e-9), LONGEST_S * (1 + 1e-9)])
    steps = np.ceil(np.log10(delays_s / SHORTEST_S) * BINS_PER_DECADE)
    expected = np.clip(steps, 0, DELAY_BINS - 1).astype(int)
    clear = (
        np.abs(delays_s[:, None] / LONGEST_S - 1).min(axis=1) > 1e-10
    )  # of an edge itself, rounding decides
    assert clear.sum() > 4000
    assert [delay_bin(d) for d in delays_s[clear]] == expected[clear].tolist()
    assert [delay_bin(d) for d in (0.0, -1.0, SHORTEST_S, np.inf)] == [0, 0, 0, DELAY_BINS - 1]


def test_a_worker_that_is_down_holds_no_queries():
    scenario = ew.load_scenario("three-tier")
    nodes = [node.name for node in scenario.topology.nodes]
    timeline = tuple(NodeChange(30.0 - 1e-6, node, False) for node in nodes)
    simulation = Sampled(replace(scenario, timeline=timeline), policies.load("dispatch", "closest"), 0)
    simulation.run()
    assert all(t.queue.sum() == 0.0 for t in simulation.kept if t.measured_s >= 30.0)


def test_queue_of_a_stream_that_has_ended_holds_what_it_sent_and_no_more():
    scenario, (stream,) = queue_scenario(100.0, 0.05, 30.0, distribution="normal", poisson=False)
    scenario = replace(scenario, telemetry=TelemetrySpec())
    simulation = Sampled(scenario, policies.load("dispatch", "closest"), 0, [replace(stream, close_s=10.0)])
    simulation.run()
    queue = {round(t.measured_s): float(t.queue[0]) for t in simulation.kept}
    assert queue[5] == pytest.approx(500 - 100, abs=2)  # 20 of 100 queries/s are served
    assert queue[15] == pytest.approx(1000 - 300, abs=2)


@pytest.mark.parametrize("name", ["tiny", "three-tier"])
def test_telemetry_counts_what_a_naive_simulator_has_answered_by_then(name):
    # Samples so frequent that most find a batch in service.
    scenario = ew.load_scenario(name, {"duration_s": 20, "telemetry": {"period_s": 0.02, "lag_s": 0}})
    world = World.build(scenario.catalog, scenario.topology)
    simulation = Sampled(scenario, policies.load("dispatch", "closest"), 5, world=world)
    simulation.run()
    naive = Naive(world, simulation.trace, simulation.bound, 5)
    naive.run()
    assert sum(t.throughput_qps.sum() for t in simulation.kept) > 1000
    for telemetry in simulation.kept:
        end_s = telemetry.measured_s
        for w, ended in enumerate(naive.ended):
            sojourn = [took for at_s, took in ended if end_s - 0.02 < at_s <= end_s]
            assert telemetry.throughput_qps[w] * 0.02 == pytest.approx(len(sojourn))
            assert telemetry.delay_mean_s[w] == pytest.approx(np.mean(sojourn) if sojourn else 0.0)
