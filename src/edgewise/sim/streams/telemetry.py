"""What simulated workers count, as live ones do, see `core.sojourns`, and what a period's counts say.

A histogram of sojourns with bins of equal ratio makes quantiles exact within 12 %.
"""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.dispatch.views import DispatchView
from edgewise.core.sojourns import DELAY_BINS, FINE_BITS
from edgewise.core.telemetry import LONGEST_S
from edgewise.kernels.compiled import kernel
from edgewise.sim.streams.state import Streams, Workers

# A float's sign, exponent and first 4 bits name its cell, 16 an octave: within one are two bins at most.
CELL_BITS = 48
FIRST_CELL = int(LONGEST_S[0].view(np.int64) >> CELL_BITS)
_STARTS_S = (np.arange(FIRST_CELL, (LONGEST_S[-1].view(np.int64) >> CELL_BITS) + 1) << CELL_BITS).view(
    np.float64
)
LOWER_BIN = np.searchsorted(LONGEST_S, _STARTS_S)  # of a cell
# The same with one bit more, for what is counted over a whole run.
FIRST_FINE = int(LONGEST_S[0].view(np.int64) >> FINE_BITS)
DELAY_CELLS = int(LONGEST_S[-1].view(np.int64) >> FINE_BITS) - FIRST_FINE + 1
# (DELAY_CELLS + 1,) delays at which cells begin and end.
CELL_ENDS_S = (np.arange(FIRST_FINE, FIRST_FINE + DELAY_CELLS + 1) << FINE_BITS).view(np.float64)


@kernel
def delay_cell(delay_s: float) -> int:
    """Cell of a delay, of which the longest is 3 % longer than the shortest; without a logarithm."""
    cell = int(np.float64(delay_s).view(np.int64) >> FINE_BITS) - FIRST_FINE
    return min(max(cell, 0), DELAY_CELLS - 1)


@kernel
def delay_bin(delay_s: float) -> int:
    """Bin of a sojourn: 20 a decade from 10 µs; without a logarithm, which nothing would hide."""
    cell = int(np.float64(delay_s).view(np.int64) >> CELL_BITS) - FIRST_CELL
    lower = LOWER_BIN[min(max(cell, 0), LOWER_BIN.size - 1)]
    return int(min(lower + (delay_s > LONGEST_S[lower]), DELAY_BINS - 1))


@kernel
def count_answers(k: int, c: int, workers: Workers) -> None:
    """Count the answers of the last batch of worker `k`'s server `c`, which has ended.

    A batch is worked out when it starts, and nobody can measure its answers before it ends.
    """
    w, server = workers.each[k], workers.servers[k, c]
    for j in range(server.uncounted):
        sojourn = workers.sojourn_s[k, c, j]
        w.answered += 1
        w.delay_sum_s += sojourn
        workers.histogram[k, delay_bin(sojourn)] += 1
    server.uncounted = 0


@kernel
def count_all_answers(now_s: float, workers: Workers) -> None:
    """Count the answers of every batch that has ended by `now_s`."""
    for k in range(workers.each.size):
        for c in range(workers.each[k].servers):
            if workers.servers[k, c].free_s <= now_s:
                count_answers(k, c, workers)


@kernel
def waiting_at(now_s: float, s: Streams, workers: Workers) -> Floats:
    """(W,) queries waiting or in service at `now_s`."""
    queue = np.zeros(workers.each.size)
    for k in range(queue.size):
        w = workers.each[k]
        waiting = float(w.held)
        for j in range(w.attached):
            q = s[workers.members[k, j].order]
            late = now_s - q.arrival_s
            if late >= 0.0:  # only a stream's oldest query is held: count those behind it by rate
                behind = min(late, q.close_s - q.sent_s) * q.rate_qps
                waiting += 1.0 + (behind if q.poisson else np.floor(behind))
        for c in range(w.servers):
            if workers.servers[k, c].free_s > now_s:
                waiting += workers.servers[k, c].serving
        queue[k] = waiting
    return queue


def backlog_s(view: DispatchView) -> Floats:
    """(W,) how long each worker's measured queue keeps it busy, served in full batches."""
    w = view.world
    full = (w.fixed_s + w.per_byte_s * w.largest_bytes) * (1.0 + w.batch_slope * (w.max_batch - 1))
    return view.queue * full / (w.max_batch * w.servers)
