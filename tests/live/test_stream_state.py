"""Pipelines of a controller that was killed are taken up: their cut links, and the times their tasks took."""

import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.place.core import ENOUGH_FRAMES
from edgewise.model.pipelines import Pipeline
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.store import Store
from placed import Placed, scenario
from waiting import IN_FILES, takes, wait_until

pytestmark = pytest.mark.live
SLOW_S = 0.04
CODE = f"""
{IN_FILES}
from dataclasses import replace
def grab(input): return True, input[:2000]
def look(input):
    takes({SLOW_S})
    return True, len(input)
job = [grab, look]
"""


def town():
    """cam - hub twice: straight, and over relay."""
    links = (("cam", "hub", 8e6), ("cam", "relay", 4e6), ("relay", "hub", 4e6))
    return scenario((("cam", 1e9, 3e8), ("relay", 1e9, 1e7), ("hub", 4e9, 3e8)), links)


def live_pipeline(folder):
    """The profile says that `look` takes 1 ms on the hub; it takes 40."""
    (folder / "job.py").write_text(CODE)
    (folder / "frame").write_bytes(bytes(4000))
    tasks = (Task("grab", 1e6, 2e8), Task("look", 4e6, 2e8))
    pipeline = Pipeline("watch", TaskGraph("watch", tasks, (Edge("grab", "look", 2000),)), "cam", 4000,
                       duration_s=1e6)  # fmt: skip
    return LivePipeline(
        pipeline, str(folder / "job.py"), {"grab": "grab", "look": "look"}, (str(folder / "frame"),)
    )


@pytest.fixture
def killed(tmp_path):
    """The folder of a controller with one cut link that was killed once its pipeline was seen to work."""
    script = tmp_path / "manager.py"
    script.write_text(
        textwrap.dedent(
            """
            import pathlib, sys
            sys.path[:] = sys.argv[2:]
            import test_stream_state as here
            folder = pathlib.Path(sys.argv[1])
            placed = here.Placed(folder / "live", here.town())
            number = placed.submit(here.live_pipeline(folder))
            placed.running(number)
            placed.set_link("cam", "hub", up=False)
            placed.until(lambda: False)
            """
        )
    )
    manager = subprocess.Popen([sys.executable, str(script), str(tmp_path), *sys.path])
    file = tmp_path / "live" / DATABASE
    try:
        wait_until(file.is_file, "no database")
        store = Store(file)
        wait_until(lambda: store.links_down() == [["cam", "hub"]], "the cut link is not kept")

        def measured():
            (kept,) = store.pipelines.listed()
            return kept.measured.get("look", ("", 0, 0.0))[1] > 2 * ENOUGH_FRAMES

        wait_until(measured, "no frame")
        store.close()
    finally:
        manager.send_signal(signal.SIGKILL)
        manager.wait()
    return tmp_path / "live"


def test_what_a_killed_controller_had_measured_counts_for_its_successor(killed):
    with Placed(killed, fresh=False) as placed:
        (kept,) = placed.kept.book.listed()
        node, _, time_s = kept.measured["look"]
        assert node == "hub" and time_s >= SLOW_S
        placed.running(kept.id)
        rates = placed.rates(kept.id)
        assert rates.planned_fps <= 1.02 / SLOW_S  # as measured; the profile promised far more
        assert rates.measured_fps == pytest.approx(rates.planned_fps, rel=0.25)
        assert [flow.path for flow in rates.flows] == [(1, 2)] and rates.flows[0].measured_bps > 0
        (report,) = placed.kept.rates(kept.id)["flows"]
        assert report["path"] == [["cam", "relay"], ["relay", "hub"]]
        assert [row["up"] for row in placed.kept.links()] == [False, True, True]
        placed.set_link("cam", "hub", up=True)
        assert [row["up"] for row in placed.kept.links()] == [True, True, True]
        assert placed.state(kept.id) == "running"
        (hub,) = (row for row in placed.kept.plane.report() if row["node"] == "hub")
        assert hub["held"]["memory_bytes"] == pytest.approx(2e8)
        placed.end(kept.id)
        assert placed.kept.book.open() == []


class Moody:
    """OTFA, while `mood` is None; else it answers as `mood` does."""

    name = "moody"

    def __init__(self):
        self.otfa, self.mood = policies.load("place", "otfa"), None

    def reset(self, network, key):
        self.otfa.reset(network, key)

    def decide(self, view):
        placed = self.otfa.decide(view)
        return placed if self.mood is None else self.mood(placed)


def crowded(placed):
    """All tasks on the relay, which has no memory for them."""
    return [replace(p, node=np.full_like(p.node, 1)) for p in placed]


def late(placed):
    takes(1.0)  # twice its budget
    return placed


MOODS = (
    (lambda placed: placed[99], "IndexError"),
    (crowded, "CapacityError"),
    (late, "no answer within 0.5 s"),
)


def test_a_policy_that_fails_leaves_what_runs_as_it_is_and_that_is_said(tmp_path, caplog):
    policy = Moody()
    with Placed(tmp_path / "live", town()) as placed:
        number = placed.submit(live_pipeline(tmp_path))
        placed.running(number)
        kept, core = placed.kept, placed.core
        core.use(policy, kept.plane.faults.guard("place", "moody", 0.5, False, False))
        watch = kept.processes.running[number]
        processes, planned_bps = dict(watch.processes), watch.placed.bandwidth_bps.tolist()
        for policy.mood, why in MOODS:
            placed.set_link("cam", "hub", up=False)  # its flow loses the way, and nobody finds another
            assert why in kept.fault and why in caplog.text and "'moody'" in caplog.text
            assert placed.state(number) == "running" and watch.processes == processes
            placed.until(lambda: watch.placed.bandwidth_bps[-1] == 0.0)
            placed.set_link("cam", "hub", up=True)
            placed.until(lambda: watch.placed.bandwidth_bps.tolist() == planned_bps)
        rates = placed.rates(number, 1.5)
        assert rates.measured_fps > 0.4 / SLOW_S  # it goes on when the link does
        (overrun,) = (row for row in kept.plane.faults.drain() if row.waited_s)
    assert (overrun.decision, overrun.policy, overrun.waited_s) == ("place", "moody", 0.5)
    assert overrun.instead == "what runs goes on as it is"


def test_pipelines_leave_a_node_that_fails_and_wait_until_there_is_room(tmp_path):
    with Placed(tmp_path / "live", town()) as placed:
        number = placed.submit(live_pipeline(tmp_path))
        placed.running(number)
        assert placed.core.running[number].node.tolist() == [0, 2]
        placed.kept.store.change_node("hub", up=False)
        placed.until(lambda: placed.state(number) == "waiting" and not placed.kept.processes.running)
        assert not placed.core.running and placed.core.pipelines.keys() == {number}
        placed.kept.store.change_node("hub", up=True)
        placed.running(number)
