"""Counter-based randomness: every draw is a hash of (seed, purpose, entity, counter).

Arrivals and noise are then the same under every policy (paired comparisons), a copy of a
world needs no generator state, and nothing depends on the order of the draws.

The hash is three rounds of the SplitMix64 finaliser over the four words, which passes the
usual statistical batteries and costs a few nanoseconds.

Normal and exponential draws are ziggurats (Marsaglia and Tsang 2000; the normal one with Doornik's 2005
choice of independent bits): the density lies under 256 layers of equal area, one word chooses a layer and a
point in it, and 99 of 100 points lie below the density for certain. The others are compared with it, and what
is refused draws again from the next word of a chain that starts at the hash: still a function of the four
words alone. Values come of multiplications and additions, never of a logarithm, so they are the same to the
last bit on every machine, compiled or not.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from edgewise.arrays import Floats
from edgewise.kernels.compiled import kernel
from edgewise.model.keyed import (
    GAMMA,
    MIX1,
    MIX2,
    S11,
    S27,
    S30,
    S31,
    Purpose as Purpose,
    Words,
    bits as bits,
    uniform as uniform,
)


class Key(NamedTuple):
    """What a policy draws from: its own stream of a run's seed."""

    seed: int
    purpose: int = int(Purpose.POLICY)

    def uniform(self, entity: ArrayLike, counter: ArrayLike = 0) -> Floats:
        """Uniform draws in (0, 1), one for each (entity, counter)."""
        return np.asarray(uniform(self.seed, self.purpose, entity, counter))


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
def uniforms_of(seed: np.uint64, purpose: int, count: int, counter: int) -> Floats:
    """(count,) the draws of `uniform` for as many entities, from 0 on: of millions in a tenth of the time."""
    found = np.empty(count)
    for entity in range(count):
        found[entity] = uniform_of(seed, purpose, entity, counter)
    return found


def _edges(
    outermost: float, area: float, height: Callable[[float], float], at: Callable[[float], float]
) -> Floats:
    """(LAYERS + 1,) widths of a ziggurat's layers, the lowest first, its tail counted into it; then 0.

    f(x_{i+1}) = f(x_i) + V / x_i,  x_0 = V / f(x_1)          (Marsaglia and Tsang 2000)

    Rounded to 2^-32, far above what two machines' logarithms differ by, far below what a draw could show.
    """
    widths, top = [area / height(outermost), outermost], height(outermost)
    while len(widths) < LAYERS:
        top += area / widths[-1]
        widths.append(at(top))
    return np.array([*(round(width * 2.0**32) * 2.0**-32 for width in widths), 0.0])


LAYERS = 256
LARGEST_NORMAL = 6.75  # no draw is larger: one of 10^11 would be
NORMAL_EDGE = _edges(
    3.654152885361008772,
    0.004928673233974655347,
    lambda x: math.exp(-0.5 * x * x),
    lambda y: math.sqrt(-2.0 * math.log(y)),
)
EXPONENTIAL_EDGE = _edges(
    7.697117470131049714, 0.003949659822581557220, lambda x: math.exp(-x), lambda y: -math.log(y)
)
NORMAL_TAIL, EXPONENTIAL_TAIL = float(NORMAL_EDGE[1]), float(EXPONENTIAL_EDGE[1])
LAYER, S12 = np.uint64(LAYERS - 1), np.uint64(12)
AGAIN, TAIL_AGAIN, TAIL_SECOND = 1, 2, 3  # which word of a chain comes after a word
SECOND = 1 << 62  # added to the counter for the second of a pair; no counter is that large


@kernel
def part_of(word: np.uint64) -> float:
    """How far across its layer a word's point lies, in (0, 1); from other bits than the layer's."""
    return (float(word >> S12) + 0.5) * 2.0**-52


