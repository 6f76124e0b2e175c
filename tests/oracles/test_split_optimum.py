"""The certified optimum against brute force, a grid of linear programs and a non-convex solver."""

from __future__ import annotations

import numpy as np
import pytest
from naive_split import Naive, random_graph
from scipy.optimize import LinearConstraint, linprog, minimize

from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import QueryClass, build_program, contract, optimise
from edgewise.policies.split.optimum import choose

POWER, LINK, SERVERS = 1e10, 2e8, 5
SEEDS = range(12)


def problem(seed: int, rate: float = 3.0, servers: int = SERVERS, link: float = LINK, tasks: int = 0):
    graph = random_graph(np.random.default_rng(seed), tasks or 6 + seed % 3, 0.3)
    return Naive(graph, rate, servers, POWER, link), build_program(
        [QueryClass(graph, rate)], servers, POWER, link
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_placements_and_costs_are_those_of_the_page(seed: int) -> None:
    """The same set of (sub-graph, cost, loads); branches of one kind may be exchanged, hence a set."""
    naive, program = problem(seed, servers=2 + seed % 4)
    for wait in (0.0, 0.013, 0.3):
        expected = {
            (owner, *row)
            for owner, row in zip(
                naive.owner.tolist(),
                np.round(np.column_stack([naive.costs(wait), naive.loads]), 9).tolist(),
                strict=True,
            )
            for row in [tuple(row)]
        }
        arrays = program.arrays
        rows = np.round(np.column_stack([program.costs_s(wait), arrays.load_s, arrays.load_s2]), 9).tolist()
        found = {
            (place, *row)
            for group, a, b in zip(program.groups, arrays.start, arrays.start[1:], strict=False)
            for place in group.subgraphs
            for row in map(tuple, rows[a:b])
        }
        assert found == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("link", [5e7, 2e8, 2e9])
def test_no_point_of_a_dense_grid_is_better(seed: int, link: float) -> None:
    naive, program = problem(seed, link=link)
    plan = optimise(program, 1e-6)
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 60) * program.longest_s, [plan.forecast.wait_s]])
    values = [naive.at(wait)[0] for wait in grid]
    assert plan.gap <= 1e-6
    assert min(values) >= plan.bound * (1 - 1e-9)
    # V at the plan's own waiting time is its value: nothing better has no more waiting.
    assert values[-1] == pytest.approx(plan.forecast.total, rel=1e-5)


@pytest.mark.parametrize("seed", range(1, 9))
def test_no_local_optimum_of_a_non_convex_solver_is_better(seed: int) -> None:
    naive, program = problem(seed, rate=4.0, tasks=6)
    plan = optimise(program, 1e-6)
    count = len(naive.options)
    same = (naive.owner[None, :] == np.arange(len(naive.subs))[:, None]).astype(float)
    link = LinearConstraint(naive.rate * naive.loads[:, 0], -np.inf, 0.999)
    rng = np.random.default_rng(seed)
    best = np.inf
    for _ in range(4):
        start = rng.dirichlet(np.full(count, 0.1))
        start = start / (same.T @ (same @ start))
        found = minimize(
            lambda x: min(naive.value(x), 1e3), start, method="SLSQP", bounds=[(0, 1)] * count,
            constraints=[LinearConstraint(same, 1, 1), link], options={"maxiter": 60},
        )  # fmt: skip
        theta = np.clip(found.x, 0, None)
        theta /= same.T @ (same @ theta)
        best = min(best, naive.value(theta))
    assert best >= plan.bound * (1 - 1e-9)
    assert naive.value(naive.at(plan.forecast.wait_s)[1]) == pytest.approx(plan.forecast.total, rel=1e-5)


@pytest.mark.parametrize("seed", range(30))
def test_the_knapsack_equals_a_general_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, size=4)
    start = np.concatenate([[0], np.cumsum(sizes)])
    # Small integers make ties and points on one line common.
    load = rng.integers(0, 6, size=start[-1]).astype(float)
    load[start[:-1]] = 0.0
    cost = rng.integers(0, 9, size=start[-1]).astype(float)
    weight = rng.uniform(0.5, 2.0, size=4)
    low, high = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for capacity in (0.0, 1.3, 4.0, 100.0):
        value, mixed, share, price = choose(load, cost, start, weight, capacity, low, high)
        spread = np.repeat(weight, sizes)
        same = np.repeat(np.eye(4), sizes, axis=1)
        solved = linprog(spread * cost, A_ub=[spread * load], b_ub=[capacity], A_eq=same, b_eq=np.ones(4))
        assert value == pytest.approx(solved.fun, abs=1e-9)
        theta = np.zeros(start[-1])
        theta[low] = 1.0
        if mixed >= 0:
            theta[low[mixed]], theta[high[mixed]] = 1.0 - share, share
        assert spread * theta @ load <= capacity + 1e-9
        assert spread * theta @ cost == pytest.approx(value)
        # Strong duality: value = min of the Lagrangian at the price, minus price * capacity.
        dual = sum(
            w * (cost + price * load)[a:b].min() for w, a, b in zip(weight, start, start[1:], strict=False)
        )
        assert dual - price * capacity == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_contraction_loses_no_optimum(seed: int) -> None:
    graph = random_graph(np.random.default_rng(100 + seed), 8, 0.25)
    for rate, link in ((1.0, 1e8), (6.0, 1e9)):
        whole = Naive(graph, rate, SERVERS, POWER, link)
        grid = np.concatenate([[0.0], np.geomspace(1e-5, 1.0, 25)])
        best = min(whole.value(theta) for theta in (whole.at(wait)[1] for wait in grid))
        for branches in (False, True):
            small = contract(graph, branches)
            plan = optimise(build_program([QueryClass(small.graph, rate)], SERVERS, POWER, link), 1e-6)
            assert plan.bound <= best * (1 + 1e-9)
            # What it finds is real: the same value in the contracted graph by the naive formula.
            check = Naive(small.graph, rate, SERVERS, POWER, link)
            assert check.at(plan.forecast.wait_s)[0] == pytest.approx(plan.forecast.total, rel=1e-5)


def test_a_chain_beside_a_skip_is_worth_more_after_contraction() -> None:
    """a → v → {x, y} → z with a → x: the skip hides that x and y can run at the same time."""
    tasks = tuple(Task(n, 1e10) for n in "avxyz")
    pairs = ["av", "vx", "vy", "ax", "xz", "yz"]
    graph = TaskGraph("skip", tasks, tuple(Edge(a, b, 1e5) for a, b in pairs))
    before = optimise(build_program([QueryClass(graph, 0.1)], 3, 1e10, 1e9)).forecast
    after = optimise(build_program([QueryClass(contract(graph).graph, 0.1)], 3, 1e10, 1e9)).forecast
    assert before.mean_s == pytest.approx(5.0)
    assert 4.0 < after.mean_s < 4.01
