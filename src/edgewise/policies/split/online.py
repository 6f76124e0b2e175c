"""A split policy that follows the rates: measured from arrivals, and a new plan when they have drifted.

    rate_j ← rate_j exp(-Δ/T) + 1/T at each arrival        T: memory_s

The placements are enumerated once; a new plan is one search over the waiting time and a new table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Floats
from edgewise.errors import PolicyError
from edgewise.policies.split.optimum import GAP, optimise
from edgewise.policies.split.policy import CompiledSplit

LEAST_QPS = 1e-6  # a class that nobody asks for keeps a plan


class RateTracker:
    """Keeps a plan optimal for the rates of late.

    Args:
        policy: nona or nona-queues, with a plan for the rates to begin with.
        memory_s: time over which rates are averaged.
        tolerance: change of a rate that asks for a new plan, relative to it or to the mean rate if larger.
    Attributes:
        policy: the one to place queries with; it is replaced, never changed.
        solved: plans made so far.
    Raises:
        PolicyError: `memory_s` or `tolerance` is not above 0.
    """

    def __init__(self, policy: CompiledSplit, memory_s: float = 60.0, tolerance: float = 0.2) -> None:
        for name, value in (("memory_s", memory_s), ("tolerance", tolerance)):
            if not value > 0:
                raise PolicyError(f"{name} must be above 0, got {value}")
        assert policy.plan is not None
        self._program = policy.plan.program
        self._memory_s, self._tolerance = memory_s, tolerance
        self._rates = self._planned = self._program.rates_qps
        self._last_s: float | None = None
        self.policy, self.solved = policy, 1

    def seen(self, job: int, now_s: float) -> None:
        """A query of class `job` arrived; times do not fall."""
        self._fade(now_s)
        self._rates[job] += 1.0 / self._memory_s

    def rates_qps(self, now_s: float) -> Floats:
        """(J,) rates of late."""
        self._fade(now_s)
        return self._rates.copy()

    def update(self, now_s: float) -> bool:
        """Make a new plan if a rate has drifted; whether it did.

        Where more work arrives than the servers can do, no plan is better than another: the old one stays.
        """
        rates = self.drifted(now_s)
        return rates is not None and self.solve(rates)

    def drifted(self, now_s: float) -> Floats | None:
        """(J,) rates of late where the plan no longer fits them, else None."""
        rates = np.maximum(self.rates_qps(now_s), LEAST_QPS)
        usual = np.maximum(self._planned, self._planned.mean())  # rare classes drift by chance
        return rates if float((np.abs(rates - self._planned) / usual).max()) > self._tolerance else None

    def solve(self, rates_qps: Sequence[float] | Floats) -> bool:
        """Make a plan for given rates; False where they are more than the servers can do."""
        try:
            program = self._program.with_rates([float(rate) for rate in rates_qps])
        except PolicyError:
            return False
        self.policy = self.policy.with_plan(optimise(program, GAP))
        self._planned = np.asarray(rates_qps, dtype=float).copy()
        self.solved += 1
        return True

    def _fade(self, now_s: float) -> None:
        since_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._rates = self._rates * math.exp(-since_s / self._memory_s)
        self._last_s = now_s
