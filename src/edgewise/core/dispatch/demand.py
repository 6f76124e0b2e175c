"""What streams ask of pools of workers that come and go, as `core.orchestrate` is told in every frame.

A stream asks of every pool one of whose workers, were it there and idle, would be of its task, accurate and
quick enough. So what several pools could serve counts for each of them: whoever decides knows that.
Forbidden here: I/O, clocks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.state import (
    DOWN,
    FULL,
    IMPEDANCE,
    INACCURATE,
    LATE,
    NO_ROOM,
    NONE,
    SENDING,
    SHARE,
    STARTING,
    WRONG_TASK,
    State,
    Weights,
    item_of,
    weigh,
)
from edgewise.core.dispatch.views import Rows
from edgewise.core.world import CAPACITY, NODE, World
from edgewise.kernels.compiled import held, kernel


class Asked(NamedTuple):
    """Of P pools since it was read last; see `core.orchestrate.ReplicaView.pools`.

    Attributes:
        pool: (W,) of each worker, -1 of one that is there for good.
        asked, unserved: (P,) load in workers' worth. refused: (P, 5) streams, by `core.orchestrate.REFUSED`.
        share: (P,) room to count one stream in. room: to weigh it in.
    """

    pool: Ints
    asked: Floats
    unserved: Floats
    refused: Ints
    share: Floats
    room: Weights

    @classmethod
    def of(cls, pool: Ints) -> "Asked":
        """Nothing was asked yet."""
        pools = int(pool.max(initial=-1)) + 1
        nothing = np.zeros((3, pools))
        refused = np.zeros((pools, 5), dtype=np.int64)
        return cls(pool, nothing[0], nothing[1], refused, nothing[2], Weights.of(pool.size))

    def clear(self) -> None:
        """It was read."""
        self.asked[:] = self.unserved[:] = 0.0
        self.refused[:] = 0


@kernel
def ask(x: State, whole: Rows, streams: Ints, reason: NDArray[np.int8], fresh: bool, found: Asked) -> None:
    """Count streams that came, or wait still.

    Args:
        x: of the gateway to which they came.
        whole: all streams; those in `streams` are meant.
        reason: of each row why it was refused, 0 when it was not.
        fresh: they have come since `found` was cleared, and did not wait before.
    """
    rows, figures, never = held(whole), found.room.figures, found.room.violation
    for i in streams:
        item = item_of(rows, i)
        weigh(x, item, found.room)
        found.share[:] = 0.0
        for w in range(x.up.size):
            p = found.pool[w]
            if p < 0 or never[w] == WRONG_TASK or never[w] == INACCURATE:
                continue
            if figures[SENDING, w] + figures[IMPEDANCE, w] <= item.deadline_s:
                found.share[p] = figures[SHARE, w] / x.real[CAPACITY, w]
        why = reason_column(reason[i])
        for p in range(found.share.size):
            if found.share[p] > 0.0:
                found.asked[p] += found.share[p] if fresh else 0.0
                if reason[i] != NONE:
                    found.unserved[p] += found.share[p]
                if why >= 0:
                    found.refused[p, why] += 1


@kernel(allocates=False)
def reason_column(reason: int) -> int:
    """Where `core.orchestrate.REFUSED` has a reason, or -1."""
    if reason == DOWN:
        return 0
    if reason == LATE:
        return 1
    if reason == FULL:
        return 2
    if reason == NO_ROOM:
        return 3
    return 4 if reason == STARTING else -1


def bound_load(world: World, own_qps: Sequence[Floats], pool: Ints, nodes: Ints, count: int) -> Floats:
    """(N, P) load of the streams that gateways have bound, in workers' worth.

    Args:
        own_qps: of each gateway, see `LoadLedger.own_qps`.
        pool: (W,) of each worker, -1 of one that is there for good.
        nodes: (V,) which of the N rows each node of the world is, -1: none.
        count: N.
    """
    pools = int(pool.max(initial=-1)) + 1
    found, mine = np.zeros((count, pools)), pool >= 0
    each = sum(own_qps) / world.real[CAPACITY]
    where = nodes[world.whole[NODE, mine]]
    np.add.at(found, (where, pool[mine]), np.asarray(each)[mine])
    return np.maximum(found, 0.0)
