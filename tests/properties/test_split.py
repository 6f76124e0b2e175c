"""What must hold for any graphs, rates and links."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise.core.split.core import QueryArrived, SplitCore
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import (
    NAMES,
    QueryClass,
    ServerChoice,
    build_program,
    closed,
    contract,
    local,
    optimise,
    split_policy,
)


@st.composite
def graphs(draw: st.DrawFn) -> TaskGraph:
    """Any DAG of up to 9 tasks: also with several sources, several sinks, or in pieces."""
    count = draw(st.integers(1, 9))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=14)) if pairs else []
    work = draw(st.lists(st.sampled_from([0.0, 1e9, 2e9, 3.5e9]), min_size=count, max_size=count))
    sizes = [draw(st.sampled_from([0.0, 1e4, 1e6])) for _ in chosen]
    tensors = [draw(st.sampled_from(["", "x"])) for _ in chosen]
    edges = [Edge(f"t{a}", f"t{b}", s, x) for (a, b), s, x in zip(chosen, sizes, tensors, strict=True)]
    return TaskGraph("any", tuple(Task(f"t{i}", w) for i, w in enumerate(work)), tuple(edges))


rates = st.floats(0.05, 50.0)
links = st.floats(1e6, 1e11)
fast = settings(max_examples=60, deadline=None)


@fast
@given(st.lists(st.tuples(graphs(), rates), min_size=1, max_size=3), st.integers(1, 5), links)
def test_a_plan_is_feasible_and_certified(items, servers: int, link: float) -> None:
    program = build_program([QueryClass(g, r) for g, r in items], servers, 1e10, link)
    plan = optimise(program)
    for a, b in zip(program.arrays.start, program.arrays.start[1:], strict=False):
        assert plan.theta[a:b].sum() == pytest.approx(1.0)
    assert plan.theta.min(initial=0.0) >= 0.0
    assert plan.forecast.load < 1.0
    assert plan.gap <= 1.001e-4
    local = sum(r * sum(t.work_ops for t in g.tasks) / 1e10 for g, r in items)
    assert plan.forecast.total <= local * (1 + 1e-9)


@fast
@given(graphs(), st.floats(0.01, 0.95), links)
def test_with_queues_a_plan_is_certified_and_no_worse_than_whole(
    graph: TaskGraph, load: float, link: float
) -> None:
    work_s = max(sum(t.work_ops for t in graph.tasks) / 1e10, 0.1)
    program = build_program([QueryClass(graph, 4 * load / work_s)], 4, 1e10, link, queues=True)
    plan = optimise(program)
    assert plan.gap <= 1.001e-4
    whole = local(program).forecast
    assert plan.forecast.total <= whole.total * (1 + 1e-9)
    assert whole.mean_s >= local(program.with_rates([1e-9])).forecast.mean_s * (1 - 1e-9)


@fast
@given(graphs(), rates, links)
def test_value_does_not_rise_with_capacity_or_fall_with_rate(
    graph: TaskGraph, rate: float, link: float
) -> None:
    program = build_program([QueryClass(graph, rate)], 4, 1e10, link)
    plan = optimise(program, 1e-6)
    assert optimise(program.with_link(2 * link), 1e-6).bound <= plan.forecast.total * (1 + 1e-9)
    busier = optimise(program.with_rates([1.5 * rate]), 1e-6).forecast.mean_s
    assert busier >= plan.bound / rate * (1 - 1e-9)


@fast
@given(graphs(), rates, links)
def test_contraction_is_no_worse_and_keeps_work_and_members(
    graph: TaskGraph, rate: float, link: float
) -> None:
    small = contract(graph)
    assert sum(t.work_ops for t in small.graph.tasks) == pytest.approx(sum(t.work_ops for t in graph.tasks))
    assert sorted(m for members in small.members.values() for m in members) == sorted(
        t.name for t in graph.tasks
    )
    before = optimise(build_program([QueryClass(graph, rate)], 4, 1e10, link), 1e-6)
    after = optimise(build_program([QueryClass(small.graph, rate)], 4, 1e10, link), 1e-6)
    assert after.bound <= before.forecast.total * (1 + 1e-9)
    assert contract(small.graph).after == small.after


@fast
@given(
    graphs(),
    graphs(),
    st.integers(1, 6),
    st.sampled_from(NAMES),
    st.sampled_from(ServerChoice),
    st.integers(0, 99),
)
def test_every_task_gets_a_server_and_the_ledger_its_work(
    a, b, servers: int, name: str, rule: ServerChoice, seed: int
) -> None:
    program = build_program([QueryClass(a, 0.01), QueryClass(b, 0.02)], servers, 1e10, 1e9)
    tasks = [closed(job.graph).tasks for job in program.classes]
    work = [np.array([task.work_ops for task in each]) for each in tasks]
    policy = split_policy(name, program, rule)
    placed = []
    for _ in range(2):
        core, given = SplitCore(program, policy, seed), np.zeros(servers)
        for query, job in enumerate((0, 1, 1, 0, 1)):
            ((_, row),) = core.handle(QueryArrived(0.0, query, job))
            core.validate()
            np.add.at(given, row, work[job] / 1e10)
            assert len(row) == len(tasks[job])
            assert not name.startswith("whole") or len(set(row)) == 1
            placed.append(row.tolist())
        assert core.state.ledger.work_s == pytest.approx(given)
    assert placed[:5] == placed[5:]
