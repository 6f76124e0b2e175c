"""Policies that do not ship decide in processes of their own, whatever they do there; and are kept there."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.defer import JobSubmitted, SlotBegan, Slots
from edgewise.core.defer.core import DeferCore
from edgewise.core.dispatch.events import RequestArrived, StreamOpened, Tick
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.guard import Guard, begin
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.core.one_world import batched
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.place import PipelineSubmitted, PlacementDue, arrays_of
from edgewise.core.place.core import PlaceCore
from edgewise.core.split.core import QueryArrived, SplitCore
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.model.pipelines import Network, Pipeline
from edgewise.model.services import services_of
from edgewise.model.topology import Node, Resources
from edgewise.model.work import DeferrableJob, Edge, Stream, Task, TaskGraph
from edgewise.policies.split import QueryClass, build_program
from edgewise.runtime import apart
from edgewise.runtime.apart import policy as kept
from waiting import wait_until

pytestmark = pytest.mark.live
BUDGET_S = 20.0
OWN = """
import ctypes, os, sys, time
from pathlib import Path
import numpy as np
from edgewise import policies

FOLDER = Path(__file__).parent

def like(decision, name):
    class Like(type(policies.load(decision, name))):
        def decide(self, *seen):
            doing = FOLDER / "doing"
            what = doing.read_text() if doing.exists() else ""
            if what == "loop":
                while True: pass
            if what == "compiled":
                ctypes.PyDLL(None).sleep(1000)  # no other thread runs meanwhile
            if what == "exit":
                os._exit(3)
            if what == "raise":
                return 1 / 0
            if what == "much":
                return np.zeros(2**22)
            if what == "code":
                return print
            if what == "write":
                print("said aloud", flush=True)
            return super().decide(*seen)
    return Like

class Streams(like("dispatch", "least-impedance")):
    seen = 0
    def tick(self, view):
        assert not view.load_qps.flags.writeable and len(view.bound.worker) >= 0
        Streams.seen += 1
class Requests(like("requests", "greedy")): pass
class Replicas(like("orchestrate", "none")): pass
class Split(like("split", "nona")): pass
class Places(like("place", "otfa")): pass
class Jobs(like("defer", "sjf")): pass
class Holds:
    decision, name = "dispatch", "holds"
    def reset(self, world, key):
        self.open = sorted(os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")
                           if os.path.exists(f"/proc/self/fd/{each}"))
    def decide(self, view, items):
        raise ValueError(f"{self.open} {[each for each in os.environ if 'TOKEN' in each]}")
class Never:
    decision, name = "dispatch", "never"
    def reset(self, world, key): raise RuntimeError("not here")
    def decide(self, view, items): pass
"""
CLASSES = {
    "dispatch": "Streams", "requests": "Requests", "orchestrate": "Replicas", "split": "Split",
    "place": "Places", "defer": "Jobs",
}  # fmt: skip


@pytest.fixture
def own(tmp_path):
    """A folder with policies; what they do besides deciding is in its file `doing`."""
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What has ended starts anew without a rest."""
    monkeypatch.setattr(kept, "REST_S", 0.0)


def loaded(own, decision, budget_s=BUDGET_S, name=None):
    made = apart.load(decision, f"{own / 'own.py'}:{name or CLASSES[decision]}", budget_s)
    assert isinstance(made, apart.PolicyApart)
    return made


def tiny():
    scenario = load_scenario("tiny")
    return World.build(scenario.catalog, scenario.topology)


def stream(number, world):
    return Stream(number, 0, "", world.task_names[0], 0.0, float("inf"), 0.01, 100.0, 60.0, 0.0)


def gone(pid):
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def doing(own, what):
    (own / "doing").write_text(what)


# all six kinds decide as they do here


def streams_decided(policy):
    core = DispatchCore(tiny(), policy)
    found = [core.handle(StreamOpened(0.0, stream(i, core.world))) for i in range(5)]
    core.handle(Tick(1.0))
    assert not core.faults
    return found


def requests_decided(policy):
    core = RequestCore(services_of(load_scenario("kais-live")), 0, policy, 3, Guard())
    for replica in core.replicas.values():
        replica.up = True
    found = [core.handle(RequestArrived(0.0, i, 0, 60.0, 100.0)) for i in range(3)]
    assert not core.adviser.guard.faults
    return found


