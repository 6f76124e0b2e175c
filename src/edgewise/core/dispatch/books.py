"""Which streams are open, where they are bound, and why others are not: the books beside the ledger."""

from collections.abc import Container, Mapping

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Ints
from edgewise.core.dispatch import events, state
from edgewise.core.dispatch.policy import OPEN, Batch
from edgewise.core.dispatch.views import DECLARED, REASONS, Bound, Item, Rows, Violation
from edgewise.core.world import World


class Books:
    """Open streams.

    Attributes:
        bindings: stream id → worker index.
        refused: stream id → reason.
    """

    def __init__(self) -> None:
        self.bindings: dict[int, int] = {}
        self.refused: dict[int, str] = {}
        # Needs (or rows and where in them: an item is made when asked for), and time of opening.
        self._open: dict[int, tuple[Item | Rows, int, float]] = {}

    def open(self, item: Item, now_s: float) -> None:
        """A stream opens.

        Raises:
            ValueError: it is open already.
        """
        if item.id in self._open:
            raise ValueError(f"stream {item.id} is open already")
        self._open[item.id] = (item, 0, now_s)

    def item(self, stream_id: int) -> Item:
        """What an open stream needs."""
        needs, i, _ = self._open[stream_id]
        return needs if isinstance(needs, Item) else needs.item(i)

    def bound(self) -> Bound:
        """All that are bound."""
        held = [(self.item(i), self._open[i][2]) for i in self.bindings]
        return Bound.of(held, self.bindings.values())

    def answer(self, stream_id: int) -> events.Command:
        """Where a stream is bound, or why not."""
        if stream_id in self.bindings:
            return events.Bind(stream_id, self.bindings[stream_id])
        return events.Refuse(stream_id, self.refused[stream_id])

    def forget(self, stream_id: int) -> None:
        """Drop a closed stream (its load has been released).

        Raises:
            ValueError: it is not open.
        """
        if stream_id not in self._open:
            raise ValueError(f"stream {stream_id} is not open")
        self.bindings.pop(stream_id, None)
        self.refused.pop(stream_id, None)
        del self._open[stream_id]

    def note(self, batch: Batch, played: int, rows: Rows, worker: Ints, reason: NDArray[np.int8]) -> None:
        """Note what compiled code decided. Streams that came and went leave no trace.

        Args:
            played: so many events of the batch were. rows, worker, reason: as `DispatchCore.play`.
        Raises:
            ValueError: a stream was open already, or is closed and was not open.
        """
        row, opening = batch.row[:played], batch.kind[:played] == OPEN
        came, went = np.zeros((2, rows.id.size), dtype=np.bool_)
        opened, closed = row[opening], row[~opening]
        came[opened], went[closed] = True, True
        if not self._open.keys().isdisjoint(rows.id[opened].tolist()):
            raise ValueError("a stream to be opened is open already")
        stay, stay_s = opened[~went[opened]], batch.time_s[:played][opening][~went[opened]]
        for i, stream_id, w, at_s in zip(
            stay.tolist(), rows.id[stay].tolist(), worker[stay].tolist(), stay_s.tolist(), strict=True
        ):
            self._open[stream_id] = (rows, i, at_s)
            if w >= 0:
                self.bindings[stream_id] = w
            else:
                self.refused[stream_id] = REASONS[Violation(int(reason[i]))]
        for stream_id in rows.id[closed[~came[closed]]].tolist():
            self.forget(stream_id)

    def took(self, rows: Rows, i: int, at_s: float, worker: int, reason: int) -> None:
        """Note that row `i` opened, and what compiled code decided; nothing new where it is known already."""
        stream_id = int(rows.id[i])
        self._open[stream_id] = (rows, i, at_s)
        if worker >= 0:
            self.bindings[stream_id] = worker
        else:
            self.refused[stream_id] = REASONS[Violation(reason)]

    def check(self) -> None:
        """Check that every open stream is bound or refused."""
        assert not self.bindings.keys() & self.refused.keys(), "a stream is both bound and refused"
        assert self.bindings.keys() | self.refused.keys() == self._open.keys(), "a stream was lost"


def check_ledger(
    world: World, known: state.State, bound: Mapping[int, tuple[Item, int]], draining: Container[int] = ()
) -> None:
    """Check that the ledger is the sum of its bindings, that each may be, and that nothing is exceeded.

    Args:
        bound: by stream what it needs, and its worker.
        draining: workers that are to go, which keep what nobody else has room for.
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
        assert known.up[worker] or worker in draining, "bound to a worker that is down"
    elsewhere = real[state.ELSEWHERE]
    assert np.allclose(load + elsewhere, real[state.LOAD]), "load differs from the sum of the bindings"
    assert (streams == known.whole[state.STREAMS]).all(), "stream count differs from the bindings"
    # A day of openings and closings leaves rounding of far less than a bit.
    same = np.allclose(declared, known.link[DECLARED], atol=1.0)
    assert same, "declared rates differ from the sum of the bindings"
    assert (load <= world.capacity_qps * (1 + 2 * state.TOLERANCE)).all(), "a worker is over capacity"
