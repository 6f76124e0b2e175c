"""The node that holds the fewest requests of the service."""

import numpy as np

from edgewise.core.orchestrate import HOLD, hosts


class ShortestQueue:
    """The cloud where no node hosts the service."""

    decision = "requests"

    def reset(self, world, key):
        """Nothing to remember."""

    def decide(self, view):
        """(B,) stations."""
        held = (view.waiting + view.busy)[:, np.maximum(view.head_service, 0)].T
        allowed = hosts(view)
        allowed[:, 0] = ~allowed[:, 1:].any(axis=1)
        return np.where(view.head >= 0, np.where(allowed, held, np.inf).argmin(axis=1), HOLD)