def replicas_decided(policy):
    services = services_of(load_scenario("kais-live"))
    policy = begin(batched(policy), services.system, Key(0))
    core = OrchestrateCore(services.system, services.holds, policy, NodeLedger(()), services.nodes)
    found = [core.question(float(i))().tolist() for i in range(2)]
    assert not core.guard.faults
    return found


def split_decided(policy):
    graph = TaskGraph("small", (Task("a", 1e6), Task("b", 1e6)), (Edge("a", "b", 1e3),))
    program = build_program([QueryClass(graph, 1.0)], 2, 1e9, 1e9)
    core = SplitCore(program, policy, follows=True)
    (run,) = core.handle(QueryArrived(0.0, 0, 0))
    later = core.policy.renewed(np.array([3.0]))
    later_run = SplitCore(program, later).handle(QueryArrived(0.0, 0, 0))[0] if later else None
    return run.servers.tolist(), later_run and later_run.servers.tolist()


def places_decided(policy):
    link = np.array([[0, 1]]), np.array([1e9])
    network = Network(("one", "other"), np.full(2, 1e9), np.full(2, 1e9), *link)
    graph = TaskGraph("small", (Task("a", 1e6, 1e6), Task("b", 1e6, 1e6)), (Edge("a", "b", 1e3),))
    core = PlaceCore(network, policy)
    core.handle(PipelineSubmitted(arrays_of(Pipeline("small", graph, "one", 1e3, 10.0), 0, network)))
    commands = core.handle(PlacementDue(0.0))
    core.validate()
    return [(type(each), each.placement.node.tolist()) for each in commands]


def jobs_decided(policy):
    core = DeferCore(Slots(1.0), NodeLedger([Node("node", "cluster", Resources(1.0))]), policy)
    for i in range(3):
        core.handle(JobSubmitted(DeferrableJob(i, Resources(0.4), 1.0, 0.0, 0.0, 1.0)))
    return core.handle(SlotBegan(0.0))


DECIDED = {
    "dispatch": streams_decided, "requests": requests_decided, "orchestrate": replicas_decided,
    "split": split_decided, "place": places_decided, "defer": jobs_decided,
}  # fmt: skip


@pytest.mark.parametrize("decision", DECIDED)
def test_all_six_kinds_decide_as_they_do_in_process(own, decision):
    here = policies.load(decision, f"{own / 'own.py'}:{CLASSES[decision]}")
    there = loaded(own, decision)
    assert there.name == here.name == CLASSES[decision]
    found, expected = DECIDED[decision](there), DECIDED[decision](here)
    assert repr(found) == repr(expected)


# what it may do


def asked(policy):
    """A core whose policy was asked for a stream, and what its guard says."""
    core = DispatchCore(tiny(), policy)
    core.handle(StreamOpened(0.0, stream(0, core.world)))
    return core


@pytest.mark.parametrize("how", ["loop", "compiled"])
def test_one_that_never_answers_is_killed_and_starts_anew(own, how):
    policy = loaded(own, "dispatch", 0.5)
    core, first = DispatchCore(tiny(), policy), policy.pid
    doing(own, how)
    core.handle(StreamOpened(0.0, stream(0, core.world)))
    assert core.bindings and core.faults == {"no answer in time": 1}
    assert core.guard.fault == "no answer within 0.5 s; its process was killed; it starts anew"
    wait_until(lambda: gone(first))
    doing(own, "")
    wait_until(lambda: policy.pid is not None)
    core.handle(Tick(1.0))
    core.handle(StreamOpened(1.0, stream(1, core.world)))
    assert policy.pid != first and core.guard.fault == "" and core.faults["no answer in time"] == 1


def test_while_it_starts_anew_it_is_not_asked(own, monkeypatch):
    monkeypatch.setattr(kept, "REST_S", 600.0)
    policy = loaded(own, "requests", 0.3)
    core = RequestCore(services_of(load_scenario("kais-live")), 0, policy, 3, Guard())
    for replica in core.replicas.values():
        replica.up = True
    doing(own, "loop")
    began_s = time.monotonic()
    for i in range(20):
        (sent,) = core.handle(RequestArrived(0.0, i, 0, 60.0, 100.0))
        assert core.replicas[sent.replica].station == 0
    assert time.monotonic() - began_s < 5.0
    faults = core.adviser.guard.faults
    assert faults == {"no answer in time": 1, "not asked, for its process starts anew": 19}


