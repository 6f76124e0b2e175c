"""The delay law of a variant, fitted to measured delays.

D(size, batch) = (fixed_s + per_byte_s * size) * (1 + batch_slope * (batch - 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from edgewise.arrays import Floats
from edgewise.model.catalog import Profile

SMALLEST_S = 1e-9  # a catalog wants a delay above 0
HOLDS = 0.1  # largest relative error at which we say that the law holds


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
    fixed, per_byte, slope = best.x
    return (
        max(float(fixed * unit_s), SMALLEST_S),
        float(per_byte * unit_s / unit_bytes) if sizes else 0.0,
        float(slope) if batches else 1.0,
    )
