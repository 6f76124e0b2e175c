"""Whole queries on servers that take the oldest query first: FIFO queues of whole queries."""

import math

import numpy as np
import pytest

from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import QueryClass, build_program, contract, optimise, split_policy
from edgewise.profiling.dags import light_file, task_graph
from edgewise.sim.parts.graphs import simulate_split
from edgewise.workloads.queries import poisson_queries

POWER_OPS = 1e9


def layered(name, work_s, width):
    """Layers of `width` tasks between joints without work, work_s in all: many chances to interleave."""
    layers = 3
    inner = [(f"{k}.{i}", k) for k in range(layers) for i in range(width)]
    tasks = [Task(f"joint{k}", 0.0) for k in range(layers + 1)]
    tasks += [Task(task, work_s / len(inner) * POWER_OPS) for task, _ in inner]
    edges = [Edge(f"joint{k}", task, 1e3) for task, k in inner]
    edges += [Edge(task, f"joint{k + 1}", 1e3) for task, k in inner]
    return TaskGraph(name, tuple(tasks), tuple(edges))


CLASSES = (layered("short", 0.5, 1), layered("middle", 1.0, 3), layered("long", 3.0, 2))
WORK_S = np.array([0.5, 1.0, 3.0])
MIX = np.array([0.5, 0.3, 0.2])


def program(load, servers):
    rates = load * servers / (MIX @ WORK_S) * MIX
    return build_program(
        [QueryClass(graph, rate) for graph, rate in zip(CLASSES, rates, strict=True)], servers, POWER_OPS, 1e9
    )


def test_every_whole_query_takes_as_long_as_in_a_queue_of_whole_queries():
    """Lindley's recursion, query by query."""
    one = program(0.9, 1)
    run = simulate_split(split_policy("whole-random", one), one, 20_000, 1)
    sent_s, job = poisson_queries(one.rates_qps, 20_000, 1)
    free_s, expected = 0.0, []
    for at_s, work_s in zip(sent_s, WORK_S[job], strict=True):
        free_s = max(free_s, at_s) + work_s
        expected.append(free_s - at_s)
    np.testing.assert_allclose(run.time_s, expected, rtol=1e-7)


@pytest.mark.parametrize("servers", [1, 4])
def test_whole_queries_are_m_g_1(servers):
    """Servers drawn at random are M/G/1 queues each: S + λ E[S²] / (2 (1 - ρ)) (Pollaczek-Khinchine)."""
    load = 0.7
    several = program(load, servers)
    policy = split_policy("whole-random", several)
    means = [simulate_split(policy, several, 60_000, seed).settled().time_s.mean() for seed in range(10)]
    error = np.std(means, ddof=1) / math.sqrt(len(means))
    wait_s = load / (MIX @ WORK_S) * (MIX @ WORK_S**2) / (2 * (1 - load))
    expected = MIX @ WORK_S + wait_s
    assert error < 0.01 * expected
    assert abs(np.mean(means) - expected) < 3 * error


@pytest.fixture(scope="module")
def network():
    """A real network on ten servers at a tenth of their load."""
    graph = contract(task_graph(light_file("inception-v1"), "inception")).graph
    work = sum(task.work_ops for task in graph.tasks)
    return build_program([QueryClass(graph, 0.1 * 10 * 1e11 / work)], 10, 1e11, 1e10)


def alone(program):
    """Mean with everything on one server."""
    theta = np.zeros(program.variables)
    theta[program.arrays.start[:-1]] = 1.0
    return program.forecast(theta).mean_s


def test_a_faster_link_never_makes_the_optimum_slower(network):
    """What is possible on a link is possible on a faster one, and no slower: the optimum cannot rise."""
    means = [optimise(network.with_link(float(bps))).forecast.mean_s for bps in np.logspace(8, 12, 13)]
    assert np.diff(means).max() <= 2e-4 * alone(network)  # two certified gaps
    assert means[-1] < 0.95 * means[0]  # so the link matters


def test_faster_servers_make_splitting_pay_less(network):
    """Work shrinks and tensors do not, so the share of the time alone that splitting saves falls."""
    programs = [
        build_program(network.classes, network.servers, network.power_ops * factor, network.link_bps)
        for factor in (0.25, 1.0, 4.0, 16.0, 64.0)
    ]
    gains = [optimise(each).forecast.mean_s / alone(each) for each in programs]
    assert np.diff(gains).min() >= -2e-4 and gains[0] < 0.95 < gains[-1]
