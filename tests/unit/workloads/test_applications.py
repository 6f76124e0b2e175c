from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad

from edgewise.config import load_scenario
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Application, Arrivals
from edgewise.workloads.generate import fit_weights, generate_streams, mean_load_qps, queries_per_client

SCENARIO = load_scenario("dc-cloud", {"topology.antennas": 1})
APPLICATIONS = SCENARIO.streams.applications


def constant(per_min: float) -> Arrivals:
    return Arrivals(((0.0, per_min),))


def test_committed_weights_bring_the_load_of_the_paper() -> None:
    assert mean_load_qps(APPLICATIONS, constant(60.0), 480.0) == pytest.approx(1000.0, rel=0.01)
    assert mean_load_qps(APPLICATIONS, constant(100.0), 480.0) > 1600.0
    weights = [application.weight for application in APPLICATIONS]
    assert weights == pytest.approx(fit_weights(APPLICATIONS).tolist(), rel=1e-3)
    uniform = [application.model_copy(update={"weight": 1.0}) for application in APPLICATIONS]
    assert mean_load_qps(uniform, constant(60.0), 480.0) == pytest.approx(1836.0, rel=0.01)


@pytest.mark.parametrize("per_min", [60.0, 100.0])
def test_generated_streams_bring_the_load(per_min: float) -> None:
    scenario = replace(SCENARIO, streams=replace(SCENARIO.streams, arrivals=constant(per_min)))
    seeds = 20
    queries = [
        s.rate_qps * (s.close_s - s.open_s) for k in range(seeds) for s in generate_streams(scenario, k)
    ]
    load = sum(queries) / seeds / 480.0
    assert load == pytest.approx(1000.0 * per_min / 60.0, rel=0.05)


@pytest.mark.parametrize(
    "length_s", [(7.0, 7.0), (5.0, 10.0), (100.0, 900.0), (600.0, 1800.0), (480.0, 480.0)]
)
def test_queries_per_client_is_the_integral(length_s: tuple[float, float]) -> None:
    application = Application(
        name="a", task="t", rate_qps=(2.0, 6.0), size_bytes=1.0, deadline_s=(1.0, 1.0), length_s=length_s
    )

    def stay_s(length: float) -> float:
        return quad(lambda left: min(length, left), 0.0, 480.0, points=[min(length, 479.0)])[0] / 480.0

    low, high = length_s
    mean = stay_s(low) if low == high else quad(stay_s, low, high, points=[480.0])[0] / (high - low)
    assert queries_per_client(application, 480.0) == pytest.approx(4.0 * mean, rel=1e-6)


def test_load_of_steps_adds_up() -> None:
    steps = Arrivals(((0.0, 20.0), (150.0, 60.0), (300.0, 100.0), (450.0, 20.0)))
    scenario = replace(SCENARIO, streams=replace(SCENARIO.streams, arrivals=steps))
    load = mean_load_qps(APPLICATIONS, steps, 480.0)
    seeds = 20
    queries = [
        s.rate_qps * (s.close_s - s.open_s) for k in range(seeds) for s in generate_streams(scenario, k)
    ]
    assert sum(queries) / seeds / 480.0 == pytest.approx(load, rel=0.05)
    same = Arrivals(((0.0, 60.0), (100.0, 60.0), (700.0, 5.0)))  # the last step lies behind the end
    assert mean_load_qps(APPLICATIONS, same, 480.0) == pytest.approx(
        mean_load_qps(APPLICATIONS, constant(60.0), 480.0)
    )


def test_fitted_weights_are_nearest_to_uniform() -> None:
    weights = fit_weights(APPLICATIONS, load_qps=1400.0)
    share = weights / weights.sum()
    queries = np.array([queries_per_client(application, 480.0) for application in APPLICATIONS])
    assert share @ queries == pytest.approx(1400.0, rel=1e-6)
    # Any small step that keeps sum and load lowers the entropy.
    draw = np.random.default_rng(1).normal(size=(50, len(share)))
    basis = np.linalg.qr(np.stack([np.ones_like(share), queries], axis=1))[0]
    for step in draw - draw @ basis @ basis.T:
        other = share + 1e-3 * step / np.abs(step).max()
        assert -(other @ np.log(other)) < -(share @ np.log(share))
    with pytest.raises(ScenarioError, match="load_qps: 9000 cannot be reached; use a number between"):
        fit_weights(APPLICATIONS, load_qps=9000.0)
    assert (
        (fit_weights(APPLICATIONS, load_qps=3000.0)[5]) == 1.0
    )  # heavier than uniform: the longest streams lead
