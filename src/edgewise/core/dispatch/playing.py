"""Many decisions about streams in one compiled loop; the score of a policy enters as a first-class function.

So one loop serves every policy, and gives the answers of `DispatchCore.handle`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.dispatch.state import (
    DELAY_MEAN,
    DELAY_P95,
    DRAW,
    IMPEDANCE,
    LOAD,
    NETWORK,
    NONE,
    PROCESSING,
    QUEUE,
    SHARE,
    STREAMS,
    THROUGHPUT,
    WAIT,
    State,
    Weights,
    bind,
    least,
    release,
    weigh,
)
from edgewise.core.dispatch.views import Candidates, Item, Rows
from edgewise.core.held import held
from edgewise.core.world import ACCURACY, CAPACITY, CLUSTER, NODE

WRONG_SIZE, RAISED = -3, -4  # what may be wrong with scores, beside `state.NO_NUMBER`
OPEN, CLOSE = 1, 0  # kinds of events


class Batch(NamedTuple):
    """Openings and closings in order of time, (E,) each; `row` points into `Rows`."""

    time_s: Floats
    kind: Ints
    row: Ints


@kernel
def choose(score: Any, x: State, now_s: float, item: Item, found: Weights) -> tuple[int, int]:
    """Decide one item: (worker, 0), (-1, reason), or (`NO_NUMBER` | `WRONG_SIZE` | `RAISED`, 0).

    Args:
        score: a compiled score, called as score(None, view, item).
    """
    why = weigh(x, item, found)
    if why != NONE:
        return -1, why
    view = Candidates(
        now_s,
        x.real[LOAD],
        x.whole[STREAMS],
        x.up,
        x.real[CAPACITY],
        x.real[ACCURACY],
        x.whole[CLUSTER],
        x.whole[NODE],
        found.figures[NETWORK],
        found.figures[PROCESSING],
        found.figures[IMPEDANCE],
        found.figures[SHARE],
        found.violation,
        found.feasible,
        found.figures[DRAW],
        x.real[QUEUE],
        x.real[THROUGHPUT],
        x.real[DELAY_MEAN],
        x.real[DELAY_P95],
        found.figures[WAIT],
        now_s - x.measured_s,
    )
    scores = found.figures[DRAW]
    try:
        scores = score(None, held(view), item)
    except Exception:  # foreign code; whatever it raises, plain Python will raise again and be caught
        return RAISED, NONE
    if scores.size != x.up.size:
        return WRONG_SIZE, NONE
    return least(scores, found.violation, x.seed, item.id), NONE


@kernel
def play(
    score: Any, state: State, room: Weights, batch: Batch, rows: Rows, worker: Ints, reason: NDArray[np.int8]
) -> int:
    """Decide openings and book closings in order.

    Args:
        room: to weigh items in.
        worker: (N,) where each row is or was bound last, -1 nowhere; written to.
        reason: (N,) why a row was refused, 0 when it was not; written to.
    Returns:
        How many events were played; fewer than given when the next one's scores are wrong.
    """
    x, needs, found = held(state), held(rows), held(room)
    for e in range(batch.row.size):
        i = batch.row[e]
        if batch.kind[e] == CLOSE:
            if worker[i] >= 0:
                release(x, needs.site[i], worker[i], needs.rate_qps[i], needs.size_bytes[i])
            continue
        item = Item(
            needs.id[i],
            needs.site[i],
            needs.task[i],
            needs.rate_qps[i],
            needs.size_bytes[i],
            needs.deadline_s[i],
            needs.min_accuracy[i],
            needs.priority[i],
        )
        w, why = choose(score, x, batch.time_s[e], item, found)
        if w < -1:
            return e
        worker[i] = w
        reason[i] = why
        if w >= 0:
            bind(x, item.site, w, item.rate_qps, item.size_bytes)
    return batch.row.size
