"""Small jobs first, as many as fit."""

import numpy as np


class SmallFirst:
    """By cores times duration."""

    decision = "defer"

    def reset(self, world, key):
        """Nothing to remember."""

    def decide(self, view):
        """(P,) jobs."""
        starts, free = np.zeros(view.job.size, dtype=bool), view.free.copy()
        for job in np.argsort(view.demand[:, 0] * view.duration):
            if view.startable[job] and (view.demand[job] <= free).all():
                starts[job] = True
                free -= view.demand[job]
        return starts
