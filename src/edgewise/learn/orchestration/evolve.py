"""Both halves found by the cross-entropy method (Rubinstein 1999) on whole worlds: ours.

Policy gradients need many worlds to see what a decision did to all others. A score of stations that is linear
in their features, and the terms of `MarginalValue`, are 31 numbers, few enough to try: draw vectors from a
normal distribution, keep the best quarter by the goal, fit the distribution to them. Both run inside the
compiled engine, so that a world of 1,000 slots takes about 7 ms.

    goal = throughput rate - price · cost bytes / payload bytes

Every candidate of a generation gets the same worlds; every generation has worlds of its own. The search is
saved after each generation, with its generator, and goes on exactly.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.core.orchestration import ReplicaPolicy, RequestPolicy
from edgewise.errors import RunError
from edgewise.learn.orchestration.settings import TrainingSetting
from edgewise.policies.dispatch.requests.rules import Weighted
from edgewise.policies.dispatch.requests.stations import STATION_FEATURES
from edgewise.policies.orchestrate.marginal import MarginalValue, Terms
from edgewise.report.records import write_whole
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome, simulate

SEEDS_OF_A_RUN = 20_000
WEIGHTS = len(STATION_FEATURES) + 1
KNOWN_WORLDS = 64  # whose arrivals tell what is known beforehand
FIRST = {
    "station is the cloud": 1.5,
    "station belongs to the site": 0.3,
    "waiting requests of the service": -1.0,
    "waiting requests of all services": -1.0,
    "free cores": 1.0,
    "room: deadline less way, wait and service time": 0.5,
    "fits now: a free replica, cores and memory": 4.0,
}


@dataclass(frozen=True, slots=True)
class EvolveConfig:
    """Of the search.

    Attributes:
        half: "both", "dispatch" (replicas by GSP-SS) or "scale" (the first dispatch): what is searched.
        generations, population, best: how long, candidates, how many are kept.
        worlds: of a generation.
        width: first standard deviation; of logarithms for terms.
        price: of as many cost bytes as there are payload bytes, in rate.
        seed: of the search and its worlds, 0 … 19.
    """

    half: str = "both"
    generations: int = 40
    population: int = 24
    best: int = 6
    worlds: int = 16
    width: float = 0.5
    price: float = 0.6
    seed: int = 0


class Generation(NamedTuple):
    """Number, goal of the mean and of the best candidate, seconds so far."""

    number: int
    goal: float
    best: float
    elapsed_s: float


class Demand(NamedTuple):
    """(S,) arrivals per second and mean service time of each service, from training worlds."""

    rate_qps: Floats
    time_s: Floats


def known_beforehand(setting: TrainingSetting, seeds: Sequence[int]) -> Demand:
    """What worlds of these seeds say of the setting's services."""
    drawn, services = setting.draw(seeds), setting.system.services
    real = np.arange(drawn.arrival_s.shape[1]) < drawn.count[:, None]
    number = np.bincount(drawn.service[real], minlength=services)
    total_s = np.bincount(drawn.service[real], weights=drawn.service_s()[real], minlength=services)
    horizon_s = setting.slots * setting.system.slot_s * len(seeds)
    return Demand(number / horizon_s, np.where(number > 0, total_s / np.maximum(number, 1), 1.0))


def first_vector() -> Floats:
    """Dispatch that fills free stations and avoids queues; the terms' defaults, as logarithms."""
    weights = np.array([FIRST.get(name, 0.0) for name in STATION_FEATURES] + [np.log(0.3)])
    return np.concatenate([weights, np.log(Terms().vector())])


def policies_of_vector(vector: Floats, known: Demand, name: str) -> tuple[Weighted, MarginalValue]:
    """Dispatch and orchestration of a vector."""
    terms = Terms(*np.exp(vector[WEIGHTS:]).tolist())
    return Weighted(vector[:WEIGHTS], name), MarginalValue(terms, known.rate_qps, known.time_s, name)


def goal_of(outcome: ServiceOutcome, price: float) -> float:
    """See the module."""
    payload = float(outcome.forwarded_bytes.sum() + outcome.local_bytes.sum())
    rate = float(np.nanmean(outcome.throughput_rate))
    return rate - price * float(outcome.cost_bytes.sum()) / max(payload, 1.0)


