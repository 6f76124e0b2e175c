"""Plans by the number of free servers, the share of them, and plans that follow the rates."""

from __future__ import annotations

import numpy as np
import pytest
from split_graphs import fan

from edgewise.errors import PolicyError
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import (
    QueryClass,
    SplitView,
    build_program,
    by_free,
    decided,
    free_chances,
    new_ledger,
    optimise,
    split_policy,
)
from edgewise.policies.split.free import levels
from edgewise.policies.split.online import RateTracker
from edgewise.policies.split.program import ServerChoice
from edgewise.sim.stations.split import simulate_split, tune_share


def program(rate: float = 1.0, servers: int = 4):
    return build_program([QueryClass(fan([1e10, 1e10]), rate)], servers, 1e10, 1e10)


def test_free_servers_of_two_by_hand() -> None:
    """M/M/2 with one erlang: p = 1/3, 1/3, and 1/3 for two and more."""
    assert free_chances(1.0, 2) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    with pytest.raises(PolicyError, match="lower the rates"):
        free_chances(2.0, 2)


def test_levels_grow_with_the_share() -> None:
    p = program()
    assert levels(p, 0.0).tolist() == [0] * 5
    assert levels(p, 0.5).tolist() == [0, 0, 0, 0, 1]
    assert levels(p, 1.0).tolist() == [0, 0, 1, 2, 3]
    with pytest.raises(PolicyError, match="share must be from 0 to 1, got 2"):
        levels(p, 2.0)


def test_a_plan_for_each_number_of_free_servers_is_one_certified_program() -> None:
    p = by_free(program(), share=1.0)
    assert sum(p.rates_qps) == pytest.approx(1.0)
    plan = optimise(p)
    assert plan.gap <= 1e-4
    for group, first, last in zip(p.groups, p.arrays.start, p.arrays.start[1:], strict=False):
        assert group.lines.part.max() <= group.job  # level 0 uses one server, level 1 two, …
        assert plan.theta[first:last].sum() == pytest.approx(1.0)


def test_queries_stay_whole_when_servers_are_busy_and_split_when_they_are_free() -> None:
    p = program()
    policy = split_policy("nona-free", p, share=1.0)
    idle, busy = new_ledger(np.full(4, 1e10)), new_ledger(np.full(4, 1e10))
    busy.work_s[:] = 5.0
    busy.tasks[:] = 5
    assert len(set(policy.decide(SplitView(0, 0, idle)))) > 1
    assert len(set(policy.decide(SplitView(0, 0, busy)))) == 1
    assert len(set(split_policy("nona-free", p, share=0.0).decide(SplitView(0, 0, idle)))) == 1


def test_a_query_keeps_to_the_servers_that_its_plan_is_for() -> None:
    """Two fans one after the other; a whole query that comes next finds the other servers untouched."""
    two = [Task("root", 1e9), *(Task(f"{x}{i}", 1e10) for x in "ab" for i in range(2)), Task("mid", 1e9),
           Task("sink", 1e9)]  # fmt: skip
    pairs = [(a, b) for x, (r, s) in {"a": ("root", "mid"), "b": ("mid", "sink")}.items()
             for i in range(2) for a, b in ((r, f"{x}{i}"), (f"{x}{i}", s))]  # fmt: skip
    graph = TaskGraph("two", tuple(two), tuple(Edge(a, b, 1e3) for a, b in pairs))
    p = build_program([QueryClass(graph, 0.1)], 6, 1e10, 1e10)
    for rule in ServerChoice:
        policy, ledger = split_policy("nona-free", p, rule, share=0.34), new_ledger(np.full(6, 1e10))
        assert levels(p, 0.34)[6] == 1
        for query in range(5):
            ledger.work_s[:], ledger.tasks[:] = 0.0, 0
            work = np.array([task.work_ops for task in graph.tasks])
            used = set(decided(policy, SplitView(query, 0, ledger), work).tolist())
            assert len(used) == 2
            assert set(np.flatnonzero(ledger.work_s)) == used


def test_a_share_of_0_is_the_whole_query_baseline() -> None:
    p = program(1.2)
    runs = [
        simulate_split(policy, p, 3_000, seed=4).time_s
        for policy in (split_policy("nona-free", p, share=0.0), split_policy("whole-least-loaded", p))
    ]
    np.testing.assert_array_equal(*runs)


def test_the_share_is_chosen_by_simulation() -> None:
    """Almost idle: splitting halves the time. Busier: the one whose mean is smallest, simulated again."""
    assert tune_share(program(0.05), 2_000, [1], shares=(0.0, 1.0)) == 1.0
    busy, shares = program(1.3), (0.0, 0.5, 1.0)
    means = [
        simulate_split(split_policy("nona-free", busy, share=share), busy, 5_000, 1).settled().time_s.mean()
        for share in shares
    ]
    assert tune_share(busy, 5_000, [1], shares) == shares[int(np.argmin(means))]


def test_rates_are_tracked_and_the_plan_follows() -> None:
    """From 1 to 10 queries a second; at the end the plan is that of a new optimisation."""
    start = build_program([QueryClass(fan([1e10, 1e10], 2e6), 1.0)], 40, 1e10, 1e9)
    tracker = RateTracker(split_policy("nona", start), memory_s=20.0)
    rng = np.random.default_rng(6)
    now, before = 0.0, tracker.policy.plan
    for rate, until in ((1.0, 100.0), (10.0, 300.0)):
        while now < until:
            now += rng.exponential(1 / rate)
            tracker.seen(0, now)
            tracker.update(now)
    assert tracker.solved > 2
    assert tracker.rates_qps(now)[0] == pytest.approx(10.0, rel=0.25)
    plan = tracker.policy.plan
    assert plan is not None and before is not None and plan.gap <= 1e-4
    assert plan.program.rates_qps[0] == pytest.approx(10.0, rel=0.4)
    again = optimise(start.with_rates(plan.program.rates_qps.tolist()))
    assert plan.forecast.mean_s == pytest.approx(again.forecast.mean_s, rel=2e-4)
    assert plan.forecast.load > 5 * before.forecast.load


def test_a_class_that_stops_and_one_that_is_too_much() -> None:
    job = QueryClass(fan([1e10, 1e10]), 0.5)
    program_of_two = build_program([job, job], 4, 1e10, 1e10)
    tracker = RateTracker(split_policy("nona-queues", program_of_two), memory_s=10.0)
    now = 0.0
    for _ in range(200):
        now += 1.0
        tracker.seen(0, now)
        tracker.update(now)
    assert tracker.rates_qps(now)[1] < 1e-3
    solved = tracker.solved
    assert not tracker.solve([100.0, 1.0]) and tracker.solved == solved
    with pytest.raises(PolicyError, match="memory_s must be above 0"):
        RateTracker(tracker.policy, memory_s=0.0)
