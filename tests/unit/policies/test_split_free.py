"""Plans by the number of free servers, the share of them, and plans that follow the rates."""

from __future__ import annotations

import numpy as np
import pytest

from edgewise.errors import PolicyError
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import (
    QueryClass,
    build_program,
    by_free,
    free_chances,
    optimise,
    split_policy,
)
from edgewise.policies.split.optimum import levels
from edgewise.policies.split.program import ServerChoice
from edgewise.sim.parts.graphs import simulate_split, tune_share
from split_graphs import fan, ledger_of, placed


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
    work = np.array([task.work_ops for task in p.classes[0].graph.tasks])
    alone = split_policy("nona-free", p, share=0.0)

    def used(asked, *outstanding):
        return len(set(placed(asked, work, 0, 0, ledger_of([1e10] * 4, *outstanding)).tolist()))

    assert used(policy) > 1
    assert used(policy, 5.0, 5) == used(alone) == 1


def test_a_query_keeps_to_the_servers_that_its_plan_is_for() -> None:
    """Two fans one after the other; a whole query that comes next finds the other servers untouched."""
    two = [Task("root", 1e9), *(Task(f"{x}{i}", 1e10) for x in "ab" for i in range(2)), Task("mid", 1e9),
           Task("sink", 1e9)]  # fmt: skip
    pairs = [(a, b) for x, (r, s) in {"a": ("root", "mid"), "b": ("mid", "sink")}.items()
             for i in range(2) for a, b in ((r, f"{x}{i}"), (f"{x}{i}", s))]  # fmt: skip
    graph = TaskGraph("two", tuple(two), tuple(Edge(a, b, 1e3) for a, b in pairs))
    p = build_program([QueryClass(graph, 0.1)], 6, 1e10, 1e10)
    for rule in ServerChoice:
        policy, ledger = split_policy("nona-free", p, rule, share=0.34), ledger_of([1e10] * 6)
        assert levels(p, 0.34)[6] == 1
        for query in range(5):
            ledger.work_s[:], ledger.tasks[:] = 0.0, 0
            work = np.array([task.work_ops for task in graph.tasks])
            used = set(placed(policy, work, query, 0, ledger).tolist())
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
