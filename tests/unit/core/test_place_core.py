"""The core of placement by itself: events in, commands out, and nothing over capacity after any of them."""

from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.capacity import CapacityChanged
from edgewise.core.guard import Guard
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.place import (
    BandwidthChanged,
    MemoryChanged,
    MovePipeline,
    PipelineEnded,
    PipelineSubmitted,
    Placement,
    PlacementDue,
    ReroutePipeline,
    StartPipeline,
    StopPipeline,
    TaskMeasured,
    arrays_of,
    throughput,
)
from edgewise.core.place.core import ENOUGH_FRAMES, PlaceCore
from edgewise.errors import CapacityError, PolicyError
from edgewise.model.topology import Node, Resources
from edgewise.model.work import INFERENCE
from edgewise.testing.driven import plain
from streaming_example import edge_network, example_network, streaming_jobs, whole_job


class Once:
    """Starts each pipeline on e1, over e2, at half of the links; what runs stays as it is."""

    name = "once"

    def reset(self, network, key):
        self.way = np.array([network.link("e4", "e2"), network.link("e2", "e1")])

    def decide(self, view):
        none = np.array([0, 2])
        return [Placement(each, np.array([0]), none, self.way, np.array([5.0])) for each in view.waiting]


class Wrong(Once):
    """Decides as told by `how`."""

    name = "wrong"

    def __init__(self, how):
        self.how = how

    def decide(self, view):
        return self.how(super().decide(view))


def told(core, *events):
    """The commands of all events; what runs fits after each."""
    commands = []
    for event in events:
        commands += core.handle(event)
        core.validate()
    return commands


def submitted(network, count=1):
    return [PipelineSubmitted(arrays_of(whole_job(), number, network)) for number in range(count)]


def rates(core):
    return [p.bandwidth_bps.tolist() for p in core.running.values()]


def test_flows_share_what_a_link_still_carries_and_have_their_rates_again_when_it_returns():
    network = example_network()
    core = PlaceCore(network, Once())
    commands = told(core, *submitted(network, 2), PlacementDue(0.0))
    assert [type(each) for each in commands] == [StartPipeline, StartPipeline]
    assert rates(core) == [[5.0], [5.0]]
    link = network.link("e4", "e2")
    for bandwidth_bps, rate in ((4.0, 2.0), (0.0, 0.0), (10.0, 5.0)):
        commands = told(core, BandwidthChanged(link, bandwidth_bps), PlacementDue(1.0))
        assert [type(each) for each in commands] == [ReroutePipeline, ReroutePipeline]
        assert rates(core) == [[rate], [rate]]
        assert throughput(core.network, list(core.running.values())) == pytest.approx(min(rate / 5, 200 / 55))
    assert told(core, PlacementDue(2.0)) == []  # nothing changed, so nothing is commanded


def test_a_node_that_loses_its_memory_sets_the_latest_pipelines_waiting_in_their_old_order():
    network = example_network()
    core = PlaceCore(network, policy := Wrong(list))
    told(core, *submitted(network, 2), PlacementDue(0.0))
    policy.how = lambda placed: []
    assert told(core, MemoryChanged(0, 4.0)) == [StopPipeline(1)]  # a pipeline holds three
    assert told(core, MemoryChanged(0, 0.0), PipelineSubmitted(arrays_of(whole_job(), 2, network))) == [
        StopPipeline(0)
    ]
    assert [each.id for each in core.view(1.0).waiting] == [0, 1, 2]
    told(core, MemoryChanged(0, 100.0))
    assert [each.id for each in core.view(1.0).waiting] == [0, 1, 2]
    told(core, PipelineEnded(1))
    assert core.pipelines.keys() == {0, 2}


def test_tasks_hold_the_cores_that_they_use_of_those_that_others_leave_and_jobs_go_for_them():
    network = replace(example_network(), cores=np.full(4, 2.0))
    fast = network.names[0]  # 200 operations per second; a frame of a whole pipeline takes 55
    nodes = [Node(name, "", Resources(2.0, 100.0)) for name in network.names]
    core = PlaceCore(network, Once(), ledger=(ledger := NodeLedger(nodes)))
    ledger.reserve(Reservation("job", fast, Resources(1.4), priority=0, preemptible=True, decision="defer"))
    told(core, *submitted(network, 2), PlacementDue(0.0))  # 2 flows of 5 of a link, a frame of 5 each
    each_uses = 55.0 / 200.0
    assert [(p.owner, p.resources.cpu_cores) for p in ledger.reservations if p.resources.cpu_cores] == [
        ("job", 1.4), *((f"tasks of pipeline {i} on {fast}", pytest.approx(each_uses)) for i in range(2))
    ]  # fmt: skip
    ledger.hold(Reservation("worker", fast, Resources(1.9), INFERENCE))
    assert ledger.pushed_out[0].owner == "job"
    ledger.pushed_out.clear()
    told(core, CapacityChanged(1.0))
    assert core.network.cores[0] == pytest.approx(0.1)
    running = list(core.running.values())
    assert throughput(core.network, running) == pytest.approx([0.05 / each_uses] * 2)
    assert ledger.left_over()[ledger.row(fast), 0] == pytest.approx(0.0)
    ledger.release("worker")
    told(core, CapacityChanged(2.0))
    assert throughput(core.network, running) == pytest.approx([1.0, 1.0])
    told(core, PipelineEnded(0), PipelineEnded(1))
    assert not ledger.reservations


