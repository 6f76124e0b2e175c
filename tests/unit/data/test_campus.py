"""The shipped day on a campus: five kinds of work on the same nodes, each with a sensible outcome."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import edgewise as ew
from edgewise.config import edition
from edgewise.workloads.deferrable import jobs_apart, jobs_of
from edgewise.workloads.generate import generate_streams
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import simulated_services

MOST_QUERIES = 40e6
FROZEN = Path(__file__).parents[3] / "docs" / "results" / "scaling" / "campus-world.json"
# Two hours of the afternoon in place of the day, and a machine that fails.
BUSY: dict[str, Any] = {
    "duration_s": "2h",
    "streams.begins_at_s": "14h",
    "streams.arrivals.clients_per_min": 28,
    "services.requests.rate_qps": 20,
    "pipelines.0.rate_qps": 0.04,
    "pipelines.0.count": 100,
    "jobs.drawn.per_slot": 3,
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


def test_each_kind_of_work_comes_most_at_another_time_of_the_day() -> None:
    scenario = ew.load_scenario("campus")
    requests = simulated_services(scenario).draw([0])
    came = {
        "streams": [each.open_s for each in generate_streams(scenario, 0)],
        "requests": requests.arrival_s[0, : int(requests.count[0])].tolist(),
        "pipelines": [each.arrival_s for each in pipelines_of(scenario, 0)],
        "jobs": [each.earliest_s for each in jobs_apart(jobs_of(scenario), 0)],
    }
    assert 30 < len(came["requests"]) / scenario.duration_s < 60  # tens a second
    hours = {work: [int(at_s // 3600) for at_s in times_s] for work, times_s in came.items()}
    most = {work: max(range(24), key=each.count) for work, each in hours.items()}
    assert most["streams"] in range(13, 17) and most["requests"] in range(19, 22)
    assert most["pipelines"] in range(5, 9) and most["jobs"] == 3


def test_nodes_differ_within_a_cluster_and_workers_come_and_go() -> None:
    scenario = ew.load_scenario("campus")
    cores = {
        cluster.name: {
            each.resources.cpu_cores for each in scenario.topology.nodes if each.cluster == cluster.name
        }
        for cluster in scenario.topology.clusters
    }
    assert cores["hall"] == {16.0, 32.0} and len(cores["library"]) == len(cores["cloud"]) == 2
    pools = [each for each in scenario.spec.workers or () if each.least is not None]
    assert {each.cluster for each in pools} == {"hall", "library", "gate", "cloud"}


def test_the_world_is_the_one_that_was_frozen() -> None:
    """Who changes it measures it anew: `python -m bench.world`."""
    found = json.loads(FROZEN.read_text())
    assert found["frozen"]["edition"] == edition(ew.load_scenario("campus"))
    assert found["policies"]["orchestrate"] == "autoscaler"
    rows = found["rows"]

    def mean(name: str) -> float:
        return fmean(row[name] for row in rows)

    assert min(mean("streams in time %"), mean("requests in time %")) > 98.0
    assert 70.0 < mean("use of cores %") < 80.0 and 1.3 < mean("peaks over peak") < 2.0
    for link in rows[0]["links"]:
        busiest = fmean(row["links"][link][1] for row in rows)
        assert 40.0 < busiest < 70.0 or (link == "wan:down" and busiest < 40.0)


def test_most_queries_of_streams_are_in_time_and_some_fail_with_the_machine(busy: ew.Result) -> None:
    streams = {name: sum(busy.items[name].to_pylist()) for name in ("queries", "ok", "failed")}
    assert 0.95 < streams["ok"] / streams["queries"] < 1.0
    assert streams["failed"] > 0
    held = busy.use["holds"].to_pylist()
    workers = [each for each in held if each["work"] == "streams"]
    assert any(each["start_s"] > 0.0 for each in workers)  # started
    assert any(each["end_s"] < 7200.0 for each in workers)  # and ended


def test_requests_pipelines_and_queries_end_in_time(busy: ew.Result) -> None:
    requests = busy.beside["services"].items["outcome"].to_pylist()
    assert requests.count("in_time") > 0.97 * len(requests) > 100_000
    pipelines = busy.beside["pipelines"].items.to_pylist()
    assert len(pipelines) > 50 and sum(each["frames"] > 0 for each in pipelines) >= 0.9 * len(pipelines)
    times_s = busy.beside["graphs"].items["time_s"].to_pylist()
    assert len(times_s) == 7200 and sorted(times_s)[6500] < 0.1


def test_jobs_run_and_some_wait_or_are_pushed_out(busy: ew.Result) -> None:
    jobs = busy.beside["jobs"].items.to_pylist()
    assert len(jobs) > 8
    started = [each for each in jobs if each["node"]]
    assert len(started) > 0.9 * len(jobs)
    assert any(each["suspended_s"] > 0 or each["started_s"] > each["earliest_s"] for each in started)
