"""Lookahead dispatch: roll every static policy forward from the view, keep the best for a window.

It needs no training and works live: it reads views only. It lies beside the simulator because it
simulates; `edgewise` offers it to the registry.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.core.dispatch.views import DispatchView, Rows
from edgewise.core.keyed import Key, Purpose
from edgewise.core.world import World
from edgewise.policies.dispatch.meta import ALL, MetaPolicy
from edgewise.sim.streams.habits import Habits
from edgewise.sim.streams.rollout import EstimatedFuture, Rollout, Slice, empty_view

PIECE_S = 0.6


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
        self._habits, self._key, self._index = Habits(), Key(key.seed, int(Purpose.ROLLOUT)), 0
        self._last_s: float | None = None
        self._compile()
        self._use(self._fallback())

    def choose(self, view: DispatchView) -> int:
        """The policy whose rollouts answer most queries in time; before anything came, load balancing."""
        if view.bound is None:
            return self._fallback()
        window_s = 25.0 if self._last_s is None else max(view.now_s - self._last_s, 1.0)
        self._last_s, self._index = view.now_s, self._index + 1
        self._habits.watch(view)
        if not view.bound.worker.size:
            return self._fallback()
        scores = np.zeros(len(self.actions))
        for sample in range(self.samples):
            number = self._index * self.samples + sample
            plan = self._habits.plan(view, window_s, self.horizon_s, self._key, number)
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
