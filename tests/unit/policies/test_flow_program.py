"""Candidate paths, the linear program P3, its rounding and its sharing."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from edgewise.core.keyed import Key
from edgewise.core.place import throughput, validate
from edgewise.policies.place.baselines import Otfa, TaskPartition
from edgewise.policies.place.flows import (
    SLACK,
    UNIT,
    FlowProgram,
    flows_of,
    joined,
    jrba_paths,
    paths_of,
    proportional,
    route,
)
from edgewise.policies.place.paths import PathTable
from streaming_example import edge_network, small_case, view_of


def simple_paths(network, source, target):
    """Slow and obvious: every simple path as a list of links."""
    found = []

    def walk(at, seen, links):
        if at == target:
            found.append(links)
            return
        for i, (a, b) in enumerate(network.ends.tolist()):
            if at in (a, b) and (a + b - at) not in seen:
                walk(a + b - at, seen | {a + b - at}, [*links, i])

    walk(source, {source}, [])
    return sorted(found, key=len)


@pytest.mark.parametrize("seed", range(5))
def test_candidates_are_the_k_shortest_simple_paths(seed):
    network = edge_network(seed, 9)
    table = PathTable(network, 5)
    for u, v in itertools.permutations(range(9), 2):
        every = simple_paths(network, u, v)
        got = [path.tolist() for path in table.paths(u, v)]
        assert [len(path) for path in got] == [len(path) for path in every[:5]]
        assert len({tuple(path) for path in got}) == len(got)
        assert all(path in every for path in got)


def test_no_path_between_parts_of_a_network_and_none_to_itself():
    network = edge_network(0, 4)
    cut = type(network)(
        network.names, network.speed_ops, network.memory_bytes, np.array([[0, 1], [2, 3]]), np.ones(2)
    )
    table = PathTable(cut, 3)
    assert table.paths(0, 2) == [] and table.paths(0, 0) == []
    assert [path.tolist() for path in table.paths(1, 0)] == [[0]]


def program_case(seed):
    network = edge_network(seed, 12)
    table = PathTable(network, 4)
    rng = np.random.default_rng(seed)
    pairs = rng.permutation([(u, v) for u in range(12) for v in range(12) if u != v])[:15]
    return network, table, pairs[:, 0], pairs[:, 1], rng.uniform(1e5, 5e6, 15)


def check_optimal(network, table, source, target, volume, solution):
    """Feasible, dual feasible, complementary, and no gap: the conditions of an optimum."""
    links = np.zeros(len(network.bandwidth_bps))
    for p in range(len(source)):
        for k, path in enumerate(table.paths(int(source[p]), int(target[p]))):
            links[path] += solution.amount[p, k]
            reduced = -solution.link_dual[path].sum() - solution.pair_dual[p]
            assert reduced >= -1e-6  # no column would help
            assert abs(reduced * solution.amount[p, k] / UNIT) < 1e-4  # and used ones are tight
    slack = network.bandwidth_bps * solution.per_frame_s * (1 + SLACK) - links
    assert (slack >= -1e-6 * UNIT).all() and (solution.amount.sum(1) >= volume * (1 - 1e-6)).all()
    assert (solution.link_dual <= 1e-9).all() and (solution.pair_dual >= -1e-9).all()
    assert np.abs(slack * solution.link_dual).max() / UNIT < 1e-4
    assert -(network.bandwidth_bps * solution.link_dual).sum() / UNIT == pytest.approx(1.0)
    dual = (solution.pair_dual * volume).sum() / UNIT
    assert dual == pytest.approx(solution.per_frame_s, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_relaxation_is_optimal_from_cold_and_from_the_last_basis(seed):
    network, table, source, target, volume = program_case(seed)
    program = FlowProgram(table)
    for some in (slice(0, 8), slice(3, 15), slice(0, 15), slice(5, 7)):
        case = source[some], target[some], volume[some]
        warm = program.solve(*case, network.bandwidth_bps)
        cold = FlowProgram(table).solve(*case, network.bandwidth_bps)
        check_optimal(network, table, *case, warm)
        assert warm.per_frame_s == pytest.approx(cold.per_frame_s, rel=1e-6)


def fewest_links(network, table, source, target, volume, per_frame_s):
    """The least Σ m |P| at a given TH, by another solver and another formulation."""
    paths = [(p, path) for p in range(len(source)) for path in table.paths(int(source[p]), int(target[p]))]
    crosses = np.zeros((len(network.bandwidth_bps), len(paths)))
    carries = np.zeros((len(source), len(paths)))
    for column, (p, path) in enumerate(paths):
        crosses[path, column] = carries[p, column] = 1.0
    found = linprog(
        [float(len(path)) for _, path in paths],
        A_ub=np.vstack([crosses, -carries]),
        b_ub=np.concatenate([network.bandwidth_bps * per_frame_s * (1 + SLACK), -volume]) / UNIT,
    )
    return found.fun * UNIT


@pytest.mark.parametrize("seed", range(4))
def test_of_all_optimal_solutions_one_that_crosses_the_fewest_links_is_taken(seed):
    network, table, source, target, volume = program_case(seed)
    program = FlowProgram(table)
    for some in (slice(0, 9), slice(4, 15), slice(0, 15)):
        case = source[some], target[some], volume[some]
        solution = program.solve(*case, network.bandwidth_bps)
        crossed = sum(
            solution.amount[p, k] * len(path)
            for p, (u, v) in enumerate(zip(*case[:2], strict=True))
            for k, path in enumerate(table.paths(int(u), int(v)))
        )
        assert crossed == pytest.approx(fewest_links(network, table, *case, solution.per_frame_s), rel=1e-5)


def test_links_without_bandwidth_carry_nothing():
    network, table, source, target, volume = program_case(1)
    left = network.bandwidth_bps.copy()
    program = FlowProgram(table)
    program.solve(source, target, volume, left)
    path = table.paths(int(source[0]), int(target[0]))[0]
    left[path[0]] = 0.0
    solution = program.solve(source[:1], target[:1], volume[:1], left)
    for k, other in enumerate(table.paths(int(source[0]), int(target[0]))):
        if path[0] in other:
            assert solution.amount[0, k] == 0.0
    assert solution.amount[0].sum() == pytest.approx(volume[0])
    left[:] = 0.0
    assert program.solve(source[:1], target[:1], volume[:1], left) is None


def test_rounding_takes_the_path_with_most_of_each_flow():
    amount = np.array([[7.0, 3.0, 0.0]])
    pair = np.zeros(3, dtype=np.int64)
    volume = np.array([2.0, 6.0, 2.0])
    # By volume: 6 on the first path; of the next 2, one there and one on the second (the first wins).
    assert route(amount, pair, volume, np.array([1, 0, 2])).tolist() == [0, 0, 1]
    assert route(np.array([[1.0, 4.0, 5.0]]), pair[:1], np.array([10.0]), np.array([0])).tolist() == [2]


def test_flows_of_a_pair_are_joined_and_counted_once():
    u, v, total, pair = joined(np.array([1, 0, 1]), np.array([2, 3, 2]), np.array([1.0, 5.0, 2.0]), 4)
    assert (u.tolist(), v.tolist(), total.tolist(), pair.tolist()) == ([0, 1], [3, 2], [5.0, 3.0], [1, 0, 1])


def test_sharing_by_volume_is_equation_15_and_never_overfills():
    start, links = np.array([0, 2, 3, 3]), np.array([0, 1, 1])
    rate = proportional(start, links, np.array([3.0, 1.0, 9.0]), np.array([6.0, 4.0]))
    assert rate.tolist() == [3.0, 1.0, np.inf]  # min(6 * 3/3, 4 * 3/4) and 4 * 1/4


@pytest.mark.parametrize("seed", range(3))
def test_rounded_relaxation_is_within_capacity_and_no_better_than_the_bound(seed):
    network, jobs = small_case(seed)
    policy = Otfa()
    policy.reset(network, Key(0))
    placed = policy.decide(view_of(network, jobs))
    validate(network, placed)
    flows = flows_of([(p.pipeline, p.node) for p in placed], policy.table)
    u, v, total, _ = joined(
        flows.source[flows.moving], flows.target[flows.moving], flows.volume[flows.moving], len(network.names)
    )
    bound = FlowProgram(policy.table).solve(u, v, total, network.bandwidth_bps)
    rate = np.concatenate([p.bandwidth_bps for p in placed])[flows.moving]
    assert (flows.volume[flows.moving] / rate).max() >= bound.per_frame_s * (1 - 1e-6)
    chosen = jrba_paths(flows, FlowProgram(policy.table), network.bandwidth_bps)
    start, _ = paths_of(flows, policy.table, chosen)
    assert start[-1] == sum(len(p.links) for p in placed)


def test_equal_sharing_gives_each_flow_of_a_link_the_same_part():
    network, jobs = small_case(3)
    policy = TaskPartition()
    policy.reset(network, Key(0))
    placed = policy.decide(view_of(network, jobs))
    validate(network, placed)
    users = np.bincount(np.concatenate([p.links for p in placed]), minlength=len(network.bandwidth_bps))
    for p in placed:
        for e in np.flatnonzero(np.diff(p.start)):
            share = (network.bandwidth_bps / np.maximum(users, 1))[p.path(int(e))]
            assert p.bandwidth_bps[e] == pytest.approx(share.min())
    assert (throughput(network, placed) > 0).all()
