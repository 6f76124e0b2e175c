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
from edgewise.core.compiled import argsort, kernel


@kernel
def hull(load: Floats, cost: Floats, order: Ints, found: Ints) -> int:
    """Lower convex hull from the cheapest point without load to the cheapest of all.

    Args:
        load, cost: (K,) points; some point has load 0.
        order: (K,) the points by load.
        found: (K,) receives the hull: loads rise, costs fall, savings per load fall.
    Returns:
        Points of the hull.
    """
    size = 0
    for i in order:
        if size > 0 and load[i] == load[found[size - 1]]:
            if cost[i] >= cost[found[size - 1]]:
                continue
            size -= 1  # same load, cheaper
        if size > 0 and cost[i] >= cost[found[size - 1]]:
            continue
        while size > 1:
            a, b = found[size - 2], found[size - 1]
            if (cost[a] - cost[b]) * (load[i] - load[a]) > (cost[a] - cost[i]) * (load[b] - load[a]):
                break
            size -= 1
        found[size] = i
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
    found = np.empty(load.size, np.int64)
    rate = np.empty(load.size)  # what step i saves per load
    owner, to = np.empty_like(found), np.empty_like(found)
    steps, value = 0, 0.0
    for g in range(start.size - 1):
        a, b = start[g], start[g + 1]
        size = hull(load[a:b], cost[a:b], argsort(load[a:b]), found)
        low[g] = high[g] = a + found[0]
        value += weight[g] * cost[low[g]]
        for i in range(1, size):
            before, after = a + found[i - 1], a + found[i]
            owner[steps], to[steps] = g, after
            rate[steps] = (cost[before] - cost[after]) / (load[after] - load[before])
            steps += 1
    left = capacity
    for i in np.argsort(-rate[:steps], kind="mergesort"):
        g, after = owner[i], to[i]
        need, gain = weight[g] * (load[after] - load[low[g]]), weight[g] * (cost[low[g]] - cost[after])
        if need > left:
            high[g] = after
            return value - gain * left / need, g, left / need, rate[i]
        left -= need
        value -= gain
        low[g] = high[g] = after
    return value, -1, 0.0, 0.0
