"""Pipelines of a shipped scenario, simulated and in a live controller: its core hears and says the same.

The controller is that of `edgewise up`, on a virtual clock, with its store; processes are played. A node
fails and comes back. The controller looks around a few milliseconds after something has happened in
simulation, and several times, for each look carries out only a part of what was decided.
"""

import asyncio
from types import SimpleNamespace

import pytest
from ground import until
from same_events import share_alike
from virtual import played

from edgewise.config import load_scenario
from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.place import (
    MovePipeline,
    PipelineEnded,
    PipelineSubmitted,
    PlacementDue,
    ReroutePipeline,
    StopPipeline,
)
from edgewise.core.place.core import PlaceCore
from edgewise.model.parsing import parse_scenario
from edgewise.runtime import clock
from edgewise.runtime.controller import pipelines as live_pipelines
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.sim.clock import JointClock
from edgewise.workloads.pipelines import pipelines_of
from joint_scenarios import held, run_of

LOOKS_S = [0.001 * k for k in (1, 2, 3, 4, 6, 8)]  # after an event
LAG_S, COUNT, SEED = 0.002, 12, 0  # a controller's policies have this seed


class PlayedTask:
    """A task that does as many frames as its pace lets it, in parts of a frame."""

    culprit, died, said = False, False, None

    def __init__(self, fps):
        self._fps, self._since_s, self._done = fps, clock.unix_s(), 0.0

    @property
    def latest(self):
        now_s = clock.unix_s()
        return {"at_s": now_s, "frames": self._done + self._fps * (now_s - self._since_s)}

    def go_on(self, fps):
        self._done, self._since_s, self._fps = self.latest["frames"], clock.unix_s(), fps


class PlayedProcesses:
    """Processes of pipelines, which do as many frames as they are told; see `PipelineTasks`."""

    def __init__(self, backend, _tasks=None):
        self.backend, self.running, self._rates_fps = backend, {}, {}

    def pace(self, rates_fps):
        self._rates_fps = rates_fps
        for number, running in self.running.items():
            for task in set(running.processes.values()):
                task.go_on(rates_fps.get(number, 0.0))

    def carry_out(self, commands, known):
        for command in commands:
            number = None if isinstance(command, StopPipeline) else command.placement.pipeline.id
            if isinstance(command, ReroutePipeline):
                self.running[number].placed = command.placement
            elif number is not None:
                order = known[number].pipeline.graph.order()
                task = PlayedTask(self._rates_fps.get(number, 0.0))
                self.running[number] = SimpleNamespace(
                    live=known[number], placed=command.placement, processes=dict.fromkeys(order, task)
                )

    def stop(self, *numbers):
        for number in numbers:
            self.running.pop(number, None)


def noted(patched):
    """What a core hears that came, ended or changed, with what it says to that, and when."""
    log, handle = [], PlaceCore.handle

    def handle_and_note(core, event):
        due = core.due or getattr(event, "decided", None) is not None  # its policy was asked before
        commands = handle(core, event)
        core.validate()
        if commands or due or not isinstance(event, PlacementDue | CapacityChanged):
            log.append((event, list(commands)))
        return commands

    patched.setattr(PlaceCore, "handle", handle_and_note)
    return log


def told(log, first):
    """Events and commands as plain figures; pipelines are numbered from `first` on."""
    found = []
    for event, commands in log:
        kind = "Changed" if isinstance(event, CapacityChanged | Evicted) else type(event).__name__
        match event:
            case PipelineSubmitted(pipeline):
                who = pipeline.id - first
            case PipelineEnded(number):
                who = number - first
            case _:
                who = None
        said = []
        for each in commands:
            if isinstance(each, StopPipeline):
                said.append(("StopPipeline", each.pipeline - first))
            else:
                p = each.placement
                rates = tuple(round(bps, 3) for bps in p.bandwidth_bps.tolist())
                said.append((type(each).__name__, p.pipeline.id - first, tuple(p.node.tolist()), rates))
        found.append((kind, who, said))
    return found


