"""Counter-based randomness: every draw is a hash of (seed, purpose, entity, counter).

Arrivals and noise are then the same under every policy (paired comparisons), a copy of a
world needs no generator state, and nothing depends on the order of the draws.

The hash is three rounds of the SplitMix64 finaliser over the four words, which passes the
usual statistical batteries and costs a few nanoseconds.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgewise.arrays import Floats
from edgewise.core.compiled import kernel


class Purpose(IntEnum):
    """What a draw is for; draws of different purposes never coincide."""

    ARRIVAL = 1
    APPLICATION = 2
    STREAM = 3
    NETWORK = 4
    SERVICE = 5
    TIE = 6
    POLICY = 7
    ROLLOUT = 8
    PHASE = 9
    QUERY = 10
    DEFERRABLE = 20
    ON_DEMAND = 21
    REQUEST = 22


class Key(NamedTuple):
    """What a policy draws from: its own stream of a run's seed."""

    seed: int
    purpose: int = int(Purpose.POLICY)

    def uniform(self, entity: ArrayLike, counter: ArrayLike = 0) -> Floats:
        """Uniform draws in (0, 1), one for each (entity, counter)."""
        return np.asarray(uniform(self.seed, self.purpose, entity, counter))


GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX1 = np.uint64(0xBF58476D1CE4E5B9)
MIX2 = np.uint64(0x94D049BB133111EB)
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def _finalise(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    word = (word ^ (word >> S30)) * MIX1
    word = (word ^ (word >> S27)) * MIX2
    return word ^ (word >> S31)


def bits(seed: int, purpose: int, entity: ArrayLike, counter: ArrayLike = 0) -> NDArray[np.uint64]:
    """64 random bits for each (entity, counter), broadcast together."""
    start = np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    with np.errstate(over="ignore"):
        word = _finalise(start + GAMMA * np.array([purpose + 1], dtype=np.uint64))
        word = _finalise(word + GAMMA * np.asarray(entity).astype(np.uint64))
        word = _finalise(word + GAMMA * np.asarray(counter).astype(np.uint64))
    return word.reshape(np.broadcast(np.asarray(entity), np.asarray(counter)).shape)


def uniform(seed: int, purpose: int, entity: ArrayLike, counter: ArrayLike = 0) -> Any:
    """Uniform draws in (0, 1); a float when entity and counter are scalars."""
    draws = ((bits(seed, purpose, entity, counter) >> S11).astype(np.float64) + 0.5) * 2.0**-53
    return float(draws) if draws.ndim == 0 else draws


@kernel
def finalise_of(word: np.uint64, part: int) -> np.uint64:
    """One round of the hash: mixes one more word in."""
    word = np.uint64(word + GAMMA * np.uint64(part))
    word = np.uint64((word ^ (word >> S30)) * MIX1)
    word = np.uint64((word ^ (word >> S27)) * MIX2)
    return np.uint64(word ^ (word >> S31))


@kernel
def prefix_of(seed: np.uint64, purpose: int, entity: int) -> np.uint64:
    """The hash before its last round; `finalise_of(prefix_of(…), counter)` are the bits of `bits`."""
    return finalise_of(finalise_of(seed, purpose + 1), entity)


@kernel
def unit_of(word: np.uint64) -> float:
    """A uniform draw in (0, 1) from 64 random bits."""
    return (float(word >> S11) + 0.5) * 2.0**-53


@kernel
def uniform_of(seed: np.uint64, purpose: int, entity: int, counter: int) -> float:
    """The same draw as `uniform`, one at a time, for kernels."""
    return unit_of(finalise_of(prefix_of(seed, purpose, entity), counter))


@kernel
def normal_pair_of(seed: np.uint64, purpose: int, entity: int, counter: int) -> tuple[float, float]:
    """Two independent standard normal draws (Box-Muller) from one hash."""
    word = finalise_of(prefix_of(seed, purpose, entity), counter)
    high = (float(word >> np.uint64(32)) + 0.5) * 2.0**-32
    low = (float(word & np.uint64(0xFFFFFFFF)) + 0.5) * 2.0**-32
    radius = math.sqrt(-2.0 * math.log(high))
    angle = 2.0 * math.pi * low
    return radius * math.cos(angle), radius * math.sin(angle)
