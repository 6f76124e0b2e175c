"""What must hold of the ledger of streams after every event; tests ask."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgewise.core.dispatch import state
from edgewise.core.dispatch.views import DECLARED, Item
from edgewise.core.world import World


def check_ledger(world: World, known: state.State, bound: Mapping[int, tuple[Item, int]]) -> None:
    """Check that the ledger is the sum of its bindings, that each may be, and that nothing is exceeded.

    Args:
        bound: by stream what it needs, and its worker.
    Raises:
        AssertionError: it does not hold; says what.
    """
    real = known.real
    load, streams = np.zeros_like(real[state.LOAD]), np.zeros_like(known.whole[state.STREAMS])
    declared = np.zeros(world.link_bps.size)
    for item, worker in bound.values():
        load[worker] += state.share_of(real, worker, item.rate_qps, item.size_bytes)
        streams[worker] += 1
        path = world.path[item.site, world.cluster[worker]]
        declared[path[path >= 0]] += item.rate_qps * item.size_bytes * 8.0
        assert world.task[worker] == item.task, "bound to a worker of another task"
        assert world.accuracy[worker] >= item.min_accuracy, "bound below its accuracy"
        assert known.up[worker], "bound to a worker that is down"
    elsewhere = real[state.ELSEWHERE]
    assert np.allclose(load + elsewhere, real[state.LOAD]), "load differs from the sum of the bindings"
    assert (streams == known.whole[state.STREAMS]).all(), "stream count differs from the bindings"
    # A day of openings and closings leaves rounding of far less than a bit.
    same = np.allclose(declared, known.link[DECLARED], atol=1.0)
    assert same, "declared rates differ from the sum of the bindings"
    assert (load <= world.capacity_qps * (1 + 2 * state.TOLERANCE)).all(), "a worker is over capacity"
