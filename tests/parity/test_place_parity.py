"""Simulation and live system drive one core of placement: events of either give it the same commands."""

import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.place import MovePipeline, PlacementDue, StartPipeline, TaskMeasured
from edgewise.core.place.core import PlaceCore
from edgewise.model.pipelines import Pipeline, network_of
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.controller import pipelines as live
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.sim.parts import pipelines as simulated
from edgewise.testing.driven import plain
from edgewise.workloads.pipelines import pipelines_of
from placed import Placed, scenario as town
from waiting import IN_FILES

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

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.log = []
        Recorder.made = self

    def handle(self, event):
        commands = super().handle(event)
        self.log.append((event, commands))
        self.validate() if isinstance(event, PlacementDue) else None
        return commands


def replayed(core, log):
    """What a core makes of the events that another was told."""
    asked = (event._replace(decided=None) if isinstance(event, PlacementDue) else event for event, _ in log)
    return [plain([*core.handle(event)]) for event in asked]


def recorded(log):
    return [plain(commands) for _, commands in log]


def kinds(log):
    return {type(command) for _, commands in log for command in commands}


@pytest.mark.parametrize("name", policies.names("place"))
def test_events_of_a_simulation_give_a_live_system_the_same_commands(name, monkeypatch, tmp_path):
    monkeypatch.setattr(simulated, "PlaceCore", Recorder)
    scenario = load_scenario("recognition", {"topology.nodes": 14, "pipelines.0.count": 12})
    network, pipelines = network_of(scenario), pipelines_of(scenario, 3)
    simulated.simulate_streaming(network, pipelines, policies.load("place", name))
    log = Recorder.made.log
    assert StartPipeline in kinds(log) and (name != "joint" or MovePipeline in kinds(log))
    with Placed(tmp_path / "live", scenario, policy=name) as placed:
        placed.until(lambda: placed.core is not None)
        assert replayed(placed.core, log) == recorded(log)


def cameras(folder, count):
    """Pipelines from the camera to wherever there is room; one `look` fits on the relay, two on the hub."""
    (folder / "job.py").write_text(CODE)
    (folder / "frame").write_bytes(bytes(4000))
    tasks = (Task("grab", 1e6, 1e8), Task("look", 4e6, 2e8))
    graph = TaskGraph("watch", tasks, (Edge("grab", "look", 2000),))
    functions = {task.name: task.name for task in tasks}
    return [
        LivePipeline(
            Pipeline(f"watch-{i}", graph, "cam", 4000, duration_s=1e6),
            str(folder / "job.py"),
            functions,
            (str(folder / "frame"),),
        )
        for i in range(count)
    ]


@pytest.mark.live
def test_events_of_a_live_system_with_measured_times_give_the_core_the_same_commands(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "PlaceCore", Recorder)
    links = (("cam", "hub", 8e6), ("cam", "relay", 4e6), ("relay", "hub", 4e6))
    made = town((("cam", 1e9, 4e8), ("relay", 1e9, 3e8), ("hub", 4e9, 5e8)), links)
    first, second = cameras(tmp_path, 2)
    with Placed(tmp_path / "live", made, policy="joint") as placed:
        number = placed.submit(first)
        placed.running(number)
        placed.until(lambda: sum(row[1] > 20 for row in placed.kept.book.get(number).measured.values()) >= 2)
        placed.set_link("cam", "hub", up=False)
        placed.running(placed.submit(second))
        placed.set_link("cam", "hub", up=True)
        placed.end(number)
        placed.until(lambda: not placed.core.due)
        log, network = list(Recorder.made.log), network_of(made)
    assert any(isinstance(event, TaskMeasured) and event.frames > 20 for event, _ in log)
    assert StartPipeline in kinds(log) and len(kinds(log)) > 1
    assert replayed(PlaceCore(network, policies.load("place", "joint")), log) == recorded(log)
    profiled = [row for row in log if not isinstance(row[0], TaskMeasured)]
    assert replayed(PlaceCore(network, policies.load("place", "joint")), profiled) != recorded(profiled)
