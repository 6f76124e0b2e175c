"""Many policies rolled forward from one view over one future, fast enough for every window.

A `Twin` simulates every query of a horizon. Here bindings evolve over the whole horizon, which is
cheap, and queries are simulated in short slices of it: tight deadlines are lost or kept within
milliseconds, so a second tells as much as a minute. Both start from a view, never from the truth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.playing import CLOSE, OPEN, Batch, play
from edgewise.core.dispatch.policy import ScorePolicy, compiled
from edgewise.core.dispatch.state import State, Weights, state_of
from edgewise.core.dispatch.views import Bound, DispatchView, Rows
from edgewise.core.world import World
from edgewise.errors import RunError
from edgewise.sim.streams import queues as kernels, tables
from edgewise.sim.streams.queues import STREAM


class EstimatedFuture(NamedTuple):
    """An estimated future; times count from the view's now. N = bound streams, then those to come.

    rows: (N,) what they need. open_s, close_s: (N,) when they open (0: bound already) and close.
    """

    rows: Rows
    open_s: Floats
    close_s: Floats


class Slice(NamedTuple):
    """When queries are simulated, and for how long."""

    at_s: float
    lasts_s: float


class Bindings(NamedTuple):
    """What is bound on the way: a core's state, (N,) workers and refusals, how many events were played."""

    state: State
    worker: Ints
    reason: NDArray[np.int8]
    played: int

    def copy(self) -> Bindings:
        """The same, to go another way from here."""
        return Bindings(self.state.copy(), self.worker.copy(), self.reason.copy(), self.played)


class Rollout:
    """One view, one future, any number of policies.

    Args:
        view: as `tick` gets it, with the bound streams.
        plan: the same future for every policy.
        slices: in order of time.
        seed: keys noise and ties; not the run's.
    Raises:
        RunError: the view does not list its bound streams.
    """

    def __init__(
        self, view: DispatchView, plan: EstimatedFuture, slices: tuple[Slice, ...], seed: int
    ) -> None:
        if view.bound is None:
            raise RunError("rollout: the view lists no bound streams; use the view that `tick` gets")
        self._view, self._plan, self._slices = view, plan, slices
        self._seed = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
        begun = state_of(view, view.bound.items, view.bound.worker)
        self._state = begun._replace(measured_s=view.measured_s - view.now_s, seed=self._seed)
        count, held = plan.open_s.size, view.bound.worker.size
        self._worker = np.full(count, -1, dtype=np.int64)
        self._worker[:held] = view.bound.worker
        times = np.concatenate([plan.open_s[held:], plan.close_s])
        kinds = np.repeat([OPEN, CLOSE], [count - held, count])
        rows = np.concatenate([np.arange(held, count), np.arange(count)])
        order = np.lexsort((rows, kinds, times))
        self._events = Batch(times[order], kinds[order], rows[order])

    def success(self, policy: ScorePolicy) -> float:
        """Share of the queries of all slices that are answered in time if `policy` decides.

        Raises:
            RunError: numba cannot compile its score.
        """
        at, ok, total = self.begin(), 0.0, 0.0
        for piece in self._slices:
            at = self.play(at, policy, piece.at_s)
            good, sent = self.serve(piece, at)
            ok, total = ok + good, total + sent
        return ok / max(total, 1.0)

    def begin(self) -> Bindings:
        """As the view has it; nothing of the plan has happened."""
        return Bindings(self._state, self._worker, np.zeros(self._worker.size, dtype=np.int8), 0).copy()

    def play(self, at: Bindings, policy: ScorePolicy, until_s: float) -> Bindings:
        """Open and close streams up to a time as `policy` decides; `at` is used up.

        Raises:
            RunError: numba cannot compile its score.
        """
        score = compiled(policy)
        if score is None:
            raise RunError(f"rollout: {policy.name!r} cannot be compiled, so it cannot be rolled forward")
        end = int(np.searchsorted(self._events.time_s, until_s, side="right"))
        batch, room = _part(self._events, at.played, end), Weights.of(at.state.up.size)
        play(score, at.state, room, batch, self._plan.rows, at.worker, at.reason)
        return at._replace(played=end)

    def serve(self, piece: Slice, at: Bindings) -> tuple[float, float]:
        """(answered in time, sent) of one slice; refused streams send in vain."""
        plan, world, worker = self._plan, self._view.world, at.worker
        alive = (plan.open_s <= piece.at_s) & (plan.close_s > piece.at_s)
        refused = float(plan.rows.rate_qps[alive & (worker < 0)].sum()) * piece.lasts_s
        chosen = np.flatnonzero(alive & (worker >= 0))
        where = worker[chosen]
        workers = tables.worker_arrays(world)
        room = int(np.bincount(where, minlength=1).max(initial=1))
        workers = workers._replace(members=np.zeros((world.workers, room), dtype=np.int64))
        streams = self._streams(piece, chosen, where)
        tally = tables.new_tally(piece.lasts_s, piece.at_s + piece.lasts_s + 1.0, ())
        from_s = np.full(chosen.size, piece.at_s)
        ways = self._state.ways
        kernels.attach(np.arange(chosen.size), from_s, where, streams, workers, ways, self._seed, tally)
        kernels.advance_all(np.inf, streams, workers, ways, self._seed, tally)
        ok, failed, rejected = tally.queries.sum(axis=1).tolist()
        return float(ok), float(ok + failed + rejected) + refused

    def _streams(self, piece: Slice, chosen: Ints, worker: Ints) -> Any:
        rows = self._plan.rows
        s = np.zeros(chosen.size, dtype=STREAM).view(np.recarray)
        s.id = chosen
        for name in ("site", "rate_qps", "size_bytes", "deadline_s"):
            s[name] = getattr(rows, name)[chosen]
        cluster = self._view.world.cluster[worker]
        s.deadline_s -= self._view.backlog_s[s.site, cluster]  # held up on the way
        s.sent_s = s.from_s = piece.at_s
        s.close_s = piece.at_s + piece.lasts_s
        return s


def empty_view(world: World) -> DispatchView:
    """What a policy sees before anything came."""
    none, zeros = np.zeros(0), np.zeros(world.workers)
    bound = Bound(Rows.of([]), none.astype(np.int64), none)
    streams, up = zeros.astype(np.int64), zeros == 0.0
    return DispatchView(world, 0.0, 0, zeros, streams, up, zeros, zeros, zeros, zeros, 0.0, bound=bound)


def _part(events: Batch, start: int, end: int) -> Batch:
    return Batch(events.time_s[start:end], events.kind[start:end], events.row[start:end])
