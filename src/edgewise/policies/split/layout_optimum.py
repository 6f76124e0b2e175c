"""The layout problem solved to a certified gap: branch and bound over one waiting time per resource.

As with one link (`optimum`), costs rise with every waiting time and so does the set of probabilities that
keep the waiting below it. In a box [a, b] of waiting times the linear program with the costs at a and the
constraints at b,

    Σ λ s² + 2 b_r m_r Σ λ s ≤ 2 b_r m_r n_r        for every resource r, m_r servers share its queue,

is a lower bound, and what it returns, valued at the waiting that it really causes, an upper bound. The box
with the lowest bound is split where the two differ most.
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Floats
from edgewise.errors import PolicyError
from edgewise.policies.programs import Sparse, minimum
from edgewise.policies.split.layout import LayoutProgram

GAP = 1e-2
TRIES = 30
ROUNDS = 5  # a few milliseconds each
REACH = 4.0  # a step may lead to so much more waiting
SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)  # of a step


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """How queries are split over a layout.

    Attributes:
        program: the problem.
        theta: (N,) probability of each placement, over all stages.
        mean_s: predicted mean completion time.
        wait_s: (R,) predicted waiting: links, then groups.
        load: (R,) share of each resource's capacity.
        bound_s: no probabilities give a smaller mean.
    """

    program: LayoutProgram
    theta: Floats
    mean_s: float
    wait_s: Floats
    load: Floats
    bound_s: float

    @property
    def gap(self) -> float:
        """Certified: (mean - bound) / mean."""
        return max(self.mean_s - self.bound_s, 0.0) / self.mean_s if self.mean_s > 0 else 0.0


class _Arrays:
    """A program as matrices; values are sums over queries per second, Σ β τ."""

    def __init__(self, program: LayoutProgram) -> None:
        self.rates = program.rates_qps()
        self.base = np.asarray(program.stacked("base_s"), float)
        self.visits = np.asarray(program.stacked("visits"), float)
        self.load = np.asarray(program.stacked("load_s"), float) * self.rates[:, None]
        self.load2 = np.asarray(program.stacked("load_s2"), float) * self.rates[:, None]
        self.capacity, self.pooled = program.capacity, program.pooled
        self.flows, self.flow_is = _flows(program)

    def costs(self, wait_s: Floats) -> Floats:
        """(N,) Σ β times the time of each placement."""
        return np.asarray(self.rates * (self.base + self.visits @ wait_s).max(axis=1))

    def waiting(self, theta: Floats) -> tuple[Floats, Floats]:
        """(R,) waiting, inf where overloaded, and (R,) load over capacity."""
        load, load2 = theta @ self.load, theta @ self.load2
        left = self.capacity - load
        wait = np.where(left > 0, load2 / (2 * self.pooled * np.where(left > 0, left, 1.0)), np.inf)
        return wait, load / self.capacity

    def value(self, theta: Floats) -> tuple[float, Floats]:
        """Σ β τ of probabilities at the waiting that they cause, and that waiting."""
        wait, _ = self.waiting(theta)
        return (float(theta @ self.costs(wait)) if np.isfinite(wait).all() else np.inf), wait

    def relaxed(self, low_s: Floats, high_s: Floats) -> tuple[float, Floats] | None:
        """The linear program with the costs at `low_s` and the constraints at `high_s`; None: infeasible."""
        return self.cheapest(self.costs(low_s), high_s)

    def marginal(self, theta: Floats) -> Floats:
        """(N,) what a little more of each placement costs: its own time, and what it adds to all waiting."""
        wait, _ = self.waiting(theta)
        lines = self.base + self.visits @ wait
        longest = self.visits[np.arange(len(lines)), lines.argmax(axis=1)]
        waiting_qps = (theta * self.rates) @ longest  # visits per second to each resource
        left = self.capacity - theta @ self.load
        slope = (self.load2 + 2 * self.pooled * wait * self.load) / (2 * self.pooled * left)
        return np.asarray(self.rates * lines.max(axis=1) + slope @ waiting_qps)

    def cheapest(self, costs: Floats, high_s: Floats) -> tuple[float, Floats] | None:
        """Probabilities with the least total of given costs and waiting below `high_s`; None: infeasible."""
        most = 2 * high_s * self.pooled
        rows = (self.load2 + most * self.load).T
        scale = np.maximum(rows.max(axis=1), 1e-300)
        found = minimum(
            costs,
            Sparse.dense(rows / scale[:, None]).below(self.flows, scale.size),
            np.append(np.full(scale.size, -np.inf), self.flow_is),
            np.append(most * self.capacity / scale, self.flow_is),
        )
        return None if found is None else (found.cost, np.maximum(found.x, 0.0))


def _flows(program: LayoutProgram) -> tuple[Sparse, Floats]:
    """Chances sum to 1 in the first stage of a class; a sink's group is the next root's."""
    groups, count = len(program.layout.groups), program.variables
    rows: list[Floats] = []
    sums: list[float] = []
    start = np.cumsum([0, *(len(stage.root) for stage in program.stages)])
    for n, stage in enumerate(program.stages):
        mine = np.zeros(count)
        if n == 0 or program.stages[n - 1].job != stage.job:
            mine[start[n] : start[n + 1]] = 1.0
            rows.append(mine)
            sums.append(1.0)
            continue
        before = program.stages[n - 1]
        for g in range(groups):
            mine = np.zeros(count)
            mine[start[n - 1] : start[n]] = before.sink == g
            mine[start[n] : start[n + 1]] = -(stage.root == g).astype(float)
            rows.append(mine)
            sums.append(0.0)
    return Sparse.dense(np.array(rows)), np.array(sums)


def optimise_layout(program: LayoutProgram, gap: float = GAP, most: int = 5_000) -> LayoutPlan:
    """The probabilities that minimise Σ β τ.

    Args:
        gap: relative difference between value and bound at which to stop, > 0.
        most: boxes to look at before giving up.
    Raises:
        PolicyError: the servers cannot do the work, or `most` boxes did not suffice.
    """
    if not gap > 0:
        raise PolicyError(f"gap must be above 0, got {gap}")
    a = _Arrays(program)
    best, theta = _first(a)
    high = _longest(a, best)
    serial = itertools.count()
    boxes = [(0.0, next(serial), np.zeros_like(high), high)]
    settled, count = best, 0  # the least bound of boxes that were not split
    while boxes and boxes[0][0] < best * (1 - gap) and count < most:
        least, _, low, high = heapq.heappop(boxes)
        count += 1
        found = a.relaxed(low, high)
        if found is None:
            continue
        least = max(least, found[0])
        value, wait = a.value(found[1])
        if value < best:
            best, theta = value, found[1]
        if least >= best * (1 - gap):
            settled = min(settled, least)
            continue
        for part in _halves(a, found[1], low, high, wait):
            heapq.heappush(boxes, (least, next(serial), *part))
    bound = min([best, settled, *(box[0] for box in boxes[:1])])
    queries = sum(job.rate_qps for job in program.classes)
    wait, load = a.waiting(theta)
    plan = LayoutPlan(program, theta, best / queries, wait, load, bound / queries)
    if plan.gap > gap * (1 + 1e-6):
        raise PolicyError(f"the gap is {plan.gap:.2g} after {count} boxes; allow more than most={most}")
    return plan


def renew_layout(plan: LayoutPlan, rates_qps: Sequence[float], rounds: int = ROUNDS) -> LayoutPlan:
    """A plan for other rates, fast: steps from the old one towards the cheapest at marginal costs.

    Each step is one linear program and a search along the line to its solution (Frank and Wolfe, 1956). The
    bound is that of the whole box, so the gap is certified but wide; `optimise_layout` closes it.

    Args:
        rounds: steps.
    Raises:
        PolicyError: the servers cannot do the work at these rates.
    """
    program = plan.program.with_rates(rates_qps)
    a = _Arrays(program)
    theta, (best, wait) = plan.theta, a.value(plan.theta)
    if not np.isfinite(best):  # the old plan cannot carry these rates
        best, theta = _first(a)
        wait = a.waiting(theta)[0]
    for _ in range(rounds):
        found = a.cheapest(a.marginal(theta), np.maximum(wait, wait.max()) * REACH)
        if found is None:
            break
        steps = [theta + share * (found[1] - theta) for share in SHARES]
        values = [a.value(step)[0] for step in steps]
        if min(values) >= best * (1 - 1e-4):
            break
        theta, best = steps[int(np.argmin(values))], min(values)
        wait = a.waiting(theta)[0]
    whole = a.relaxed(np.zeros_like(wait), _longest(a, best))
    bound = min(whole[0], best) if whole is not None else 0.0
    queries = sum(rates_qps)
    wait, load = a.waiting(theta)
    return LayoutPlan(program, theta, best / queries, wait, load, bound / queries)


def _first(a: _Arrays) -> tuple[float, Floats]:
    """A good start: costs and constraints at the same waiting, over several orders of magnitude."""
    best, theta = np.inf, np.zeros(0)
    typical = float(a.base.max())
    for factor in np.logspace(-4, 4, TRIES):
        wait = np.full(len(a.capacity), typical * factor)
        found = a.relaxed(np.zeros_like(wait), wait)
        for _ in range(4):
            if found is None:
                break
            value, wait = a.value(found[1])
            if value < best:
                best, theta = value, found[1]
            if not np.isfinite(wait).all():
                break
            found = a.relaxed(wait, np.maximum(2 * wait, typical * factor))
    if not np.isfinite(best):
        raise PolicyError("the servers cannot do the work at these rates; lower the rates or add servers")
    return best, theta


def _longest(a: _Arrays, best: float) -> Floats:
    """(R,) beyond this waiting every solution is worse than `best`.

    With load at most half, waiting is at most Σ λ s² / (n m). Otherwise placements of rate
    u ≥ n / (2 max Σ s) wait there, and the value is at least u times the waiting.
    """
    rates = a.rates[:, None]
    most, most2 = (a.load / rates).max(axis=0), a.load2.sum(axis=0)
    return np.asarray(np.maximum(most2 / (a.capacity * a.pooled), 2 * best * most / a.capacity)) + 1e-12


def _halves(
    a: _Arrays, theta: Floats, low: Floats, high: Floats, wait: Floats
) -> list[tuple[Floats, Floats]]:
    """Two boxes: split the resource whose waiting costs most that the bound leaves out."""
    visits = theta * a.rates @ a.visits.sum(axis=1)
    over = np.minimum(np.where(np.isfinite(wait), wait, high), high) - low
    gain = np.maximum(over, 0.0) * visits + 1e-9 * (high - low) * (visits.max() + 1.0)
    r = int(np.argmax(gain))
    middle = (low[r] + high[r]) / 2
    if np.isfinite(wait[r]) and low[r] < wait[r] < high[r]:
        middle = max(wait[r], low[r] + 0.02 * (high[r] - low[r]))
        middle = min(middle, (low[r] + high[r]) / 2)
    first, second = high.copy(), low.copy()
    first[r] = second[r] = middle
    return [(low, first), (second, high)]
