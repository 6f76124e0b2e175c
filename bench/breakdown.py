"""Where the time of a simulated query goes: switch one thing of the model on after the other.

Nothing is copied from the engine: every row runs the whole `Simulation` on a scenario that differs
from another row's in one thing. The primitives are timed alone, in a loop that adds up results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from edgewise import policies
from edgewise.core.keyed import exponential_of, normal_pair_of, uniform_of
from edgewise.core.world import World
from edgewise.kernels.compiled import kernel
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.telemetry import delay_bin
from edgewise.testing import queue_scenario


class Model(NamedTuple):
    """What a row simulates: one worker at 80 % load."""

    poisson: bool = False
    exponential: bool = False
    noise: bool = False
    servers: int = 1
    streams: int = 1


BARE = "evenly spaced, fixed service, one server, one stream"
# name → (model, name of the row it is compared with)
ROWS: dict[str, tuple[Model, str]] = {
    BARE: (Model(), ""),
    "+ Poisson arrivals (one draw)": (Model(poisson=True), BARE),
    "+ exponential service (one draw)": (Model(exponential=True), BARE),
    "+ network noise (a pair of normal draws)": (Model(noise=True), BARE),
    "+ ten servers (the first free one is sought)": (Model(servers=10), BARE),
    "+ ten streams (their queries are merged)": (Model(streams=10), BARE),
    "+ a hundred streams": (Model(streams=100), BARE),
    "M/M/10, as compared with the peers": (Model(poisson=True, exponential=True, servers=10), BARE),
}


def run(queries: int, rounds: int) -> dict[str, Any]:
    """CPU nanoseconds per query of every row, the least of `rounds`, and of the primitives."""
    for model, _ in ROWS.values():
        _query_ns(model, 1000)
    best = {name: min(_query_ns(model, queries) for _ in range(rounds)) for name, (model, _) in ROWS.items()}
    rows = [
        {"name": name, "ns": best[name], "more_ns": best[name] - best[base] if base else None}
        for name, (_, base) in ROWS.items()
    ]
    primitives = {
        name: min(_loop_ns(loop, queries) for _ in range(rounds)) for name, loop in PRIMITIVES.items()
    }
    return {"rows": rows, "primitives": [{"name": name, "ns": ns} for name, ns in primitives.items()]}


def _query_ns(model: Model, queries: int) -> float:
    service_s = 0.1
    rate_qps = 0.8 * model.servers / service_s
    law = "exponential" if model.exponential else "normal"
    scenario, (stream,) = queue_scenario(
        rate_qps,
        service_s,
        queries / rate_qps,
        servers=model.servers,
        distribution=law,
        poisson=model.poisson,
    )
    if model.noise:
        links = tuple(replace(link, delay_s=0.01, deviation_s=0.002) for link in scenario.topology.ways)
        scenario = replace(scenario, topology=replace(scenario.topology, ways=links))
    streams = [replace(stream, id=i, rate_qps=rate_qps / model.streams) for i in range(model.streams)]
    world = World.build(scenario.catalog, scenario.topology)
    simulation = Simulation(scenario, policies.load("dispatch", "closest"), 1, streams=streams, world=world)
    started = time.process_time()
    outcome = simulation.run()
    spent_s = time.process_time() - started
    return 1e9 * spent_s / sum(outcome.streams["queries"])


def _loop_ns(loop: Callable[[int, np.uint64], float], count: int) -> float:
    loop(1, np.uint64(1))
    started = time.process_time()
    loop(count, np.uint64(1))
    return 1e9 * (time.process_time() - started) / count


@kernel
def empty_loop(count: int, seed: np.uint64) -> float:
    """The loop itself: a sum that depends on the index."""
    total = 0.0
    for i in range(count):
        total += i * 0.5
    return total


@kernel
def hash_loop(count: int, seed: np.uint64) -> float:
    """One uniform draw."""
    total = 0.0
    for i in range(count):
        total += uniform_of(seed, 1, 2, i)
    return total


@kernel
def exponential_loop(count: int, seed: np.uint64) -> float:
    """One exponential draw."""
    total = 0.0
    for i in range(count):
        total += exponential_of(seed, 1, 2, i)
    return total


@kernel
def normal_loop(count: int, seed: np.uint64) -> float:
    """Two normal draws."""
    total = 0.0
    for i in range(count):
        a, b = normal_pair_of(seed, 1, 2, i)
        total += a + b
    return total


@kernel
def bin_loop(count: int, seed: np.uint64) -> float:
    """One bin of the telemetry histogram."""
    total = 0.0
    for i in range(count):
        total += delay_bin(1e-3 + 1e-7 * i)
    return total


PRIMITIVES: dict[str, Callable[[int, np.uint64], float]] = {
    "an empty loop": empty_loop,
    "a keyed uniform draw (three rounds of the hash)": hash_loop,
    "a keyed exponential draw": exponential_loop,
    "a pair of keyed normal draws": normal_loop,
    "the histogram bin of a sojourn": bin_loop,
}
