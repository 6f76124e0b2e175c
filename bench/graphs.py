"""Task graphs over a network: the graph engine against ncsim (package anrg-ncsim).

Jobs are diamonds of four tasks on four nodes; every edge has its own link, shared equally by the
transfers on it. Both simulate the same arrivals, and the mean sojourns agree to microseconds.

ncsim 1.0.0 runs two tasks of a node at once when one task's successor is placed on the same node
and others queue there: the successor is ready at the instant at which the next one is taken from
the queue, and both start. `overlaps` counts it. No node has two tasks of a job here, so it does
not happen and the results can be compared.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from ncsim.core.simulation import Simulation
from ncsim.models import dag, network, task
from ncsim.scheduler.base import ManualScheduler

from bench.measure import Case, Contender, Work
from edgewise.arrays import Floats
from edgewise.core.keyed import Purpose, uniform
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.network import Station, StationNetwork

TASKS = 4
EDGES = ((0, 1), (0, 2), (1, 3), (2, 3))
PAIRS = tuple((a, b) for a in range(TASKS) for b in range(TASKS) if a != b)
JOBS_PER_S = 10.0  # half of what a node can do
WORK = 0.5  # of a task; a node does SPEED a second
SPEED = 10.0
MEGABYTES = 0.01  # on an edge; a link carries 1 MB a second


def case() -> Case:
    """The comparison."""
    return Case(
        name="graphs",
        title="Diamonds of four tasks over a network",
        unit="tasks",
        statistic="mean sojourn, s",
        contenders=(
            Contender("edgewise", edgewise, 2_000_000),
            Contender("ncsim, 200 jobs", ncsim_pinned, 800, target_ratio=300.0),
            Contender("ncsim, 2,000 jobs", ncsim_pinned, 8_000, target_ratio=300.0),
        ),
    )


def sent_s(tasks: int) -> Floats:
    """(jobs,) Poisson arrivals of the jobs that `tasks` tasks make up."""
    count = max(tasks // TASKS, 1)
    draws = uniform(1, Purpose.ARRIVAL, 0, np.arange(count))
    return np.cumsum(-np.log(draws) / JOBS_PER_S)


def diamond_network() -> StationNetwork:
    """Four nodes, and a link for every ordered pair of them."""
    nodes = [Station(f"n{k}", rate=SPEED) for k in range(TASKS)]
    links = [Station(f"l{a}{b}", rate=8e6, discipline="ps") for a, b in PAIRS]
    return StationNetwork(nodes, links, {(f"n{a}", f"n{b}"): [f"l{a}{b}"] for a, b in PAIRS})


def diamond() -> TaskGraph:
    """One task, two side by side, one that joins them."""
    tasks = tuple(Task(f"t{k}", WORK) for k in range(TASKS))
    return TaskGraph("diamond", tasks, tuple(Edge(f"t{a}", f"t{b}", MEGABYTES * 1e6) for a, b in EDGES))


def edgewise(tasks: int) -> Work:
    """`GraphEngine`, every task pinned to its node."""
    stations, graph, times = diamond_network(), diamond(), sent_s(tasks)

    def work() -> float:
        engine = GraphEngine(stations, [graph], times, placement=[list(range(TASKS))])
        engine.run()
        return float(engine.sojourn_s.mean())

    return work


def ncsim_pinned(tasks: int) -> Work:
    """ncsim from Python with `pinned_to`, no interference, no trace and no logging."""
    times = sent_s(tasks)
    jobs = dags(times, range(TASKS))

    def work() -> float:
        states = run_ncsim(jobs).engine.task_states
        ends = [states[f"{job.id}:t{TASKS - 1}"].completed_at for job in jobs]
        return float(np.mean(np.array(ends) - times))

    return work


def dags(times: Floats, nodes: Sequence[int]) -> list[dag.DAG]:
    """ncsim's jobs; task k is pinned to node `nodes[k]`."""
    made = []
    for i, at_s in enumerate(times.tolist()):
        tasks = {f"t{k}": task.Task(f"t{k}", WORK, pinned_to=f"n{nodes[k]}") for k in range(TASKS)}
        edges = [dag.Edge(f"t{a}", f"t{b}", MEGABYTES) for a, b in EDGES]
        made.append(dag.DAG(f"job-{i}", tasks, edges, at_s))
    return made


def run_ncsim(jobs: list[dag.DAG]) -> Simulation:
    """Simulate jobs to the end; jobs are injected directly, so that none is missed.

    Raises:
        RuntimeError: ncsim reports an error.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        links = {f"l{a}{b}": network.Link(f"l{a}{b}", f"n{a}", f"n{b}", 1.0) for a, b in PAIRS}
        nodes = {f"n{k}": network.Node(f"n{k}", SPEED) for k in range(TASKS)}
        simulation = Simulation(network.Network(nodes, links), ManualScheduler())
        for job in jobs:
            simulation.inject_dag(job, job.inject_at)
        result = simulation.run()
    finally:
        logging.disable(before)
    if result.status != "completed":
        raise RuntimeError(f"ncsim: {result.status}: {result.error_message}")
    return simulation


def overlaps(simulation: Simulation) -> int:
    """How often a node of ncsim began a task before the one before it had ended."""
    services = defaultdict(list)
    for state in simulation.engine.task_states.values():
        services[state.assigned_node].append((state.started_at, state.completed_at))
    count = 0
    for times in services.values():
        times.sort()
        count += sum(after[0] < before[1] for before, after in pairwise(times))
    return count
