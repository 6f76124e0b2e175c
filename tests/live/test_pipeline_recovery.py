"""Pipelines as real processes: what is killed comes back, what fails is said, starts go side by side."""

import asyncio
import math
import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from waiting import IN_FILES, becomes, wait_until

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from running_system import small_scenario

from edgewise.config import dump_scenario
from edgewise.model.parsing import parse_scenario
from edgewise.model.pipelines import Pipeline
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.controller import pipelines as live_pipelines
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.process.machine import alive_handle
from edgewise.runtime.store import Store

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
HANG_S = 60.0
TASKS = [
    {"name": "first", "downstream": ["second"], "memory_bytes": 1e6, "work_ops": 1e7, "output_bytes": 100},
    {"name": "second", "memory_bytes": 1e6, "work_ops": 1e7, "output_bytes": 0},
]


def scenario(source="near-node", cores=math.inf):
    data = yaml.safe_load(dump_scenario(small_scenario()))
    data["pipelines"] = [
        {"name": "made", "source": source, "input_bytes": 100, "length_s": 10, "tasks": TASKS}
    ]
    for cluster in data["clusters"]:
        cluster["nodes"] = [{**node, "speed_ops": 1e9} for node in cluster["nodes"]]
        for node in cluster["nodes"]:
            node["resources"]["cpu_cores"] = min(cores, node["resources"]["cpu_cores"])
    return parse_scenario(data, "piped")


def live(name="made", duration_s=600.0, code=None, **functions):
    graph = TaskGraph(
        name, (Task("first", 1e7, 1e6), Task("second", 1e7, 1e6)), (Edge("first", "second", 800.0),)
    )
    return LivePipeline(Pipeline(name, graph, "near-node", 800.0, duration_s), code, functions)


@pytest.fixture
def kept(tmp_path):
    prepare(tmp_path / "live", scenario()).close()
    made = LivePipelines(LivePlane(Store(tmp_path / "live" / DATABASE)))
    yield made
    made.close()
    made.store.close()


def until(kept, reached):
    """Steps until `reached()`; fails when that takes for ever."""

    async def stepped():
        if reached():
            return True
        return await kept.step(time.time())

    async def carried_out():
        if not kept.busy:
            return True
        return await kept.step(time.time())

    async def steps():
        await becomes(stepped, lambda: [each.row() for each in kept.book.listed()], HANG_S)
        await becomes(carried_out, "its commands have no end", HANG_S)  # the loop ends with this call

    asyncio.run(steps())


def states(kept):
    return [each.state for each in kept.book.listed()]


def frames(kept, number):
    return kept.book.get(number).frames


def processes(kept, number):
    return {name: each.handle for name, each in kept.processes.running[number].processes.items()}


@pytest.mark.parametrize("task", ["", "first", "second"])
def test_a_killed_process_of_a_pipeline_comes_back(kept, task):
    number = kept.book.submit("a", live()).id
    until(kept, lambda: states(kept) == ["running"] and frames(kept, number) > 0)
    before, done = processes(kept, number), frames(kept, number)
    os.kill(int(before[task].split(":")[0]), signal.SIGKILL)
    until(kept, lambda: states(kept) == ["waiting"])
    assert "status -9" in kept.book.get(number).why
    until(kept, lambda: states(kept) == ["running"] and frames(kept, number) > done)
    assert not any(map(alive_handle, before.values()))  # nothing of the former ones is left
    assert kept.fallen.times(number) == 0  # one kill is one fall


def test_tasks_that_share_cores_are_as_slow_as_these_let_them_be(tmp_path):
    prepare(tmp_path / "live", scenario(cores=3)).close()
    kept = LivePipelines(LivePlane(Store(tmp_path / "live" / DATABASE)))
    first, *others = [kept.book.submit(str(i), live(str(i))).id for i in range(4)]

    def counted():
        """When the last task of the first pipeline reported, and its frames."""
        latest = kept.processes.running[first].processes["second"].latest
        return latest.get("at_s", 0.0), latest.get("frames", 0)

    def faster_than(fps):
        def reached():
            at_s, done = counted()
            if at_s - since[0] < 0.5:
                return False
            rate = (done - since[1]) / (at_s - since[0])
            since[:] = at_s, done
            return rate > fps

        since = list(counted())
        return reached

    until(kept, lambda: states(kept) == ["running"] * 4 and counted()[1] > 0)
    shared_fps = kept.core.rates_fps()[first]
    assert shared_fps == pytest.approx(
        1 / 4 / 0.02
    )  # on the core that is left, two tasks of 10 ms, four times
    began_s, before = counted()
    until(kept, lambda: counted()[0] > began_s + 3.0)
    at_s, after = counted()
    assert 0 < after - before <= 1.05 * shared_fps * (at_s - began_s) + 2
    for number in others:
        kept.book.cancel(number)
    until(kept, lambda: kept.core.rates_fps().keys() == {first})
    assert kept.core.rates_fps()[first] >= 1.9 * shared_fps
    until(kept, faster_than(1.3 * shared_fps))
    kept.close()
    kept.store.close()


