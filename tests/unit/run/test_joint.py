"""Several kinds of work of one scenario on the same nodes, on one clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.defer import (
    EvictJob,
    JobEnded,
    JobStands,
    JobSubmitted,
    ResumeJob,
    SlotBegan,
    Slots,
    StartJob,
    SuspendJob,
)
from edgewise.core.defer.core import DeferCore
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.orchestrate import AddReplica, ReplicaView
from edgewise.core.place import StartPipeline
from edgewise.core.plane import HoldsChanged, Plane
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.parsing import parse_scenario
from edgewise.model.topology import Node, Resources
from edgewise.model.work import INFERENCE, DeferrableJob
from edgewise.sim.parts.jobs import JobsPart
from edgewise.testing.driven import plain
from joint_scenarios import apart, five_kinds, held, mixed, ran, run_of


def test_kinds_of_work_that_share_nothing_leave_the_bytes_that_they_leave_alone() -> None:
    together = ran(mixed(jobs=[{"cores": 1}, {"cores": 2, "submitted_s": 10}], nodes=4))
    for work in ("streams", "pipelines"):
        alone = ran(held(mixed(nodes=4), work))
        assert together[work] == alone[work], work


def test_a_dead_node_reaches_streams_pipelines_and_jobs_in_the_same_second() -> None:
    jobs = [{"duration_s": 20, "when_evicted": "pause"}, {"duration_s": 20, "checkpoint_s": 5}]
    scenario = mixed(jobs=jobs, nodes=1, timeline=[(12.0, False), (23.0, True)])
    found = ran(scenario, check=True)
    for job, kept_s in zip(found["jobs"], (0.0, 10.0), strict=True):
        assert (job["started_s"], job["suspended_s"]) == (0.0, 0.0)  # and begins anew with a slot, at 25 s
        assert (job["ended_s"], job["redone_s"]) == (45.0 - kept_s, 12.0 - kept_s)
    (pipeline,) = found["pipelines"]
    assert pipeline["frames"] == 600.0
    assert pipeline["finish_s"] == pytest.approx(ran(mixed(nodes=1))["pipelines"][0]["finish_s"] + 11.0)
    lost = [row for row in found["streams"] if row["open_s"] < 12.0 < row["close_s"]]
    assert lost and all(row["ok"] < row["queries"] for row in lost)


def test_core_seconds_count_where_jobs_end_in_time() -> None:
    """All stand still for 13 s; the first of them had not so long, and the last one ends with the run."""
    jobs = [{"duration_s": 20, "latest_s": latest_s, "checkpoint_s": 4} for latest_s in (10, 15)]
    jobs.append({"duration_s": 45, "latest_s": 30, "cores": 2, "checkpoint_s": 6})
    data = held(mixed(jobs=jobs, nodes=1, timeline=[(12.0, False), (23.0, True)]), "jobs")
    data["jobs"]["room"] = "nodes"
    result = ew.simulate(parse_scenario(data, "jobs"), "fifo", (0,))
    assert result.items["ended_s"].to_pylist() == [33.0, 33.0, 58.0]
    (row,) = result.summary()
    assert [row[key] for key in ("started", "ended", "lost", "finished_core_s")] == [3, 3, 0, 20.0 + 90.0]
    data["duration_s"] = 55
    (row,) = ew.simulate(parse_scenario(data, "jobs"), "fifo", (0,)).summary()
    assert [row[key] for key in ("started", "ended", "lost", "finished_core_s")] == [3, 2, 0, 20.0]


def test_news_of_a_dead_node_take_their_time() -> None:
    """A job ended with its node, and begins anew once the core has heard, and the node is back."""
    scenario = mixed(jobs=[{"duration_s": 20}], nodes=1, timeline=[(12.0, False), (13.0, True)], lag_s=2.0)
    (job,) = ran(scenario, check=True)["jobs"]
    assert (job["ended_s"], job["redone_s"]) == (35.0, 12.0)  # heard at 14 and at 15


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


class ScaleUp:
    """In the second frame a replica more on the second node, as far as there is room."""

    decision, name = "orchestrate", "scale-up"

    def reset(self, world: System, key: Key) -> None:
        """Nothing is kept."""

    def decide(self, view: ReplicaView) -> list[AddReplica]:
        """One in all."""
        return [AddReplica(1, 0)] if view.world["clock_s"] == 10.0 else []


def test_a_scale_up_pushes_a_job_out_in_the_second_in_which_a_node_with_all_five_kinds_dies() -> None:
    """The node is the first; the job has run for 10 of 20 s on the second, which has no room beside it."""
    jobs = [{"cores": 3, "duration_s": 20}, {"cores": 5, "duration_s": 20}]
    data = five_kinds(jobs, timeline=[(10.0, False), (20.0, True)])
    run, found = run_of(data, check=True, orchestrate=ScaleUp)
    at_once = [type(command).__name__ for time_s, command in run.joint.log if time_s == 10.0]
    assert sorted(at_once) == [
        "EvictJob", "StartJob", "StartPipeline", "StartReplica", "StopPipeline", "SuspendJob",
    ]  # fmt: skip
    first, second = found["jobs"]
    assert (first["node"], second["node"]) == ("near-1", "near-1")
    assert (first["redone_s"], first["ended_s"]) == (10.0, 30.0)  # beside the replica there is room for it
    assert (second["suspended_s"], second["ended_s"]) == (110.0, None)  # the replica stays
    (pipeline,) = found["pipelines"]
    assert pipeline["start_s"] == 1.0 and pipeline["frames"] == 600.0 and pipeline["migrations"] == 0
    streams = [row for row in found["streams"] if row["open_s"] < 10.0 < row["close_s"]]
    assert streams and all(row["ok"] < row["queries"] for row in streams)
    for work, key in (("graphs", "query"), ("services", "request")):
        ids = [row[key] for row in found[work]]
        assert ids == sorted(set(ids)) and len(ids) > 50
    assert all(row["time_s"] is not None for row in found["graphs"])
    had = [row for row in found["graphs"] if row["sent_s"] < 10.0 < row["sent_s"] + row["time_s"]]
    assert had and all(row["sent_s"] + row["time_s"] < 20.0 for row in had)  # elsewhere, before it is back
    assert {row["outcome"] for row in found["services"]} <= {"in_time", "late", "dropped", "waiting"}


def test_five_kinds_that_share_nothing_leave_the_bytes_that_they_leave_alone() -> None:
    data = apart(five_kinds([{"cores": 1, "memory_bytes": "2GB"}], timeline=[]))
    together = ran(data)
    for work in ("streams", "graphs", "services", "pipelines"):
        assert together[work] == ran(held(data, work))[work], work


def test_cores_of_each_request_are_no_part_of_what_is_left_to_jobs() -> None:
    data = five_kinds([{"cores": 1}], timeline=[])
    data["services"]["cores_held"] = "request"
    with pytest.raises(ScenarioError, match="cores_held: is 'request', so nobody"):
        ran(data)


def test_each_decision_has_its_policy_and_each_kind_of_work_its_records(tmp_path: Any) -> None:
    scenario = parse_scenario(mixed(jobs=[{}, {"cores": 2}], nodes=2), "mixed")
    result = ew.simulate(scenario, {"dispatch": "closest", "defer": "horizon"}, (0, 1))
    assert result.work == "streams" and set(result.beside) == {"pipelines", "jobs"}
    assert result.policies == ("closest",) and result.beside["jobs"].policies == ("horizon",)
    assert result.fixed == {"dispatch": "closest", "place": "otfa", "defer": "horizon"}
    folder = result.save(tmp_path / "run")
    page = (folder / "report.html").read_text()
    assert all(f"<h2>{work}</h2>" in page for work in ("Streams", "Pipelines", "Jobs"))
    summary = json.loads((folder / "jobs-summary.json").read_text())
    assert [row["jobs"] for row in summary] == [2, 2]


def test_policies_of_a_decision_are_compared_while_all_other_work_goes_on() -> None:
    scenario, fixed = parse_scenario(mixed(jobs=[{}], nodes=2), "mixed"), {"dispatch": "closest"}
    found = ew.compare(scenario, {"defer": ["fifo", "horizon"]}, range(2), fixed=fixed)
    assert found.result.work == "jobs" and set(found.result.beside) == {"streams", "pipelines"}
    assert found.result.fixed == {"dispatch": "closest", "place": "otfa"}
    assert found.result.beside["streams"].policies == ("fifo", "horizon")


def test_decisions_of_work_that_a_scenario_lacks_are_refused() -> None:
    with pytest.raises(PolicyError, match="of different work"):
        ew.simulate("tiny", {"split": "nona", "defer": "fifo"})


def test_who_has_just_ended_is_not_suspended_by_what_is_heard_first() -> None:
    """Something else that ended at the same time is told first, and its core acts on what it knows."""
    job = DeferrableJob(0, Resources(1.0), duration_s=5.0, submitted_s=0.0, earliest_s=0.0, latest_s=5.0)
    core = DeferCore(
        Slots(5.0, 1), NodeLedger([Node("a", "", Resources(2.0))]), policies.load("defer", "fifo")
    )
    part = JobsPart([job], core, slots=4, slot_s=5.0)
    for _, event in part.due(0.0):
        for command in core.handle(event):
            for answer in part.take(command, 0.0):
                core.handle(answer)
    assert JobEnded(0) in [event for _, event in part.due(5.0)]
    for command in (SuspendJob(0), ResumeJob(0), EvictJob(0)):
        assert list(part.take(command, 5.0)) == []
    core.handle(JobEnded(0))
    core.validate()
    assert (part.ended_s[0], part.moves[0], part.suspended_s[0]) == (5.0, 0, 0.0)


def test_place_orchestrate_and_defer_decide_the_same_until_they_have_heard_of_a_dead_node() -> None:
    """Frames, slots and submissions lie between the failure and the news of it."""
    fails_s, lag_s = 18.5, 4.0
    jobs = [{"duration_s": 60, "submitted_s": at_s, "latest_s": 60} for at_s in (0, 0, 15, 20, 25)]
    logs = []
    for timeline in ([], [(fails_s, False)]):
        data = five_kinds(jobs, timeline)
        data["telemetry"] = {"period_s": 1, "lag_s": lag_s}
        data["pipelines"].append(data["pipelines"][0] | {"name": "later", "arrive_s": 19.0})
        data["services"] |= {"frame_s": 5}
        logs.append(run_of(data, check=True, orchestrate="autoscaler")[0].joint.log)
    alone, failed = ([row for row in log if row[0] < fails_s + lag_s] for log in logs)
    assert plain(failed) == plain(alone)
    assert {type(command) for at_s, command in alone if at_s > fails_s} >= {StartPipeline, StartJob}
    assert plain(logs[0]) != plain(logs[1])


def test_jobs_get_nodes_in_the_order_of_their_policy() -> None:
    """The shorter one is the second by number and by submission, and takes the node with most cores."""
    nodes = [Node("small", "", Resources(2.0)), Node("large", "", Resources(3.0))]
    core = DeferCore(Slots(5.0, 1), NodeLedger(nodes), policies.load("defer", "sjf"))
    long, short = (
        DeferrableJob(number, Resources(2.0), duration_s, 0.0, 0.0, 50.0)
        for number, duration_s in ((0, 40.0), (1, 5.0))
    )
    for job in (long, short):
        core.handle(JobSubmitted(job))
    found = core.handle(SlotBegan(0.0))
    assert [(command.job, command.node) for command in found if isinstance(command, StartJob)] == [
        (1, "large"),
        (0, "small"),
    ]


def test_who_was_submitted_first_keeps_its_node_whatever_its_number() -> None:
    """Other work leaves room for one of two."""
    nodes = [Node("a", "", Resources(4.0))]
    core = DeferCore(Slots(5.0, 1), NodeLedger(nodes), policies.load("defer", "fifo"))
    for number, submitted_s in ((0, 5.0), (1, 0.0)):
        core.handle(JobSubmitted(DeferrableJob(number, Resources(2.0), 40.0, submitted_s, 5.0, 50.0)))
    started = core.handle(SlotBegan(5.0))
    for command in started:
        assert isinstance(command, StartJob)
        core.handle(JobStands(core.jobs[command.job]._replace(settled=True)))
    plane = Plane(core.ledger, {"defer": core})
    held = Reservation("other", "a", Resources(2.0), INFERENCE)
    assert plane.handle(HoldsChanged((held,)), 6.0) == [SuspendJob(0)]


def test_a_suspended_job_goes_on_as_soon_as_another_ends() -> None:
    """Between two slots; it waited for the next one."""
    jobs = [
        DeferrableJob(0, Resources(2.0), 10.0, 0.0, 0.0, 50.0, priority=1),
        DeferrableJob(1, Resources(2.0), 40.0, 0.0, 0.0, 50.0),
    ]
    core = DeferCore(
        Slots(10.0, 1), NodeLedger([Node("a", "", Resources(4.0))]), policies.load("defer", "fifo")
    )
    part, plane = JobsPart(jobs, core, slots=8, slot_s=10.0), Plane(core.ledger, {"defer": core})

    def tell(event: Any, now_s: float) -> list[Any]:
        found = plane.handle(event, now_s)
        for command in found:
            for answer in part.take(command, now_s):
                plane.handle(answer, now_s)
        return found

    for _, event in list(part.due(0.0)):
        tell(event, 0.0)
    held = Reservation("other", "a", Resources(2.0), INFERENCE)
    assert tell(HoldsChanged((held,)), 3.0) == [SuspendJob(1)]
    told = [tell(event, 10.0) for rank, event in sorted(part.due(10.0), key=lambda each: each[0])]
    assert [ResumeJob(1)] in told
