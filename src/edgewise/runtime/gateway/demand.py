"""What streams ask of pools of workers at a gateway, counted as in simulation (`core.dispatch.demand`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.demand import Asked, ask
from edgewise.core.dispatch.state import STREAMS
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import CODES, Items, Rows
from edgewise.core.world import World
from edgewise.model.work import Stream

FIRST = np.zeros(1, dtype=np.int64)


class Demand:
    """Totals since the gateway began.

    Args:
        world: of the gateway.
        pool_of: (W,) pool of each worker, -1 of one that is there for good.
    """

    def __init__(self, world: World, pool_of: Ints) -> None:
        self._world, self._pool_of = world, pool_of.tolist()
        self._asked, self._waiting = Asked.of(pool_of), Asked.of(pool_of)
        self._judged = [[0, 0] for _ in self._asked.share]  # queries in time, and all

    def came(self, core: DispatchCore, stream: Stream) -> None:
        """A stream was opened and decided."""
        if self._judged:
            _count(core, stream, self._asked)

    def left(self, core: DispatchCore, stream: Stream) -> None:
        """A stream that its worker did not grant was decided anew."""
        if self._judged and core.final(stream.id):
            _count(core, stream, self._asked, fresh=False)

    def judged(self, worker: int, in_time: bool) -> None:
        """A query of a stream came back from a worker, or is lost."""
        if self._judged and (pool := self._pool_of[worker]) >= 0:
            self._judged[pool][0] += in_time
            self._judged[pool][1] += 1

    def report(
        self,
        core: DispatchCore,
        in_flight: Sequence[int],
        requests_qps: Floats,
        wanted: Sequence[bool],
        up: Sequence[bool],
    ) -> dict[str, Any]:
        """Workers of pools as they are here, and by pool what was asked; as JSON values."""
        self._waiting.clear()
        for stream, reason in core.refused.items():
            rows = Rows.of([core.books.item(stream)])
            ask(core.loads.state, rows, FIRST, np.array([CODES[reason]], dtype=np.int8), False, self._waiting)
        load, streams = core.loads.own_qps + requests_qps, core.loads.state.whole[STREAMS]
        workers = {
            self._world.worker_names[w]: {
                "wanted": wanted[w], "up": up[w], "streams": int(streams[w]),
                "held": int(streams[w]) + int(in_flight[w]),
                "load": float(load[w] / self._world.capacity_qps[w]),
            }
            for w, pool in enumerate(self._pool_of)
            if pool >= 0
        }  # fmt: skip
        a = self._asked
        return {
            "workers": workers, "asked": a.asked.tolist(), "unserved": a.unserved.tolist(),
            "refused": a.refused.tolist(), "judged": self._judged, "waiting": self._waiting.unserved.tolist(),
            "waiting_refused": self._waiting.refused.tolist(),
        }  # fmt: skip


def _count(core: DispatchCore, stream: Stream, found: Asked, fresh: bool = True) -> None:
    rows = Rows.of(Items.of(core.world, (stream,)).rows)
    why = CODES[core.refused[stream.id]] if core.final(stream.id) else 0
    ask(core.loads.state, rows, FIRST, np.array([why], dtype=np.int8), fresh, found)


def rehearse(core: DispatchCore, stream: Stream) -> None:
    """Have it compiled before it counts."""
    pools = np.where(core.world.at_first, -1, 0)
    if (pools >= 0).any():
        _count(core, stream, Asked.of(pools))
