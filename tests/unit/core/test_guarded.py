"""Policies that hang: whoever asks goes on, says so, and takes another policy at once."""

import threading
import time
from contextlib import suppress

import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.events import RequestArrived, Send
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.guard import Guard
from edgewise.core.world import World
from edgewise.model.grammar.scenario import BudgetsSpec
from edgewise.model.services import services_of
from edgewise.model.work import Stream
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.watch.faults import Limited
from waiting import wait_until

HANGS_S = 20.0  # whoever waits for it fails
PATIENCE_S = 0.1


@pytest.fixture
def release():
    """What hangs goes on when this is set, at the end at the latest."""
    event = threading.Event()
    yield event
    event.set()


def test_answers_and_errors_come_from_one_thread_that_is_kept():
    asking = Limited(HANGS_S)
    first, second = (asking(threading.get_ident) for _ in range(2))
    assert first == second != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        asking(lambda: 1 / 0)
    assert asking(lambda: "again") == "again"


def test_what_hangs_is_waited_for_once_and_asked_again_when_it_has_ended(release):
    asking, began_s = Limited(PATIENCE_S, rest_s=0.0), time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within"):
        asking(lambda: release.wait(HANGS_S))
    for _ in range(100):
        with pytest.raises(TimeoutError):
            asking(lambda: "nobody is asked while it thinks")
    assert time.monotonic() - began_s < HANGS_S / 2
    release.set()

    def asked():
        with suppress(TimeoutError):
            return asking(lambda: "new")

    assert wait_until(asked, limit_s=HANGS_S) == "new"  # and not what came too late


def test_another_answer_is_taken_and_the_fault_said(release):
    guard = Guard(Limited(PATIENCE_S))
    odd = lambda answer: "odd" if answer % 2 else None  # noqa: E731
    assert guard.ask(lambda: 1, lambda: 2) == 1 and guard.fault == "" and not guard.new
    assert guard.ask(lambda: 1 // 0, lambda: 2) == 2 and "ZeroDivisionError" in guard.fault and guard.new
    assert guard.ask(lambda: 1 // 0, lambda: 2) == 2 and not guard.new
    assert guard.ask(lambda: 4, lambda: 2, odd) == 4 and guard.fault == ""
    assert guard.ask(lambda: 5, lambda: 2, odd) == 2 and guard.fault == "odd"
    assert guard.ask(lambda: "5", lambda: 2, odd) == 2 and "TypeError" in guard.fault
    assert guard.ask(lambda: release.wait(HANGS_S), lambda: 2) == 2 and "no answer" in guard.fault
    assert guard.late and guard.faults == {
        "raised ZeroDivisionError": 2, "odd": 1, "raised TypeError": 1, "no answer in time": 1,
    }  # fmt: skip


def test_requests_go_to_the_cloud_while_their_policy_hangs(release):
    services = services_of(load_scenario("kais-live"))
    hangs = policies.load("requests", "greedy")
    hangs.decide = lambda view: release.wait(HANGS_S)
    core = RequestCore(services, 0, hangs, 3, Guard(Limited(PATIENCE_S)))
    for replica in core.replicas.values():
        replica.up = True
    began_s = time.monotonic()
    for number in range(50):
        (sent,) = core.handle(RequestArrived(0.0, number, 0, 60.0, 100.0))
        assert core.replicas[sent.replica].station == 0
    assert time.monotonic() - began_s < HANGS_S / 2
    assert "no answer within" in core.report()["fault"] and core.report()["faults"] == {
        "no answer in time": 1,
        "not asked, for it was late": 49,
    }
    core.use(policies.load("requests", "greedy"), Guard(Limited(HANGS_S)))  # the former one still hangs
    (sent,) = core.handle(RequestArrived(0.0, 50, 0, 60.0, 100.0))
    assert isinstance(sent, Send) and core.report()["fault"] == ""


def test_streams_are_bound_while_their_policy_hangs(release):
    class Hangs(type(policies.load("dispatch", "closest"))):
        name = "hangs"

        def decide(self, view, items):
            release.wait(HANGS_S)
            return super().decide(view, items)

        def tick(self, view):
            release.wait(HANGS_S)

    scenario = load_scenario("tiny")
    world = World.build(scenario.catalog, scenario.topology)
    rules = StreamRules(budgets_s=BudgetsSpec(dispatch=PATIENCE_S))
    session = Session(world, Hangs(), 0, time.monotonic, rules)
    session.hand(session.core, "dispatch", Hangs(), watches=True)
    began_s = time.monotonic()
    for number in range(20):
        session.open_stream(
            Stream(number, 0, "", world.task_names[0], 0.0, float("inf"), 0.01, 100.0, 60.0, 0.0)
        )
        assert session.bound_to(number) is not None
    session.tick()
    assert time.monotonic() - began_s < HANGS_S / 2
    assert session.core.faults == {
        "no answer in time": 1, "suspended until the next tick": 19, "not asked, for it was late": 1,
    }  # fmt: skip
    session.hand(session.core, "dispatch", policies.load("dispatch", "closest"))
    session.open_stream(Stream(99, 0, "", world.task_names[0], 0.0, float("inf"), 0.01, 100.0, 60.0, 0.0))
    assert session.core.faults == {}
    late = [row for row in session.faults.drain() if row.waited_s]
    assert [(row.decision, row.policy, row.shadow, row.times, row.waited_s) for row in late] == [
        ("dispatch", "hangs", False, 1, PATIENCE_S), ("dispatch", "hangs", True, 1, PATIENCE_S),
    ]  # fmt: skip
