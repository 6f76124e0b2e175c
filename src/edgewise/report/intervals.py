"""Means and quantiles of independent values, one a seed, and how sure they are.

An interval says nothing that cannot be. That of a share is made on the logit scale, which has no ends:

    logit(m) ± t s / (√n m (1 - m)),  taken back to 0 … 1              (delta method)

with the mean m and the deviation s of n values. Near an end, where shares are skewed, it holds the true mean
more often than the t-interval does, which there is too narrow as well as out of bounds (decision 0034). Where
only one end is known, as of times, and of differences, whose interval goes with the p of a t-test, the
t-interval is cut there: it holds the true mean as often as before.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special  # not scipy.stats, which takes a second to import

from edgewise.arrays import Floats

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
ROUNDING = 1e-12  # differences this small relative to the values are floating-point noise


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its interval.

    Attributes:
        mean: mean of the values.
        low, high: ends of the interval; None when n = 1, which says nothing of the spread.
        n: number of values.
    """

    mean: float
    low: float | None
    high: float | None
    n: int


def checked_values(x: ArrayLike, name: str) -> Floats:
    """A vector of one or more finite values, or ValueError."""
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name}: needs a vector of one or more values, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: every value must be finite; leave out the seeds that have none")
    return values


def check_level(level: float) -> None:
    """Raise ValueError unless there is such a coverage."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; it must lie strictly between 0 and 1, for example 0.95")


def _start(x: ArrayLike, level: float) -> tuple[Floats, float]:
    check_level(level)
    values = checked_values(x, "x")
    return values, float(values.mean())


def spread(values: Floats, scale: float) -> float:
    """Standard error of the mean; 0 when the values differ by rounding only."""
    error = float(np.std(values, ddof=1)) / float(np.sqrt(values.size))
    return error if error > ROUNDING * scale else 0.0


def mean_interval(x: ArrayLike, level: float = 0.95, possible: Range = ANY) -> Interval:
    """Mean and two-sided interval of independent values.

    mean ± t(n - 1, (1 + level) / 2) · s / √n, within what is possible as the module says.

    Args:
        x: (n,) values, one per seed, finite.
        level: coverage of the interval, in (0, 1).
        possible: the least and the greatest value there can be; values beyond them, by rounding, widen it.
    Returns:
        the interval; its ends are None when n = 1.
    Raises:
        ValueError: x is empty, not a vector or not finite, or level is out of range.
    """
    values, mean = _start(x, level)
    if values.size == 1:
        return Interval(mean, None, None, 1)
    scale, error = _Scale.of(values, possible), spread(values, float(np.abs(values).max()))
    if error == 0.0:
        return Interval(mean, mean, mean, int(values.size))
    half = float(special.stdtrit(values.size - 1, 0.5 + level / 2)) * scale.error(mean, error)
    low, high = (scale.back(scale.at(mean) + side) for side in (-half, half))
    return Interval(mean, low, high, int(values.size))


def chance_above(x: ArrayLike, value: float, possible: Range = ANY) -> float:
    """Probability of Student's t that the mean of independent values lies above a value: its confidence.

    An end of `mean_interval` is at the value where this is (1 ± level) / 2.

    Args:
        x: (n,) values, n > 1.
        value, possible: within `possible`, as for `mean_interval`.
    Returns:
        1 or 0 where all values are the same, 1 also at the value itself.
    """
    values = checked_values(x, "x")
    mean, scale = float(values.mean()), _Scale.of(values, possible)
    error = spread(values, float(np.abs(values).max()))
    if error == 0.0:
        return float(mean >= value)
    margin = (scale.at(mean) - scale.at(value)) / scale.error(mean, error)
    return float(special.stdtr(values.size - 1, margin))


class _Scale(NamedTuple):
    """Where intervals are symmetric: a logit of what is between two ends, else the values themselves."""

    least: float
    most: float

    @classmethod
    def of(cls, values: Floats, possible: Range) -> "_Scale":
        return cls(float(min(possible[0], values.min())), float(max(possible[1], values.max())))

    @property
    def _ends(self) -> bool:
        return math.isfinite(self.most - self.least)

    def at(self, value: float) -> float:
        return float(special.logit((value - self.least) / (self.most - self.least))) if self._ends else value

    def error(self, mean: float, error: float) -> float:
        """A small one of the mean, here."""
        if not self._ends:
            return error
        return error * (self.most - self.least) / ((mean - self.least) * (self.most - mean))

    def back(self, where: float) -> float:
        if self._ends:
            return self.least + (self.most - self.least) * float(special.expit(where))
        return min(max(where, self.least), self.most)


def bootstrap_interval(
    x: ArrayLike, level: float = 0.95, *, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean and its percentile-bootstrap interval: a check of the t-interval, without a normal law.

    The ends are the (1 ± level) / 2 quantiles of the means of n values drawn with replacement
    (Efron 1979). It is too narrow with fewer than about ten values: report the t-interval.

    Args:
        x: (n,) values, one per seed, finite.
        seed: of the draws, so that the interval is the same every time.
    Returns:
        the interval; its ends are None when n = 1.
    Raises:
        ValueError: x is empty, not a vector or not finite, or level is out of range.
    """
    values, mean = _start(x, level)
    if values.size == 1:
        return Interval(mean, None, None, 1)
    draws = np.random.Generator(np.random.Philox(seed)).integers(values.size, size=(resamples, values.size))
    low, high = np.quantile(values[draws].mean(axis=1), [0.5 - level / 2, 0.5 + level / 2])
    return Interval(mean, float(low), float(high), int(values.size))


def quantile_interval(x: ArrayLike, q: float, level: float = 0.95) -> Interval:
    """A quantile of independent values and its interval between two of the sorted values.

    The number of values below the true quantile is binomial(n, q), whatever their law (Wilks 1962).

    Args:
        x: (n,) values, finite.
        q: which quantile, strictly between 0 and 1.
    Returns:
        the quantile as `mean`; an end is None where n values are too few to bound it.
    Raises:
        ValueError: no value, one that is not finite, or `q` or `level` is out of range.
    """
    values = np.sort(_start(x, level)[0])
    if not 0.0 < q < 1.0:
        raise ValueError(f"q is {q}; it must lie strictly between 0 and 1, for example 0.99")
    from scipy import stats  # slow to import, and most runs need no quantile

    n = int(values.size)
    low = int(stats.binom.ppf((1.0 - level) / 2.0, n, q)) - 1
    high = int(stats.binom.ppf((1.0 + level) / 2.0, n, q))
    first, last = (float(values[i]) if 0 <= i < n else None for i in (low, high))
    return Interval(float(np.quantile(values, q)), first, last, n)
