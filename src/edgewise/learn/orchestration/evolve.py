"""Both halves found by the cross-entropy method (Rubinstein 1999) on whole worlds: ours.

Policy gradients need many worlds to see what a decision did to all others. A score of stations that is linear
in their features, and the terms of `MarginalValue`, are 31 numbers, few enough to try: draw vectors from a
normal distribution, keep the best quarter by the goal, fit the distribution to them. Both run inside the
compiled engine, so that a world of 1,000 slots takes about 7 ms.

    goal = throughput rate - price · cost bytes / payload bytes

Every candidate of a generation gets the same worlds; every generation has worlds of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.core.orchestrate import ReplicaPolicy, RequestPolicy
from edgewise.learn.harness import Figures
from edgewise.learn.orchestration.judged import Fixed, HalvesTrainer
from edgewise.learn.orchestration.settings import TrainingSetting
from edgewise.policies.dispatch.requests.golden import golden_of
from edgewise.policies.dispatch.requests.learned import feature_hash
from edgewise.policies.dispatch.requests.rules import Weighted
from edgewise.policies.dispatch.requests.stations import STATION_FEATURES
from edgewise.policies.orchestrate.marginal import TERMS, MarginalValue, Terms
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome, simulate

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


class Search(HalvesTrainer):
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

    headline = "goal"

    def __init__(self, setting: TrainingSetting, config: EvolveConfig) -> None:
        super().__init__(setting, config, config.generations, config.worlds, ("rng", "mean", "width"))
        self.config = config
        self.rng = np.random.default_rng(config.seed)
        self.mean = first_vector()
        self.width = np.full(self.mean.size, config.width)
        fixed = {"dispatch": slice(WEIGHTS, None), "scale": slice(0, WEIGHTS), "both": slice(0, 0)}
        self.width[fixed[config.half]] = 0.0
        first = self.seeds(0).start
        self.known = known_beforehand(setting, range(first, first + KNOWN_WORLDS))

    def round(self) -> Figures:
        """One generation: goal of the mean and of the best candidate."""
        goals = self._generation(len(self.curve))
        return {"goal": float(goals[0]), "best": float(goals.max())}

    def networks(self, stem: Path) -> dict[str, Any]:
        """Parameters of both halves: weights of a linear score, and terms; neither needs an ONNX file."""
        dispatch, scale = policies_of_vector(self.mean, self.known, stem.name)
        services = self.setting.system.services
        weights = {"weights": self.mean[:WEIGHTS].round(9).tolist()}
        found: dict[str, Any] = {"dispatch": weights | golden_of(dispatch, services)}
        if self.config.half != "dispatch":
            known = {key: value.round(9).tolist() for key, value in self.known._asdict().items()}
            said = dict(zip(TERMS, np.exp(self.mean[WEIGHTS:]).round(9).tolist(), strict=True))
            found["scale"] = {"terms": said, **known, **golden_of(scale, services)}
        return {"features_sha256": feature_hash(), **found}

    def found(self, card: Path) -> Fixed:
        """What the vector in the middle decides."""
        return Fixed(*self.policies(self.mean, card.stem))

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
