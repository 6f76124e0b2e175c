"""The shipped day on a campus: five kinds of work on the same nodes, each with a sensible outcome."""

from __future__ import annotations

from typing import Any

import pytest

import edgewise as ew
from edgewise.workloads.generate import generate_streams

MOST_QUERIES = 40e6
# Two hours in place of the day, as busy as an afternoon, and a machine that fails.
BUSY: dict[str, Any] = {
    "duration_s": "2h",
    "streams.arrivals.clients_per_min": 22,
    "pipelines.0.rate_qps": 0.02,
    "pipelines.0.count": 100,
    "timeline": [
        {"at_s": 4000, "node": "library-0", "up": False},
        {"at_s": 4600, "node": "library-0", "up": True},
    ],
}


@pytest.fixture(scope="module")
def busy() -> ew.Result:
    return ew.simulate(ew.load_scenario("campus", BUSY), seeds=(0,))


def test_a_day_has_no_more_queries_than_a_study_can_wait_for_and_a_night() -> None:
    scenario = ew.load_scenario("campus")
    assert scenario.duration_s == 86_400 and scenario.sharing == "fifo"
    streams = generate_streams(scenario, 0)
    assert sum(each.rate_qps * (each.close_s - each.open_s) for each in streams) < MOST_QUERIES
    hours = [int(each.open_s // 3600) for each in streams]
    assert max(map(hours.count, range(3, 7))) * 20 < min(map(hours.count, range(13, 17)))


def test_most_queries_of_streams_are_in_time_and_some_find_no_room(busy: ew.Result) -> None:
    streams = {name: sum(busy.items[name].to_pylist()) for name in ("queries", "ok", "failed")}
    assert 0.9 < streams["ok"] / streams["queries"] < 1.0
    assert streams["failed"] > 0  # with the machine
    assert "every suitable worker is at capacity" in busy.items["reason"].to_pylist()


def test_requests_pipelines_and_queries_end_in_time(busy: ew.Result) -> None:
    requests = busy.beside["services"].items["outcome"].to_pylist()
    assert requests.count("in_time") > 0.99 * len(requests) > 6_000
    pipelines = busy.beside["pipelines"].items.to_pylist()
    assert len(pipelines) == 100 and sum(each["frames"] > 0 for each in pipelines) >= 90
    times_s = busy.beside["graphs"].items["time_s"].to_pylist()
    assert len(times_s) == 7200 and sorted(times_s)[6500] < 0.1


def test_jobs_run_and_some_wait_or_are_pushed_out(busy: ew.Result) -> None:
    jobs = busy.beside["jobs"].items.to_pylist()
    assert len(jobs) > 15
    started = [each for each in jobs if each["node"]]
    assert len(started) > 0.9 * len(jobs)
    assert any(each["suspended_s"] > 0 or each["started_s"] > each["earliest_s"] for each in started)
