"""Nona's problem solved to a certified gap, by interval branch and bound over the waiting time φ.

With φ fixed the problem is a linear program. Each placement then costs a constant, and "waiting ≤ φ" is one
linear constraint:

    minimise   Σ_t w_t Σ_Ω θ cost
    subject to Σ_t w_t Σ_Ω θ load ≤ capacity,   Σ_Ω θ = 1 and θ ≥ 0 for each t

with load = ΣS² + 2φ ΣS and capacity = 2φ. This is the linear relaxation of the multiple-choice knapsack
problem, so it needs no general solver: on the lower convex hull of each group's (load, cost) points, take the
steps that save most per load until the capacity is used up (Sinha and Zoltners, 1979). Hence an optimum mixes
two placements in at most one group and is deterministic in all others.

Its optimum V(φ) is neither monotone nor unimodal, so no line search is safe. But costs rise with φ, and the
set {θ: waiting ≤ φ} grows with it: on an interval [a, b] the program with the costs at a and the constraint
at b bounds every solution whose waiting time lies inside from below. Any θ it returns is a candidate: its
true value bounds the optimum from above. Intervals are halved, the lowest bound first, until the two meet.

Proof sketch: docs/decisions/0010-exact-splitting.md.

Nona by the state of the servers: a plan for each number of free servers, all optimised together.

Nona's formula draws from one plan, whatever goes on. Splitting pays while servers are free and costs when
they are not, so here a query that finds f servers free draws from a plan that uses at most ⌊share f⌋ of
them, and at least one. Which servers wait between two tasks of a query changes all the time; so f is
counted from the outstanding work: a query that runs is half done on average, and so much work is one
busy server. With p_f the chance of finding f free, class j becomes one class for each f, of
rate β_j p_f: the formula and its certified optimum stay as they are, the link is shared by all.

The query then *keeps to* as many servers as its plan needs: the parts of all its sub-graphs share them. If
every sub-graph chose anew, a query of few parts at a time would in the end have tasks on nearly all servers;
whoever comes next would find none free, and long tasks of others would stand in its way.

    p_f: number of busy servers in M/M/c at the same load (Erlang, 1917)
"""

import heapq
from dataclasses import dataclass, replace

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.errors import PolicyError
from edgewise.kernels.compiled import kernel
from edgewise.kernels.order import argsort
from edgewise.policies.split.program import Arrays, Group, Prediction, SplitProgram, assemble, free_chances
from edgewise.policies.split.subgraphs import Lines


@kernel
def hull(load: Floats, cost: Floats, first: int, last: int, order: Ints) -> int:
    """Lower convex hull from the cheapest point without load to the cheapest of all.

    Args:
        load, cost: (N,) points, of which those from `first` to `last` - 1 count; one of them has load 0.
        order: (N,) these points by load; from `first` on receives the hull: loads rise, costs fall, savings
            per load fall.
    Returns:
        The end of the hull in `order`.
    """
    size = first  # never beyond the point that is looked at
    for at in range(first, last):
        i = order[at]
        if size > first and load[i] == load[order[size - 1]]:
            if cost[i] >= cost[order[size - 1]]:
                continue
            size -= 1  # same load, cheaper
        if size > first and cost[i] >= cost[order[size - 1]]:
            continue
        while size > first + 1:
            a, b = order[size - 2], order[size - 1]
            if (cost[a] - cost[b]) * (load[i] - load[a]) > (cost[a] - cost[i]) * (load[b] - load[a]):
                break
            size -= 1
        order[size] = i
        size += 1
    return size


