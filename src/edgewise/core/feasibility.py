"""Which workers may serve an item, and why the others may not (ASET's four constraints)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgewise.core import keyed
from edgewise.core.views import Candidates, DispatchView, Item, Violation
from edgewise.core.world import Floats, World

TOLERANCE = 1e-9  # relative slack on capacity: a sum of shares may miss C_v by rounding


def share_qps(world: World, item: Item) -> Floats:
    """η ρ: the item's rate, normalised by its cost relative to each worker's largest input.

    η = D_v(ζ) / D_v(ζ_max), at most 1                         (ASET, fractional load)

    Returns:
        (W,) queries/s at the largest input.
    """
    largest = world.fixed_s + world.per_byte_s * world.largest_bytes
    cost = world.fixed_s + world.per_byte_s * item.size_bytes
    share: Floats = item.rate_qps * np.minimum(cost / largest, 1.0)
    return share


def assess(view: DispatchView, item: Item) -> Candidates:
    """Lay out the view of one item, with the first violated constraint of every worker.

    Feasible: the task matches; A_m >= A; the worker is up; 2(δ + d + 2σ) + ζ/u + D_v(ζ) <= D;
    L_w + η ρ <= C_v.                                          (ASET, feasibility 1-4)
    """
    world = view.world
    reach = world.delay_s[item.site] + 2.0 * world.deviation_s[item.site]
    network = reach[world.cluster]
    processing = world.fixed_s + world.per_byte_s * item.size_bytes
    impedance = 2.0 * network + processing
    share = share_qps(world, item)
    upload = item.size_bytes * 8.0 / world.uplink_bps[item.site]
    end_to_end = 2.0 * world.access_delay_s[item.site] + upload + impedance
    return Candidates(
        now_s=view.now_s,
        load_qps=view.load_qps,
        streams=view.streams,
        up=view.up,
        capacity_qps=world.capacity_qps,
        accuracy=world.accuracy,
        cluster=world.cluster,
        node=world.node,
        network_s=network,
        processing_s=processing,
        impedance_s=impedance,
        share_qps=share,
        violation=_violations(view, item, end_to_end, share),
        draw=keyed.uniform(view.seed, keyed.Purpose.POLICY, item.id, np.arange(world.workers)),
        queue=view.queue,
        throughput_qps=view.throughput_qps,
        delay_mean_s=view.delay_mean_s,
        delay_p95_s=view.delay_p95_s,
        age_s=view.age_s,
    )


def _violations(view: DispatchView, item: Item, end_to_end_s: Floats, share: Floats) -> NDArray[np.int8]:
    world = view.world
    violation = np.zeros(world.workers, dtype=np.int8)
    # Written last to first, so that the first violated constraint stays.
    violation[view.load_qps + share > world.capacity_qps * (1.0 + TOLERANCE)] = Violation.CAPACITY
    violation[end_to_end_s > item.deadline_s] = Violation.DELAY
    violation[~view.up] = Violation.DOWN
    violation[world.accuracy < item.min_accuracy] = Violation.ACCURACY
    violation[world.task != item.task] = Violation.TASK
    return violation


def refusal(violation: NDArray[np.int8]) -> Violation:
    """Why an item cannot be served at all: the constraint that the best worker failed.

    Constraints are ordered from what can never change to what changes every moment, so the
    largest code is the nearest miss. No workers at all reads as "no worker implements the task".
    """
    return Violation(int(violation.max(initial=int(Violation.TASK))))
