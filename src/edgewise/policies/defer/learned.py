"""A trained policy as any other: features in, scores out, the same ranking as all rules.

How the network is run is handed in, so that this module needs no library for it;
`edgewise.learn.defer.export.load` does so with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewise.core.deferral import CapacityView
from edgewise.core.keyed import Key
from edgewise.policies.defer.choose import Bools, choose
from edgewise.policies.defer.features import Floats32, job_features, summary_features

# jobs (W, P, F), summary (W, S), memory (W, H) → scores (W, P), memory (W, H)
Infer = Callable[[Floats32, Floats32, Floats32], tuple[Floats32, Floats32]]


class LearnedDeferral:
    """Starts by falling confidence score.

    Args:
        name: of the policy.
        infer: runs the network.
        memory: H, what the network carries from slot to slot in each world.
        skip: go on past a job that does not fit, where OSDEC stops.
    """

    def __init__(self, name: str, infer: Infer, memory: int, skip: bool = False) -> None:
        self.name, self.skip = name, skip
        self._infer, self._size = infer, memory
        self._memory: Floats32 | None = None

    def reset(self, key: Key) -> None:
        """Forget the past; without noise nothing is drawn."""
        self._memory = None

    def start(self, view: CapacityView) -> Bools:
        """Jobs to start now."""
        if self._memory is None or self._memory.shape[0] != view.state.shape[0]:
            self._memory = np.zeros((view.state.shape[0], self._size), dtype=np.float32)
        scores, self._memory = self._infer(job_features(view), summary_features(view), self._memory)
        return choose(view, scores.astype(np.float64), skip=self.skip)
