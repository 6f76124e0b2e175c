"""How fast one task more would be on each node, where tasks share the cores that other work leaves."""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.place import NetworkView, PipelineArrays, throughput


class Speeds:
    """What tasks use of nodes, as pipelines are placed in a decision.

    Args:
        view: of which the pipelines that run use what they are found to use.
    """

    def __init__(self, view: NetworkView) -> None:
        self.network = view.network
        self._used_ops, self._tasks = np.zeros((2, len(self.network.names)))
        if self.network.cores is not None:
            for placed, fps in zip(
                view.running, throughput(self.network, view.running).tolist(), strict=True
            ):
                self._count(placed.pipeline, placed.node, fps)

    def ops(self) -> Floats:
        """(N,) operations per second: what is free, at least a fair share, at most what a task can use.

        0: other work holds all cores.
        """
        shared_ops, most_ops = self.network.shared_ops, self.network.speed_ops
        if shared_ops is None:
            return most_ops
        left_ops = np.maximum(shared_ops - self._used_ops, shared_ops / (self._tasks + 1.0))
        return np.asarray(np.minimum(left_ops, most_ops))

    def take(self, pipeline: PipelineArrays, node: Ints) -> None:
        """A pipeline is placed: it takes what it can use, if its flows let it."""
        if self.network.cores is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                takes_s = pipeline.work_ops / self.ops()[node]
            slowest_s = float(np.nan_to_num(takes_s, posinf=np.inf).max())
            self._count(pipeline, node, 1.0 / slowest_s if slowest_s > 0.0 else 0.0)

    def _count(self, pipeline: PipelineArrays, node: Ints, fps: float) -> None:
        np.add.at(self._used_ops, node, pipeline.work_ops * fps)
        np.add.at(self._tasks, node, pipeline.work_ops > 0.0)
