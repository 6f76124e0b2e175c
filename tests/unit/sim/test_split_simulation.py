"""Split queries through the engine: against hand calculation, the formula, and the ledger's promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewise import policies
from edgewise.errors import PolicyError
from edgewise.model.graphs import ServerGroup
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import NAMES, QueryClass, build_program, optimise, split_policy
from edgewise.policies.split.layout import joined, layout_program
from edgewise.policies.split.program import server_wait_s, servers_wait_s, task_wait_s
from edgewise.sim.parts.graphs import simulate_split
from edgewise.workloads.queries import poisson_queries
from own_split import Halves
from split_graphs import fan

TASKS = (Task("root", 1e9), Task("a", 1e10), Task("b", 1e10), Task("sink", 1e9))
EDGES = tuple(Edge(*pair, 1.25e6) for pair in (("root", "a"), ("root", "b"), ("a", "sink"), ("b", "sink")))
FAN = TaskGraph("fan", TASKS, EDGES)


def program(rate: float, servers: int = 4, queues: bool = False):
    return build_program([QueryClass(FAN, rate)], servers, 1e10, 1e9, queues=queues)


def test_a_lonely_query_takes_what_the_formula_says() -> None:
    """Queries so rare that they never meet: 0.1 + 1 + 0.01 + 0.1 s split, 2.2 s whole."""
    rare = program(1e-4)
    split = simulate_split(split_policy("nona", rare), rare, 50, seed=1)
    assert split.time_s == pytest.approx(np.full(50, 1.21))
    whole = simulate_split(split_policy("whole-least-loaded", rare), rare, 50, seed=1)
    assert whole.time_s == pytest.approx(np.full(50, 2.2))
    assert whole.link_load == 0.0


def test_loads_are_those_of_the_formula() -> None:
    busy = program(0.8)
    policy = split_policy("nona", busy)
    run = simulate_split(policy, busy, 20_000, seed=2)
    assert policy.plan is not None
    assert run.link_load == pytest.approx(policy.plan.forecast.load, rel=0.05)
    assert run.server_load == pytest.approx(0.8 * 2.2 / 4, rel=0.05)


def test_whole_queries_on_random_servers_are_m_d_1() -> None:
    """One task per query, one server chosen at random: Pollaczek-Khinchine."""
    one = build_program([QueryClass(TaskGraph("one", (Task("t", 1e10),), ()), 1.4)], 2, 1e10, 1e9)
    runs = [
        simulate_split(split_policy("whole-random", one), one, 60_000, seed).settled() for seed in range(6)
    ]
    means = [run.time_s.mean() for run in runs]
    expected = 1.0 + 0.7 / (2 * 0.3)
    assert np.mean(means) == pytest.approx(expected, abs=4 * np.std(means, ddof=1) / np.sqrt(6))


def test_least_loaded_is_m_d_c() -> None:
    """The wait for the first free of two servers, in the range of Allen and Cunneen's approximation."""
    one = build_program([QueryClass(TaskGraph("one", (Task("t", 1e10),), ()), 1.4)], 2, 1e10, 1e9)
    run = simulate_split(split_policy("whole-least-loaded", one), one, 100_000, seed=3).settled()
    assert run.time_s.mean() - 1.0 == pytest.approx(server_wait_s(one.classes, 2, 1e10), rel=0.1)


def test_waiting_for_servers_by_hand() -> None:
    """M/M/1's C is ρ: W = ρ E[s²] / (2 E[s] (1 - ρ)) is Pollaczek-Khinchine for one server."""
    job = QueryClass(TaskGraph("one", (Task("t", 1e10),), ()), 0.6)
    assert server_wait_s([job], 1, 1e10) == pytest.approx(0.6 / (2 * 0.4))
    with pytest.raises(PolicyError, match=r"need 1\.2 servers and there are 1"):
        server_wait_s([job, job], 1, 1e10)


def test_waiting_for_several_servers_by_hand() -> None:
    """M/D/2, one erlang: none, one, two free in a third of the cases each, residual times even over 1 s.

    For both: where none is free, the second to end after the first, of two, is 1/3 s later; where one is
    free, the other needs 1/2 s.
    """
    job = QueryClass(TaskGraph("one", (Task("t", 1e10),), ()), 1.0)
    assert servers_wait_s([job], 2, 1e10) == pytest.approx([0.0, 0.0, (1 / 3 + 1 / 2) / 3])
    with pytest.raises(PolicyError, match="lower the rates"):
        servers_wait_s([job, job], 2, 1e10)