@pytest.mark.parametrize(
    ("how", "kind", "why"),
    [
        ("exit", "its process ended", "its process ended: exit status 3; it starts anew"),
        ("raise", "raised ZeroDivisionError", "ZeroDivisionError: division by zero"),
        ("much", "its process ended", "of at most 16777216; its process was killed; it starts anew"),
        ("code", "raised PolicyError", "answers with a builtins.print"),
    ],
)
def test_what_it_does_instead_of_answering_has_a_name(own, how, kind, why):
    policy = loaded(own, "dispatch")
    core = DispatchCore(tiny(), policy)
    doing(own, how)
    core.handle(StreamOpened(0.0, stream(0, core.world)))
    assert core.faults == {kind: 1} and why in core.guard.fault and core.bindings


def test_who_kills_it_is_named_and_it_comes_back(own):
    policy = loaded(own, "dispatch")
    core, first = DispatchCore(tiny(), policy), policy.pid
    os.kill(first, signal.SIGKILL)
    core.handle(StreamOpened(0.0, stream(0, core.world)))
    (kind,) = core.faults
    assert kind in ("its process ended", "not asked, for its process starts anew")
    assert "its process ended: killed by SIGKILL" in core.guard.fault
    wait_until(lambda: policy.pid not in (None, first))


def test_one_that_is_replaced_ends_whatever_it_does(own):
    policy = loaded(own, "dispatch", 0.3)
    core, kept_there = asked(policy), policy.kept
    first = policy.pid
    doing(own, "loop")
    core.handle(StreamOpened(0.0, stream(1, core.world)))
    wait_until(lambda: kept_there.latest.pid != first)  # the next one loops while it begins
    pid = kept_there.latest.pid
    core.use(policies.load("dispatch", "closest"))
    del policy
    wait_until(lambda: gone(pid))


def test_it_inherits_nothing_but_its_channel(own, monkeypatch, caplog):
    with open(own / "secret", "w") as held:
        os.set_inheritable(held.fileno(), True)
        policy = loaded(own, "dispatch", name="Holds")
        core = asked(policy)
    said = core.guard.fault
    assert said.startswith("ValueError: [") and "secret" not in said
    assert said.count("socket:") == 1 and said.count("pipe:") == 3  # input, output and errors


def test_what_it_writes_is_logged(own, caplog):
    policy = loaded(own, "dispatch")
    doing(own, "write")
    with caplog.at_level(logging.WARNING, "edgewise.policies"):
        assert not asked(policy).faults
        wait_until(lambda: any(getattr(row, "line", "") == "said aloud" for row in caplog.records))


def test_one_that_cannot_begin_or_be_loaded_is_refused(own):
    with pytest.raises(PolicyError, match="RuntimeError when it begins: not here"):
        DispatchCore(tiny(), loaded(own, "dispatch", name="Never"))
    with pytest.raises(PolicyError, match="no class 'Other'"):
        loaded(own, "dispatch", name="Other")


@pytest.mark.parametrize("how", ["", "compiled"])
def test_it_ends_with_who_asks_even_in_the_middle_of_an_answer(own, how):
    parent = textwrap.dedent(f"""
        import sys
        sys.path[:] = {sys.path!r}
        import pathlib, test_apart
        policy = test_apart.loaded(pathlib.Path({str(own)!r}), "dispatch", 600.0)
        core = test_apart.DispatchCore(test_apart.tiny(), policy)
        test_apart.doing(pathlib.Path({str(own)!r}), {how!r})
        print(policy.pid, flush=True)
        core.handle(test_apart.StreamOpened(0.0, test_apart.stream(0, core.world)))
        print("answered", flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        pid = int(running.stdout.readline())
        if how:  # it sleeps in compiled code, which lets no thread run
            wait_until(lambda: "nanosleep" in Path(f"/proc/{pid}/wchan").read_text())
        else:
            assert running.stdout.readline() == b"answered\n"
        running.kill()
    wait_until(lambda: gone(pid))
