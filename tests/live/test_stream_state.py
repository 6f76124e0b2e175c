"""A session that is killed is taken up: its jobs, its cut links, and the times its tasks took."""

import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.place.core import ENOUGH_FRAMES
from edgewise.model.pipelines import Network, Pipeline
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.pipelines import meta
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.meta import FlowStatus, LinkStatus, MetaStore, NodeStatus, TaskStatus
from edgewise.runtime.pipelines.session import PipelineSession, open_backend
from waiting import IN_FILES, takes, wait_until

pytestmark = pytest.mark.live
LIMIT_S = 60.0
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


def network():
    """cam - hub twice: straight, and over relay."""
    ends, bandwidth = np.array([[0, 2], [0, 1], [1, 2]]), np.array([8e6, 4e6, 4e6])
    speed, memory = np.array([1e9, 1e9, 4e9]), np.array([3e8, 1e7, 3e8])
    return Network(("cam", "relay", "hub"), speed, memory, ends, bandwidth)


def live_pipeline(folder):
    """The profile says that `look` takes 1 ms on the hub; it takes 40."""
    (folder / "job.py").write_text(CODE)
    (folder / "frame").write_bytes(bytes(4000))
    tasks = (Task("grab", 1e6, 2e8), Task("look", 4e6, 2e8))
    pipeline = Pipeline("watch", TaskGraph("watch", tasks, (Edge("grab", "look", 2000),)), "cam", 4000,
                       duration_s=1e9)  # fmt: skip
    return LivePipeline(
        pipeline, str(folder / "job.py"), {"grab": "grab", "look": "look"}, (str(folder / "frame"),)
    )


@pytest.fixture
def killed(tmp_path):
    """The database of a session with one cut link that was killed after its monitors had seen it work."""
    script = tmp_path / "manager.py"
    script.write_text(
        textwrap.dedent(
            """
            import pathlib, signal, sys
            sys.path[:] = sys.argv[2:]
            import test_stream_state as here
            folder = pathlib.Path(sys.argv[1])
            bed = here.open_backend("local", here.network())
            store = here.MetaStore(folder / "streams.db")
            session = here.PipelineSession(bed, here.policies.load("place", "otfa"), meta=store)
            session.submit([here.live_pipeline(folder)])
            session.set_link(0, up=False)
            signal.pause()
            """
        )
    )
    manager = subprocess.Popen([sys.executable, str(script), str(tmp_path), *sys.path])
    file = tmp_path / "streams.db"
    try:
        wait_until(file.is_file, "no database")
        store = MetaStore(file)
        wait_until(
            lambda: any(t.frames > 2 * ENOUGH_FRAMES for t in store.seen(TaskStatus, 1) if t.name == "look"),
            "no frame",
        )
        wait_until(
            lambda: [link.up for link in store.seen(LinkStatus)] == [False, True, True],
            "the cut link is not kept",
        )
        wait_until(lambda: any(node.busy > 0.1 for node in store.seen(NodeStatus)), "no work is seen")
    finally:
        manager.send_signal(signal.SIGKILL)
        manager.wait()
    return store


def test_the_network_is_known_before_anything_was_seen_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(meta, "WATCH_S", LIMIT_S)
    store = MetaStore(tmp_path / "streams.db")
    with PipelineSession(
        open_backend("local", network()), policies.load("place", "otfa"), meta=store
    ) as session:
        session.submit([live_pipeline(tmp_path)])
        assert not store.seen(TaskStatus)
        assert store.network().names == network().names and len(store.unfinished()) == 1


def test_a_killed_session_is_taken_up_with_what_it_had_measured(killed):
    (task,) = (t for t in killed.seen(TaskStatus, 1) if t.name == "look")
    assert task.node == "hub" and task.time_s >= SLOW_S
    (flow,) = killed.seen(FlowStatus, 1)
    assert flow.links == "cam-relay, relay-hub" and flow.rate_bps > 0
    hub = next(node for node in killed.seen(NodeStatus) if node.name == "hub")
    assert hub.tasks == 1 and hub.free_bytes == pytest.approx(1e8) and hub.busy > 0.1
    assert (killed.network().ends == network().ends).all()
    with PipelineSession(
        open_backend("local", killed.network()), policies.load("place", "otfa"), meta=killed
    ) as session:
        assert session.resume() == ["watch"]
        (rates,) = session.measure(2.0)
        assert rates.planned_fps <= 1.02 / SLOW_S  # as measured; the profile promised far more
        assert rates.measured_fps == pytest.approx(rates.planned_fps, rel=0.25)
        assert [flow.path for flow in rates.flows] == [(1, 2)]
        session.set_link(0, up=True)
        assert [link.up for link in killed.seen(LinkStatus)] == [True, True, True]
        assert [row.state for row in killed.pipelines()] == ["running"]
    assert [row.state for row in killed.pipelines()] == ["ended"] and killed.unfinished() == []


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
    store, bed = MetaStore(tmp_path / "state.sqlite"), open_backend("local", network())
    with PipelineSession(bed, policy, meta=store, patience_s=0.5) as session:
        session.submit([live_pipeline(tmp_path)])
        (watch,) = session.running.values()
        processes, planned_bps = dict(watch.processes), watch.placed.bandwidth_bps.tolist()
        for policy.mood, why in MOODS:
            session.set_link(0, up=False)  # its flow loses the way, and nobody finds another
            assert why in session.guard.fault and why in caplog.text and "'moody'" in caplog.text
            assert session.names() == ["watch"] and watch.processes == processes
            assert watch.placed.bandwidth_bps[-1] == 0.0
            session.set_link(0, up=True)
            assert watch.placed.bandwidth_bps.tolist() == planned_bps
        (rates,) = session.measure(1.0, settle_s=0.5)
        assert rates.measured_fps > 0.4 / SLOW_S  # it goes on when the link does
    (overrun,) = (row for row in store.faults.since() if row.waited_s)
    assert (overrun.decision, overrun.policy, overrun.waited_s) == ("place", "moody", 0.5)
    assert overrun.instead == "what runs goes on as it is"


def test_pipelines_leave_a_node_that_fails_and_wait_until_there_is_room(tmp_path):
    with PipelineSession(open_backend("local", network()), policies.load("place", "otfa")) as session:
        session.submit([live_pipeline(tmp_path)])
        assert session.core.running[0].node.tolist() == [0, 2]
        session.set_node(2, up=False)
        assert session.names() == [] and session.core.pipelines.keys() == {0}
        session.set_node(2, up=True)
        assert session.names() == ["watch"]
