"""Gateways at sites in one compiled loop equal those of which each event goes through a core, one by one."""

from dataclasses import replace

import numpy as np
import pytest
from naive_sites import NaiveSites

import edgewise as ew
from edgewise import policies
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.sim.sites import SiteSimulation

FAILURES = (
    NodeChange(8.0, "office-0", False),
    NodeChange(17.5, "office-0", True),
    LinkChange(21.0, "access-1", "cloud", False),
    LinkChange(29.0, "access-1", "cloud", True),
)
BUSY = {"duration_s": 45, "streams.gateways": "per_site", "streams.arrivals.clients_per_min": 90}


class Uncompiled(ew.ScorePolicy):
    """Its score needs `self`, so Python decides."""

    name = "uncompiled"
    factor = 1.0

    def score(self, view, item):
        return self.factor * view.impedance_s


def of(name):
    return Uncompiled() if name == "uncompiled" else policies.load("dispatch", name)


def equal(scenario, policy, seed):
    """Both runs, whose records, commands, questions and refusals are equal."""
    runs = [each(scenario, lambda: of(policy), seed) for each in (SiteSimulation, NaiveSites)]
    fast, naive = (run.run() for run in runs)
    assert fast.commands == naive.commands
    for name in ("streams", "windows"):
        for column, values in getattr(naive, name).items():
            found = getattr(fast, name)[column]
            if all(isinstance(value, float) for value in values):
                assert np.allclose(found, values, rtol=1e-9, atol=1e-12), column
            else:
                assert found == values, column
    assert runs[0].refusals == runs[1].refusals
    assert runs[0].core.guard.questions == runs[1].core.guard.questions
    return runs


@pytest.mark.parametrize("policy", ["least-impedance", "random-by-load", "power-of-two", "uncompiled"])
@pytest.mark.parametrize("changes", [{}, {"telemetry": TelemetrySpec(lag_s=2.0), "retry_refused": True}])
def test_the_loop_equals_events_one_by_one(policy, changes):
    scenario = replace(ew.load_scenario("three-tier", BUSY), timeline=FAILURES, **changes)
    fast, _ = equal(scenario, policy, 3)
    assert policy != "least-impedance" or fast.refusals > 0


def test_over_shared_links_the_loop_equals_events_one_by_one():
    equal(ew.load_scenario("three-tier", {**BUSY, "sharing": "fifo"}), "least-impedance", 2)


def test_each_gateway_may_have_another_score():
    equal(ew.load_scenario("three-tier", {**BUSY, "window_s": 5}), "bandit", 4)


def test_many_sites_with_a_trained_policy():
    scenario = ew.load_scenario("full-edge", {"duration_s": 60, "streams.gateways": "per_site"})
    equal(scenario, "slack-aware", 1)
