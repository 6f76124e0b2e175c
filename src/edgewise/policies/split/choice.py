"""The linear program that is left of Nona's problem when the waiting time φ is fixed.

Each placement then costs a constant, and "waiting ≤ φ" is one linear constraint:

    minimise   Σ_t w_t Σ_Ω θ cost
    subject to Σ_t w_t Σ_Ω θ load ≤ capacity,   Σ_Ω θ = 1 and θ ≥ 0 for each t

with load = ΣS² + 2φ ΣS and capacity = 2φ. This is the linear relaxation of the multiple-choice knapsack
problem, so it needs no general solver: on the lower convex hull of each group's (load, cost) points, take
the steps that save most per load until the capacity is used up (Sinha and Zoltners, 1979). Hence an
optimum mixes two placements in at most one group and is deterministic in all others.
"""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.order import argsort


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
