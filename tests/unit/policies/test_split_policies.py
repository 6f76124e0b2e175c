from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from edgewise.arrays import Ints
from edgewise.core.split import Ledger
from edgewise.errors import PolicyError
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import (
    QueryClass,
    ServerChoice,
    build_program,
    contract,
    count_placements,
    limit_branches,
    optimise,
    split_policy,
    subgraphs,
)
from edgewise.policies.split.contract import reduction
from edgewise.policies.split.subgraphs import placements
from split_graphs import ledger_of, place_all


def fan(works: list[float], size_bytes: float = 1e6) -> TaskGraph:
    """root → branches → sink."""
    tasks = [Task("root", 1e9), *(Task(f"b{i}", w) for i, w in enumerate(works)), Task("sink", 1e9)]
    inner = [t.name for t in tasks[1:-1]]
    edges = [Edge("root", n, size_bytes) for n in inner] + [Edge(n, "sink", size_bytes) for n in inner]
    return TaskGraph("fan", tuple(tasks), tuple(edges))


@pytest.mark.parametrize(("branches", "expected"), [(0, 2), (1, 5), (2, 15), (3, 52), (4, 203)])
def test_counts_of_placements(branches: int, expected: int) -> None:
    """(m + 1)² + 1 for each partition into m parts; the sums happen to be Bell numbers B(n + 2)."""
    assert count_placements(branches) == expected
    different = [float(1 + i) for i in range(branches)]
    graph = fan(different) if branches else TaskGraph("e", (Task("a", 1), Task("b", 1)), (Edge("a", "b", 8),))
    found = [len(placements(sub, servers=10).part) for sub in subgraphs(graph)]
    # A single branch is cut off by articulation points: it is a task of its own on every path.
    assert found == ([2, 2] if branches == 1 else [expected])


def test_more_parts_than_servers_are_left_out() -> None:
    (sub,) = subgraphs(fan([1.0, 2.0, 3.0]))
    for servers in (1, 2, 3):
        parts = placements(sub, servers).part
        with_root = np.column_stack([np.zeros(len(parts), int), parts])
        assert max(len(set(row)) for row in with_root) == servers


def test_branches_of_one_kind_are_exchanged_once() -> None:
    (sub,) = subgraphs(fan([1.0] * 5))
    parts = placements(sub, 10).part
    everything = {
        (sink != 0, canonical(row, sink))
        for row in itertools.product(range(7), repeat=5)
        for sink in range(7)
    }
    assert len(parts) == len(everything)


def canonical(row: tuple[int, ...], sink: int) -> tuple[object, ...]:
    counts = {p: row.count(p) for p in set(row)}
    others = sorted(n for p, n in counts.items() if p not in (0, sink))
    return counts.get(0, 0), counts.get(sink, 0), tuple(others)


def test_what_would_explode_is_refused_with_a_way_out() -> None:
    works = [float(1 + i) * 1e9 for i in range(12)]
    contraction = contract(fan(works))
    with pytest.raises(PolicyError, match=r"'fan' between 'root' and 'sink' has 12 branches.*limit_branches"):
        build_program([QueryClass(contraction.graph, 1.0)], 20, 1e10, 1e9)
    smaller = limit_branches(contraction, most=4)
    assert smaller.after == 6
    plan = optimise(build_program([QueryClass(smaller.graph, 1.0)], 20, 1e10, 1e9))
    assert plan.forecast.mean_s < sum(works) / 1e10


def test_transitive_reduction_and_chain_with_a_skip() -> None:
    pairs = ["ab", "bc", "ac", "cd"]
    graph = TaskGraph("skip", tuple(Task(n, 1.0) for n in "abcd"), tuple(Edge(*p, 1.0) for p in pairs))
    assert reduction(graph) == {"a": ("b",), "b": ("c",), "c": ("d",), "d": ()}
    assert contract(graph).members == {"a": ("a", "b", "c", "d")}


def test_the_same_tensor_is_sent_to_a_task_once() -> None:
    tasks = tuple(Task(n, 1.0) for n in ("r", "q", "k", "join", "other", "s"))
    edges = (
        Edge("r", "q", 100.0, "x"), Edge("r", "k", 100.0, "x"), Edge("r", "other", 100.0, "x"),
        Edge("q", "join", 1.0), Edge("k", "join", 1.0), Edge("join", "s", 1.0), Edge("other", "s", 1.0),
    )  # fmt: skip
    small = contract(TaskGraph("heads", tasks, edges)).graph
    assert [(e.source, e.target, e.size_bytes) for e in small.edges if e.source == "r"] == [
        ("r", "q", 100.0),
        ("r", "other", 100.0),
    ]


