"""Paired statistics: is one policy better than another, and by how much?

Policies meet the same arrivals and the same noise under a seed, so they are compared
by their difference per seed, never by two separate means. A win needs both a
Holm-corrected p below 1 - level and a difference of at least `minimum_effect`.

Forbidden here: choosing the rival by the values compared. Name it (chosen on the
validation seeds) or compare every pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from edgewise.errors import PolicyError

Verdict = Literal["win", "loss", "no difference"]

_ROUNDING = 1e-12  # differences this small relative to the values are floating-point noise


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its t-interval.

    Attributes:
        mean: mean of the values.
        low, high: ends of the interval; None when n = 1, which says nothing of the spread.
        n: number of values.
    """

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One policy against one rival, paired by seed.

    Attributes:
        policy, rival: who is compared.
        n: number of seeds.
        mean, rival_mean: mean over seeds of each.
        difference: mean of (policy - rival) over seeds.
        low, high: ends of its interval; None when n = 1.
        p: two-sided p of "no difference"; None when n = 1.
        p_holm: p after Holm's correction over the family compared.
        verdict: from the side of `policy`.
        note: what the reader should know about this row; "" when nothing.
    """

    policy: str
    rival: str
    n: int
    mean: float
    rival_mean: float
    difference: float
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    verdict: Verdict
    note: str = ""


def _values(x: ArrayLike, name: str) -> NDArray[np.float64]:
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name}: needs a vector of one or more values, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: every value must be finite; leave out the seeds that have none")
    return values


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; it must lie strictly between 0 and 1, for example 0.95")


def _spread(values: NDArray[np.float64], scale: float) -> float:
    """Standard error of the mean; 0 when the values differ by rounding only."""
    error = float(np.std(values, ddof=1)) / float(np.sqrt(values.size))
    return error if error > _ROUNDING * scale else 0.0


def mean_interval(x: ArrayLike, level: float = 0.95) -> Interval:
    """Mean and two-sided t-interval of independent values.

    mean ± t(n - 1, (1 + level) / 2) · s / √n

    Args:
        x: (n,) values, one per seed, finite.
        level: coverage of the interval, in (0, 1).
    Returns:
        the interval; its ends are None when n = 1.
    Raises:
        ValueError: x is empty, not a vector or not finite, or level is out of range.
    """
    _check_level(level)
    values = _values(x, "x")
    mean = float(values.mean())
    if values.size == 1:
        return Interval(mean, None, None, 1)
    error = _spread(values, float(np.abs(values).max()))
    half = float(stats.t.ppf(0.5 + level / 2, values.size - 1)) * error
    return Interval(mean, mean - half, mean + half, int(values.size))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of p-values.

    p̃_(i) = max over j <= i of min(1, (m - j + 1) p_(j))    (Holm 1979)

    Args:
        p: (m,) p-values in [0, 1].
    Returns:
        (m,) corrected p-values, in the order given.
    """
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = largest
    return corrected


@dataclass(frozen=True, slots=True)
class _Paired:
    difference: Interval
    p: float | None
    note: str


def _paired(a: NDArray[np.float64], b: NDArray[np.float64], level: float) -> _Paired:
    """Paired t-test: t = d̄ / (s_d / √n) with n - 1 degrees of freedom."""
    d = a - b
    mean, n = float(d.mean()), int(d.size)
    if n == 1:
        return _Paired(Interval(mean, None, None, 1), None, "one seed: no interval; run more seeds")
    scale = max(float(np.abs(a).max()), float(np.abs(b).max()))
    error = _spread(d, scale)
    if error == 0.0:
        same = abs(mean) <= _ROUNDING * scale
        note = "the same in every seed" if same else "the difference is the same in every seed"
        return _Paired(Interval(mean, mean, mean, n), 1.0 if same else 0.0, note)
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * error
    p = 2.0 * float(stats.t.sf(abs(mean) / error, n - 1))
    return _Paired(Interval(mean, mean - half, mean + half, n), p, "")


@dataclass(frozen=True, slots=True)
class _Rule:
    alpha: float
    minimum_effect: float

    def verdict(self, difference: float, p_holm: float | None) -> Verdict:
        if p_holm is None or p_holm >= self.alpha or difference == 0.0:
            return "no difference"
        if abs(difference) < self.minimum_effect - _ROUNDING:
            return "no difference"
        return "win" if difference > 0.0 else "loss"


def _comparison(
    names: tuple[str, str],
    values: tuple[NDArray[np.float64], NDArray[np.float64]],
    test: _Paired,
    p_holm: float | None,
    rule: _Rule,
) -> Comparison:
    interval = test.difference
    return Comparison(
        policy=names[0],
        rival=names[1],
        n=interval.n,
        mean=float(values[0].mean()),
        rival_mean=float(values[1].mean()),
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        p=test.p,
        p_holm=p_holm,
        verdict=rule.verdict(interval.mean, p_holm),
        note=test.note,
    )


def _checked(values: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.float64]]:
    arrays = {policy: _values(x, f"values[{policy!r}]") for policy, x in values.items()}
    sizes = {policy: array.size for policy, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"values are paired by seed, but their lengths differ: {sizes}; keep common seeds")
    return arrays


def compare(
    values: Mapping[str, ArrayLike],
    rival: str | None = None,
    minimum_effect: float = 0.01,
    level: float = 0.95,
) -> list[Comparison]:
    """Compare policies paired by seed, Holm-corrected over the family compared.

    Args:
        values: per policy (n,) values, larger is better; index i is the same seed in all.
        rival: policy all others are compared with, chosen beforehand; None compares every
            pair, in the order of `values`.
        minimum_effect: least |difference| that counts, in the unit of the values.
        level: coverage of the intervals; a verdict needs p_holm < 1 - level.
    Returns:
        one comparison per pair; empty with fewer than two policies.
    Raises:
        ValueError: lengths differ, values are not finite vectors, or level is out of range.
        PolicyError: the rival is not among the policies.
    """
    _check_level(level)
    arrays = _checked(values)
    if rival is not None and rival not in arrays:
        raise PolicyError(f"rival is {rival!r}, which has no values; choose one of {', '.join(arrays)}")
    if rival is None:
        pairs = list(combinations(arrays, 2))
    else:
        pairs = [(policy, rival) for policy in arrays if policy != rival]
    tests = [_paired(arrays[a], arrays[b], level) for a, b in pairs]
    corrected = iter(holm([test.p for test in tests if test.p is not None]))
    rule = _Rule(round(1.0 - level, 12), minimum_effect)
    return [
        _comparison((a, b), (arrays[a], arrays[b]), test, None if test.p is None else next(corrected), rule)
        for (a, b), test in zip(pairs, tests, strict=True)
    ]
