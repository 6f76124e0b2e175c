"""Each pipeline whole on the node where its input is."""

import numpy as np

from edgewise.core.place import Placement


class AtSource:
    """As long as its memory fits; the others wait."""

    decision = "place"

    def reset(self, world, key):
        """Nothing to remember."""

    def decide(self, view):
        """The waiting pipelines that start now: node, path and rate of each flow."""
        free, placed, none = view.free_memory_bytes.copy(), [], np.zeros(0, dtype=np.int64)
        for job in view.waiting:
            if free[job.source] >= job.memory_bytes.sum():
                free[job.source] -= job.memory_bytes.sum()
                node, flows = np.full(len(job.work_ops), job.source), len(job.head)
                placed.append(Placement(job, node, np.zeros(flows + 1, int), none, np.full(flows, np.inf)))
        return placed
