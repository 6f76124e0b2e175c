"""What workers measure and report: queue, throughput, delay quantiles.

A histogram of sojourns with bins of equal ratio makes quantiles exact within 12 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgewise.core.compiled import kernel

if TYPE_CHECKING:
    from edgewise.sim.streams import Streams, Workers

DELAY_BINS = 160  # reach 1,000 s
BINS_PER_DECADE = 20.0
SHORTEST_S = 1e-5


@kernel
def delay_bin(delay_s: float) -> int:
    """Bin of a sojourn: 20 a decade from 10 µs."""
    if delay_s <= SHORTEST_S:
        return 0
    return min(int(np.log10(delay_s / SHORTEST_S) * BINS_PER_DECADE) + 1, DELAY_BINS - 1)


@kernel
def waiting_at(now_s: float, s: Streams, workers: Workers) -> NDArray[np.float64]:
    """(W,) queries waiting or in service at `now_s`."""
    queue = np.zeros(workers.size.size)
    for w in range(queue.size):
        waiting = workers.held[w]
        for k in range(workers.size[w]):
            i = workers.members[w, k]
            late = now_s - s.arrival_s[i]
            if late >= 0.0:  # only a stream's oldest query is held: count those behind it by rate
                waiting += 1 + int(late * s.rate_qps[i])
        for c in range(workers.servers[w]):
            if workers.free_s[w, c] > now_s:
                waiting += workers.serving[w, c]
        queue[w] = waiting
    return queue


@kernel
def p95_s(workers: Workers) -> NDArray[np.float64]:
    """(W,) 95th percentile of the period's sojourns, 0 where nothing was answered."""
    quantile = np.zeros(workers.answered.size)
    for w in range(quantile.size):
        below, most = 0, 0.95 * workers.answered[w]
        for k in range(DELAY_BINS):
            below += workers.histogram[w, k]
            if workers.answered[w] > 0 and below >= most:
                quantile[w] = SHORTEST_S * 10.0 ** (k / BINS_PER_DECADE)
                break
    return quantile
