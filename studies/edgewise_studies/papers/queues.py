"""Textbook queues: the simulator's waits against formulas that need no simulator.

Every queue is a scenario of one stream and one worker and goes through the same `Simulation`
as all others, so what holds here holds for the engine that all reproductions use.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Candidates, DispatchView, Item
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.sim.simulate import Simulation
from edgewise.testing import queue_scenario
from edgewise_studies.claims import measured, within
from edgewise_studies.run import Run, chart, reproduction, whiskers

SERVICE_S = 1.0  # mean; every wait below is then in units of it
LOADS = (0.3, 0.5, 0.7, 0.8, 0.9)
CLAIMED = (0.5, 0.8, 0.9)
CLAIMED_QUICK = (0.5, 0.8)  # at 0.9 waits vary too much for a short run
QUERIES, QUERIES_QUICK = 4_000_000, 1_000_000  # of each seed
CLOSE = within(0.98, 1.02)  # of a ratio of measured to formula
LITTLE_LOAD, LITTLE_QUERIES, LITTLE_PERIOD_S = 0.7, 200_000, 50.0


def mm1_wait(load: float) -> float:
    """Mean wait of M/M/1 in units of the mean service: ρ / (1 - ρ)."""
    return load / (1.0 - load)


def md1_wait(load: float) -> float:
    """Mean wait of M/D/1, half that of M/M/1 (Pollaczek 1930, Khinchine 1932)."""
    return load / (2.0 * (1.0 - load))


def mmc_wait(load: float, servers: int) -> float:
    """Mean wait of M/M/c: C(c, a) / (c (1 - ρ)) with a = c ρ erlangs (Erlang 1917)."""
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1.0 - load)
    waiting = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    return waiting / (servers * (1.0 - load))


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue in Kendall's notation, its formula, and how the scenario is made."""

    name: str
    wait: Callable[[float], float]
    servers: int
    distribution: str

    def claim(self, load: float) -> str:
        """Id of the claim at a load."""
        return f"{self.name.lower().replace('/', '')}-{round(100 * load)}"


QUEUES = (
    Queue("M/M/1", mm1_wait, 1, "exponential"),
    Queue("M/D/1", md1_wait, 1, "normal"),  # without deviation
    Queue("M/M/4", lambda load: mmc_wait(load, 4), 4, "exponential"),
)


def simulated_waits_s(queue: Queue, load: float, queries: int, seeds: Sequence[int]) -> Floats:
    """(seeds,) mean wait of each seed: mean sojourn less the mean service."""
    rate_qps = load * queue.servers / SERVICE_S
    scenario, streams = queue_scenario(
        rate_qps, SERVICE_S, queries / rate_qps, servers=queue.servers, distribution=queue.distribution
    )
    sojourns = []
    for seed in seeds:
        record = Simulation(scenario, policies.load("dispatch", "closest"), seed, streams).run().streams
        sojourns.append(float(record["delay_mean_s"][0]))
    return np.array(sojourns) - SERVICE_S


class _Sampling(ScorePolicy):
    """Notes the measured queue at each tick."""

    name = "sampling"

    def __init__(self) -> None:
        self.seen: list[float] = []

    def tick(self, view: DispatchView) -> None:
        self.seen.append(float(view.queue[0]))

    def score(self, candidates: Candidates, item: Item) -> Any:
        return candidates.network_s


def little_ratio(seed: int, queries: int) -> float:
    """L / (λ W) of an M/M/1 queue: 1 by Little's law (Little 1961).

    L is what telemetry samples, λ and W come from the stream's record.
    """
    rate_qps = LITTLE_LOAD / SERVICE_S
    seconds = queries / rate_qps
    scenario, streams = queue_scenario(rate_qps, SERVICE_S, seconds)
    telemetry = TelemetrySpec(period_s=LITTLE_PERIOD_S)
    scenario = replace(scenario, telemetry=telemetry, window_s=LITTLE_PERIOD_S)
    policy = _Sampling()
    record = Simulation(scenario, policy, seed, streams).run().streams
    throughput_qps = float(record["queries"][0]) / seconds
    return float(np.mean(policy.seen)) / (throughput_qps * float(record["delay_mean_s"][0]))


def figure(waits: dict[tuple[str, float], Floats]) -> Figure:
    """Measured waits with their intervals on the curves of the formulas, over load."""
    curve = np.linspace(0.2, max(load for _, load in waits) + 0.02, 200)
    with chart(
        7.0,
        4.2,
        "Mean wait: simulated (points) and by formula (lines)",
        "load of each server",
        "mean wait (mean services)",
        len(QUEUES),
    ) as (
        drawn,
        axes,
    ):
        for queue, colour, marker in zip(QUEUES, ("#0072B2", "#D55E00", "#009E73"), "os^", strict=True):
            axes.plot(curve, [queue.wait(x) for x in curve], color=colour, linewidth=1.5)
            loads = sorted(load for name, load in waits if name == queue.name)
            found = [waits[queue.name, load] for load in loads]
            whiskers(axes, loads, found, fmt=marker, color=colour, label=queue.name)
        axes.set_yscale("log")
    return drawn


_CLAIMS = {
    queue.claim(load): f"{queue.name} at load {load}: mean wait as the formula says, ± 2 %"
    for queue in QUEUES
    for load in CLAIMED
}


@reproduction(
    "queues",
    paper="textbook queueing formulas (Erlang 1917; Pollaczek 1930; Khinchine 1932; Little 1961)",
    claims=_CLAIMS | {"little": "queries in the system are arrivals/s times mean sojourn, ± 2 %"},
    seeds=(20, 10),
)
def queues(run: Run) -> None:
    """Waits of three queues over load, and Little's law."""
    queries = QUERIES_QUICK if run.quick else QUERIES
    loads = CLAIMED_QUICK if run.quick else LOADS
    waits: dict[tuple[str, float], Floats] = {}
    for queue in QUEUES:
        for load in loads:
            run.step(f"{queue.name} at load {load}")
            waits[queue.name, load] = found = simulated_waits_s(queue, load, queries, run.seeds)
            if load in CLAIMED:
                expected = queue.wait(load)
                detail = f"ratio of measured to formula; wait {found.mean():.5g} s, formula {expected:.5g} s"
                run.claim(queue.claim(load), measured(found / expected, detail), CLOSE)
    run.step("Little's law")
    ratios = [little_ratio(seed, LITTLE_QUERIES) for seed in run.seeds]
    run.claim("little", measured(ratios, "ratio of L to λ W"), CLOSE)
    run.figure("waits", figure(waits))
