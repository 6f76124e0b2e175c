"""Random mixes of work on the same nodes, and what a slow and simple bookkeeper says of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise.core.defer import EvictJob, LoseJob, ResumeJob, StartJob, SuspendJob
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import AddReplica, ReplicaView
from edgewise.core.place import MovePipeline, StartPipeline, StopPipeline
from edgewise.model.orchestration import System
from edgewise.run.joint import JointRun
from edgewise.sim.links.advance import links_now
from joint_scenarios import each_query_ended_once, five_kinds, held, laid, mixed, run_of

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
        assert (row["started_s"] is not None) == (counts[StartJob] > 0)
    for row in found["pipelines"]:
        assert row["finish_s"] is None or row["frames"] == 600.0
    assert each_query_ended_once(run, found["streams"])


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
        for number in [n for n in state if done[n] == jobs[n].in_slots(5.0)[3] * 5]:
            assert state.pop(number) == "runs"
            ends[number] = now_s
            del place[number]
        for node in nodes:
            up[node] = down.get((node, float(now_s)), up[node])
            if not up[node]:
                for number in [n for n, at in place.items() if at == node]:
                    if jobs[number].when_evicted == "restart":
                        done[number] = 0
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
    over_s = run.scenario.duration_s  # what would end later has not ended
    assert not any(ended[n] > over_s for n in started)
    within = {number: now_s for number, now_s in ends.items() if now_s < over_s}
    assert {n: ended[n] for n in started if ended[n] < over_s} == within


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
    for site in run.parts["services"].sites.cores:
        site.validate()  # those that came are those that ended, and those under way
    assert each_query_ended_once(run, found["streams"])
    assert [time_s for time_s, _ in run.joint.log] == sorted(time_s for time_s, _ in run.joint.log)


class AddSome:
    """Replicas of the second service, whose image lacks, in frames that are drawn."""

    decision, name, frames = "orchestrate", "add-some", ()

    def reset(self, world: System, key: Key) -> None:
        """Nothing is kept."""

    def decide(self, view: ReplicaView) -> list[AddReplica]:
        """One on each node."""
        frame = int(view.world["clock_s"] / 10.0)
        return [AddReplica(node, 1) for node in (0, 1) if frame in self.frames]


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(("fifo", "ps")), st.sampled_from(("lan", "wan")), st.sampled_from(("near-0", "near-1")),
    st.sampled_from((2e6, 20e6)), st.sampled_from((1.0, 5e5, 5e6)), st.sets(st.integers(0, 5)), OUTAGE,
    st.sampled_from(("otfa", "lr", "tp")),
)  # fmt: skip
def test_at_no_time_is_more_reserved_of_a_link_than_it_has_nor_sent_than_is_left(
    sharing: str, cable: str, source: str, cable_bps: float, image_bytes: float, frames: set[int],
    outage: tuple[int, int] | None, place: str,
) -> None:  # fmt: skip
    data = laid(sharing, cable_bps, cable, source, image_bytes=image_bytes)
    if outage is not None:
        changes = ((float(outage[0]), False), (float(sum(outage)), True))
        data["timeline"] = [{"at_s": at_s, "node": "near-1", "up": up} for at_s, up in changes]
    told: list[tuple[float, Any]] = []

    def note(run: JointRun) -> bool:
        pulls = run.reserved.pulls
        tell = pulls.tell

        def told_too(now_s: float, bps: Any) -> None:
            told.append((now_s, bps.copy()))
            tell(now_s, bps)
            pulls.validate()

        pulls.tell = told_too
        return False

    policy = type("Drawn", (AddSome,), {"frames": frames})
    run, _ = run_of(data, check=True, steps=note, orchestrate=policy, place=place)
    end_s, reserved, before_s = 47.0, np.zeros(len(run.wires.names)), 0.0
    while run.joint.next_s() <= end_s:
        run.joint.step(run.joint.next_s())
    run.parts["streams"].simulation.run_until(end_s)
    run.wires.bring_up(end_s)
    links, left_bits = run.wires.net.links, np.zeros(reserved.size)
    sent_bits = links.carried_bits - links_now(links, end_s)[1]
    for at_s, bps in [*told, (end_s, reserved)]:
        assert at_s >= before_s and (bps <= links.capacity_bps * (1 + 1e-6)).all()
        left_bits += (links.capacity_bps - reserved) * (at_s - before_s)
        before_s, reserved = at_s, bps
    assert (sent_bits <= left_bits * (1 + 1e-6) + 1.0).all()
    run.joint.run()
    assert not run.reserved.pulls.pulls
    assert run.reserved.pulls.reserved_bps == pytest.approx(0.0)