@kernel
def exponential_from(word: np.uint64) -> float:
    """The exponential draw of mean 1 of a hash."""
    beyond = 0.0
    while True:
        layer = int(word & LAYER)
        x = part_of(word) * EXPONENTIAL_EDGE[layer]
        if x < EXPONENTIAL_EDGE[layer + 1]:
            return float(beyond + x)
        word = finalise_of(word, AGAIN)
        if layer == 0:  # the tail is the whole over again, further out
            beyond += EXPONENTIAL_TAIL
            continue
        low, high = math.exp(-EXPONENTIAL_EDGE[layer]), math.exp(-EXPONENTIAL_EDGE[layer + 1])
        if low + unit_of(word) * (high - low) < math.exp(-x):
            return float(beyond + x)
        word = finalise_of(word, AGAIN)


@kernel
def normal_from(word: np.uint64) -> float:
    """The standard normal draw of a hash."""
    while True:
        layer = int(word & LAYER)
        x = (2.0 * part_of(word) - 1.0) * NORMAL_EDGE[layer]
        if abs(x) < NORMAL_EDGE[layer + 1]:
            return float(x)
        word = finalise_of(word, AGAIN)
        if layer == 0:
            return math.copysign(normal_tail(word), x)
        low, high = math.exp(-0.5 * NORMAL_EDGE[layer] ** 2), math.exp(-0.5 * NORMAL_EDGE[layer + 1] ** 2)
        if low + unit_of(word) * (high - low) < math.exp(-0.5 * x * x):
            return float(x)
        word = finalise_of(word, AGAIN)


@kernel
def normal_tail(word: np.uint64) -> float:
    """A normal draw beyond the lowest layer (Marsaglia 1964)."""
    while True:
        further = exponential_from(word) / NORMAL_TAIL
        x = NORMAL_TAIL + further
        if 2.0 * exponential_from(finalise_of(word, TAIL_SECOND)) > further * further and x < LARGEST_NORMAL:
            return x
        word = finalise_of(word, TAIL_AGAIN)


@kernel
def exponential_of(seed: np.uint64, purpose: int, entity: int, counter: int) -> float:
    """An exponential draw of mean 1."""
    return exponential_from(finalise_of(prefix_of(seed, purpose, entity), counter))


@kernel
def normal_of(seed: np.uint64, purpose: int, entity: int, counter: int) -> float:
    """A standard normal draw."""
    return normal_from(finalise_of(prefix_of(seed, purpose, entity), counter))


@kernel
def normal_pair_of(seed: np.uint64, purpose: int, entity: int, counter: int) -> tuple[float, float]:
    """Two independent standard normal draws; the first is `normal_of`."""
    prefix = prefix_of(seed, purpose, entity)
    return normal_from(finalise_of(prefix, counter)), normal_from(finalise_of(prefix, counter + SECOND))


@kernel
def _exponentials(words: Words) -> Floats:
    """`exponential_from` of each word."""
    found = np.empty(words.size)
    for i in range(words.size):
        found[i] = exponential_from(words[i])
    return found


@kernel
def _normals(words: Words) -> Floats:
    """`normal_from` of each word."""
    found = np.empty(words.size)
    for i in range(words.size):
        found[i] = normal_from(words[i])
    return found


def exponential(seed: int, purpose: int, entity: ArrayLike, counter: ArrayLike = 0) -> Any:
    """The draws of `exponential_of`; a float when entity and counter are scalars."""
    return _shaped(_exponentials, bits(seed, purpose, entity, counter))


def normal(seed: int, purpose: int, entity: ArrayLike, counter: ArrayLike = 0) -> Any:
    """The draws of `normal_of`; a float when entity and counter are scalars."""
    return _shaped(_normals, bits(seed, purpose, entity, counter))


def _shaped(draw: Callable[[Words], Floats], words: Words) -> Any:
    draws = draw(words.reshape(-1)).reshape(words.shape)
    return float(draws) if draws.ndim == 0 else draws
