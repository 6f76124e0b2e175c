"""Several links and groups of servers: certified, against other solvers and the simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from edgewise.errors import PolicyError
from edgewise.model.graphs import ServerGroup
from edgewise.policies.split import QueryClass, ServerChoice, build_program, optimise
from edgewise.policies.split.layout import Layout, joined, layout_program
from edgewise.policies.split.layout_optimum import _Arrays, optimise_layout, renew_layout
from edgewise.policies.split.policy import LayoutSplit
from edgewise.sim.parts.graphs import simulate_split
from split_graphs import fan

THREE = Layout(
    (ServerGroup("edge", 2, 1e10), ServerGroup("metro", 2, 2e10), ServerGroup("cloud", 4, 5e10)),
    {"a": 1e9, "b": 1e9},
    {("edge", "metro"): ("a",), ("metro", "cloud"): ("b",), ("edge", "cloud"): ("a", "b")},
)


def test_one_group_that_never_waits_is_nonas_problem() -> None:
    """Servers without number on one link: the value of the other search, which is certified on its own."""
    one = Layout((ServerGroup("all", 10_000_000, 1e10),), {"link": 1e9}, {("all", "all"): ("link",)})
    for rate in (1.0, 20.0, 40.0):
        job = QueryClass(fan([1e10, 1.5e10], 4e6), rate)
        plan = optimise_layout(layout_program([job], one), gap=1e-3)
        nona = optimise(build_program([job], 10, 1e10, 1e9))
        assert plan.mean_s == pytest.approx(nona.forecast.mean_s, rel=2e-3)
        assert plan.bound_s <= nona.forecast.mean_s * (1 + 1e-6)


def test_no_other_solver_finds_a_better_plan() -> None:
    """SLSQP from several starts on the same formula stays above the bound."""
    two = Layout(
        (ServerGroup("slow", 2, 1e10), ServerGroup("fast", 1, 3e10)), {"l": 1e9}, {("slow", "fast"): ("l",)}
    )
    program = layout_program([QueryClass(fan([1e10, 1e10], 4e6), 1.2)], two)
    plan = optimise_layout(program, gap=1e-2)
    a = _Arrays(program)
    queries = 1.2

    def value(x):
        theta = np.abs(x) / np.abs(x).sum()
        found = a.value(theta)[0] / queries
        return found if np.isfinite(found) else 1e3

    rng = np.random.default_rng(2)
    others = []
    for start in [plan.theta + 1e-4, *rng.dirichlet(np.full(program.variables, 0.1), 3)]:
        others.append(minimize(value, start, method="SLSQP", options={"maxiter": 60}).fun)
    assert plan.bound_s <= min(others) * (1 + 1e-6)
    assert plan.mean_s <= min(others) * 1.02
    assert plan.gap <= 1e-2


def test_chances_flow_from_sub_graph_to_sub_graph() -> None:
    """Every stage sums to 1, and sinks' groups are the next roots'."""
    from edgewise.model.work import Edge, TaskGraph

    first, second = fan([1e10, 2e10]), fan([2e10, 2e10])
    tasks = first.tasks + tuple(type(t)(t.name + "'", t.work_ops) for t in second.tasks[1:])
    rename = {t.name: t.name + "'" for t in second.tasks} | {"root": "sink"}
    edges = first.edges + tuple(
        Edge(rename[e.source], rename[e.target], e.size_bytes, e.tensor) for e in second.edges
    )
    program = layout_program([QueryClass(TaskGraph("two", tasks, edges), 1.0)], THREE)
    assert len(program.stages) == 2
    plan = optimise_layout(program, gap=0.05)
    before, after = program.stages
    cut = len(before.root)
    assert plan.theta[:cut].sum() == pytest.approx(1.0)
    for g in range(3):
        into, out = plan.theta[:cut][before.sink == g].sum(), plan.theta[cut:][after.root == g].sum()
        assert into == pytest.approx(out, abs=1e-7)
    assert (plan.load < 1).all()


def test_the_formula_tracks_the_simulation_on_unequal_servers() -> None:
    program = layout_program([QueryClass(fan([1e10, 2e10]), 1.0)], THREE)
    plan = optimise_layout(program, gap=1e-2)
    run = simulate_split(LayoutSplit(plan), plan.program, 20_000, seed=3).settled()
    assert run.time_s.mean() == pytest.approx(plan.mean_s, rel=0.05)
    alone = 3.2e10 / 5e10
    assert plan.mean_s < alone  # splitting over the cloud's servers pays


@pytest.mark.parametrize("rate", [1.0, 3.0])
def test_the_formula_tracks_the_least_loaded_of_unequal_servers(rate: float) -> None:
    """Two queues of different speed that share their servers, and less waiting than with chosen by chance."""
    least = replace(THREE, rule=ServerChoice.LEAST_LOADED)
    plan = optimise_layout(layout_program([QueryClass(fan([1e10, 2e10]), rate)], least), gap=0.05)
    run = simulate_split(LayoutSplit(plan), plan.program, 20_000, seed=3).settled()
    assert run.time_s.mean() == pytest.approx(plan.mean_s, rel=0.08)
    by_chance = optimise_layout(layout_program([QueryClass(fan([1e10, 2e10]), rate)], THREE), gap=0.05)
    assert plan.mean_s < by_chance.bound_s


def test_marginal_costs_are_the_slope_of_the_value() -> None:
    program = layout_program(
        [QueryClass(fan([1e10, 2e10]), 2.0)], replace(THREE, rule=ServerChoice.LEAST_LOADED)
    )
    a, step = _Arrays(program), 1e-6
    theta = optimise_layout(program, gap=0.2).theta
    theta = 0.9 * theta + 0.1 * np.random.default_rng(1).dirichlet(np.ones(program.variables))
    slope = a.marginal(theta)
    for k in range(0, program.variables, 40):
        more = theta.copy()
        more[k] += step
        assert (a.value(more)[0] - a.value(theta)[0]) / step == pytest.approx(slope[k], rel=1e-3)


def test_a_renewed_plan_is_nearly_optimal() -> None:
    least = replace(THREE, rule=ServerChoice.LEAST_LOADED)
    plan = optimise_layout(layout_program([QueryClass(fan([1e10, 2e10]), 3.0)], least), gap=0.05)
    renewed = renew_layout(plan, [3.6])
    again = optimise_layout(renewed.program, gap=0.05)
    assert renewed.bound_s <= again.bound_s * (1 + 1e-9) <= renewed.mean_s * (1 + 1e-9)
    assert renewed.mean_s <= again.mean_s * 1.03
    far = renew_layout(optimise_layout(plan.program.with_rates([0.1]), gap=0.05), [6.0])
    assert np.isfinite(far.mean_s) and (far.load < 1).all()
    with pytest.raises(PolicyError, match="give one above 0"):
        renew_layout(plan, [0.0])


def test_messages_take_the_shortest_path_of_a_topology() -> None:
    found = joined(THREE.groups, {("edge", "metro"): 1e9, ("metro", "cloud"): 2e9, ("cloud", "cloud"): 9e9})
    assert found.links == {"edge-metro": 1e9, "metro-cloud": 2e9, "cloud-cloud": 9e9}
    names = list(found.links)
    assert [names[i] for i in found.route(2, 0)] == ["edge-metro", "metro-cloud"]
    assert [names[i] for i in found.route(2, 2)] == ["cloud-cloud"] and found.route(0, 0) == ()
    with pytest.raises(PolicyError, match="no link joins 'edge' and 'cloud'"):
        joined(THREE.groups, {("edge", "metro"): 1e9})


def test_load_moves_to_the_slow_servers_as_the_fast_ones_fill() -> None:
    shares = []
    for rate in (0.5, 5.0):
        plan = optimise_layout(layout_program([QueryClass(fan([1e10, 2e10]), rate)], THREE), gap=0.1)
        shares.append(plan.load[3])
    assert shares[0] == pytest.approx(0.0, abs=0.01) and shares[1] > 0.1


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(PolicyError, match=r"no group or link is called 'x'"):
        Layout((ServerGroup("a", 1, 1.0),), {}, {("a", "x"): ()})
    with pytest.raises(PolicyError, match="needs at least 1 server"):
        Layout((ServerGroup("a", 0, 1.0),), {}, {})
    with pytest.raises(PolicyError, match="cannot do the work"):
        optimise_layout(layout_program([QueryClass(fan([1e10]), 100.0)], THREE))
    with pytest.raises(PolicyError, match="more than the limit of 10"):
        layout_program([QueryClass(fan([1e10, 2e10]), 1.0)], THREE, limit=10)
