"""A linear scorer of stations, found by the cross-entropy method (Rubinstein 1999): ours.

Policy gradients need many worlds to see what a decision did to all others. A score that is linear in the
features of a station has 18 weights and the width of a draw, few enough to try on whole worlds: draw
vectors from a normal distribution, keep the best quarter by the goal, fit the distribution to them.

    goal = throughput rate - price · forwarded bytes / all payload bytes

Every candidate of a generation gets the same worlds; every generation has worlds of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.core.orchestration import ReplicaPolicy
from edgewise.errors import RunError
from edgewise.learn.orchestration.settings import Setting
from edgewise.policies.kais.features import STATION_FEATURES, Floats32
from edgewise.policies.kais.learned import LearnedDispatch
from edgewise.policies.kais.room import CLOUD, FITS, OWN, ROOM
from edgewise.sim.replicas import Outcome, ReplicaWorlds, simulate

Floats = NDArray[np.float64]
SEEDS_OF_A_RUN = 20_000


@dataclass(frozen=True, slots=True)
class EvolveConfig:
    """Of the search.

    Attributes:
        generations, population, best: how long, candidates, how many are kept.
        worlds: of a generation.
        width: first standard deviation of weights.
        price: of forwarding all payload, in rate.
        seed: of the search and its worlds, 0 … 19.
    """

    generations: int = 12
    population: int = 10
    best: int = 3
    worlds: int = 8
    width: float = 0.7
    price: float = 0.02
    seed: int = 0


class Generation(NamedTuple):
    """Number, goal of the mean of the best, its weights (F + 1,), seconds so far."""

    number: int
    goal: float
    weights: Floats
    elapsed_s: float


def linear(weights: Floats, name: str = "evolved") -> LearnedDispatch:
    """The dispatcher of (F + 1,) weights; the last one is the log of the width of the draw."""

    def infer(rows: Floats32) -> tuple[Floats, ...]:
        return (rows @ weights[:-1],)

    return LearnedDispatch(name, infer, True, "hosts", len(STATION_FEATURES), float(np.exp(weights[-1])))


def first_weights() -> Floats:
    """Those of `RoomFirst`, with the cloud between nodes that are free and nodes that are not."""
    weights = np.zeros(len(STATION_FEATURES) + 1)
    weights[[ROOM, FITS, OWN, CLOUD]] = 1.0, 4.0, 0.3, 4.5
    weights[-1] = np.log(0.3)
    return weights


def goal_of(outcome: Outcome, price: float) -> float:
    """See the module."""
    payload = outcome.forwarded_bytes.sum() + outcome.local_bytes.sum()
    share = float(outcome.forwarded_bytes.sum() / max(float(payload), 1.0))
    return float(outcome.throughput_rate.mean()) - price * share


def evolve(
    setting: Setting,
    scale: ReplicaPolicy,
    config: EvolveConfig,
    tell: Callable[[Generation], None] = lambda line: None,
) -> list[Generation]:
    """All generations; the last one's weights are the result.

    Args:
        scale: orchestrates meanwhile.
    Raises:
        RunError: the seed is not 0 … 19, or the search would need more seeds than one has.
    """
    if not 0 <= config.seed < 20 or config.worlds * config.generations > SEEDS_OF_A_RUN:
        raise RunError(
            f"seed {config.seed}, {config.generations} generations of {config.worlds} worlds: need seed "
            f"0 … 19 and at most {SEEDS_OF_A_RUN} worlds"
        )
    rng, started = np.random.default_rng(config.seed), time.perf_counter()
    mean, width = first_weights(), np.full(len(STATION_FEATURES) + 1, config.width)
    found: list[Generation] = []
    for number in range(config.generations):
        first = config.seed * SEEDS_OF_A_RUN + number * config.worlds
        seeds = range(first, first + config.worlds)
        drawn = setting.draw(seeds)
        candidates = mean + width * rng.standard_normal((config.population, mean.size))
        candidates[0] = mean
        goals = np.empty(config.population)
        for i, weights in enumerate(candidates):
            worlds = ReplicaWorlds(setting.system, drawn, setting.slots, seeds)
            goals[i] = goal_of(simulate(worlds, linear(weights), scale), config.price)
        kept = candidates[np.argsort(-goals)[: config.best]]
        mean = 0.5 * mean + 0.5 * kept.mean(axis=0)
        width = np.maximum(0.7 * width + 0.3 * kept.std(axis=0), 0.05)
        found.append(Generation(number, float(goals[0]), mean.copy(), time.perf_counter() - started))
        tell(found[-1])
    return found
