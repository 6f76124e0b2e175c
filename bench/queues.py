"""M/M/10 at 80 % load: the simulation that scenarios use against SimPy, Ciw and cimba.

The statistic is the mean wait of a query before its service; in theory 0.2046 s.
"""

from __future__ import annotations

import random
from collections.abc import Generator

import cimba
import cimba.random
import ciw
import numpy as np
import simpy

from bench.measure import Case, Contender, Work
from edgewise import policies
from edgewise.core.world import World
from edgewise.sim.simulate import Simulation
from edgewise.testing import queue_scenario

SERVERS = 10
RATE_QPS = 8.0
SERVICE_S = 1.0


def case() -> Case:
    """The comparison."""
    return Case(
        name="queue",
        title="M/M/10 at 80 % load",
        unit="queries",
        statistic="mean wait, s",
        contenders=(
            Contender("edgewise", edgewise, 4_000_000),
            Contender("cimba", cimba_store, 1_600_000, target_ratio=1.0),
            Contender("SimPy", simpy_store, 200_000, target_ratio=30.0),
            Contender("SimPy, process per query", simpy_resource, 100_000),
            Contender("Ciw", ciw_node, 40_000),
        ),
    )


def edgewise(queries: int) -> Work:
    """One stream on one worker with ten servers, through `Simulation`."""
    scenario, streams = queue_scenario(RATE_QPS, SERVICE_S, queries / RATE_QPS, servers=SERVERS)
    world = World.build(scenario.catalog, scenario.topology)

    def work() -> float:
        outcome = Simulation(
            scenario, policies.load("dispatch", "closest"), 1, streams=streams, world=world
        ).run()
        return float(outcome.streams["delay_mean_s"][0]) - SERVICE_S

    return work


def simpy_store(queries: int) -> Work:
    """Ten server processes at a store: fewer events than a process for each customer."""

    def work() -> float:
        draw, env = random.Random(1).expovariate, simpy.Environment()
        store, waits = simpy.Store(env), []

        def arrivals() -> Generator[simpy.Event, float, None]:
            for _ in range(queries):
                yield env.timeout(draw(RATE_QPS))
                store.put(env.now)

        def server() -> Generator[simpy.Event, float, None]:
            while True:
                came_s = yield store.get()
                waits.append(env.now - came_s)
                yield env.timeout(draw(1.0 / SERVICE_S))

        env.process(arrivals())
        for _ in range(SERVERS):
            env.process(server())
        env.run()
        return float(np.mean(waits))

    return work


def simpy_resource(queries: int) -> Work:
    """As in SimPy's examples: a process for each customer, which requests a resource."""

    def work() -> float:
        draw, env = random.Random(1).expovariate, simpy.Environment()
        counter, waits = simpy.Resource(env, capacity=SERVERS), []

        def customer() -> Generator[simpy.Event, float, None]:
            came_s = env.now
            with counter.request() as request:
                yield request
                waits.append(env.now - came_s)
                yield env.timeout(draw(1.0 / SERVICE_S))

        def arrivals() -> Generator[simpy.Event, float, None]:
            for _ in range(queries):
                yield env.timeout(draw(RATE_QPS))
                env.process(customer())

        env.process(arrivals())
        env.run()
        return float(np.mean(waits))

    return work


def ciw_node(queries: int) -> Work:
    """One node with ten servers, as in Ciw's first tutorial."""

    def work() -> float:
        ciw.seed(1)
        network = ciw.create_network(
            arrival_distributions=[ciw.dists.Exponential(rate=RATE_QPS)],
            service_distributions=[ciw.dists.Exponential(rate=1.0 / SERVICE_S)],
            number_of_servers=[SERVERS],
        )
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_customers(queries)
        return float(np.mean([record.waiting_time for record in simulation.get_all_records()]))

    return work


class Queue(cimba.Model):
    """A store of arrival times and ten servers that add up the waits, without recording."""

    queries: cimba.Param[int]
    queue: cimba.Store[float]
    total_s: cimba.Output[float]

    @cimba.on_start
    def begin(self) -> None:
        """Outputs are NaN at first."""
        self.total_s = 0.0

    @cimba.process
    def arrivals(self) -> None:
        """Poisson arrivals."""
        for _ in range(self.queries):
            cimba.hold(cimba.random.exponential(0.125))
            self.queue.put(cimba.now())

    @cimba.process(copies=10)
    def server(self) -> None:
        """First come, first served."""
        while True:
            came_s = self.queue.get()
            self.total_s = self.total_s + (cimba.now() - came_s)
            cimba.hold(cimba.random.exponential(1.0))


def cimba_store(queries: int) -> Work:
    """The form of cimba's own M/M/1 benchmark: the trial ends when nothing is left to do."""
    model = Queue()
    model.queries = queries
    # A window that begins later than the last event keeps cimba from recording, which costs time.
    experiment = cimba.Experiment(model, window=cimba.Window(warmup=1e12, duration=1.0), seed=1)

    def work() -> float:
        return float(experiment.run()[model].total_s.values[0, 0]) / queries

    return work
