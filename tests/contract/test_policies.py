"""Every registered policy of every decision keeps the contract, and the kit catches those that do not."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Decisions
from edgewise.core.orchestrate import AddReplica, hosts
from edgewise.errors import PolicyError
from edgewise.testing import check_policy
from edgewise.workloads.deferrable import PAPER, generate

REGISTERED = [(decision, name) for decision in policies.DECISIONS for name in policies.names(decision)]


@pytest.mark.parametrize(("decision", "name"), REGISTERED)
def test_registered_policy_keeps_the_contract(decision, name):
    check_policy(lambda: policies.load(decision, name))


# dispatch of streams


class Broken(ScorePolicy):
    name = "broken"

    def score(self, view, item):
        return view.network_s


class Peeks(Broken):
    calls = 0

    def decide(self, view, items):
        Peeks.calls += 1
        return Decisions(np.full(len(items), Peeks.calls % 2 - 1), np.ones(len(items), dtype=np.int8))


class Writes(Broken):
    def tick(self, view):
        view.load_qps.setflags(write=True)
        view.load_qps[:] = 1.0


class IgnoresMask(Broken):
    def decide(self, view, items):
        return Decisions(np.zeros(len(items), dtype=np.int64), np.zeros(len(items), dtype=np.int8))


class WrongShape(Broken):
    def decide(self, view, items):
        return Decisions(np.zeros(len(items) + 1, dtype=np.int64))


class Silent(Broken):
    def decide(self, view, items):
        return Decisions(np.full(len(items), -1), np.zeros(len(items), dtype=np.int8))


def of_the_driver(name):
    """A local of whoever simulates: no policy may look there."""
    frame = sys._getframe()
    while frame is not None and name not in frame.f_locals:
        frame = frame.f_back
    return None if frame is None else frame.f_locals[name]


class SeesStreams(Broken):
    def score(self, view, item):
        streams = of_the_driver("streams")
        return view.network_s * (1.0 if streams and streams[-1].rate_qps == 1.0 else -1.0)


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (Writes, "changed its view"),
        (IgnoresMask, "infeasible"),
        (WrongShape, "shape"),
        (Silent, "without a reason"),
        (Peeks, "infeasible|other decisions|fallback"),
        (SeesStreams, "because of what comes later"),
    ],
)
def test_kit_catches_a_broken_policy(policy, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_policy(policy)


# the other decisions: a good policy of one's own, and what can be wrong with it


class Jobs:
    decision, name = "defer", "jobs"

    def reset(self, world, key):
        self.asked = 0

    def decide(self, view):
        fits = np.cumsum(view.demand[:, 0] * view.startable) <= view.free[0]
        return view.startable & fits


class Stations:
    decision, name = "requests", "stations"

    def reset(self, world, key):
        self.world = world

    def decide(self, view):
        last = view.waiting.shape[0] - 1 - hosts(view)[:, ::-1].argmax(axis=1)
        return np.where(view.head >= 0, last, -1)


class Nodes:
    decision, name = "orchestrate", "nodes"

    def reset(self, world, key):
        self.world = world

    def decide(self, view):
        return [AddReplica(0, int(view.arrived.argmax()))]


class Queries:
    decision, name = "split", "queries"

    def reset(self, world, key):
        self.tasks = [len(job.graph.tasks) for job in world.classes]

    def decide(self, view):
        return np.full(self.tasks[view.job], int(view.ledger.work_s.argmin()))


class Pipelines(type(policies.load("place", "tp"))):
    name = "pipelines"


NUMBERS = np.random.default_rng(0)  # goes on from run to run


def broken(base, name, answer):
    """A class whose answer is `answer(self, view, what the good one says)`."""

    def ask(self, view):
        return answer(self, view, base.decide(self, view))

    return type(name, (base,), {"decide": ask, "name": name})


def writes(array):
    def answer(self, view, found):
        array(view)[...] += 1
        return found

    return answer


UNLIKE = {
    Jobs: lambda view, found: found & (NUMBERS.random() < 0.5),
    Stations: lambda view, found: np.where((view.head >= 0) & (NUMBERS.random() < 0.5), 0, found),
    Nodes: lambda view, found: [AddReplica(int(NUMBERS.integers(40)), 0)],
    Queries: lambda view, found: (found + NUMBERS.integers(40)) % view.ledger.tasks.size,
    Pipelines: lambda view, found: found if NUMBERS.random() < 0.5 else [],
}
KINDS = [Jobs, Stations, Nodes, Queries, Pipelines]


@pytest.mark.parametrize("good", KINDS)
def test_a_policy_that_sees_one_world_keeps_the_contract(good):
    check_policy(good)


@pytest.mark.parametrize("good", KINDS)
def test_draws_that_are_not_of_the_key_are_caught(good):
    made = broken(good, "draws", lambda self, view, found: UNLIKE[good](view, found))
    with pytest.raises(AssertionError, match="same key, other decisions"):
        check_policy(made)


@pytest.mark.parametrize(
    ("good", "array"),
    [
        (Jobs, lambda view: view.ends),
        (Stations, lambda view: view.free_disk_bytes),
        (Nodes, lambda view: view.arrived),
        (Queries, lambda view: view.ledger.work_s),
        (Pipelines, lambda view: view.free_memory_bytes),
    ],
)
def test_a_changed_view_is_caught(good, array):
    with pytest.raises(AssertionError, match="changed its view"):
        check_policy(broken(good, "writes", writes(array)))


@pytest.mark.parametrize(
    ("good", "answer", "complaint"),
    [
        (Jobs, lambda self, view, found: np.ones_like(found), "not startable"),
        (Jobs, lambda self, view, found: found[:-1], "array of shape"),
        (Jobs, lambda self, view, found: found.astype(np.float64), "boolean"),
        (Stations, lambda self, view, found: np.full_like(found, 999), "cannot serve the head"),
        (Stations, lambda self, view, found: np.zeros_like(found), "cannot serve the head"),
        (Stations, lambda self, view, found: np.arange(2), "array of shape"),
        (Nodes, lambda self, view, found: [AddReplica(99, 0)], "no node or no service"),
        (Nodes, lambda self, view, found: [(0, 1)], "is no command"),
        (Queries, lambda self, view, found: found + 99, "a server from 0 to"),
        (Queries, lambda self, view, found: found[:-1], "a server from 0 to"),
        (
            Pipelines,
            lambda self, view, found: [replace(p, node=p.node + 99) for p in found],
            "IndexError|ValueError",
        ),
        (Pipelines, lambda self, view, found: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_an_impossible_answer_is_caught(good, answer, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_policy(broken(good, "wrong", answer))


OFFERED = 0.9 * generate(replace(PAPER, slots=12, jobs_per_slot=3.0), range(2)).left_over.sum()


def later_services():
    """Whether requests of the last seconds are of several services."""
    requests = of_the_driver("requests")
    return bool(requests.service[requests.arrival_s > 50.0].any())


@pytest.mark.parametrize(
    ("good", "answer"),
    [
        (
            Jobs,
            lambda self, view, found: found & (of_the_driver("worlds").left_over.sum() > OFFERED),
        ),
        (
            Stations,
            lambda self, view, found: np.where((view.head >= 0) & later_services(), 0, found),
        ),
        (
            Nodes,
            lambda self, view, found: [AddReplica(int(later_services()), 0)],
        ),
        (Queries, lambda self, view, found: found * 0 + (of_the_driver("queries") > 30)),
        (
            Pipelines,
            lambda self, view, found: found if of_the_driver("pipelines")[-1].arrival_s < 4 else [],
        ),
    ],
)
def test_a_look_at_what_comes_is_caught(good, answer):
    with pytest.raises(AssertionError, match="because of what comes later"):
        check_policy(broken(good, "peeks", answer))


def test_a_class_that_says_of_no_decision_is_refused():
    with pytest.raises(PolicyError, match="its class says decision = None; say one of dispatch"):
        check_policy(type("Nothing", (), {}))


def test_a_hook_that_nobody_calls_is_refused():
    with pytest.raises(PolicyError, match="no hook is called 'batchd'; did you mean 'batched'"):
        check_policy(type("Misspelt", (Jobs,), {"batchd": True}))
