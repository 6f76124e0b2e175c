"""A camera alone at a worker is D/G/1: while no service takes a period, nothing ever waits."""

from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.model.scenario import Scenario
from edgewise.model.sources import Source
from edgewise.runtime.clients.traffic import send_times_s
from edgewise.sim.simulate import Simulation
from edgewise.testing import queue_scenario

PERIOD_S, SERVICE_S, SECONDS = 0.1, 0.04, 200.0


def scenario_of(cameras: int, deviation: float) -> Scenario:
    """Cameras at one worker with no network, instead of the queue's one stream."""
    scenario, _ = queue_scenario(1.0, SERVICE_S, SECONDS, distribution="normal", deviation=deviation)
    source = Source("camera", cameras, (0,), "t", 1.0 / PERIOD_S, 1e-9, np.inf)
    return replace(scenario, streams=replace(scenario.streams, applications=(), sources=(source,)))


def delays(cameras: int, deviation: float, seed: int) -> list[dict[str, float]]:
    outcome = Simulation(scenario_of(cameras, deviation), policies.load("dispatch", "closest"), seed).run()
    names = ("queries", "ok", "delay_mean_s", "delay_max_s")
    return [
        dict(zip(names, row, strict=True)) for row in zip(*(outcome.streams[n] for n in names), strict=True)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_camera_alone_never_waits(seed: int) -> None:
    """Every delay is the service's own, whatever the phase."""
    (row,) = delays(1, 0.0, seed)
    assert row["queries"] == row["ok"] == pytest.approx(SECONDS / PERIOD_S, abs=1)
    assert row["delay_mean_s"] == pytest.approx(SERVICE_S, rel=1e-9)
    assert row["delay_max_s"] == pytest.approx(SERVICE_S, rel=1e-9)


def test_nor_where_services_vary_but_none_takes_a_period() -> None:
    """Of 2,000 draws of deviation 20 % none is 7.5 deviations off: the mean sojourn is the mean service."""
    found = np.array([delays(1, 0.2, seed)[0]["delay_mean_s"] for seed in range(10)])
    error = found.std(ddof=1) / np.sqrt(found.size)
    assert error < 0.01 * SERVICE_S
    assert abs(found.mean() - SERVICE_S) < 4 * error


def test_two_cameras_wait_for_each_other_as_their_phases_say() -> None:
    """Two of one period: the later waits for what is left of the earlier's service, always the same."""
    for seed in range(5):
        scenario = scenario_of(2, 0.0)
        simulation = Simulation(scenario, policies.load("dispatch", "closest"), seed)
        rows = delays(2, 0.0, seed)
        first, second = (send_times_s(stream, seed)[0] for stream in simulation.trace)
        gap_s = (second - first) % PERIOD_S
        waits = [max(SERVICE_S - (PERIOD_S - gap_s), 0.0), max(SERVICE_S - gap_s, 0.0)]
        for row, wait_s in zip(rows, waits, strict=True):
            assert row["delay_max_s"] == pytest.approx(SERVICE_S + wait_s, rel=1e-6)
