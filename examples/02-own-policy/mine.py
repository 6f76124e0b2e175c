"""Near, but not crowded."""

import numpy as np

from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Candidates, Item


class NearNotCrowded(ScorePolicy):
    """Expected delay, stretched by how full the worker is."""

    def score(self, view: Candidates, item: Item) -> np.ndarray:
        """(W,) smaller is better."""
        full = (view.load_qps + view.share_qps) / view.capacity_qps
        return view.impedance_s * (1.0 + full**2)
