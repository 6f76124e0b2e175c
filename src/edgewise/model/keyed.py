"""The hash that every draw is made of, and what draws are for; plain arrays, no kernels.

`edgewise.core.keyed` says why, and has the same draws for kernels. Forbidden here: I/O, and generators with
a state.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgewise.arrays import Floats


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


Words = NDArray[np.uint64]

GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX1 = np.uint64(0xBF58476D1CE4E5B9)
MIX2 = np.uint64(0x94D049BB133111EB)
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def finalise(word: Words) -> Words:
    """The mixing at the end of each round of the hash."""
    word = (word ^ (word >> S30)) * MIX1
    word = (word ^ (word >> S27)) * MIX2
    return word ^ (word >> S31)


def bits(seed: int, purpose: int, entity: ArrayLike, counter: ArrayLike = 0) -> Words:
    """64 random bits for each (entity, counter), broadcast together."""
    start = np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    with np.errstate(over="ignore"):
        word = finalise(start + GAMMA * np.array([purpose + 1], dtype=np.uint64))
        word = finalise(word + GAMMA * np.asarray(entity).astype(np.uint64))
        word = finalise(word + GAMMA * np.asarray(counter).astype(np.uint64))
    return word.reshape(np.broadcast(np.asarray(entity), np.asarray(counter)).shape)


def units(words: Words) -> Floats:
    """Uniform draws in (0, 1) from random bits."""
    return ((words >> S11).astype(np.float64) + 0.5) * 2.0**-53


def uniform(seed: int, purpose: int, entity: ArrayLike, counter: ArrayLike = 0) -> Any:
    """Uniform draws in (0, 1); a float when entity and counter are scalars."""
    draws = units(bits(seed, purpose, entity, counter))
    return float(draws) if draws.ndim == 0 else draws
