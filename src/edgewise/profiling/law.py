"""The delay law of a variant, fitted to measurements; and the highest rate that a worker with a queue takes.

D(size, batch) = (fixed_s + per_byte_s * size) * (1 + batch_slope * (batch - 1))

Queries come as a Poisson process whatever the state of the worker (open loop), wait in one
first-come-first-served queue, and are served in batches: a free worker takes all that wait, up to
`max_batch`. The same loop runs on a model in real time and on a profile in virtual time, so what
is measured and what the profile predicts can be compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import least_squares

from edgewise.arrays import Floats
from edgewise.model.topology import Profile

SMALLEST_S = 1e-9  # a catalog wants a delay above 0
HOLDS = 0.1  # largest relative error at which we say that the law holds
PATIENCE = 5.0  # bound of the sojourn in multiples of the delay of a full batch
HOPELESS = 10.0  # give up on a rate when a query stays this many times the bound
QUANTILE = 0.95
STEPS = 6


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """Delays measured at one payload size and batch size.

    Attributes:
        size_bytes: payload of one query.
        batch: queries in the batch.
        runs: how often it was measured.
        median_s, low_s, high_s, p95_s: quantiles 0.5, 0.16, 0.84 and 0.95 of the delay.
        side: free axes of the input were set to this; None where there are none.
    """

    size_bytes: float
    batch: int
    runs: int
    median_s: float
    low_s: float
    high_s: float
    p95_s: float
    side: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted law and how far it is from each point.

    Attributes:
        profile: the law.
        errors: (points,) (fitted - measured) / measured.
    """

    profile: Profile
    errors: tuple[float, ...]

    @property
    def mean_error(self) -> float:
        """Mean of the absolute relative errors."""
        return float(np.mean(np.abs(self.errors)))

    @property
    def max_error(self) -> float:
        """Largest absolute relative error."""
        return float(np.max(np.abs(self.errors)))

    @property
    def holds(self) -> bool:
        """Whether every point lies within 10 % of the law."""
        return self.max_error <= HOLDS


def fit_profile(points: Sequence[MeasuredPoint], source: str = "") -> Fit:
    """Least squares of the relative errors of the medians, coefficients >= 0.

    With one size `per_byte_s` is 0; with one batch size `batch_slope` is 1, the value that
    promises nothing. `deviation` is the median over the points of half the distance between the
    quantiles 0.16 and 0.84, relative to the median: the standard deviation of a normal law,
    deaf to outliers.

    Raises:
        ValueError: no points, or a delay that is not positive.
    """
    if not points or min(point.median_s for point in points) <= 0:
        raise ValueError("a fit needs points with delays above 0")
    size = np.array([point.size_bytes for point in points], dtype=float)
    batch = np.array([point.batch for point in points], dtype=float)
    median = np.array([point.median_s for point in points])
    fixed, per_byte, slope = _coefficients(size, batch, median)
    spread = [(point.high_s - point.low_s) / 2 / point.median_s for point in points]
    profile = Profile(fixed, per_byte, slope, float(np.median(spread)), source)
    fitted = np.array([profile.delay_s(point.size_bytes, point.batch) for point in points])
    return Fit(profile, tuple(float(error) for error in fitted / median - 1.0))


def _coefficients(size: Floats, batch: Floats, median: Floats) -> tuple[float, float, float]:
    """(fixed_s, per_byte_s, batch_slope), solved in multiples of the smallest delay and largest size."""
    unit_s, unit_bytes = median.min(), max(float(size.max()), 1.0)
    sizes, batches = np.unique(size).size > 1, np.unique(batch).size > 1

    def errors(x: Floats) -> Floats:
        delay = (x[0] + (x[1] * size / unit_bytes if sizes else 0.0)) * (1.0 + x[2] * (batch - 1.0))
        return np.asarray(unit_s * delay / median - 1.0)

    # Two starts: the law is a product, and a start with no growth in size can stay there.
    starts = ([0.5, 0.5, 0.5], [1.0, 0.0, 1.0])
    solutions = [
        least_squares(errors, start, bounds=(0.0, np.inf), ftol=1e-12, xtol=1e-12, gtol=1e-12)
        for start in starts
    ]
    best = min(solutions, key=lambda solution: solution.cost)
    fixed, per_byte, slope = best.x.tolist()
    return (
        max(float(fixed * unit_s), SMALLEST_S),
        float(per_byte * unit_s / unit_bytes) if sizes else 0.0,
        slope if batches else 1.0,
    )