def test_one_that_dies_at_every_start_is_tried_later_each_time_and_can_be_ended(kept, tmp_path):
    (tmp_path / "code.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    code = str(tmp_path / "code.py")
    number = kept.book.submit("a", live(code=code, first="run", second="run")).id
    until(kept, lambda: (kept.fallen.times(number) or 0) >= 3)
    assert kept.book.get(number).ended_s is None and "status -9" in kept.book.get(number).why
    kept.book.cancel(number)
    until(kept, lambda: states(kept) == ["cancelled"])


def test_one_whose_code_fails_has_failed(kept, tmp_path):
    (tmp_path / "code.py").write_text("def run(x):\n    raise ValueError('no such frame')\n")
    (tmp_path / "frame").write_bytes(b"frame")
    given = live(code=str(tmp_path / "code.py"), first="run", second="run")
    given = LivePipeline(given.pipeline, given.code, given.functions, (str(tmp_path / "frame"),))
    number = kept.book.submit("a", given).id
    until(kept, lambda: states(kept) == ["failed"])
    assert "no such frame" in kept.book.get(number).why


def test_what_has_ended_while_it_was_started_does_not_run(tmp_path):
    prepare(tmp_path / "live", scenario()).close()
    book = Store(tmp_path / "live" / DATABASE).pipelines
    number = book.submit("a", live()).id
    book.end(number, "cancelled", "as was asked for")
    book.runs(number, {"first": "near-node"}, moved=False)
    book.waits(number, "killed")
    book.went_on(number, 3.0, 1.0)
    book.cancel(number)
    found = book.get(number)
    assert (found.state, found.why, found.frames, found.cancel) == (
        "cancelled",
        "as was asked for",
        0.0,
        False,
    )
    assert book.open() == []
    book.db.close()


def test_pipelines_start_side_by_side_but_only_so_many(kept, monkeypatch):
    """Every start waits until as many are under way as may be."""
    together, most = set(), 0
    carry_out = live_pipelines.PipelineTasks.carry_out

    def watched(self, commands, known):
        nonlocal most
        (command,) = commands
        together.add(command.placement.pipeline.id)
        most = max(most, len(together))
        wait_until(lambda: most >= live_pipelines.MOST_AT_ONCE, limit_s=HANG_S)
        carry_out(self, commands, known)
        together.discard(command.placement.pipeline.id)

    monkeypatch.setattr(live_pipelines.PipelineTasks, "carry_out", watched)
    for k in range(live_pipelines.MOST_AT_ONCE + 2):
        kept.book.submit(str(k), live(f"made-{k}"))
    until(kept, lambda: set(states(kept)) == {"running"})
    assert most == live_pipelines.MOST_AT_ONCE


def test_one_whose_source_went_with_the_scenario_holds_up_no_other(kept):
    strange = live("strange")
    strange = LivePipeline(Pipeline("strange", strange.pipeline.graph, "gone", 800.0, 600.0))
    kept.book.submit("a", strange)
    kept.book.submit("b", live())
    until(kept, lambda: states(kept) == ["failed", "running"])
    assert "gone" in kept.book.listed()[0].why


def test_who_has_ended_holds_nothing_of_nodes_any_more(kept):
    number = kept.book.submit("one", live()).id
    until(kept, lambda: frames(kept, number) > 0)
    assert "place" in [each.decision for each in kept.plane.ledger.reservations]
    kept.book.cancel(number)
    until(kept, lambda: states(kept) == ["cancelled"])
    assert not kept.core.pipelines and not kept.processes.running
    assert "place" not in [each.decision for each in kept.plane.ledger.reservations]


SLOW = f"""
{IN_FILES}
from pathlib import Path

import numpy as np

from edgewise.core.place import Placement

wait_until((Path(__file__).parent / "go").exists)


class AtSource:
    decision = "place"

    def reset(self, world, key):
        pass

    def decide(self, view):
        none, placed = np.zeros(0, dtype=np.int64), []
        for job in view.waiting:
            node, flows = np.full(len(job.work_ops), job.source), len(job.head)
            placed.append(Placement(job, node, np.zeros(flows + 1, int), none, np.full(flows, np.inf)))
        return placed
"""


def test_while_a_policy_of_ones_own_is_loaded_pipelines_come_and_go(kept, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    kept.store.set_policy("place", f"{tmp_path / 'slow.py'}:AtSource")
    number, gone = (kept.book.submit(key, live()).id for key in "ab")
    kept.book.cancel(gone)
    until(kept, lambda: states(kept) == ["waiting", "cancelled"])
    assert not kept.core.running and not kept.fault  # nobody else decides in its place
    (tmp_path / "go").touch()
    until(kept, lambda: states(kept)[0] == "running" and frames(kept, number) > 0)
    assert set(kept.book.get(number).nodes.values()) == {"near-node"} and not kept.fault
