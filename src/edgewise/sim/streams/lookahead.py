"""Lookahead dispatch: roll every static policy forward from the view, keep the best for a window.

It needs no training and works live: it reads views only. It lies beside the simulator because it simulates;
`edgewise` offers it to the registry.

What clients do is learned from what views show: who comes, and how long streams last. Views list the streams
that are bound at each window. Nothing here knows an application's name, its arrival rate, or when a stream
will end.
"""

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.dispatch.views import Bound, DispatchView, Rows
from edgewise.core.keyed import Key, Purpose
from edgewise.core.world import World
from edgewise.policies.dispatch.meta import ALL, MetaPolicy
from edgewise.sim.streams.rollout import PIECE_S, EstimatedFuture, Rollout, Slice, empty_view

PRIOR_S, PRIOR_ENDS = 60.0, 0.5  # before anything was seen: half an end in a minute
MOST_KINDS = 10_000
MOST_COPIES = 8.0  # a stream seen stands for at most so many that ended before they could be seen
Kind = tuple[float, ...]


class Habits:
    """Estimates ends per second of each kind of stream, and the streams of the last window.

    A kind is what a view tells of a stream besides its rate: task, size, accuracy, tolerated delay in
    octaves. Within a kind ends come at a constant rate: ends seen / seconds watched.
    """

    def __init__(self) -> None:
        self._last: dict[int, Kind] = {}
        self._last_s = 0.0
        self._ends: dict[Kind, float] = {}
        self.watched_s: dict[Kind, float] = {}

    def watch(self, view: DispatchView) -> None:
        """Compare the bound streams with those of the window before."""
        assert view.bound is not None
        passed = view.now_s - self._last_s
        now = dict(zip(view.bound.items.id.tolist(), _kinds(view.bound), strict=True))
        for stream, kind in self._last.items():
            ended = stream not in now
            self._ends[kind] = self._ends.get(kind, 0.0) + ended
            self.watched_s[kind] = self.watched_s.get(kind, 0.0) + passed * (0.5 if ended else 1.0)
        self._last, self._last_s = now, view.now_s
        while len(self.watched_s) > MOST_KINDS:  # sizes are the clients' choice: the kinds known longest go
            kind = next(iter(self.watched_s))
            del self.watched_s[kind], self._ends[kind]

    def ends_per_s(self, kinds: list[Kind]) -> Floats:
        """(N,) rate at which streams of these kinds end."""
        rate = {
            kind: (self._ends.get(kind, 0.0) + PRIOR_ENDS) / (self.watched_s.get(kind, 0.0) + PRIOR_S)
            for kind in set(kinds)
        }
        return np.array([rate[kind] for kind in kinds], dtype=np.float64)

    def plan(
        self, view: DispatchView, window_s: float, horizon_s: float, key: Key, sample: int = 0
    ) -> EstimatedFuture:
        """A sampled future: the last window's arrivals come again and again, all lengths are drawn.

        A stream that opened u seconds ago is seen with probability exp(-h u), so it stands for
        exp(h u) like it                                                    (Horvitz and Thompson 1952).

        Args:
            key: of the draws.
            sample: number of the future; another one, another future.
        """
        bound = view.bound
        assert bound is not None
        rate = self.ends_per_s(_kinds(bound))
        recent = np.flatnonzero(bound.opened_s > view.now_s - window_s)
        age = view.now_s - bound.opened_s[recent]
        copies = np.minimum(np.exp(rate[recent] * age), MOST_COPIES)
        repeats = int(np.ceil(horizon_s / window_s)) if recent.size else 0
        picked, opens = [np.arange(bound.worker.size)], [np.zeros(bound.worker.size)]
        for k in range(repeats):
            draws = key.uniform(np.arange(recent.size), 3 * (sample * 64 + k))
            times = np.floor(copies + draws).astype(np.int64)
            picked.append(np.repeat(recent, times))
            jitter = key.uniform(np.arange(int(times.sum())), 3 * (sample * 64 + k) + 1)
            opens.append((k + jitter) * window_s)
        chosen, open_s = np.concatenate(picked), np.concatenate(opens)
        lasts = -np.log(key.uniform(np.arange(chosen.size), 3 * sample * 64 + 2)) / rate[chosen]
        rows = Rows(*(column[chosen].copy() for column in bound.items))  # type: ignore[arg-type]
        rows = rows._replace(id=np.arange(chosen.size))
        return EstimatedFuture(rows, open_s, open_s + lasts)


def _kinds(bound: Bound) -> list[Kind]:
    items = bound.items
    octave = np.round(2.0 * np.log2(items.deadline_s))
    columns = (items.task, items.size_bytes, items.min_accuracy, octave)
    return list(zip(*(column.tolist() for column in columns), strict=True))


class Lookahead(MetaPolicy):
    """Rolls every static policy forward over one sampled future at each window; the best decides.

    Args:
        actions: static policies to choose from; any that numba can compile.
        horizon_s: how far bindings are rolled; queries are simulated half-way and at its end.
        samples: futures; success is averaged over them.
    """

    name = "lookahead"

    def __init__(self, actions: Sequence[str] = ALL, horizon_s: float = 75.0, samples: int = 1) -> None:
        super().__init__(actions)
        self.horizon_s, self.samples = horizon_s, samples

    def reset(self, world: World, key: Key) -> None:
        """Forget what clients did."""
        super().reset(world, key)
        self.habits, self._key, self._index = Habits(), Key(key.seed, int(Purpose.ROLLOUT)), 0
        self._last_s: float | None = None
        self._compile()
        self._use(self._fallback())

    def choose(self, view: DispatchView) -> int:
        """The policy whose rollouts answer most queries in time; before anything came, load balancing."""
        if view.bound is None:
            return self._fallback()
        window_s = 25.0 if self._last_s is None else max(view.now_s - self._last_s, 1.0)
        self._last_s, self._index = view.now_s, self._index + 1
        self.habits.watch(view)
        if not view.bound.worker.size:
            return self._fallback()
        scores = np.zeros(len(self.actions))
        for sample in range(self.samples):
            number = self._index * self.samples + sample
            plan = self.habits.plan(view, window_s, self.horizon_s, self._key, number)
            slices = (Slice(self.horizon_s / 2.0, PIECE_S), Slice(self.horizon_s, PIECE_S))
            rollout = Rollout(view, plan, slices, int(self._key.uniform(number, 1) * 2**53))
            scores += [rollout.success(policy) for policy in self._policies]
        return int(scores.argmax())

    def _compile(self) -> None:
        """Roll every candidate over nothing, so that no window of a gateway waits for the compiler."""
        none = np.zeros(0)
        plan = EstimatedFuture(Rows.of([]), none, none)
        rollout = Rollout(empty_view(self.world), plan, (Slice(0.0, PIECE_S),), 0)
        for policy in self._policies:
            rollout.success(policy)

    def _fallback(self) -> int:
        best = ("slack-aware", "least-loaded-feasible", "load-balancing")
        return next((self.actions.index(name) for name in best if name in self.actions), 0)
