"""A placement policy of one's own, as a user writes it."""

import numpy as np

from edgewise.core.place import Placement


class AtSource:
    """Each pipeline whole on the node where its input is, as long as its memory fits."""

    decision = "place"

    def reset(self, network, key):
        """Nothing to remember."""

    def decide(self, view):
        """The waiting pipelines that start now."""
        free, placed = view.free_memory_bytes.copy(), []
        for job in view.waiting:
            if free[job.source] >= job.memory_bytes.sum():
                free[job.source] -= job.memory_bytes.sum()
                node, edges = np.full(len(job.work_ops), job.source), len(job.head)
                none = np.zeros(0, dtype=np.int64)
                placed.append(Placement(job, node, np.zeros(edges + 1, int), none, np.full(edges, np.inf)))
        return placed
