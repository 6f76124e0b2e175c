"""Paired statistics: is one policy better than another, and by how much?

Policies meet the same arrivals and the same noise under a seed, so they are compared
by their difference (or ratio) per seed, never by two separate means. A win needs both
a Holm-corrected p below 1 - level and a difference of at least `minimum_effect`; a tie
needs an interval that lies within ±`minimum_effect`; all else is inconclusive.

Forbidden here: choosing the rival by the values compared. Name it, choose it with
`best_baseline` on the validation seeds, or compare every pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special  # not scipy.stats, which takes a second to import

from edgewise.arrays import Floats
from edgewise.errors import PolicyError
from edgewise.report.intervals import ANY, ROUNDING, Interval, Range, check_level, checked_values, spread
from edgewise.report.schema import measures_of
from edgewise.report.summary import by_seed

Verdict = Literal["win", "loss", "tie", "inconclusive"]


@dataclass(frozen=True, slots=True)
class DifferenceRule:
    """When a difference counts.

    Attributes:
        alpha: a win or loss needs p_holm < alpha.
        negligible: (low, high) differences between these are too small to count.
        ratio: differences are relative changes, policy / rival - 1.
        lower_is_better: a negative difference is in favour of the policy.
    """

    alpha: float = 0.05
    negligible: tuple[float, float] = (-0.01, 0.01)
    ratio: bool = False
    lower_is_better: bool = False

    def verdict(self, difference: Interval, p_holm: float | None) -> Verdict:
        """Win, loss, tie or inconclusive; one seed is always inconclusive."""
        if p_holm is None or difference.low is None or difference.high is None:
            return "inconclusive"
        least, most = self.negligible
        large = difference.mean >= most - ROUNDING or difference.mean <= least + ROUNDING
        if p_holm < self.alpha and large and difference.mean != 0.0:
            return "win" if (difference.mean > 0.0) != self.lower_is_better else "loss"
        if least - ROUNDING <= difference.low and difference.high <= most + ROUNDING:
            return "tie"
        return "inconclusive"


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """One policy against one rival, paired by seed.

    Attributes:
        policy, rival: who is compared.
        n: number of seeds.
        mean, rival_mean: mean over seeds of each.
        difference: mean of (policy - rival) over seeds; where `rule.ratio`, the geometric mean of
            policy / rival over seeds, less 1.
        low, high: ends of its interval; None when n = 1.
        p: two-sided p of a difference of 0; None when n = 1.
        p_holm: p after Holm's correction over the family compared.
        verdict: from the side of `policy`.
        note: what the reader should know about this row; "" when nothing.
        rule: when a difference counts.
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
    rule: DifferenceRule = DifferenceRule()


def best_baseline(values: Mapping[str, ArrayLike], *, lower_is_better: bool = False) -> str:
    """The baseline with the best mean: the rival of later comparisons.

    Args:
        values: per baseline (n,) values of *validation* seeds; never those that are compared later.
    Returns:
        its name; the first in order where means are equal.
    Raises:
        PolicyError: there is no baseline.
        ValueError: lengths differ, or values are not finite vectors.
    """
    means = {name: float(x.mean()) for name, x in _checked(values).items()}
    if not means:
        raise PolicyError("baselines: none given, so there is no rival to choose")
    return min(means, key=means.__getitem__) if lower_is_better else max(means, key=means.__getitem__)


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


def _paired(a: Floats, b: Floats, level: float, possible: Range) -> tuple[Interval, float | None, str]:
    """Paired t-test: t = d̄ / (s_d / √n) with n - 1 degrees of freedom; its p, and what to note.

    Args:
        possible: differences; the interval is cut there.
    """
    d = a - b
    mean, n = float(d.mean()), int(d.size)
    if n == 1:
        return Interval(mean, None, None, 1), None, "one seed: no interval; run more seeds"
    scale = max(float(np.abs(a).max()), float(np.abs(b).max()))
    error = spread(d, scale)
    if error == 0.0:
        same = abs(mean) <= ROUNDING * scale
        note = "the same in every seed" if same else "the difference is the same in every seed"
        return Interval(mean, mean, mean, n), 1.0 if same else 0.0, note
    half = float(special.stdtrit(n - 1, 0.5 + level / 2)) * error
    p = 2.0 * float(special.stdtr(n - 1, -abs(mean) / error))
    least, most = min(possible[0], mean), max(possible[1], mean)
    return Interval(mean, max(mean - half, least), min(mean + half, most), n), p, ""


def _comparison(
    names: tuple[str, str],
    values: tuple[Floats, Floats],
    level: float,
    rule: DifferenceRule,
    possible: tuple[Range, Range],
) -> PairedComparison:
    if rule.ratio:  # from differences of logarithms to relative changes, exp(d) - 1
        d, p, note = _paired(np.log(values[0]), np.log(values[1]), level, ANY)
        ends = [None if end is None else float(np.expm1(end)) for end in (d.low, d.high)]
        interval = Interval(float(np.expm1(d.mean)), ends[0], ends[1], d.n)
    else:
        (least, most), (rivals_least, rivals_most) = possible
        interval, p, note = _paired(*values, level, (least - rivals_most, most - rivals_least))
    return PairedComparison(
        policy=names[0],
        rival=names[1],
        n=interval.n,
        mean=float(values[0].mean()),
        rival_mean=float(values[1].mean()),
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        p=p,
        p_holm=p,
        verdict=rule.verdict(interval, p),
        note=note,
        rule=rule,
    )


