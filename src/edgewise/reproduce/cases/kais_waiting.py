"""Dispatch in the cloud: the same decisions, later by a round trip."""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestration import HOLD, ReplicaView, RequestPolicy, hosts
from edgewise.model.orchestration import System


class Centralised:
    """Asks a policy when a request becomes its site's head, and sends it `lag` slots later.

    If no replica is left where it was to go, it is asked again. What a site sees goes up with the request,
    so a decision is as old as its journey.

    Args:
        policy: that decides.
        lag: slots from the observation to the decision's arrival at the site.
    """

    def __init__(self, policy: RequestPolicy, lag: int) -> None:
        self.name, self._policy, self._lag = f"{policy.name} in the cloud", policy, lag

    def reset(self, world: System, key: Key) -> None:
        """Forget what is on its way."""
        self._policy.reset(world, key)
        self._head: Ints = np.zeros(0, dtype=np.int64)

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) decisions that have come down; HOLD for those on their way."""
        if self._head.shape != view.head.shape:
            self._head = np.full(view.head.shape, HOLD)
            self._station, self._left = np.full_like(self._head, HOLD), np.zeros_like(self._head)
        fresh = (view.head != self._head) & (view.head >= 0)
        possible = np.take_along_axis(hosts(view), np.maximum(self._station, 0)[:, :, None], axis=2)[:, :, 0]
        fresh |= (view.head >= 0) & ~possible
        asked = self._policy.decide(view)
        self._station = np.where(fresh, asked, self._station)
        self._left = np.where(fresh, self._lag, self._left - 1)
        self._head = view.head.copy()
        return np.where((view.head >= 0) & (self._left <= 0), self._station, HOLD)