class Search:
    """A search and how far it is.

    Args:
        setting: what is searched on.
        config: how.
    Attributes:
        mean: of the vectors: (weights,) of dispatch, then logarithms of orchestration's terms.
        known: what the setting's services are like.
    Raises:
        RunError: the seed is not 0 … 19, or the search would need more seeds than one has.
    """

    def __init__(self, setting: TrainingSetting, config: EvolveConfig) -> None:
        if not 0 <= config.seed < 20 or config.worlds * config.generations > SEEDS_OF_A_RUN:
            raise RunError(
                f"seed {config.seed}, {config.generations} generations of {config.worlds} worlds: need seed "
                f"0 … 19 and at most {SEEDS_OF_A_RUN} worlds"
            )
        self.setting, self.config = setting, config
        self.rng = np.random.default_rng(config.seed)
        self.mean = first_vector()
        self.width = np.full(self.mean.size, config.width)
        fixed = {"dispatch": slice(WEIGHTS, None), "scale": slice(0, WEIGHTS), "both": slice(0, 0)}
        self.width[fixed[config.half]] = 0.0
        first = self.seeds(0).start
        self.known = known_beforehand(setting, range(first, first + KNOWN_WORLDS))
        self.curve: list[Generation] = []

    def search(self, tell: Callable[[Generation], None] = lambda line: None) -> list[Generation]:
        """All generations that are left; `tell` hears of each."""
        started = time.perf_counter() - (self.curve[-1].elapsed_s if self.curve else 0.0)
        while len(self.curve) < self.config.generations:
            goals = self._generation(len(self.curve))
            elapsed_s = time.perf_counter() - started
            self.curve.append(Generation(len(self.curve), float(goals[0]), float(goals.max()), elapsed_s))
            tell(self.curve[-1])
        return self.curve

    def seeds(self, number: int) -> range:
        """Of a generation's worlds."""
        first = self.config.seed * SEEDS_OF_A_RUN + number * self.config.worlds
        return range(first, first + self.config.worlds)

    def _generation(self, number: int) -> Floats:
        config, seeds = self.config, self.seeds(number)
        drawn = self.setting.draw(seeds)
        candidates = self.mean + self.width * self.rng.standard_normal((config.population, self.mean.size))
        candidates[0] = self.mean
        goals = np.empty(config.population)
        for i, vector in enumerate(candidates):
            worlds = ReplicaWorlds(self.setting.system, drawn, self.setting.slots, seeds)
            goals[i] = goal_of(simulate(worlds, *self.policies(vector)), config.price)
        kept = candidates[np.argsort(-goals)[: config.best]]
        floor = np.where(self.width > 0.0, 0.03, 0.0)
        self.mean = 0.3 * self.mean + 0.7 * kept.mean(axis=0)
        self.width = np.maximum(0.5 * self.width + 0.5 * kept.std(axis=0), floor)
        return goals

    def policies(self, vector: Floats, name: str = "evolved") -> tuple[RequestPolicy, ReplicaPolicy]:
        """Dispatch and orchestration of a vector; the half that is not searched is a baseline."""
        dispatch, scale = policies_of_vector(vector, self.known, name)
        if self.config.half == "dispatch":
            return dispatch, policies.load("orchestrate", "gsp-ss")
        return dispatch, scale

    def save(self, path: Path) -> None:
        """Everything that the rest of the search depends on.

        Raises:
            RunError: it cannot be written.
        """
        state = {"config": asdict(self.config), "scenario": self.setting.name, "curve": self.curve}
        state |= {"mean": self.mean.tolist(), "width": self.width.tolist()}
        state |= {"generator": self.rng.bit_generator.state}
        write_whole(path, json.dumps(state) + "\n", "search")

    def load(self, path: Path) -> None:
        """Go on with what `save` wrote.

        Raises:
            RunError: it is of another search.
        """
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        mine = asdict(self.config) | {"generations": 0}
        if state["config"] | {"generations": 0} != mine or state["scenario"] != self.setting.name:
            raise RunError(f"{path}: was made by another configuration; remove it, or use another --name")
        self.curve = [Generation(*line) for line in state["curve"]]
        self.mean, self.width = np.array(state["mean"]), np.array(state["width"])
        self.rng.bit_generator.state = state["generator"]
