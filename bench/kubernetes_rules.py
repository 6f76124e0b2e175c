"""What Kubernetes itself does for a service: round robin over ready pods, and the horizontal autoscaler."""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView
from edgewise.model.orchestration import System
from edgewise.policies.orchestrate.autoscale import Autoscaler

TARGET = 0.9  # the best of 0.3, 0.6, 0.9, 1.2 and 2 with round robin on training seeds of `kais_bed`


class RoundRobin:
    """Each site's requests of a service go to its ready replicas in turn, wherever these are.

    The cloud takes what has no replica; a node that hosts three takes three in a row of turns.
    """

    decision, name = "requests", "round-robin"

    def reset(self, world: System, key: Key) -> None:
        """The first request of each service goes to its first replica."""
        self._turn = np.zeros((world.sites, world.services), dtype=np.int64)

    def decide(self, view: ReplicaView) -> Ints:
        """(B,) stations."""
        stations = np.full(view.head.shape, HOLD, dtype=np.int64)
        for b in np.flatnonzero(view.head >= 0):
            s = view.head_service[b]
            stay = (view.ready - view.removing)[1:, s]
            pods = np.repeat(np.arange(1, stay.size + 1), np.maximum(stay, 0))
            stations[b] = pods[self._turn[b, s] % pods.size] if pods.size else 0
            self._turn[b, s] += 1
        return stations


class TunedAutoscaler(Autoscaler):
    """The autoscaler with the target that suits this system."""

    def __init__(self) -> None:
        super().__init__(target=TARGET, name="autoscaler-tuned")