def test_two_equal_branches_by_hand() -> None:
    """One branch with the root, one with the sink: each waits for one message, κ = p/ν + φ + S."""
    graph = fan([1e10, 1e10], 1.25e6)  # S = 0.01 s at 1 Gb/s
    rate, s = 2.0, 0.01
    plan = optimise(build_program([QueryClass(graph, rate)], 4, 1e10, 1e9))
    wait = 2 * rate * s**2 / (2 * (1 - 2 * rate * s))
    assert plan.forecast.load == pytest.approx(2 * rate * s)
    assert plan.forecast.wait_s == pytest.approx(wait)
    assert plan.forecast.mean_s == pytest.approx(0.2 + 1.0 + wait + s)


def test_probabilities_are_drawn_as_planned() -> None:
    """Near saturation one sub-graph mixes two placements; the draws follow."""
    program = build_program([QueryClass(fan([1e10, 1e10], 5e6), 20.0)], 4, 1e10, 1e9)
    plan = optimise(program)
    policy = split_policy("nona", program, ServerChoice.UNIFORM, plan, seed=3)
    placed = place_all(policy, program, np.zeros(20_000, int), ledger_of([1e10] * 4))
    apart = np.mean(placed[:, 1] != placed[:, 2])
    parts = program.groups[0].lines.part
    expected = plan.theta[parts[:, 0] != parts[:, 1]].sum()
    assert 0.1 < expected < 0.9
    assert abs(apart - expected) < 5 * math.sqrt(expected * (1 - expected) / 20_000)
    share = np.bincount(placed[:, 0], minlength=4) / 20_000
    assert np.abs(share - 0.25).max() < 5 * math.sqrt(0.25 * 0.75 / 20_000)


def test_rules_on_a_ledger_by_hand() -> None:
    program = build_program([QueryClass(TaskGraph("one", (Task("a", 1e10),), ()), 1.0)], 3, 1e10, 1e9)
    ledger = ledger_of([1e10, 1e10, 2e10])
    jobs = np.zeros(3, int)

    def first(name: str, jobs: Ints, ledger: Ledger) -> list[int]:
        return place_all(split_policy(name, program, seed=1), program, jobs, ledger)[:, 0].tolist()

    assert sorted(first("whole-least-loaded", jobs, ledger)) == [0, 1, 2]
    assert ledger.work_s.tolist() == [1.0, 1.0, 0.5]
    assert first("whole-least-loaded", jobs[:1], ledger) == [2]
    ledger.tasks[1] -= 1
    ledger.work_s[1] -= 1.0
    assert first("whole-shortest-queue", jobs[:1], ledger) == [1]
    assert first("whole-round-robin", jobs, ledger) == [0, 1, 2]
    assert first("earliest-finish", jobs[:1], ledger_of([1e10, 4e10])) == [1]


def test_blind_and_equal_plans() -> None:
    program = build_program([QueryClass(fan([1e10, 2e10, 1e10]), 1000.0)], 8, 1e10, 1e9)
    blind = split_policy("blind", program).plan
    equal = split_policy("equal", program).plan
    assert blind is not None and blind.forecast.load > 1 and math.isinf(blind.forecast.mean_s)
    assert equal is not None
    (row,) = program.groups[0].lines.part[equal.theta > 0]
    assert row[-1] == 0 and len({*row[:-1].tolist()}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"servers": 0}, "servers must be at least 1, got 0"),
        ({"power_ops": 0.0}, "power_ops must be a number above 0, got 0"),
        ({"link_bps": -1.0}, "link_bps must be a number above 0, got -1"),
    ],
)
def test_errors_name_field_and_value(change: dict[str, float], message: str) -> None:
    good = {"servers": 2, "power_ops": 1e10, "link_bps": 1e9}
    with pytest.raises(PolicyError, match=message):
        build_program([QueryClass(fan([1.0]), 1.0)], **{**good, **change})


def test_unknown_policy() -> None:
    program = build_program([QueryClass(fan([1.0]), 1.0)], 2, 1e10, 1e9)
    with pytest.raises(PolicyError, match=r"no split policy .nana.*nona-queues"):
        split_policy("nana", program)