def test_bursts_and_queues_by_hand() -> None:
    """Sink with the root, both branches away: one burst of two messages, two answers."""
    plain, full = program(1.0), program(1.0, queues=True)
    row = [1, 2, 0]
    number = plain.groups[0].lines.part.tolist().index(row)
    wait, s, w = 0.1, 0.01, task_wait_s(full.classes, 4, 1e10)
    assert w == pytest.approx(2.02 / (2 * (4 - 2.2)))  # Σ β s² / (2 (c - Σ β s))
    w += servers_wait_s(full.classes, 4, 1e10)[3]  # three servers are used
    assert plain.costs_s(wait)[number] == pytest.approx(1.0 + 2 * (wait + s))
    assert full.costs_s(wait)[number] == pytest.approx(1.0 + (wait + 2 * s) + (wait + s) + w)
    assert full.arrays.load_s[number] == pytest.approx(4 * s)
    assert full.arrays.load_s2[number] == pytest.approx((2 * s) ** 2 + 2 * s**2)
    assert optimise(full).gap <= 1e-4


def test_the_same_queries_meet_every_policy() -> None:
    light = program(0.5)
    whole, split, again = (
        simulate_split(split_policy(name, light), light, 2_000, 1)
        for name in ("whole-least-loaded", "nona", "whole-least-loaded")
    )
    assert whole.job.tolist() == split.job.tolist() and whole.time_s.tolist() == again.time_s.tolist()
    assert split.time_s.mean() < whole.time_s.mean()


def test_classes_arrive_at_their_rates() -> None:
    times, jobs = poisson_queries([1.0, 3.0], 40_000, seed=5)
    assert times[-1] == pytest.approx(10_000, rel=0.03)
    assert np.mean(jobs == 0) == pytest.approx(0.25, abs=0.011)


def test_a_policy_of_ones_own_splits_in_simulation() -> None:
    """Two equal tasks on two servers; on a layout as well; what it places nowhere is refused."""
    two = TaskGraph("two", (Task("a", 1e10), Task("b", 1e10)), (Edge("a", "b", 1e3),))
    program = build_program([QueryClass(two, 0.02)], 4, 1e10, 1e10)
    own = policies.load("split", f"{Path(__file__).parents[2] / 'own_split.py'}:Halves")
    run = simulate_split(own, program, 200, seed=1)
    whole = simulate_split(split_policy("whole-least-loaded", program), program, 200, seed=1)
    assert run.time_s.min() > whole.time_s.min() == pytest.approx(2.0)
    assert run.time_s.mean() == pytest.approx(whole.time_s.mean(), rel=0.05) and run.link_load > 0
    groups = joined([ServerGroup("edge", 1, 1e10), ServerGroup("cloud", 1, 1e10)], {("edge", "cloud"): 1e9})
    unequal = layout_program([QueryClass(two, 0.02)], groups)
    assert simulate_split(own, unequal, 50, seed=1).time_s.min() > 2.0

    class Nowhere(Halves):
        def decide(self, view):
            return np.array([0, 9])

    with pytest.raises(
        PolicyError, match=r"'halves' placed \[0, 9\]; give each of 2 tasks a server from 0 to 3"
    ):
        simulate_split(Nowhere(), program, 5, seed=1)


def test_a_shipped_policy_decides_alike_in_python_and_compiled() -> None:
    """The engine asks Python where a policy has no arrays: every server and every time is the same."""
    graph = fan([1e10, 2e10, 1e10])
    program = build_program([QueryClass(graph, 0.5)], 4, 1e10, 1e9)

    class Plain:
        def __init__(self, policy):
            self.name, self.reset, self.decide = policy.name, policy.reset, policy.decide

    for name in NAMES:
        runs = [
            simulate_split(p, program, 150, 3)
            for p in (split_policy(name, program), Plain(split_policy(name, program)))
        ]
        np.testing.assert_allclose(runs[0].time_s, runs[1].time_s, rtol=1e-9, err_msg=name)
    layout = layout_program(
        [QueryClass(graph, 1.0)],
        joined([ServerGroup("edge", 2, 1e10), ServerGroup("cloud", 2, 5e10)], {("edge", "cloud"): 1e9}),
    )
    policy = split_policy("nona-layout", layout)
    runs = [simulate_split(p, layout, 150, 3) for p in (policy, Plain(policy))]
    np.testing.assert_allclose(runs[0].time_s, runs[1].time_s, rtol=1e-9)
