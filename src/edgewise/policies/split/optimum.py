"""Nona's problem solved to a certified gap, by interval branch and bound over the waiting time φ.

With φ fixed the problem is the linear program of `choice`. Its optimum V(φ) is neither monotone nor
unimodal, so no line search is safe. But costs rise with φ, and the set {θ: waiting ≤ φ} grows with it:
on an interval [a, b] the program with the costs at a and the constraint at b bounds every solution whose
waiting time lies inside from below. Any θ it returns is a candidate: its true value bounds the optimum
from above. Intervals are halved, the lowest bound first, until the two meet.

Proof sketch: docs/decisions/0010-exact-splitting.md.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.errors import PolicyError
from edgewise.policies.split.choice import choose
from edgewise.policies.split.program import Arrays, Prediction, SplitProgram

GAP = 1e-4


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How queries are split.

    Attributes:
        program: the problem.
        theta: (N,) probability of each placement, 1 in each group.
        forecast: what the formula predicts for it.
        bound: no θ has a smaller Σ β_j τ_j.
    """

    program: SplitProgram
    theta: Floats
    forecast: Prediction
    bound: float

    @property
    def gap(self) -> float:
        """Certified: (value - bound) / value."""
        total = self.forecast.total
        return max(total - self.bound, 0.0) / total if total > 0 else 0.0


def optimise(program: SplitProgram, gap: float = GAP, most: int = 200_000) -> SplitPlan:
    """The probabilities that minimise Σ β_j τ_j.

    Args:
        gap: relative difference between value and bound at which to stop, > 0.
        most: intervals to look at before giving up.
    Raises:
        PolicyError: `gap` is not positive, or `most` intervals did not suffice.
    """
    if not gap > 0:
        raise PolicyError(f"gap must be above 0, got {gap}")
    fixed = float(program.rates_qps @ (program.fixed_s + program.server_wait_s))
    theta, bound, count = _search(program.arrays, fixed, program.longest_s, gap, most)
    plan = SplitPlan(program, theta, program.forecast(theta), bound)
    if plan.gap > gap * (1 + 1e-6):
        raise PolicyError(f"the gap is {plan.gap:.2g} after {count} intervals; allow more than most={most}")
    return plan


def blind(program: SplitProgram) -> SplitPlan:
    """The congestion-blind plan: messages cost S alone, and nothing limits the link's load."""
    theta = np.zeros(program.variables)
    cost = program.costs_s(0.0)
    for first, last in zip(program.arrays.start, program.arrays.start[1:], strict=False):
        theta[first + np.argmin(cost[first:last])] = 1.0
    return fixed_plan(program, theta)


def fixed_plan(program: SplitProgram, theta: Floats) -> SplitPlan:
    """A plan that was not optimised; its bound is 0."""
    return SplitPlan(program, theta, program.forecast(theta), 0.0)


@kernel
def relaxed(a: Arrays, early_s: float, late_s: float, low: Ints, high: Ints) -> tuple[float, int, float]:
    """The linear program with the costs at `early_s` and the constraint at `late_s`."""
    cost, load = np.zeros(a.load_s.size), np.empty(a.load_s.size)
    for n in range(cost.size):
        for p in range(a.base_s.shape[1]):
            cost[n] = max(cost[n], a.base_s[n, p] + a.slope[n, p] * early_s)
        load[n] = a.load_s2[n] + 2.0 * late_s * a.load_s[n]
    value, mixed, share, _ = choose(load, cost, a.start, a.weight_qps, 2.0 * late_s, low, high)
    return value, mixed, share


@kernel
def actual(a: Arrays, low: Ints, high: Ints, mixed: int, share: float) -> tuple[float, float]:
    """(value, waiting time) of a solution at the waiting time that it causes; inf when overloaded."""
    first, second = 0.0, 0.0
    for g in range(low.size):
        part = share if g == mixed else 0.0
        first += a.weight_qps[g] * ((1.0 - part) * a.load_s[low[g]] + part * a.load_s[high[g]])
        second += a.weight_qps[g] * ((1.0 - part) * a.load_s2[low[g]] + part * a.load_s2[high[g]])
    if first >= 1.0:
        return np.inf, np.inf
    wait = second / (2.0 * (1.0 - first))
    value = 0.0
    for g in range(low.size):
        part = share if g == mixed else 0.0
        for side in range(2):
            n = high[g] if side else low[g]
            cost = 0.0
            for p in range(a.base_s.shape[1]):
                cost = max(cost, a.base_s[n, p] + a.slope[n, p] * wait)
            value += a.weight_qps[g] * (part if side else 1.0 - part) * cost
    return value, wait


def _search(a: Arrays, fixed: float, longest_s: float, gap: float, most: int) -> tuple[Floats, float, int]:
    """Branch and bound over φ in [0, longest_s]: (θ, bound, intervals). `fixed`: value no θ changes."""
    groups, size = a.weight_qps.size, a.load_s.size
    low, high = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    theta = np.zeros(size)
    if groups == 0:
        return theta, fixed, 0
    relaxed(a, 0.0, 0.0, low, high)  # no capacity: no messages
    best = actual(a, low, high, -1, 0.0)[0]
    theta[low] = 1.0
    waiting = [(-np.inf, 0.0, longest_s)]
    bound, count = best, 0
    while waiting:
        least, early, late = heapq.heappop(waiting)
        if least + fixed >= (best + fixed) * (1.0 - gap) or count >= most:
            bound = min(best, least)
            break
        count += 1
        value, mixed, share = relaxed(a, early, late, low, high)
        value = max(value, least)
        true = actual(a, low, high, mixed, share)[0]
        if true < best:
            best = true
            theta[:] = 0.0
            theta[low] = 1.0
            if mixed >= 0:
                theta[low[mixed]] = 1.0 - share
                theta[high[mixed]] = share
        if value + fixed < (best + fixed) * (1.0 - gap):
            middle = early + (late - early) * 0.5
            heapq.heappush(waiting, (value, early, middle))
            heapq.heappush(waiting, (value, middle, late))
        else:
            bound = min(bound, value)
    return theta, min(bound, best) + fixed, count
