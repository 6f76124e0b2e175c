import dataclasses

import pytest
from hypothesis import given, strategies as st

from edgewise.config import load_scenario
from edgewise.model.topology import KINDS, Profile, Resources
from edgewise.model.work import DeferrableJob, Edge, Task, TaskGraph


def graph(*edges: tuple[str, str], tasks: str = "abcd") -> TaskGraph:
    return TaskGraph("g", tuple(Task(name, 1.0) for name in tasks), tuple(Edge(a, b, 1.0) for a, b in edges))


def test_task_graph_order() -> None:
    assert graph(("a", "c"), ("b", "c"), ("c", "d")).order() == ("a", "b", "c", "d")
    assert graph(("d", "a")).order() == ("b", "c", "d", "a")


def test_task_graph_with_a_cycle() -> None:
    with pytest.raises(ValueError, match="'g' has a cycle through b, c"):
        graph(("a", "b"), ("b", "c"), ("c", "b"))
    with pytest.raises(ValueError, match="cycle through a"):
        graph(("a", "a"))


def test_task_graph_with_an_unknown_task() -> None:
    with pytest.raises(ValueError, match="edge names unknown task 'z'"):
        graph(("a", "z"))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_task_graph_order_respects_every_edge(pairs: list[tuple[int, int]]) -> None:
    edges = [("abcdef"[i], "abcdef"[j]) for i, j in pairs if i < j]
    order = graph(*edges, tasks="fedcba").order()
    assert sorted(order) == list("abcdef")
    assert all(order.index(a) < order.index(b) for a, b in edges)


def test_deferrable_job_window() -> None:
    DeferrableJob(1, Resources(), 10.0, 0.0, 5.0, 5.0)
    with pytest.raises(ValueError, match="job 1: needs submitted_s <= earliest_s <= latest_s"):
        DeferrableJob(1, Resources(), 10.0, 0.0, 6.0, 5.0)


def test_profile_delay() -> None:
    profile = Profile(fixed_s=0.01, per_byte_s=1e-6, batch_slope=0.5)
    assert profile.delay_s(10_000) == pytest.approx(0.02)
    assert profile.delay_s(10_000, batch=3) == pytest.approx(0.04)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("amount", [-1.0, float("nan")])
def test_resources_are_not_negative(kind: str, amount: float) -> None:
    with pytest.raises(ValueError, match=f"{kind} must be >= 0"):
        Resources(**{kind: amount})


def test_catalog_lookup_and_frozen_scenario() -> None:
    scenario = load_scenario("tiny")
    assert scenario.catalog.model("small").accuracy == 30
    with pytest.raises(KeyError):
        scenario.catalog.variant("none")
    with pytest.raises(dataclasses.FrozenInstanceError):
        scenario.duration_s = 3.0  # type: ignore[misc]
    assert [node.name for node in scenario.topology.nodes] == ["near-node", "far-node"]
