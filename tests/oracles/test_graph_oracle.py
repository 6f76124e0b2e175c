"""The compiled engine against a slow and obvious simulator, and against itself without the compiler."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from naive_graphs import simulate

from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.network import Station, StationNetwork


def random_world(seed, discipline):
    """A network with multi-hop routes, two graph classes, placed queries; nothing ties."""
    g = np.random.default_rng(seed)
    nodes = [
        Station(f"n{i}", rate=g.uniform(1, 3), servers=int(g.integers(1, 4)), discipline=discipline)
        for i in range(3)
    ]
    links = [Station(f"l{i}", rate=g.uniform(5, 9), delay_s=g.uniform(0, 0.2)) for i in range(3)]
    links.append(Station("wire", rate=g.uniform(5, 9), discipline=discipline))
    routes = {("*", "*"): ["l0"], ("n0", "n1"): ["l1", "wire"], ("n2", "n0"): ["l2", "l1", "l0"]}
    graphs = []
    for name in "ab":
        n = int(g.integers(1, 6))
        idle = g.random(n) < 0.3 if discipline == "oldest" else np.zeros(n, bool)  # their query goes on
        tasks = tuple(Task(f"t{t}", g.uniform(0.2, 1.0) * (not idle[t])) for t in range(n))
        edges = tuple(
            Edge(f"t{a}", f"t{b}", g.uniform(0.05, 0.3))
            for a in range(n)
            for b in range(a + 1, n)
            if g.random() < 0.5
        )
        graphs.append(TaskGraph(name, tasks, edges))
    q = 40
    sent = np.cumsum(g.exponential(0.8, q))
    cls, deadline = g.integers(0, 2, q), g.uniform(1, 20, q)
    most = max(len(graph.tasks) for graph in graphs)
    return StationNetwork(nodes, links, routes), graphs, sent, cls, deadline, g.integers(0, 3, (q, most))


def naive(network, graphs, sent, cls, deadline, placement):
    stations = [(s.rate, s.servers, s.discipline, s.delay_s) for s in network.stations]
    arrays = []
    for graph in graphs:
        names = [t.name for t in graph.tasks]
        edges = [(names.index(e.source), names.index(e.target), 8 * e.size_bytes) for e in graph.edges]
        arrays.append(([t.work_ops for t in graph.tasks], edges))

    def route(a, b):
        if a == b:
            return []
        links = network.routes.get((f"n{a}", f"n{b}"), network.routes["*", "*"])
        return [network.index(link) for link in links]

    return simulate(stations, arrays, route, list(zip(sent, cls, deadline, strict=True)), placement)


@pytest.mark.parametrize("discipline", ["fifo", "edf", "oldest"])
def test_completion_times_equal_the_naive_simulator(discipline):
    for seed in range(25):
        world = random_world(seed, discipline)
        network, graphs, sent, cls, deadline, placement = world
        engine = GraphEngine(network, graphs, sent, cls, placement, deadline_s=deadline)
        engine.run()
        done, served = naive(*world)
        np.testing.assert_allclose(engine.queries.done_s, done, rtol=1e-12)
        busy = [sum(b - a for a, b in each) for each in served]
        np.testing.assert_allclose(engine.tallies()["busy_s"], busy, rtol=1e-9, atol=1e-9)


SCRIPT = """
import json, sys
sys.path.insert(0, {folder!r})
from test_graph_oracle import everything
print(json.dumps(everything()))
"""


def everything():
    """A run that uses every kind of station and event; its times and outcomes."""
    nodes = [
        Station("a", rate=2.0, servers=2, law="exponential", room=3, discipline="edf", renege=True),
        Station("b", rate=3.0, discipline="ps", law="lognormal", deviation=1.5, servers=2),
        Station("c", rate=2.5, batch=3, batch_timeout_s=0.4, batch_slope=0.3, law="normal", deviation=0.3),
    ]
    links = [Station("bus", rate=4.0, delay_s=0.1, delay_deviation_s=0.05, room=2)]
    network = StationNetwork(nodes, links, {("*", "*"): ["bus"]})
    edges = (Edge("x", "y", 0.05), Edge("x", "z", 0.1), Edge("y", "z", 0.05))
    graph = TaskGraph("g", (Task("x", 0.8), Task("y", 0.7), Task("z", 0.5)), edges)
    g = np.random.default_rng(5)
    sent = np.cumsum(g.exponential(0.7, 400))
    engine = GraphEngine(
        network, [graph], sent, 0, g.integers(0, 3, (400, 3)), deadline_s=6.0, seed=9, log=True
    )
    engine.change(50.0, "bus", rate=1.0)
    engine.change(80.0, "bus", rate=5.0)
    engine.change(90.0, "b", up=False)
    engine.change(95.0, "b", up=True)
    engine.change(120.0, "a", drain=True)
    engine.change(130.0, "a", appear=True)
    engine.run()
    return [engine.queries.done_s.tolist(), engine.queries.outcome.tolist(), engine.log.finish_s.tolist()]


def test_compiled_equals_interpreted():
    results = []
    folder = os.path.dirname(__file__)
    for jit in "10":
        environment = os.environ | {"EDGEWISE_JIT": jit}
        environment.pop("NUMBA_CACHE_DIR", None)
        command = [sys.executable, "-c", SCRIPT.format(folder=folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    (done_s, outcome, finish_s), (plain_s, plain_outcome, plain_finish_s) = results
    assert outcome == plain_outcome
    assert len(set(outcome)) > 1
    # libm and LLVM may differ in the last bit of log and cos
    np.testing.assert_allclose(done_s, plain_s, rtol=1e-9)
    np.testing.assert_allclose(finish_s, plain_finish_s, rtol=1e-9)
