"""Room for switching between static policies."""

from dataclasses import replace

import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.errors import RunError
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.rollout import room_for_switching

SETTINGS = {"topology.antennas": 2, "duration_s": 100, "streams.arrivals.clients_per_min": 200}
NAMES = ("closest", "load-balancing", "least-loaded-feasible")


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("full-edge-scarce", SETTINGS)


@pytest.fixture(scope="module")
def room(scenario):
    return room_for_switching(scenario, 1, NAMES)


def test_slices_tell_what_a_whole_run_tells(scenario, room):
    for name in NAMES:
        simulation = Simulation(scenario, policies.load("dispatch", name), seed=1)
        simulation.run()
        ok, *lost = simulation.tally.queries.sum(axis=1)
        assert room.static[name] == pytest.approx(ok / (ok + sum(lost)), abs=0.04)


def test_one_policy_leaves_no_room(scenario):
    alone = room_for_switching(scenario, 1, ["load-balancing"])
    assert alone.gain == 0.0 and set(alone.chosen) == {"load-balancing"}


def test_who_knows_what_comes_is_not_below_the_worst(room):
    assert len(room.chosen) == 4 and set(room.chosen) <= set(NAMES)
    assert min(room.static.values()) < room.switching <= 1.0


def test_what_cannot_be_rolled_forward_is_refused(scenario):
    with pytest.raises(RunError, match="only score policies"):
        room_for_switching(scenario, 1, ["bandit"])
    with pytest.raises(RunError, match="timeline"):
        room_for_switching(replace(scenario, timeline=("a change",)), 1)