class Clock(Protocol):
    """Time passes by waiting and by working; both return the time reached, in s."""

    def wait(self, until_s: float) -> float:
        """Do nothing until `until_s`, or return at once when that has passed."""

    def work(self, batch: int) -> float:
        """Process a batch."""


class ProfileClock:
    """Virtual time: a batch takes what the profile says."""

    def __init__(self, profile: Profile, size_bytes: float) -> None:
        self._profile, self._size_bytes, self._now_s = profile, size_bytes, 0.0

    def wait(self, until_s: float) -> float:
        """Jump to `until_s`."""
        self._now_s = max(self._now_s, until_s)
        return self._now_s

    def work(self, batch: int) -> float:
        """Add the mean delay of the batch."""
        self._now_s += self._profile.delay_s(self._size_bytes, batch)
        return self._now_s


def poisson_arrivals(rate_qps: float, seconds: float, seed: int) -> Floats:
    """(Q,) arrival times in s, at least one; one seed gives the same pattern at every rate."""
    rng = np.random.Generator(np.random.Philox(seed))
    count = max(int(1.5 * rate_qps * seconds) + 50, 1)
    times = np.cumsum(rng.exponential(size=count)) / rate_qps
    return times[: max(int(np.searchsorted(times, seconds)), 1)]


def sojourns(arrivals_s: Floats, max_batch: int, clock: Clock, hopeless_s: float = np.inf) -> Floats:
    """(Q,) time from arrival to answer of each query, in s.

    Stops when a query has stayed longer than `hopeless_s`; all later ones are then inf.
    """
    stayed = np.full(arrivals_s.size, np.inf)
    first, now = 0, 0.0
    while first < arrivals_s.size:
        now = clock.wait(arrivals_s[first])
        last = int(np.searchsorted(arrivals_s, now, side="right"))
        last = min(max(last, first + 1), first + max_batch)
        now = clock.work(last - first)
        stayed[first:last] = now - arrivals_s[first:last]
        if stayed[first] > hopeless_s:
            break
        first = last
    return stayed


def bound_s(profile: Profile, size_bytes: float, max_batch: int) -> float:
    """Bound of the 95 % quantile of the sojourn: five delays of a full batch."""
    return PATIENCE * profile.delay_s(size_bytes, max_batch)


def highest_rate_qps(
    stays: Callable[[float], Floats], most_qps: float, bound_s: float, steps: int = STEPS
) -> float:
    """Highest rate at which the 95 % quantile of the sojourn stays below the bound, by bisection.

    Args:
        stays: rate in queries/s → sojourns of a trial at that rate.
        most_qps: no rate above it is tried; full batches back to back give this much.
        bound_s: the bound.
        steps: trials; the answer is exact to most_qps / 2**steps.
    Returns:
        The highest rate seen to hold; 0 when none did.
    """
    low, high = 0.0, most_qps
    for _ in range(steps):
        middle = (low + high) / 2
        if np.quantile(stays(middle), QUANTILE, method="higher") <= bound_s:
            low = middle
        else:
            high = middle
    return low


def saturation_qps(profile: Profile, size_bytes: float, max_batch: int) -> float:
    """Queries/s of the best batch size, run back to back."""
    return max(batch / profile.delay_s(size_bytes, batch) for batch in range(1, max_batch + 1))


def predicted_rate_qps(
    profile: Profile,
    size_bytes: float,
    max_batch: int,
    queries: int = 10_000,
    seed: int = 0,
    steps: int = 10,
    seconds: float | None = None,
) -> float:
    """The highest rate by the profile alone, in trials of `queries` queries, or of so many seconds."""
    bound = bound_s(profile, size_bytes, max_batch)

    def stays(rate_qps: float) -> Floats:
        arrivals = poisson_arrivals(rate_qps, seconds or queries / rate_qps, seed)
        return sojourns(arrivals, max_batch, ProfileClock(profile, size_bytes), HOPELESS * bound)

    return highest_rate_qps(stays, saturation_qps(profile, size_bytes, max_batch), bound, steps)
