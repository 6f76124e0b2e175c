"""Forecasts of left-over capacity, and a safety layer that starts only what will fit.

A forecast has quantiles, by a daily profile and what persists of a deviation:

    E[C_{t+k} | C_t] = m_{t+k} + ρ_k (C_t - m_t)

m is the mean of each slot over past days, ρ_k comes from least squares for each lag k. The spread is
that of the residuals of each lag, so no distribution is assumed. Fit on training worlds or on a log.
"""

from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.defer import CapacityView, Slots
from edgewise.core.keyed import Key
from edgewise.policies.defer.rules import ScoreDeferral, turns


@dataclass(frozen=True, slots=True)
class Forecast:
    """A fitted forecast.

    Attributes:
        profile: (T, R) mean of each slot; it repeats beyond T.
        persistence: (K, R) ρ of each lag; lag 0 is 1.
        residuals: (K, R, S) sorted residuals of each lag; lag 0 has none but zeros.
    """

    profile: Floats
    persistence: Floats
    residuals: Floats

    @classmethod
    def fit(cls, left_over: Floats, ahead: int) -> "Forecast":
        """Fit on days that are over.

        Args:
            left_over: (W, T, R) series of W days or worlds, W >= 2.
            ahead: K, the number of slots a forecast covers, the present one included; K <= T.
        Raises:
            ValueError: fewer than two series, or `ahead` is not in 1 … T.
        """
        worlds, slots, kinds = left_over.shape
        if worlds < 2 or not 1 <= ahead <= slots:
            raise ValueError(f"needs 2 series or more and ahead in 1 … {slots}, got {worlds} and {ahead}")
        profile: Floats = left_over.mean(axis=0)
        off = left_over - profile
        persistence = np.ones((ahead, kinds))
        residuals = np.zeros((ahead, kinds, worlds * (slots - ahead + 1)))
        for lag in range(1, ahead):
            now, later = off[:, : slots - ahead + 1], off[:, lag : slots - ahead + 1 + lag]
            power = np.maximum((now * now).sum(axis=(0, 1)), 1e-12)
            persistence[lag] = (now * later).sum(axis=(0, 1)) / power
            rest = (later - persistence[lag] * now).reshape(-1, kinds)
            residuals[lag] = np.sort(rest, axis=0).T
        return cls(profile, persistence, residuals)

    @classmethod
    def steady(cls, ahead: int, kinds: int = 1) -> "Forecast":
        """Capacity stays as it is: for a system that has no past to fit on."""
        return cls(np.zeros((1, kinds)), np.ones((ahead, kinds)), np.zeros((ahead, kinds, 1)))

    @property
    def ahead(self) -> int:
        """K: slots covered, the present one included."""
        return int(self.persistence.shape[0])

    def expected(self, view: CapacityView) -> Floats:
        """(W, K, R) expected left-over capacity of this slot and the next ones."""
        slots = (view.now + np.arange(self.ahead)) % self.profile.shape[0]
        off = view.left_over - self.profile[slots[0]]
        return np.asarray(np.maximum(self.profile[slots] + self.persistence * off[:, None], 0.0))

    def surely(self, view: CapacityView, chance: float) -> Floats:
        """(W, K, R) what is left over in each slot but for a chance of at most `chance`.

        Conformal: the ⌊chance (S + 1)⌋-th smallest residual is added, so the bound holds for any
        distribution if residuals are exchangeable; with none small enough it is the smallest.
        """
        rank = max(0, int(np.floor(chance * (self.residuals.shape[2] + 1))) - 1)
        low: Floats = np.maximum(self.expected(view) + self.residuals[:, :, rank], 0.0)
        low[:, 0] = view.left_over
        return low


class Safe:
    """A safety layer: a job starts only if it fits, but for a chance of `chance`, in each slot it runs in.

    The bound is per slot and resource: when this policy decides, the running jobs exceed the capacity of
    a later slot with at most this probability, as far as the forecast's residuals are exchangeable with
    those it was fitted on. Jobs longer than the forecast are checked over its length.

    Args:
        policy: whose order is kept.
        forecast: fitted on other worlds.
        chance: in (0, 1).
    """

    decision, batched = "defer", True

    def __init__(self, policy: ScoreDeferral, forecast: Forecast, chance: float = 0.05) -> None:
        if not 0.0 < chance < 1.0:
            raise ValueError(f"chance is {chance}; it must be between 0 and 1, for example 0.05")
        self.name = f"safe-{policy.name}"
        self._policy, self._forecast, self._chance = policy, forecast, chance

    def reset(self, world: Slots, key: Key) -> None:
        """Start the inner policy anew."""
        self._policy.reset(world, key)

    def decide(self, view: CapacityView) -> Ints:
        """Jobs to start now, in turns."""
        room = self._forecast.surely(view, self._chance) - view.used(self._forecast.ahead)
        return turns(view, self._policy.score(view), room=room, skip=self._policy.skip)
