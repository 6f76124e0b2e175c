"""The core of splitting on its own: news, servers that go, plans that follow the rates, whoever fails."""

from __future__ import annotations

import numpy as np
import pytest

from edgewise.core.guard import Guard, Shadow
from edgewise.core.split import MEMORY_S, UPDATE_S
from edgewise.core.split.core import (
    MakePlan,
    PlanMade,
    QueryArrived,
    QueryLost,
    RefuseQuery,
    RunQuery,
    ServerChanged,
    ServersTold,
    SplitCore,
)
from edgewise.errors import PolicyError
from edgewise.model.graphs import ServerGroup
from edgewise.policies import load
from edgewise.policies.split import QueryClass, build_program, optimise
from edgewise.policies.split.layout import joined, layout_program
from split_graphs import fan


class Fixed:
    """Every task on one server, or whatever it is told."""

    name = "fixed"

    def __init__(self, answer):
        self.answer = answer

    def reset(self, program, key):
        pass

    def decide(self, view):
        return self.answer(view) if callable(self.answer) else self.answer


def core_of(policy, servers=4, rate=1.0, guard=None, follows=False):
    job = QueryClass(fan([1e10, 1e10], 2e6), rate)
    return SplitCore(build_program([job], servers, 1e10, 1e9), policy, 1, guard, follows)


def placed(core, *events):
    """Servers of the query that the last of the events places."""
    for event in events:
        commands = core.handle(event)
        core.validate()
    return commands[0].servers.tolist()


def test_what_servers_tell_is_taken_off_the_ledger_once():
    core = core_of(Fixed([0, 0, 1, 0]))
    assert placed(core, QueryArrived(0.0, 0, 0)) == [0, 0, 1, 0]
    ledger = core.state.ledger
    assert ledger.work_s.tolist() == pytest.approx([1.2, 1.0, 0, 0]) and ledger.tasks.tolist() == [3, 1, 0, 0]
    told = ServersTold(1.0, np.array([0.1, 1.0, 0.0, 0.0]), np.array([1, 1, 0, 0]))
    for _ in range(2):  # counts go on from the beginning: to hear them twice changes nothing
        core.handle(told)
        assert ledger.work_s.tolist() == pytest.approx([1.1, 0, 0, 0]) and ledger.tasks.tolist() == [
            2,
            0,
            0,
            0,
        ]
    placed(core, QueryArrived(2.0, 1, 0))
    core.handle(ServersTold(3.0, np.array([1.2, 1.0, 0.0, 0.0]), np.array([3, 1, 0, 0])))
    assert ledger.work_s.tolist() == pytest.approx([1.2, 1.0, 0, 0]) and ledger.tasks.tolist() == [3, 1, 0, 0]


def test_a_query_for_a_server_that_is_down_runs_whole_on_one_that_is_up():
    core = core_of(Fixed([0, 0, 1, 0]))
    assert placed(core, ServerChanged(0.0, 1, False), QueryArrived(0.0, 0, 0)) == [0] * 4
    assert placed(core, ServerChanged(0.0, 0, False), QueryArrived(0.0, 1, 0)) == [2] * 4
    assert placed(core, QueryArrived(0.0, 2, 0)) == [3] * 4  # there is less to do
    up = [ServerChanged(0.0, server, True) for server in (0, 1)]
    assert placed(core, *up, QueryArrived(0.0, 3, 0)) == [0, 0, 1, 0]
    seen = []
    looking = core_of(Fixed(lambda view: seen.append(view.up.tolist()) or [2] * 4))
    placed(looking, ServerChanged(0.0, 0, False), QueryArrived(0.0, 0, 0))
    assert seen == [[False, True, True, True]]


def test_a_query_that_servers_lost_goes_to_others_first_to_those_that_are_up():
    core = core_of(Fixed([0, 0, 1, 0]), servers=3)
    placed(core, ServerChanged(0.0, 1, False), QueryArrived(0.0, 0, 0))
    assert placed(core, QueryLost(1.0, 0, 0, (0,))) == [2] * 4
    assert placed(core, QueryLost(1.0, 0, 0, (0, 2))) == [1] * 4
    assert core.handle(QueryLost(1.0, 0, 0, (0, 2, 1))) == [RefuseQuery(0)]