@kernel
def choose(
    load: Floats, cost: Floats, start: Ints, weight: Floats, capacity: float, low: Ints, high: Ints
) -> tuple[float, int, float, float]:
    """Solve the linear program.

    Args:
        load, cost: (N,) of the placements of all groups in turn.
        start: (G + 1,) first placement of each group; one of each group has load 0.
        weight: (G,) > 0.
        capacity: >= 0.
        low, high: (G,) receive the placement of each group, and where the mixed one goes to.
    Returns:
        Value; the group that mixes `low` and `high` (-1: none); its probability of `high`; shadow price.
    """
    order, owner = np.empty(load.size, np.int64), np.empty(load.size, np.int64)
    rate = np.empty(load.size)  # what a step to a placement saves per load
    by_rate = np.empty(load.size, np.int64)
    steps, value = 0, 0.0
    for g in range(start.size - 1):
        argsort(load, start[g], start[g + 1], order)
        end = hull(load, cost, start[g], start[g + 1], order)
        low[g] = high[g] = order[start[g]]
        value += weight[g] * cost[low[g]]
        for i in range(start[g] + 1, end):
            before, after = order[i - 1], order[i]
            owner[after] = g
            rate[after] = (cost[before] - cost[after]) / (load[after] - load[before])
            at = steps  # those that save most come first
            while at > 0 and rate[by_rate[at - 1]] < rate[after]:
                by_rate[at] = by_rate[at - 1]
                at -= 1
            by_rate[at] = after
            steps += 1
    left = capacity
    for i in range(steps):
        after = by_rate[i]
        g = owner[after]
        need, gain = weight[g] * (load[after] - load[low[g]]), weight[g] * (cost[low[g]] - cost[after])
        if need > left:
            high[g] = after
            return value - gain * left / need, g, left / need, rate[after]
        left -= need
        value -= gain
        low[g] = high[g] = after
    return value, -1, 0.0, 0.0


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


SHARE = 0.3
HALF_DONE = 0.5  # of the mean work of a query: outstanding work that counts as one busy server
RARE = 1e-6  # rates of 0 are refused


def mean_work_s(program: SplitProgram) -> float:
    """Mean time that a query needs on one server."""
    work = [sum(task.work_ops for task in job.graph.tasks) for job in program.classes]
    return float(program.rates_qps @ np.array(work)) / program.power_ops / float(program.rates_qps.sum())


def useful_servers(program: SplitProgram) -> int:
    """More servers than this no placement uses."""
    return max([1, *(int(group.lines.part.max()) + 1 for group in program.groups)])


def levels(program: SplitProgram, share: float = SHARE) -> Ints:
    """(servers + 1,) which plan is drawn from when so many servers are free: that for level + 1 servers.

    Raises:
        PolicyError: `share` is not from 0 to 1.
    """
    if not 0.0 <= share <= 1.0:
        raise PolicyError(f"share must be from 0 to 1, got {share}")
    used = np.floor(share * np.arange(program.servers + 1) + 1e-9)
    return np.asarray(np.clip(used, 1, useful_servers(program)).astype(np.int64) - 1)


def by_free(program: SplitProgram, share: float = SHARE) -> SplitProgram:
    """The program whose class j * L + l is class j while the plan for l + 1 servers applies.

    Args:
        program: with or without `queues`; its waits for servers are left out, for a plan is used only
            while as many servers are free.
        share: of the free servers that a query may take.
    """
    level = levels(program, share)
    chances = free_chances(mean_work_s(program) * float(program.rates_qps.sum()), program.servers)
    weight = np.maximum(np.bincount(level, weights=chances), RARE)
    count = len(weight)
    classes = tuple(
        replace(job, rate_qps=job.rate_qps * float(chance)) for job in program.classes for chance in weight
    )
    groups = tuple(
        Group(group.job * count + number, group.subgraphs, _within(group.lines, number + 1))
        for group in program.groups
        for number in range(count)
    )
    fixed = np.repeat(program.fixed_s, count)
    return assemble(
        classes, program.servers, program.power_ops, program.link_bps, groups, fixed, program.queues
    )


def _within(lines: Lines, servers: int) -> Lines:
    """The placements that use at most so many servers, which are free: nobody waits for them."""
    keep = lines.part.max(axis=1) < servers
    kept = Lines(*(column[keep] for column in lines))
    return kept._replace(visits=np.zeros_like(kept.visits))
