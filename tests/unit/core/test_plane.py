"""The plane: one ledger under orchestrate and defer, who hears of what, and that it ends."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.defer import (
    EvictJob,
    JobEnded,
    JobPhase,
    JobStands,
    JobSubmitted,
    ResumeJob,
    SlotBegan,
    Slots,
    Standing,
    StartJob,
    SuspendJob,
)
from edgewise.core.defer.core import DeferCore
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.orchestrate import AddReplica, RemoveReplica, commands_of
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import (
    EndReplica,
    FrameBegan,
    ReplicaGone,
    ReplicaSeen,
    RequestsCounted,
    StartReplica,
)
from edgewise.core.place import (
    PipelineEnded,
    PipelineSubmitted,
    Placement,
    PlacementDue,
    StartPipeline,
    StopPipeline,
    arrays_of,
)
from edgewise.core.place.core import PlaceCore
from edgewise.core.plane import HoldsChanged, NodesChanged, Plane
from edgewise.errors import CapacityError
from edgewise.model.services import services_of
from edgewise.model.topology import Node, Resources
from edgewise.model.work import INFERENCE, DeferrableJob
from streaming_example import example_network, whole_job

SERVICES = services_of(load_scenario("kais-live", {"services.cores_held": "life"}))
NODES = tuple(Node(name, "", Resources(2.0, 4e9)) for name in SERVICES.nodes)
CAMERA = 0


class Told:
    """Says what it is given."""

    name = "told"

    def __init__(self):
        self.commands = []

    def decide(self, view):
        commands, self.commands = self.commands, []
        return commands_of([commands])


class Heard(DeferCore):
    """Notes what others did to it."""

    def __init__(self, *given):
        super().__init__(*given)
        self.heard = []

    def handle(self, event):
        if isinstance(event, Evicted | CapacityChanged):
            self.heard.append(event)
        return super().handle(event)


def made(nodes=NODES):
    """A plane with cores that decide on replicas, as told, and on jobs, first come first served."""
    ledger = NodeLedger(nodes)
    replicas = OrchestrateCore(SERVICES.system, SERVICES.holds, Told(), ledger, SERVICES.nodes)
    jobs = Heard(Slots(1.0, 2), ledger, policies.load("defer", "fifo"))
    plane = Plane(ledger, {"orchestrate": replicas, "defer": jobs})
    plane.handle(RequestsCounted(np.zeros(3, np.int64), 0.1, np.ones(3), 100, np.zeros(3, np.int64)), 0.0)
    return plane


def job(number, cores=1.0, memory=1e9, when_evicted="pause", priority=0):
    return DeferrableJob(number, Resources(cores, memory), 9.0, 0.0, 0.0, 1e6, priority, when_evicted)


def submitted(plane, *jobs, now_s=0.0):
    """Jobs that run, or wait for room."""
    for each in jobs:
        plane.handle(JobSubmitted(each), now_s)
    commands = plane.handle(SlotBegan(now_s), now_s)
    begun(plane, commands)
    return commands


def begun(plane, commands):
    for command in commands:
        if isinstance(command, StartJob):
            standing = plane.cores["defer"].jobs[command.job]
            plane.handle(JobStands(standing._replace(settled=True)), 0.0)


def said(commands):
    """Kinds, too: commands of two kinds about one job are equal as tuples."""
    return sorted((type(command).__name__, command.job) for command in commands)


def frame(plane, *commands, now_s=1.0):
    plane.cores["orchestrate"].policy.commands = list(commands)
    found = plane.handle(FrameBegan(now_s), now_s)
    plane.validate()
    return found


@pytest.mark.parametrize(("when_evicted", "goes"), [("pause", SuspendJob), ("restart", EvictJob)])
def test_a_replica_pushes_a_job_out_in_the_same_instant_and_lets_it_go_on_when_it_ends(when_evicted, goes):
    plane = made()
    started = submitted(plane, *(job(n, 2.0, when_evicted=when_evicted) for n in range(4)))
    assert [type(command) for command in started] == [StartJob] * 4
    (victim,) = (n for n, s in plane.cores["defer"].jobs.items() if s.node == SERVICES.nodes[2])
    assert frame(plane, AddReplica(2, CAMERA)) == [StartReplica(2, CAMERA), goes(victim)]
    (heard,) = [event for event in plane.cores["defer"].heard if isinstance(event, Evicted)]
    assert [each.owner for each in heard.reservations] == [f"job {victim}"] and heard.now_s == 1.0
    assert not plane.handle(ReplicaSeen("camera@2", 2, CAMERA, up=True), 2.0)
    plane.validate()
    assert not plane.ledger.fits(SERVICES.nodes[2], Resources(2.0))
    commands = plane.handle(ReplicaGone("camera@2"), 3.0)
    plane.validate()
    assert commands == ([ResumeJob(victim)] if when_evicted == "pause" else [])
    assert plane.ledger.fits(SERVICES.nodes[2], Resources(2.0)) == (when_evicted == "restart")


def test_replicas_never_exceed_what_workers_leave_and_see_nothing_of_jobs():
    plane = made()
    worker = Reservation("worker", SERVICES.nodes[0], Resources(1.0, 2e9), INFERENCE)
    plane.handle(HoldsChanged((worker,)), 0.0)
    submitted(plane, *(job(n, 2.0, 3e9) for n in range(4)))
    machine = SERVICES.system.first_machine[1]  # of the first node
    seen = plane.cores["orchestrate"].view(0.0).machine.free_memory_bytes[0, machine:]
    assert seen.tolist() == [2e9, 2.5e9, 2.5e9, 2.5e9]
    found = frame(plane, *([AddReplica(0, CAMERA)] * 9))
    needs = SERVICES.holds[CAMERA]
    room = min(1.0 // needs.cpu_cores, 2e9 // needs.memory_bytes)
    assert [command for command in found if isinstance(command, StartReplica)] == [
        StartReplica(0, CAMERA)
    ] * int(room)
    assert plane.ledger.of("worker") == worker


def test_what_was_decided_and_did_not_come_is_given_back_in_the_next_frame():
    plane = made()
    assert len(frame(plane, AddReplica(1, CAMERA))) == 1
    assert plane.ledger.free(SERVICES.nodes[1]) != NODES[1].resources
    assert frame(plane, now_s=2.0) == []
    assert plane.ledger.free(SERVICES.nodes[1]) == NODES[1].resources


def test_a_replica_that_goes_before_its_process_began_makes_room_in_the_same_frame():
    plane = made()
    count = int(2.0 // SERVICES.holds[CAMERA].cpu_cores)
    frame(plane, *([AddReplica(1, CAMERA)] * count))
    names = [f"camera {k}" for k in range(count)]
    for name in names:
        plane.handle(ReplicaSeen(name, 1, CAMERA, started=False), 1.5)
    assert frame(plane, AddReplica(1, CAMERA), now_s=2.0) == []
    found = frame(plane, RemoveReplica(1, CAMERA), AddReplica(1, CAMERA), now_s=3.0)
    assert [type(command) for command in found] == [EndReplica, StartReplica]


def test_a_worker_that_comes_pushes_out_and_one_that_goes_gives_back():
    plane = made(NODES[:1])
    submitted(plane, job(0, 2.0, 1e9))
    worker = Reservation("worker", NODES[0].name, Resources(1.0, 1e9), INFERENCE)
    assert plane.handle(HoldsChanged((worker,)), 1.0) == [SuspendJob(0)]
    assert plane.handle(HoldsChanged((worker,)), 2.0) == []  # nothing new
    plane.validate()
    assert plane.ledger.free(NODES[0].name) == Resources(1.0, 2e9)  # it keeps its memory
    assert plane.handle(HoldsChanged((), ("worker",)), 3.0) == [ResumeJob(0)]
    plane.validate()


def test_who_needs_more_than_there_is_holds_all_and_more_when_there_is():
    ledger = NodeLedger([Node("n", "", Resources(4.0))])
    ledger.hold(Reservation("a", "n", Resources(3.0), INFERENCE))
    ledger.hold(Reservation("b", "n", Resources(3.0), INFERENCE))
    assert ledger.of("b").resources.cpu_cores == 1.0 and ledger.needs("b").resources.cpu_cores == 3.0
    ledger.change_nodes([Node("n", "", Resources(5.0))])
    assert ledger.of("b").resources.cpu_cores == 2.0
    ledger.rename("b", "c")
    ledger.release("a")
    assert ledger.of("c").resources.cpu_cores == 3.0 and ledger.needs("c") == ledger.of("c")
    ledger.hold(Reservation("d", "elsewhere", Resources(1.0), INFERENCE))
    assert ledger.of("d").resources.cpu_cores == 0.0
    ledger.validate()


def test_nodes_come_and_go_and_jobs_of_one_that_went_stop():
    plane = made(NODES[:2])
    submitted(plane, job(0, 2.0), job(1, 2.0, when_evicted="restart"), job(2, 1.0))
    assert plane.cores["defer"].jobs[2].phase is JobPhase.WAITING
    found = plane.handle(NodesChanged(()), 1.0)
    assert said(found) == [("EvictJob", 0), ("EvictJob", 1)]
    for number, how in enumerate(("pause", "restart")):
        plane.handle(JobStands(Standing(job(number, 2.0, when_evicted=how), attempt=1)), 1.5)
    assert plane.handle(NodesChanged(NODES[:2]), 2.0) == []
    restarted = plane.handle(SlotBegan(2.0), 2.0)
    assert [command.job for command in restarted] == [0, 1]
    plane.validate()
    smaller = Node(NODES[0].name, "", Resources(1.0, 4e9)), NODES[1]
    (stopped,) = [s.job.id for s in plane.cores["defer"].jobs.values() if s.node == NODES[0].name]
    begun(plane, restarted)
    assert {command.job for command in plane.handle(NodesChanged(smaller), 3.0)} == {stopped}
    plane.validate()


@pytest.mark.parametrize(("every_s", "moves_s"), [(None, 12.0), (3.5, 9.0), (2.0, 8.0)])
def test_a_suspended_job_moves_once_it_has_stood_as_long_as_it_would_lose(every_s, moves_s):
    """It has run for 6 s when other work takes its node; elsewhere there is room."""
    ledger = NodeLedger([Node("one", "", Resources(4.0)), Node("two", "", Resources(4.0))])
    core = DeferCore(Slots(1.0, 1), ledger, policies.load("defer", "fifo"))
    plane = Plane(ledger, {"defer": core})
    ledger.hold(Reservation("other", "two", Resources(4.0), INFERENCE))
    submitted(plane, DeferrableJob(0, Resources(3.0), 9.0, 0.0, 0.0, 1.0, checkpoint_s=every_s))
    assert core.jobs[0].node == "one"
    ledger.hold(Reservation("more", "one", Resources(4.0), INFERENCE))
    assert said(plane.handle(CapacityChanged(6.0), 6.0)) == [("SuspendJob", 0)]
    assert plane.handle(SlotBegan(7.0), 7.0) == []
    ledger.release("other")
    for now_s in np.arange(8.0, moves_s):
        assert plane.handle(SlotBegan(now_s), now_s) == [], now_s
    assert said(plane.handle(SlotBegan(moves_s), moves_s)) == [("EvictJob", 0)]
    saved_s = core.jobs[0].job.saved_s(6.0)
    assert saved_s == {None: 0.0, 3.5: 3.5, 2.0: 6.0}[every_s]
    plane.handle(JobStands(Standing(core.jobs[0].job, attempt=1, saved_s=saved_s)), moves_s)
    assert plane.handle(SlotBegan(moves_s + 1.0), moves_s + 1.0) == [StartJob(0, "two", moves_s + 1.0)]
    assert core.view(moves_s + 1.0).ends[0, 0] == np.floor(moves_s + 1.0 - saved_s) + 9.0
    plane.validate()


def test_an_event_of_a_core_that_there_is_not():
    plane = Plane(NodeLedger(NODES))
    assert plane.handle(NodesChanged(NODES[:1]), 0.0) == []
    with pytest.raises(KeyError, match="defer"):
        plane.handle(SlotBegan(0.0), 0.0)


class OnFirst:
    """Starts each pipeline on the first node, over the second one, at half of the links."""

    name = "on-first"

    def reset(self, network, key):
        self.way = np.array([network.link("e4", "e2"), network.link("e2", "e1")])

    def decide(self, view):
        flow = np.array([0, 2]), self.way, np.array([5.0])
        return [Placement(each, np.array([0]), *flow) for each in view.waiting]


def test_a_task_of_a_pipeline_pushes_out_a_job_and_stops_where_its_node_shrinks():
    network = example_network()
    nodes = tuple(Node(name, "", Resources(4.0, 100.0)) for name in network.names)
    ledger = NodeLedger(nodes)
    pipelines = PlaceCore(network, OnFirst(), ledger=ledger)
    jobs = Heard(Slots(1.0, 2), ledger, policies.load("defer", "fifo"))
    plane = Plane(ledger, {"place": pipelines, "defer": jobs})
    (started,) = submitted(plane, job(0, 4.0, 99.0))
    assert started.node == "e1"
    plane.handle(PipelineSubmitted(arrays_of(whole_job(), 0, network)), 1.0)
    found = plane.handle(PlacementDue(1.0), 1.0)
    plane.validate()
    assert [type(command) for command in found] == [StartPipeline, SuspendJob]
    small = Node("e1", "", Resources(4.0, 2.0)), *nodes[1:]
    assert plane.handle(NodesChanged(small), 2.0) == [StopPipeline(0)]
    plane.validate()
    assert plane.handle(NodesChanged(nodes), 3.0) == [ResumeJob(0)]
    plane.validate()
    found = plane.handle(PlacementDue(4.0), 4.0)
    assert [type(command) for command in found] == [StartPipeline, SuspendJob]
    assert plane.handle(PipelineEnded(0), 5.0) == [ResumeJob(0)]
    plane.validate()


class Contrary:
    """Answers every change with another: gives all back, takes as much as it can push out."""

    def __init__(self, ledger, decision, priorities):
        self.ledger, self.decision, self.priorities = ledger, decision, priorities
        self.heard = []

    def handle(self, event):
        self.heard.append(event)
        assert len(self.heard) < 1_000, "it does not end"
        for held in self.ledger.reservations:
            if held.decision == self.decision:
                self.ledger.release(held.owner)
        for node in self.ledger.there:
            for priority in self.priorities:
                for cores in (3.0, 2.0, 1.0):
                    owner = f"{self.decision} {node.name} {priority} {cores:g}"
                    wanted = Reservation(owner, node.name, Resources(cores), priority, True, self.decision)
                    try:
                        self.ledger.reserve(wanted)
                    except CapacityError:
                        continue
        return [(self.decision, len(self.heard))]

    def validate(self):
        pass


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True), min_size=3, max_size=3),
    st.lists(st.sampled_from(("orchestrate", "place", "defer"))),
)
@settings(max_examples=60, deadline=None)
def test_it_ends_when_every_core_answers_every_change_with_another(priorities, addressed):
    ledger = NodeLedger([Node("a", "", Resources(3.0)), Node("b", "", Resources(2.0))])
    names = ("orchestrate", "place", "defer")
    cores = {name: Contrary(ledger, name, each) for name, each in zip(names, priorities, strict=True)}
    plane, events = Plane(ledger, dict(cores)), {"orchestrate": FrameBegan(0.0), "defer": SlotBegan(0.0)}
    most = len({priority for each in priorities for priority in each})
    for now_s, name in enumerate(addressed):
        before = {name: len(core.heard) for name, core in cores.items()}
        plane.handle(events.get(name, CapacityChanged(now_s)), float(now_s))
        plane.validate()
        assert ledger.ceiling is None
        for each, core in cores.items():
            rounds = core.heard[before[each] :]
            assert len(rounds) <= most + 1


def plane_of(**cores):
    ledger = NodeLedger([Node(name, "", Resources(each)) for name, each in cores.items()])
    return Plane(ledger, {"defer": Heard(Slots(1.0), ledger, policies.load("defer", "fifo"))})


def test_a_job_goes_to_the_node_with_the_most_cores_left():
    plane = plane_of(a=2.0, b=4.0, c=1.0)
    assert [each.node for each in submitted(plane, job(0, 2.5, 0.0), job(1, 1.0, 0.0))] == ["b", "a"]


def test_a_job_leaves_the_only_room_to_the_largest_that_waits():
    """Where nobody else has room for it; where there are two, the smaller one takes the larger of them."""
    for cores, wanted in ((2.0, ["a", "b"]), (3.0, ["b", "a"])):
        plane = plane_of(a=cores, b=3.5)
        assert [each.node for each in submitted(plane, job(0, 1.0, 0.0), job(1, 3.0, 0.0))] == wanted


class Listens:
    """Notes in a list of all who hears of what."""

    def __init__(self, name, heard):
        self.name, self.heard = name, heard

    def handle(self, event):
        self.heard.append((self.name, type(event)))
        return []

    def validate(self):
        pass


def test_cores_hear_of_others_in_the_order_of_their_decisions():
    """Replicas take what they need before tasks do, and jobs get what both leave."""
    heard = []
    cores = {name: Listens(name, heard) for name in ("defer", "place", "orchestrate")}
    Plane(NodeLedger([Node("a", "", Resources(1.0))]), dict(cores)).handle(CapacityChanged(0.0), 0.0)
    assert heard == [(name, CapacityChanged) for name in ("orchestrate", "place", "defer")]


STEP = st.tuples(st.integers(0, 7), st.integers(0, 11), st.integers(0, 3), st.integers(1, 4))


def run(steps):
    """A plane after random events: all commands, in order; checked after every event."""
    plane, commands, told = made(), [], {}
    replicas, jobs = plane.cores["orchestrate"], plane.cores["defer"]
    for now_s, (what, a, n, size) in enumerate(steps):
        running, still = (
            {f"job {k}" for k, s in jobs.jobs.items() if s.phase is phase}
            for phase in (JobPhase.RUNNING, JobPhase.SUSPENDED)
        )
        heard, time_s = len(jobs.heard), float(now_s)
        match what:
            case 0:
                replicas.policy.commands = [AddReplica(n, a % 3)] * size
                event = FrameBegan(time_s)
            case 1:
                replicas.policy.commands = [RemoveReplica(n, a % 3), AddReplica((n + 1) % 4, a % 3)]
                event = FrameBegan(time_s)
            case 2:
                event = JobSubmitted(
                    job(now_s, float(size), 1e9 * (a % 4), ["pause", "restart"][a % 2], a % 5)
                )
            case 3:
                event = SlotBegan(time_s)
            case 4:
                needs = Resources(size / 2, 1e9 * (a % 4))
                event = HoldsChanged((Reservation(f"worker {a}", SERVICES.nodes[n], needs, INFERENCE),))
            case 5:
                event = HoldsChanged((), (f"worker {a}",))
            case 6:
                event = NodesChanged(tuple(node for k, node in enumerate(NODES) if k != n or size > 2))
            case _:
                event = JobEnded(min(jobs.jobs, default=0))
        found = plane.handle(event, time_s)
        plane.validate()
        pushed = [
            r.owner for each in jobs.heard[heard:] if isinstance(each, Evicted) for r in each.reservations
        ]
        assert len(pushed) == len(set(pushed)), "somebody heard twice"
        stopped = {f"job {c.job}" for c in found if isinstance(c, SuspendJob | EvictJob)}
        gone = {f"job {c.job}" for c in found if isinstance(c, EvictJob)} & still
        assert stopped <= running | gone and (not gone or what in (3, 6)), "a job gave way to nobody"
        assert stopped == gone or what in (0, 1, 4, 6), "a job gave way to nobody"
        for command in found:  # carried out at once
            match command:
                case StartReplica(node, service):
                    name = f"replica {now_s} {len(told)}"
                    told[name] = ReplicaSeen(name, node, service, up=True)
                    plane.handle(told[name], time_s)
                case EndReplica(name):
                    found = [*found, *plane.handle(ReplicaGone(name), time_s)]
                case StartJob(number):
                    plane.handle(JobStands(jobs.jobs[number]._replace(settled=True)), time_s)
                case EvictJob(number):
                    again = Standing(jobs.jobs[number].job, attempt=1)
                    plane.handle(JobStands(again), time_s)
            plane.validate()
        commands.append(found)
    return commands


@given(st.lists(STEP, max_size=30))
@settings(max_examples=60, deadline=None)
def test_random_events_exceed_no_node_and_every_job_that_is_pushed_out_hears_once(steps):
    assert run(steps) == run(steps)
