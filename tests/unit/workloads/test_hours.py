"""Arrivals by the hour of the day: requests, generated pipelines and drawn jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewise.config import edition, load_scenario
from edgewise.errors import ScenarioError
from edgewise.limits.requests import requests_of
from edgewise.workloads.deferrable import jobs_apart, jobs_of
from edgewise.workloads.hours import at_hours, evenly_s
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import simulated_services

NIGHT = [10.0] * 6 + [1.0] * 18  # nearly ten times as much before six
SHAPE = tuple(NIGHT)


@pytest.mark.parametrize("begins_at_s", [0.0, 1234.5, 80_000.0])
def test_a_day_brings_as_much_as_evenly_and_times_go_there_and_back(begins_at_s: float) -> None:
    at_s = np.linspace(0.0, 200_000.0, 101)
    even_s = evenly_s(at_s, SHAPE, begins_at_s)
    assert np.allclose(at_hours(even_s, SHAPE, begins_at_s), at_s)
    assert evenly_s(np.array([86_400.0]), SHAPE, begins_at_s)[0] == pytest.approx(86_400.0)
    assert np.array_equal(evenly_s(at_s, None), at_s) and np.array_equal(at_hours(at_s, None), at_s)


def test_an_hour_brings_its_weight_over_the_mean_also_where_the_run_begins_by_day() -> None:
    mean = np.mean(NIGHT)
    ends_s = np.array([0.0, 3600.0, 7200.0])
    assert np.diff(evenly_s(ends_s, SHAPE, 5 * 3600.0)) / 3600.0 == pytest.approx([10 / mean, 1 / mean])


def drawn(**changes: Any) -> Any:
    return load_scenario("campus", {"timeline": [], **changes})


def in_hours(times_s: Any, first: int, last: int) -> int:
    hours = (np.asarray(times_s) // 3600.0).astype(int)
    return int(((hours >= first) & (hours < last)).sum())


def test_requests_pipelines_and_jobs_come_by_the_hour() -> None:
    scenario = drawn(**{
        "services.requests.rate_qps": 1, "services.requests.by_hour": NIGHT,
        "pipelines.0.rate_qps": 0.05, "pipelines.0.by_hour": NIGHT, "pipelines.0.count": 10_000,
        "jobs.drawn.per_slot": 10, "jobs.drawn.by_hour": NIGHT, "jobs.drawn.lead_most": 0,
    })  # fmt: skip
    requests = simulated_services(scenario).draw([3])
    arrivals_s = requests.arrival_s[0, : int(requests.count[0])]
    pipelines_s = [each.arrival_s for each in pipelines_of(scenario, 3)]
    jobs_s = [each.earliest_s for each in jobs_apart(jobs_of(scenario), 3)]
    for times_s, mean in ((arrivals_s, 86_400), (pipelines_s, 4320)):
        assert len(times_s) == pytest.approx(mean, rel=0.05)  # of the day, as without hours
        assert in_hours(times_s, 0, 6) / len(times_s) == pytest.approx(60 / 78, abs=0.02)
    assert in_hours(jobs_s, 0, 6) / in_hours(jobs_s, 6, 12) == pytest.approx(10.0, rel=0.2)


def test_requests_of_a_seed_are_the_same_ones_at_other_times() -> None:
    even, shaped = (
        simulated_services(drawn(**{"services.requests.by_hour": hours, "duration_s": "6h"})).draw([3])
        for hours in (None, NIGHT)
    )
    both = min(int(even.count[0]), int(shaped.count[0]))
    assert int(shaped.count[0]) > 2.5 * int(even.count[0])
    assert np.array_equal(even.site[0, :both], shaped.site[0, :both])
    assert (shaped.arrival_s[0, :both] < even.arrival_s[0, :both]).all()


def test_limits_know_the_busy_hours() -> None:
    steady, shaped = (requests_of(drawn(**{"services.requests.by_hour": hours})) for hours in (None, NIGHT))
    assert steady is not None and shaped is not None
    assert shaped.demand.mean() == pytest.approx(steady.demand.mean())
    assert shaped.demand.max() == pytest.approx(10 / np.mean(NIGHT) * steady.demand.max())


@pytest.mark.parametrize("hours", [[1.0] * 23, [0.0] * 24])
def test_hours_that_are_none_are_refused(hours: list[float]) -> None:
    with pytest.raises(ScenarioError, match="by_hour"):
        drawn(**{"jobs.drawn.by_hour": hours})


def test_an_edition_without_hours_is_as_it_was() -> None:
    """A key whose default changes nothing makes no new editions."""
    assert edition(load_scenario("deferrable")) == "deferrable@78ae4138"