@pytest.mark.parametrize(
    "answer", [[0, 0, 4, 0], [0, 0], [0.5] * 4, lambda view: 1 / 0], ids=["none", "short", "halves", "raises"]
)
def test_without_an_answer_a_query_runs_whole_where_least_is_to_do(answer):
    with pytest.raises((PolicyError, ZeroDivisionError)):
        core_of(Fixed(answer)).handle(QueryArrived(0.0, 0, 0))
    core = core_of(Fixed(answer), guard=Guard())
    assert [placed(core, QueryArrived(0.0, query, 0))[0] for query in range(5)] == [0, 1, 2, 3, 0]
    assert core.guard.faults.total() == 5


def test_a_shadow_sees_what_the_policy_sees():
    rows = []
    other = Fixed(lambda view: rows.append((view.query, view.ledger.tasks.tolist())) or [0, 0, 1, 1])
    core = core_of(Fixed([0, 0, 1, 0]), servers=2)
    core.shadow = Shadow(other, Guard(), lambda servers: {t: str(s) for t, s in enumerate(servers)})
    for query in range(2):
        core.handle(QueryArrived(0.0, query, 0))
    assert rows == [(0, [0, 0]), (1, [3, 1])]  # what was decided for this query is not yet in it
    said = core.shadow.report()
    assert said["decisions"] == 2 and said["items"] == {
        "same": 6,
        "other": 2,
        "only_shadow": 0,
        "only_policy": 0,
    }


def driven(core, rates, seed=6):
    """Poisson queries, plans made at once; returns the commands' times and the time of the end."""
    rng, now, query, asked = np.random.default_rng(seed), 0.0, 0, []
    for rate, until in rates:
        while now < until:
            now += rng.exponential(1 / rate)
            for command in core.handle(QueryArrived(now, query, 0)):
                if isinstance(command, MakePlan):
                    asked.append(now)
                    made = core.policy.renewed(command.rates_qps)
                    core.handle(PlanMade(now, command.rates_qps, made))
            query += 1
    return asked, now


def test_the_plan_follows_the_rates():
    """From 1 to 10 queries a second; at the end the plan is that of a new optimisation."""
    core = core_of(load("split", "nona"), servers=40, follows=True)
    before = core.policy.plan
    asked, _ = driven(core, ((1.0, 3 * MEMORY_S), (10.0, 9 * MEMORY_S)))
    assert core.plans > 2 and min(np.diff(asked)) >= UPDATE_S
    plan, start = core.policy.plan, before.program
    assert core.state.rates.qps[0] == pytest.approx(10.0, rel=0.25)
    assert plan.gap <= 1e-4 and plan.program.rates_qps[0] == pytest.approx(10.0, rel=0.4)
    again = optimise(start.with_rates(plan.program.rates_qps.tolist()))
    assert plan.forecast.mean_s == pytest.approx(again.forecast.mean_s, rel=2e-4)
    assert plan.forecast.load > 5 * before.forecast.load


def test_plans_over_groups_of_servers_follow_the_rates():
    groups = joined([ServerGroup("edge", 2, 1e10), ServerGroup("cloud", 4, 5e10)], {("edge", "cloud"): 1e9})
    program = layout_program([QueryClass(fan([1e10, 1e10], 2e6), 1.0)], groups)
    core = SplitCore(program, load("split", "nona-layout"), 1, follows=True)
    before = core.policy
    driven(core, ((1.0, MEMORY_S), (4.0, 3 * MEMORY_S)))
    assert core.plans > 1 and core.policy.plan.load.max() > 2 * before.plan.load.max()
    assert core.policy.renewed(np.array([1e6])) is None


def test_while_a_plan_is_made_none_is_asked_for_and_one_that_fails_leaves_the_old():
    core = core_of(load("split", "nona-queues"), follows=True)
    old, plans = core.policy, []
    for query in range(2_000):  # at 100 a second, more than the servers can do
        plans += core.handle(QueryArrived(query / 100, query, 0))[1:]
    (wanted,) = plans
    assert old.renewed(np.array([100.0])) is None
    core.handle(PlanMade(20.0, wanted.rates_qps, None))
    assert core.policy is old and core.plans == 1
    assert len(core.handle(QueryArrived(20.0, 2_000, 0))) == 2  # asked for again


def test_plans_stay_where_the_policy_or_the_driver_does_not_follow():
    for name, follows in (("nona", False), ("whole-random", True), ("nona-free", True)):
        core = core_of(load("split", name), follows=follows)
        for query in range(2_000):
            (run,) = core.handle(QueryArrived(query / 100, query, 0))
            assert isinstance(run, RunQuery)