def test_work_is_as_measured_once_enough_frames_were():
    network = example_network()
    core = PlaceCore(network, Once())
    told(core, *submitted(network), PlacementDue(0.0))
    told(core, TaskMeasured(0, 0, 0, ENOUGH_FRAMES - 1, 2.0), TaskMeasured(7, 0, 0, 100, 2.0))
    assert core.view(0.0).running[0].pipeline.work_ops.tolist() == [55.0]
    told(core, TaskMeasured(0, 0, 0, ENOUGH_FRAMES, 2.0))
    assert core.view(0.0).running[0].pipeline.work_ops.tolist() == [400.0]  # 2 s at speed 200
    assert told(core, PlacementDue(1.0)) == []
    assert throughput(network, list(core.running.values())) == pytest.approx([0.5])


def test_a_decision_is_due_once_something_came_or_ended_and_while_one_waits_when_others_leave_room():
    network, asked = example_network(), []
    core = PlaceCore(network, policy := Wrong(lambda placed: (asked.append(1), placed)[1]))
    other = Reservation("other", network.names[0], Resources(memory_bytes=1.0))
    assert not core.due and told(core, PlacementDue(0.0)) == [] and not asked
    told(core, *submitted(network))
    assert core.due and len(told(core, PlacementDue(1.0))) == 1
    core.ledger.reserve(other)
    assert not core.due, "nobody waits for what others leave"
    policy.how = lambda placed: []
    told(core, PipelineSubmitted(arrays_of(whole_job(), 1, network)), PlacementDue(2.0))
    assert not core.due, "what it was asked about is as it was"
    core.ledger.reserve(Reservation("job", network.names[0], Resources(memory_bytes=1.0), 0, True, "defer"))
    assert not core.due, (
        "a job goes for tasks anyway: asking again would be without end, as each tells the other"
    )
    core.ledger.release("job")
    core.ledger.release(other.owner)
    assert core.due
    question = core.question(3.0)
    assert not core.due, "it is being asked"
    core.ledger.reserve(other)
    told(core, PlacementDue(3.0, question()))
    assert core.due, "it was asked about things as they were before"
    told(core, PlacementDue(4.0), PipelineEnded(0))
    assert core.due


BREAKS = {
    "ZeroDivisionError": lambda placed: 1 // 0,
    "CapacityError": lambda placed: [replace(p, bandwidth_bps=np.array([11.0])) for p in placed],
    "PolicyError": lambda placed: [replace(p, pipeline=p.pipeline._replace(id=9)) for p in placed],
    "ValueError": lambda placed: [replace(p, node=np.array([-4])) for p in placed],
}


@pytest.mark.parametrize("error", BREAKS)
def test_under_guard_what_runs_goes_on_whatever_the_policy_does(error):
    network, guard = example_network(), Guard()
    core = PlaceCore(network, policy := Wrong(list), guard=guard)
    told(core, *submitted(network), PlacementDue(0.0))
    policy.how = BREAKS[error]
    assert told(core, PipelineSubmitted(arrays_of(whole_job(), 1, network)), PlacementDue(1.0)) == []
    assert core.running.keys() == {0} and error in guard.fault and guard.faults.total() == 1
    unguarded = PlaceCore(network, Wrong(BREAKS[error]))
    with pytest.raises((ZeroDivisionError, CapacityError, PolicyError, ValueError)) as raised:
        told(unguarded, *submitted(network), PlacementDue(0.0))
    assert raised.type.__name__ == error


def test_a_shadow_is_asked_the_same_and_only_compared():
    network = example_network()
    core, alone = (PlaceCore(network, Once()) for _ in range(2))
    core.watch_with(policy := Wrong(list))
    events = [*submitted(network), PlacementDue(0.0)]
    assert plain(told(core, *events)) == plain(told(alone, *events))
    assert counted(core.shadow) == (1, 1, pytest.approx({"shadow": 1.0, "in_use": 1.0}))
    policy.how = lambda placed: []
    later = [PipelineSubmitted(arrays_of(whole_job(), 1, network)), PlacementDue(1.0)]
    assert plain(told(core, *later)) == plain(told(alone, *later))
    assert counted(core.shadow) == (2, 1, pytest.approx({"shadow": 1.0, "in_use": 2.0}))
    policy.how = BREAKS["ZeroDivisionError"]
    told(core, BandwidthChanged(0, float(core.whole_bps[0])), PlacementDue(2.0))
    assert core.shadow.report()["faults"] == {"raised ZeroDivisionError": 1} and core.running.keys() == {0, 1}


def counted(shadow):
    found = shadow.report()
    return found["decisions"], found["alike"], found["figures"]["planned_fps"]


@pytest.mark.parametrize("name", policies.names("place"))
def test_whatever_comes_goes_or_fails_nothing_is_over_capacity(name):
    network = edge_network(2, 12)
    core = PlaceCore(network, policies.load("place", name))
    draws, count = np.random.default_rng(5), 30
    jobs, seen = streaming_jobs(2, network, count, kind="random"), set()
    for number, job in enumerate(jobs):
        link, node = draws.integers(len(network.bandwidth_bps)), draws.integers(len(network.names))
        changes = [
            PipelineSubmitted(arrays_of(job, number, network)),
            BandwidthChanged(link, network.bandwidth_bps[link] * draws.choice([0.0, 0.3, 1.0])),
            MemoryChanged(node, network.memory_bytes[node] * draws.choice([0.0, 1.0])),
            PipelineEnded(int(draws.integers(number + 1))),
        ]
        seen |= {type(each) for each in told(core, *changes, PlacementDue(float(number)))}
    assert (
        {StartPipeline, StopPipeline} <= seen <= {StartPipeline, StopPipeline, MovePipeline, ReroutePipeline}
    )
