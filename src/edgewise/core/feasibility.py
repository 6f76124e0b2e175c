"""Which workers may serve an item, and why the others may not (ASET's four constraints).

`lay_out` is compiled; `assess` hands its figures to policies written in plain Python, and
`core.choose` calls it for policies that are compiled too. Both see the same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats
from edgewise.core.compiled import kernel
from edgewise.core.keyed import Purpose, finalise_of, prefix_of, uniform_of, unit_of
from edgewise.core.views import Candidates, DispatchView, Item, Violation
from edgewise.core.world import Links, Tables

TOLERANCE = 1e-9  # relative slack on capacity: a sum of shares may miss C_v by rounding
POLICY_DRAW, TIE = int(Purpose.POLICY), int(Purpose.TIE)
NO_NUMBER = -2  # a score is NaN
TASK, ACCURACY, DOWN, DELAY, CAPACITY = (
    int(v) for v in (Violation.TASK, Violation.ACCURACY, Violation.DOWN, Violation.DELAY, Violation.CAPACITY)
)


class ItemArrays(NamedTuple):
    """What the constraints and scores of one item need; arrays are (W,), see `Candidates`."""

    network_s: Floats
    processing_s: Floats
    impedance_s: Floats
    share_qps: Floats
    violation: NDArray[np.int8]
    feasible: Bools
    draw: Floats


@kernel
def lay_out(t: Tables, way: Links, load_qps: Floats, up: Bools, seed: np.uint64, item: Item) -> ItemArrays:
    """Figures of every worker for one item, with the first violated constraint of each.

    Args:
        way: from the item's site to each cluster: (C,) arrays.
        load_qps, up: (W,) ledger.

    Feasible: the task matches; A_m >= A; the worker is up and reachable;
    2(δ + d + 2σ) + ζ/u + D_v(ζ) <= D; L_w + η ρ <= C_v.              (ASET, feasibility 1-4)

    u is the slower of the client's uplink and the link to the cluster.
    """
    count = load_qps.size
    network, processing, impedance = np.empty(count), np.empty(count), np.empty(count)
    share, draw = np.empty(count), np.empty(count)
    violation, feasible = np.empty(count, dtype=np.int8), np.empty(count, dtype=np.bool_)
    reach_s, carry_s = _ways(t, way, item)
    key = prefix_of(seed, POLICY_DRAW, item.id)
    # One loop for each column where it can be: the compiler turns those into vector instructions.
    for w in range(count):
        processing[w] = t.fixed_s[w] + t.per_byte_s[w] * item.size_bytes
    for w in range(count):
        share[w] = item.rate_qps * min(processing[w] / t.largest_s[w], 1.0)
    for w in range(count):
        draw[w] = unit_of(finalise_of(key, w))
    for w in range(count):
        c = t.cluster[w]
        network[w] = reach_s[c]
        impedance[w] = 2.0 * network[w] + processing[w]
        first = 0  # tested last to first, so that the first violated one stays
        if load_qps[w] + share[w] > t.capacity_qps[w] * (1.0 + TOLERANCE):
            first = CAPACITY
        if carry_s[c] + impedance[w] > item.deadline_s:
            first = DELAY
        if not up[w] or not network[w] < np.inf:
            first = DOWN
        if t.accuracy[w] < item.min_accuracy:
            first = ACCURACY
        if t.task[w] != item.task:
            first = TASK
        violation[w] = first
        feasible[w] = first == 0
    return ItemArrays(network, processing, impedance, share, violation, feasible, draw)


@kernel
def _ways(t: Tables, way: Links, item: Item) -> tuple[Floats, Floats]:
    """(C,) d + 2σ to each cluster, and access delay both ways with the upload, 2δ + ζ/u."""
    reach_s, carry_s = np.empty(way.delay_s.size), np.empty(way.delay_s.size)
    bits, access = item.size_bytes * 8.0, 2.0 * t.access_delay_s[item.site]
    for c in range(reach_s.size):
        reach_s[c] = way.delay_s[c] + 2.0 * way.deviation_s[c]
        carry_s[c] = access + bits / min(t.uplink_bps[item.site], way.bandwidth_bps[c])
    return reach_s, carry_s


@kernel
def share_of(t: Tables, w: int, rate_qps: float, size_bytes: float) -> float:
    """η ρ: a rate, normalised by the cost of its queries relative to the worker's largest input.

    η = D_v(ζ) / D_v(ζ_max), at most 1                         (ASET, fractional load)
    """
    cost = t.fixed_s[w] + t.per_byte_s[w] * size_bytes
    return float(rate_qps * min(cost / t.largest_s[w], 1.0))


def assess(view: DispatchView, item: Item) -> Candidates:
    """The view of one item: what `score(view, item)` reads."""
    world = view.world
    seed = np.uint64(view.seed & 0xFFFFFFFFFFFFFFFF)
    way = Links(*(array[item.site].copy() for array in view.links))
    layout = lay_out(world.tables, way, view.load_qps.copy(), view.up.copy(), seed, item)
    return Candidates(
        now_s=view.now_s,
        load_qps=view.load_qps,
        streams=view.streams,
        up=view.up,
        capacity_qps=world.capacity_qps,
        accuracy=world.accuracy,
        cluster=world.cluster,
        node=world.node,
        network_s=layout.network_s,
        processing_s=layout.processing_s,
        impedance_s=layout.impedance_s,
        share_qps=layout.share_qps,
        violation=layout.violation,
        feasible=layout.feasible,
        draw=layout.draw,
        queue=view.queue,
        throughput_qps=view.throughput_qps,
        delay_mean_s=view.delay_mean_s,
        delay_p95_s=view.delay_p95_s,
        age_s=view.age_s,
    )


@kernel
def refusal(violation: NDArray[np.int8]) -> int:
    """Why an item cannot be served at all: the constraint that the best worker failed.

    Constraints are ordered from what can never change to what changes every moment, so the
    largest code is the nearest miss. No workers at all reads as "no worker implements the task".
    """
    nearest = TASK
    for code in violation:
        nearest = max(nearest, code)
    return nearest


@kernel
def least(scores: Floats, feasible: Bools, seed: np.uint64, item: int) -> int:
    """The feasible worker of smallest score, ties broken at random, keyed by run and item.

    Returns:
        A worker, -1 when none is feasible, `NO_NUMBER` when a feasible worker's score is NaN.
    """
    best, ties = -1, 0
    for w in range(feasible.size):
        if feasible[w]:
            if np.isnan(scores[w]):
                return NO_NUMBER
            if best < 0 or scores[w] < scores[best]:
                best, ties = w, 1
            elif scores[w] == scores[best]:
                ties += 1
    if ties > 1:
        skip = int(uniform_of(seed, TIE, item, 0) * ties)
        for w in range(best, feasible.size):
            if feasible[w] and scores[w] == scores[best]:
                if skip == 0:
                    return w
                skip -= 1
    return best
