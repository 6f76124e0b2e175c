"""The highest rate that a worker with a queue can take.

Queries come as a Poisson process whatever the state of the worker (open loop), wait in one
first-come-first-served queue, and are served in batches: a free worker takes all that wait, up to
`max_batch`. The same loop runs on a model in real time and on a profile in virtual time, so what
is measured and what the profile predicts can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from edgewise.arrays import Floats
from edgewise.model.catalog import Profile

PATIENCE = 5.0  # bound of the sojourn in multiples of the delay of a full batch
HOPELESS = 10.0  # give up on a rate when a query stays this many times the bound
QUANTILE = 0.95
STEPS = 6


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
    profile: Profile, size_bytes: float, max_batch: int, queries: int = 10_000, seed: int = 0, steps: int = 10
) -> float:
    """The highest rate by the profile alone, with `queries` queries in each trial."""
    most = saturation_qps(profile, size_bytes, max_batch)
    bound = bound_s(profile, size_bytes, max_batch)

    def stays(rate_qps: float) -> Floats:
        arrivals = poisson_arrivals(rate_qps, queries / rate_qps, seed)
        return sojourns(arrivals, max_batch, ProfileClock(profile, size_bytes), HOPELESS * bound)

    return highest_rate_qps(stays, most, bound, steps)
