"""Simulation and test bed drive one core of placement: events of either give the other the same commands."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.place import MovePipeline, PlacementDue, StartPipeline, TaskMeasured
from edgewise.core.place.core import PlaceCore
from edgewise.model.pipelines import Network, Pipeline, network_of
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.pipelines import session as live
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.meta import MetaStore, TaskStatus
from edgewise.sim.parts import pipelines as simulated
from edgewise.testing.driven import plain
from edgewise.workloads.pipelines import pipelines_of
from waiting import IN_FILES, wait_until

CODE = f"""
{IN_FILES}
def grab(input): return True, input[:2000]
def look(input):
    takes(0.01)
    return True, len(input)
job = [grab, look]
"""


class Recorder(PlaceCore):
    """Keeps what goes in and comes out."""

    made: "Recorder"

    def __init__(self, *args):
        super().__init__(*args)
        self.log = []
        Recorder.made = self

    def handle(self, event):
        commands = super().handle(event)
        self.log.append((event, commands))
        self.validate() if isinstance(event, PlacementDue) else None
        return commands


def replayed(core, log):
    """What a core makes of the events that another was told."""
    return [plain([*core.handle(event)]) for event, _ in log]


def recorded(log):
    return [plain(commands) for _, commands in log]


def kinds(log):
    return {type(command) for _, commands in log for command in commands}


@pytest.mark.parametrize("name", policies.names("place"))
def test_events_of_a_simulation_give_a_test_bed_the_same_commands(name, monkeypatch):
    monkeypatch.setattr(simulated, "PlaceCore", Recorder)
    scenario = load_scenario("recognition", {"topology.nodes": 14, "pipelines.0.count": 12})
    network, pipelines = network_of(scenario), pipelines_of(scenario, 3)
    simulated.simulate_streaming(network, pipelines, policies.load("place", name), seed=3)
    log = Recorder.made.log
    assert StartPipeline in kinds(log) and (name != "joint" or MovePipeline in kinds(log))
    with live.PipelineSession(
        live.open_backend("local", network), policies.load("place", name), 3
    ) as session:
        assert replayed(session.core, log) == recorded(log)


def cameras(folder, count):
    """Pipelines from the camera to wherever there is room; one `look` fits on the relay, two on the hub."""
    (folder / "job.py").write_text(CODE)
    (folder / "frame").write_bytes(bytes(4000))
    tasks = (Task("grab", 1e6, 1e8), Task("look", 4e6, 2e8))
    graph = TaskGraph("watch", tasks, (Edge("grab", "look", 2000),))
    functions = {task.name: task.name for task in tasks}
    return [
        LivePipeline(
            Pipeline(f"watch-{i}", graph, "cam", 4000, duration_s=1e9),
            str(folder / "job.py"),
            functions,
            (str(folder / "frame"),),
        )
        for i in range(count)
    ]


@pytest.mark.live
def test_events_of_a_test_bed_with_measured_times_give_the_core_the_same_commands(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "PlaceCore", Recorder)
    ends, bandwidth = np.array([[0, 2], [0, 1], [1, 2]]), np.array([8e6, 4e6, 4e6])
    network = Network(
        ("cam", "relay", "hub"), np.array([1e9, 1e9, 4e9]), np.array([4e8, 3e8, 5e8]), ends, bandwidth
    )
    meta = MetaStore(tmp_path / "streams.db")
    first, second = cameras(tmp_path, 2)
    with live.PipelineSession(
        live.open_backend("local", network), policies.load("place", "joint"), 7, meta=meta
    ) as session:
        session.submit([first])
        wait_until(lambda: sum(task.frames > 20 for task in meta.seen(TaskStatus, 1)) >= 2)
        session.set_link(0, up=False)
        session.set_node(2, up=False)
        session.submit([second])
        session.set_link(0, up=True)
        session.finish("watch-0")
        log = list(Recorder.made.log)
    assert any(isinstance(event, TaskMeasured) and event.frames > 20 for event, _ in log)
    assert StartPipeline in kinds(log) and len(kinds(log)) > 1
    assert replayed(PlaceCore(network, policies.load("place", "joint"), 7), log) == recorded(log)
    profiled = [row for row in log if not isinstance(row[0], TaskMeasured)]
    assert replayed(PlaceCore(network, policies.load("place", "joint"), 7), profiled) != recorded(profiled)
