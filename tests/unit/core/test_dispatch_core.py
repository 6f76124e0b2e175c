"""The decision core: states, reasons, fallback, re-binding."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.dispatch.events import (
    Bind,
    Refuse,
    Release,
    ReservedElsewhere,
    StreamClosed,
    StreamOpened,
    Tick,
    WorkerChanged,
)
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import REASONS, Decisions, Violation
from edgewise.core.guard import Guard
from edgewise.model.work import Stream
from edgewise.testing import small_world, some_streams


def stream(i=0, **needs):
    base = dict(site=0, application="a", task="detect", open_s=0.0, close_s=9.0, rate_qps=5.0,
                size_bytes=1e4, deadline_s=1.0, min_accuracy=0.0)  # fmt: skip
    return Stream(id=i, **(base | needs))


@pytest.fixture
def core(make_core):
    return make_core(small_world(), policies.load("dispatch", "least-impedance"))


def test_least_impedance_binds_the_fastest(core):
    (bind,) = core.handle(StreamOpened(0.0, stream()))
    world = core.world
    reach = (world.delay_s[0] + 2 * world.deviation_s[0])[world.cluster]
    impedance = 2 * reach + world.fixed_s + world.per_byte_s * 1e4
    impedance[world.task != world.task_index("detect")] = np.inf
    assert bind == Bind(0, int(impedance.argmin()))


def test_closest_prefers_the_nearest_cluster(make_core):
    core = make_core(small_world(), policies.load("dispatch", "closest"))
    core.handle(StreamOpened(0.0, stream()))
    worker = core.bindings[0]
    detect = core.world.task == core.world.task_index("detect")
    assert core.world.cluster[worker] == core.world.cluster[detect].min()


@pytest.mark.parametrize(
    ("needs", "violation"),
    [
        ({"task": "translate"}, Violation.TASK),
        ({"min_accuracy": 99.0}, Violation.ACCURACY),
        ({"deadline_s": 1e-4}, Violation.DELAY),
        ({"rate_qps": 1e4}, Violation.CAPACITY),
    ],
)
def test_refusal_names_the_violated_constraint(core, needs, violation):
    assert core.handle(StreamOpened(0.0, stream(**needs))) == [Refuse(0, REASONS[violation])]


def test_down_workers_are_the_reason_when_nothing_else_is_left(core):
    for worker in range(core.world.workers):
        core.handle(WorkerChanged(0.0, worker, False))
    assert core.handle(StreamOpened(0.0, stream())) == [Refuse(0, REASONS[Violation.DOWN])]


def test_a_share_is_the_rate_times_the_cost_relative_to_the_largest_input(core):
    (bind,) = core.handle(StreamOpened(0.0, stream()))
    world, w = core.world, bind.worker
    cost_s = world.fixed_s[w] + world.per_byte_s[w] * 1e4
    most_s = world.fixed_s[w] + world.per_byte_s[w] * world.largest_bytes[w]
    assert core.view().load_qps[w] == pytest.approx(5.0 * cost_s / most_s)
    assert core.loads.share_qps(w, 5.0, 1e4) == pytest.approx(5.0 * cost_s / most_s)
    assert core.loads.share_qps(w, 5.0, 2.0 * float(world.largest_bytes[w])) == 5.0


def test_closing_returns_capacity(core):
    core.handle(StreamOpened(0.0, stream()))
    worker = core.bindings[0]
    assert core.view().load_qps[worker] > 0
    assert core.handle(StreamClosed(1.0, 0)) == [Release(0, worker)]
    assert (core.view().load_qps == 0).all()


def test_what_others_reserved_stays_when_our_streams_leave_and_in_a_twin(core, make_core):
    for i in range(2):
        core.handle(StreamOpened(0.0, stream(i)))
    worker = core.bindings[0]
    core.handle(ReservedElsewhere(0.0, worker, 7.0))
    core.validate()
    view = core.view(with_bound=True)
    twin = make_core(small_world(), policies.load("dispatch", "least-impedance"))
    twin.adopt(view, view.bound)
    for each in (core, twin):
        for i in range(2):
            each.handle(StreamClosed(1.0, i))
        each.validate()
        assert each.view().load_qps[worker] == pytest.approx(7.0)
        assert each.view().load_qps.sum() == pytest.approx(7.0)
    core.handle(ReservedElsewhere(1.0, worker, 0.0))
    assert (core.view().load_qps == 0.0).all()


def test_streams_of_a_lost_worker_move(core):
    core.handle(StreamOpened(0.0, stream()))
    lost = core.bindings[0]
    release, bind = core.handle(WorkerChanged(1.0, lost, False))
    assert release == Release(0, lost)
    assert isinstance(bind, Bind) and bind.worker != lost


def test_refused_streams_are_retried_at_ticks_when_asked(make_core):
    core = make_core(small_world(workers=1), policies.load("dispatch", "closest"), retry_refused=True)
    world = core.world
    full = stream(
        0, task=world.task_names[world.task[0]], rate_qps=float(world.capacity_qps[0]), size_bytes=1e6
    )
    core.handle(StreamOpened(0.0, full))
    late = stream(1, task=full.task)
    assert isinstance(core.handle(StreamOpened(1.0, late))[0], Refuse)
    assert core.handle(Tick(2.0)) == []
    core.handle(StreamClosed(3.0, 0))
    assert core.handle(Tick(4.0)) == [Bind(1, 0)]


def test_a_refusal_is_final_unless_it_may_be_decided_anew(make_core):
    for retry in (False, True):
        core = make_core(small_world(workers=1), policies.load("dispatch", "closest"), retry_refused=retry)
        task = core.world.task_names[core.world.task[0]]
        core.handle(StreamOpened(0.0, stream(0, task=task, rate_qps=1e4)))
        assert core.final(0) == (not retry) and not core.final(1)
        core.handle(WorkerChanged(1.0, 0, False))
        core.handle(StreamOpened(2.0, stream(2, task=task)))
        assert core.refused[2] == REASONS[Violation.DOWN] and not core.final(2)


def test_time_cannot_go_back(core):
    core.handle(Tick(5.0))
    with pytest.raises(ValueError, match="time must not go back"):
        core.handle(Tick(4.0))


class Raises(ScorePolicy):
    name = "raises"

    def score(self, view, item):
        raise RuntimeError("boom")


class Infeasible(ScorePolicy):
    name = "infeasible"

    def decide(self, view, items):
        return Decisions(np.full(len(items), view.world.workers + 3), np.zeros(len(items), dtype=np.int8))


class NotANumber(ScorePolicy):
    name = "nan"

    def score(self, view, item):
        return view.network_s * np.nan


class Stale(ScorePolicy):
    name = "stale"
    max_age_s = 1.0

    def score(self, view, item):
        return -view.impedance_s


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        (Raises, "raised RuntimeError"),
        (Infeasible, "not feasible"),
        (NotANumber, "ValueError"),
        (Stale, "stale view"),
    ],
)
def test_fallback_decides_when_the_policy_cannot(make_core, policy, fault):
    core = make_core(small_world(), policy())
    (bind,) = core.handle(StreamOpened(0.0, stream()))
    good = make_core(small_world(), policies.load("dispatch", "least-impedance"))
    assert [bind] == good.handle(StreamOpened(0.0, stream()))
    assert any(fault in why for why in core.faults), core.faults


def test_policy_without_an_answer_in_time_is_suspended_until_the_next_tick(make_core):
    late, asked = [True, True], []

    def asking(question):
        asked.append(question)
        if late and late.pop(0):
            raise TimeoutError
        return question()

    core = make_core(small_world(), policies.load("dispatch", "closest"), guard=Guard(asking))
    core.handle(StreamOpened(0.0, stream(0)))
    core.handle(StreamOpened(0.0, stream(1)))
    assert core.faults == {"no answer in time": 1, "suspended until the next tick": 1}
    assert len(asked) == 1 and len(core.bindings) == 2
    core.handle(Tick(1.0))
    core.handle(StreamOpened(1.0, stream(2)))
    assert core.faults["no answer in time"] == 2
    core.handle(Tick(2.0))
    core.handle(StreamOpened(2.0, stream(3)))
    assert not late and len(asked) == 3


def test_view_does_not_change_later_and_cannot_be_written(core):
    view = core.view()
    core.handle(StreamOpened(0.0, stream()))
    assert (view.load_qps == 0).all()
    with pytest.raises(ValueError, match="read-only"):
        view.load_qps[0] = 1.0


def test_no_capacity_is_exceeded_on_a_long_trace(make_core):
    core = make_core(small_world(workers=9), policies.load("dispatch", "least-impedance"))
    events = sorted(
        [(s.open_s, 1, s) for s in some_streams(300)] + [(s.close_s, 0, s) for s in some_streams(300)],
        key=lambda e: (e[0], e[1], e[2].id),
    )
    for at_s, opens, s in events:
        core.handle(StreamOpened(at_s, s) if opens else StreamClosed(at_s, s.id))
        core.validate()
    assert core.bindings == {} and core.refused == {}