def as_family(rows: Sequence[PairedComparison]) -> list[PairedComparison]:
    """Correct comparisons together, whatever families they came from.

    Returns:
        the rows in the order given, p_holm and verdict made anew.
    """
    corrected = iter(holm([row.p for row in rows if row.p is not None]))
    family = []
    for row in rows:
        p_holm = None if row.p is None else next(corrected)
        interval = Interval(row.difference, row.low, row.high, row.n)
        family.append(replace(row, p_holm=p_holm, verdict=row.rule.verdict(interval, p_holm)))
    return family


def _checked(values: Mapping[str, ArrayLike]) -> dict[str, Floats]:
    arrays = {policy: checked_values(x, f"values[{policy!r}]") for policy, x in values.items()}
    sizes = {policy: array.size for policy, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"values are paired by seed, but their lengths differ: {sizes}; keep common seeds")
    return arrays


def _pairs(policies: Sequence[str], rival: str | None) -> list[tuple[str, str]]:
    if rival is not None and rival not in policies:
        raise PolicyError(f"rival is {rival!r}, which has no values; choose one of {', '.join(policies)}")
    if rival is None:
        return list(combinations(policies, 2))
    return [(policy, rival) for policy in policies if policy != rival]


def compare(
    values: Mapping[str, ArrayLike],
    rival: str | None = None,
    minimum_effect: float = 0.01,
    level: float = 0.95,
    *,
    ratio: bool = False,
    lower_is_better: bool = False,
    possible: Mapping[str, Range] = {},
) -> list[PairedComparison]:
    """Compare policies paired by seed, Holm-corrected over the family compared.

    Args:
        values: per policy (n,) values; index i is the same seed in all.
        rival: policy all others are compared with, chosen beforehand; None compares every
            pair, in the order of `values`.
        minimum_effect: least |difference| that counts: in the unit of the values, so 0.01 is one
            point of a share; with `ratio` as a fraction, so 0.01 is 1 %.
        level: coverage of the intervals; a win or loss needs p_holm < 1 - level.
        ratio: compare policy / rival by its logarithm; for delays, costs and throughput.
        lower_is_better: as for delays.
        possible: by policy the least and the greatest mean there can be, where they are known; intervals
            of differences do not go beyond what follows. Without effect on ratios, which are above -1.
    Returns:
        one comparison per pair; empty with fewer than two policies.
    Raises:
        ValueError: lengths differ, values are not finite vectors (with `ratio`: not positive), or
            level or minimum_effect is out of range.
        PolicyError: the rival is not among the policies.
    """
    check_level(level)
    if not minimum_effect >= 0.0:
        raise ValueError(f"minimum_effect is {minimum_effect}; it must be >= 0, for example 0.01")
    arrays = _checked(values)
    for policy, x in arrays.items():
        if ratio and not (x > 0.0).all():
            raise ValueError(f"values[{policy!r}]: a ratio needs values > 0, found {x.min():g}")
    least = 1.0 / (1.0 + minimum_effect) - 1.0 if ratio else -minimum_effect
    rule = DifferenceRule(round(1.0 - level, 12), (least, minimum_effect), ratio, lower_is_better)
    return as_family(
        [
            _comparison(
                (a, b), (arrays[a], arrays[b]), level, rule, (possible.get(a, ANY), possible.get(b, ANY))
            )
            for a, b in _pairs(list(arrays), rival)
        ]
    )


def judged(
    work: str, summary: Sequence[dict[str, Any]], policies: Sequence[str], rival: str | None = None
) -> list[PairedComparison]:
    """Compare the policies of a run by the first measure of its kind of work.

    Shares differ in points. All else differs in percent of the rival's mean (of the first policy's, where
    every pair is compared), so that 1 % counts, also for figures that may be 0 or negative.

    Args:
        work: of `schema.WORK`.
        summary: rows of `summary_of`.
        policies: in which order.
        rival: as for `compare`.
    Raises:
        PolicyError: the rival is not among the policies that have values.
    """
    measure = measures_of(work, summary)[0]
    values = by_seed(summary, measure.key, policies)
    if measure.share:
        return compare(values, rival, possible=dict.fromkeys(values, measure.possible))
    base = rival or next(iter(values), "")
    whole = float(values.get(base, np.zeros(1)).mean())
    scale = abs(whole) or 1.0
    parts = {name: x / scale for name, x in values.items()}
    possible = dict.fromkeys(values, (measure.least / scale, measure.most / scale))
    possible[base] = (whole / scale, whole / scale)  # what differences are percent of
    return [
        replace(
            row, mean=row.mean * scale, rival_mean=row.rival_mean * scale, rule=replace(row.rule, ratio=True)
        )
        for row in compare(parts, rival, lower_is_better=measure.lower_is_better, possible=possible)
    ]
