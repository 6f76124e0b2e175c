"""Random mixes of work on the same nodes, and what a slow and simple bookkeeper says of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from edgewise.core.defer.events import EvictJob, LoseJob, ResumeJob, StartJob, SuspendJob
from edgewise.core.place.core import MovePipeline, StartPipeline, StopPipeline
from joint_scenarios import five_kinds, held, mixed, run_of

END_S = 120
JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "cores": st.integers(1, 4),
            "memory_bytes": st.sampled_from((0, 1e9, 2.5e9)),
            "duration_s": st.integers(1, 20),
            "submitted_s": st.integers(0, 20),
            "when_evicted": st.sampled_from(("pause", "restart")),
            "priority": st.integers(0, 1),
        }
    ),
    min_size=1,
    max_size=6,
)
OUTAGE = st.none() | st.tuples(st.integers(1, 30), st.integers(1, 20))


@st.composite
def mixes(draw: st.DrawFn) -> dict[str, Any]:
    """A worker, a pipeline that comes at a whole second and up to six jobs on one or two nodes."""
    outage = draw(OUTAGE)
    timeline = [] if outage is None else [(float(outage[0]), False), (float(sum(outage)), True)]
    return mixed(
        jobs=draw(JOBS), nodes=draw(st.integers(1, 2)), timeline=timeline,
        pipeline_at_s=float(draw(st.integers(0, 30))), lag_s=float(draw(st.sampled_from((0, 0, 3)))),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(mixes())
def test_every_piece_of_work_ends_once_and_nothing_exceeds_a_node(data: dict[str, Any]) -> None:
    run, found = run_of(data, check=True)  # after each moment the ledger is checked
    times = [time_s for time_s, _ in run.joint.log]
    assert times == sorted(times)
    told: dict[int, Counter[type]] = defaultdict(Counter)
    for _, command in run.joint.log:
        if isinstance(command, StartJob | LoseJob | EvictJob):
            told[command.job][type(command)] += 1
    for row in found["jobs"]:
        counts = told[row["job"]]
        assert counts[LoseJob] <= 1 and counts[LoseJob] + counts[StartJob] - counts[EvictJob] <= 1
        assert (row["started_s"] is not None) == (counts[StartJob] > counts[EvictJob])
    for row in found["pipelines"]:
        assert row["finish_s"] is None or row["frames"] == 600.0
    for row in found["streams"]:
        assert row["queries"] == row["ok"] + row["failed"] + row["rejected"]


@settings(max_examples=60, deadline=None)
@given(mixes())
def test_second_by_second_nothing_is_overbooked_and_jobs_run_as_long_as_they_are(
    data: dict[str, Any],
) -> None:
    """The bookkeeper knows commands and the outage, and no engine; all that matters is at whole seconds."""
    run, found = run_of(data)
    nodes = {node.name: node.resources for node in run.scenario.topology.nodes}
    down = {(change.node, change.at_s): change.up for change in run.scenario.timeline}
    by_time: dict[float, list[Any]] = defaultdict(list)
    for time_s, command in run.joint.log:
        by_time[time_s].append(command)
    jobs, up, state, place, done = run.parts["jobs"].jobs, dict.fromkeys(nodes, True), {}, {}, {}
    ends: dict[int, int] = {}
    tasks: dict[int, Any] = {}
    for now_s in range(END_S):
        for node in nodes:
            up[node] = down.get((node, float(now_s)), up[node])
            if not up[node]:
                for number in [n for n, at in place.items() if at == node]:
                    if jobs[number].when_evicted == "restart":
                        done[number] = 0
        for number in [n for n in state if done[n] == jobs[n].in_slots(5.0)[3] * 5]:
            assert state.pop(number) == "runs"
            ends[number] = now_s
            del place[number]
        between = [
            each for time_s in sorted(by_time) if now_s - 1 < time_s <= now_s for each in by_time[time_s]
        ]
        for command in between:
            match command:
                case StartJob(number, node, _):
                    state[number], place[number], done[number] = "runs", node, 0
                case SuspendJob(number):
                    state[number] = "stands"
                case ResumeJob(number):
                    state[number] = "runs"
                case EvictJob(number):
                    del state[number], place[number], done[number]
                case StartPipeline(placed) | MovePipeline(placed):
                    tasks[placed.pipeline.id] = placed
                case StopPipeline(number):
                    del tasks[number]
        pipelines = run.parts["pipelines"].world
        for number in [n for n in tasks if pipelines.finish_s[n] <= now_s]:
            del tasks[number]
        for node, has in nodes.items():
            at = pipelines.core.network.names.index(node)
            worker = (2.0, 1e9) if node == "near-0" else (0.0, 0.0)
            memory_bytes = sum(float(p.pipeline.memory_bytes[p.node == at].sum()) for p in tasks.values())
            mine = [n for n, where in place.items() if where == node]
            cores = sum(jobs[n].resources.cpu_cores for n in mine if state[n] == "runs")
            memory_bytes += sum(jobs[n].resources.memory_bytes for n in mine if state[n] == "runs")
            assert cores + worker[0] <= has.cpu_cores and memory_bytes + worker[1] <= has.memory_bytes
        for number in state:
            done[number] += state[number] == "runs" and up[place[number]]
    started = {row["job"] for row in found["jobs"] if row["started_s"] is not None}
    ended = run.parts["jobs"].ended_s
    assert {n: ended[n] for n in started if ended[n] < END_S} == ends


@settings(max_examples=30, deadline=None)
@given(mixes())
def test_same_seed_same_bytes_and_work_that_is_not_pushed_out_does_not_hear_of_jobs(
    data: dict[str, Any],
) -> None:
    _, found = run_of(data)
    assert json.dumps(found) == json.dumps(run_of(data)[1])
    _, without = run_of(held(data, "streams", "pipelines"))
    assert (found["streams"], found["pipelines"]) == (without["streams"], without["pipelines"])
    assert np.isfinite([row["frames"] for row in found["pipelines"]]).all()


@settings(max_examples=12, deadline=None)
@given(JOBS, OUTAGE, st.sampled_from(("none", "autoscaler", "marginal")), st.integers(0, 3))
def test_five_kinds_end_once_each_whatever_fails(
    jobs: list[dict[str, Any]], outage: tuple[int, int] | None, orchestrate: str, seed: int
) -> None:
    timeline = [] if outage is None else [(float(outage[0]), False), (float(sum(outage)), True)]
    run, found = run_of(five_kinds(jobs, timeline), seed, check=True, orchestrate=orchestrate)
    for work, key in (("graphs", "query"), ("services", "request"), ("jobs", "job"), ("streams", "stream")):
        numbers = [row[key] for row in found[work]]
        assert len(numbers) == len(set(numbers))
    assert all(row["time_s"] > 0.0 for row in found["graphs"])  # the node is back, so all have ended
    for row in found["services"]:
        assert (row["outcome"] == "waiting") == (row["end_s"] is None)
    assert all(row["queries"] == row["ok"] + row["failed"] + row["rejected"] for row in found["streams"])
    assert [time_s for time_s, _ in run.joint.log] == sorted(time_s for time_s, _ in run.joint.log)
