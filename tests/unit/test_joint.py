"""Several kinds of work of one scenario on the same nodes, on one clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

import edgewise as ew
from edgewise.errors import PolicyError
from edgewise.model.scenario import parse_scenario
from joint_scenarios import held, mixed, ran


def test_kinds_of_work_that_share_nothing_leave_the_bytes_that_they_leave_alone() -> None:
    together = ran(mixed(jobs=[{"cores": 1}, {"cores": 2, "submitted_s": 10}], nodes=4))
    for work in ("streams", "pipelines"):
        alone = ran(held(mixed(nodes=4), work))
        assert together[work] == alone[work], work


def test_a_dead_node_reaches_streams_pipelines_and_jobs_in_the_same_second() -> None:
    jobs = [{"duration_s": 20, "when_evicted": "pause"}, {"duration_s": 20, "when_evicted": "restart"}]
    scenario = mixed(jobs=jobs, nodes=1, timeline=[(12.0, False), (23.0, True)])
    found = ran(scenario, check=True)
    paused, restarted = found["jobs"]
    assert (paused["started_s"], paused["suspended_s"]) == (0.0, 11.0)
    assert (restarted["started_s"], restarted["suspended_s"]) == (25.0, 0.0)  # with the next slot
    (pipeline,) = found["pipelines"]
    assert pipeline["frames"] == 600.0
    assert pipeline["finish_s"] == pytest.approx(ran(mixed(nodes=1))["pipelines"][0]["finish_s"] + 11.0)
    lost = [row for row in found["streams"] if row["open_s"] < 12.0 < row["close_s"]]
    assert lost and all(row["ok"] < row["queries"] for row in lost)


def test_news_of_a_dead_node_take_their_time() -> None:
    """Until the core hears of it a job stands still without being suspended, and goes on by itself."""
    scenario = mixed(jobs=[{"duration_s": 20}], nodes=1, timeline=[(12.0, False), (13.0, True)], lag_s=2.0)
    run = ran(scenario, check=True)
    assert run["jobs"][0]["suspended_s"] == 1.0  # heard at 14 and at 15


def test_tasks_push_jobs_out_and_wait_for_nobody_who_may_be_preempted() -> None:
    """The job has all the memory when the pipeline comes; afterwards it goes on."""
    scenario = mixed(jobs=[{"memory_bytes": "2.5GB", "duration_s": 30}], nodes=1, pipeline_at_s=11.0)
    found = ran(scenario, check=True)
    assert found["pipelines"] == ran(held(scenario, "pipelines"))["pipelines"]
    (job,) = found["jobs"]
    pipeline = found["pipelines"][0]
    assert job["started_s"] == 0.0
    assert job["suspended_s"] == pytest.approx(pipeline["finish_s"] - 11.0)


def test_one_seed_leaves_the_same_bytes_twice() -> None:
    scenario = mixed(jobs=[{}, {"when_evicted": "restart"}], nodes=2, timeline=[(12.0, False), (23.0, True)])
    assert json.dumps(ran(scenario)) == json.dumps(ran(scenario))


def test_each_decision_has_its_policy_and_each_kind_of_work_its_records(tmp_path: Any) -> None:
    scenario = parse_scenario(mixed(jobs=[{}, {"cores": 2}], nodes=2), "mixed")
    result = ew.simulate(scenario, {"dispatch": "closest", "defer": "horizon"}, (0, 1))
    assert result.work == "streams" and set(result.beside) == {"pipelines", "jobs"}
    assert result.policies == ("closest+horizon+otfa",)
    assert result.fixed == {"dispatch": "closest", "place": "otfa", "defer": "horizon"}
    folder = result.save(tmp_path / "run")
    page = (folder / "report.html").read_text()
    assert all(f"<h2>{work}</h2>" in page for work in ("Streams", "Pipelines", "Jobs"))
    summary = json.loads((folder / "jobs-summary.json").read_text())
    assert [row["jobs"] for row in summary] == [2, 2]


def test_policies_of_a_decision_are_compared_while_all_other_work_goes_on() -> None:
    found = ew.compare(
        parse_scenario(mixed(jobs=[{}], nodes=2), "mixed"), {"defer": ["fifo", "horizon"]}, range(2)
    )
    assert found.result.work == "jobs" and set(found.result.beside) == {"streams", "pipelines"}
    assert found.result.fixed == {"dispatch": "least-impedance", "place": "otfa"}
    assert found.result.beside["streams"].policies == ("fifo", "horizon")


def test_decisions_of_work_that_a_scenario_lacks_are_refused() -> None:
    with pytest.raises(PolicyError, match="of different work"):
        ew.simulate("tiny", {"split": "nona", "defer": "fifo"})