def scenario_of(fails, cores="none"):
    settings = {
        "topology.nodes": 14, "pipelines.0.count": COUNT, "duration_s": 120, "live.budgets_s.place": 60
    }  # fmt: skip
    scenario = load_scenario(
        "recognition", settings | {"telemetry.lag_s": LAG_S, "reservations.cores": cores}
    )
    data = held(scenario.spec.model_dump(mode="json", exclude_none=True), "pipelines")
    names = [node.name for node in scenario.topology.nodes]
    timeline = [{"at_s": at_s, "node": names[n], "up": up} for at_s, n, up in fails]
    return data | {"timeline": timeline}


def simulated(data, policy):
    """The log, when something happened, and pipelines at the end."""
    with pytest.MonkeyPatch.context() as patched:
        log, moments, step = noted(patched), [], JointClock.step

        def step_and_note(joint, now_s):
            moments.append(now_s)
            step(joint, now_s)

        patched.setattr(JointClock, "step", step_and_note)
        _, items = run_of(data, SEED, place=policy)
        return log, sorted(set(moments)), items["pipelines"]


async def live(data, policy, folder, moments, patched):
    async def at_once(work, *given):
        return work(*given)

    patched.setattr(asyncio, "to_thread", at_once)
    patched.setattr(live_pipelines, "PipelineTasks", PlayedProcesses)
    scenario = parse_scenario(data, "recognition")
    store = prepare(folder, scenario, given={"place": policy})
    kept = LivePipelines(LivePlane(store))
    coming = sorted(pipelines_of(scenario, SEED), key=lambda each: each.arrival_s)
    changes = list(scenario.timeline)
    for at_s in moments:
        while changes and changes[0].at_s <= at_s:
            store.change_node(changes[0].node, changes.pop(0).up)
        while coming and coming[0].arrival_s <= at_s:
            kept.book.submit(coming[0].name, LivePipeline(coming.pop(0)))
        for after_s in LOOKS_S:
            await until(at_s + after_s)
            await kept.step(clock.unix_s())
    ended = [each for each in kept.book.listed() if each.ended_s is not None]
    store.close()
    return ended


@pytest.mark.parametrize(
    ("policy", "fails"),
    [("otfa", []), ("joint", [(9.0, 3, False), (31.0, 3, True)])],
    ids=["otfa", "joint-fails"],
)
def test_a_controller_places_pipelines_as_simulated(policy, fails, tmp_path):
    data = scenario_of(fails)
    log, moments, _ = simulated(data, policy)
    with pytest.MonkeyPatch.context() as patched:
        live_log = noted(patched)
        ended = played(live(data, policy, tmp_path, moments, patched))
    before, after = told(log, 0), told(live_log, 1)
    assert share_alike(before, after) == 1.0
    kinds = [kind for kind, _, _ in before]
    assert kinds.count("PipelineEnded") == kinds.count("PipelineSubmitted") == len(ended) == COUNT
    said = {what for _, _, commands in before for what, *_ in commands}
    assert "StartPipeline" in said and (not fails or MovePipeline.__name__ in said)


def test_pipelines_that_share_cores_do_as_many_frames_as_simulated(tmp_path):
    data = scenario_of([], cores="used")
    _, moments, items = simulated(data, "tp")
    with pytest.MonkeyPatch.context() as patched:
        ended = played(live(data, "tp", tmp_path, moments, patched))
    done, expected = (
        {each.live.pipeline.name: each.frames for each in ended},
        {e["pipeline"]: e["frames"] for e in items},
    )
    assert done == pytest.approx(expected, rel=0.01) and len(done) == COUNT
    alone_fps = max(each["frames"] / (each["finish_s"] - each["start_s"]) for each in items)
    assert min(expected.values()) < 0.7 * alone_fps * 25.0  # some wait for cores
