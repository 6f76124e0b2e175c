"""Load-aware dispatch beyond ASET: rivals that any learned policy has to beat."""

from __future__ import annotations

import numpy as np

from edgewise.core.policy import ScorePolicy
from edgewise.core.views import Candidates, Item
from edgewise.core.world import Floats
from edgewise.policies.registry import dispatch_policy


@dispatch_policy("least-loaded-feasible")
class LeastLoadedFeasible(ScorePolicy):
    """The worker that would be least full: min (L + η ρ) / C_v."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Utilisation after binding."""
        return (view.load_qps + view.share_qps) / view.capacity_qps


@dispatch_policy("power-of-two")
class PowerOfTwo(ScorePolicy):
    """Two feasible workers at random, then the less full of them (Mitzenmacher's two choices)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Utilisation after binding for the two drawn workers, infinite for the others."""
        score = np.full(view.draw.size, np.inf)
        for _ in range(2):
            drawn = np.where(view.feasible & np.isinf(score), view.draw, np.inf)
            w = int(np.argmin(drawn))
            if drawn[w] < np.inf:
                score[w] = (view.load_qps[w] + view.share_qps[w]) / view.capacity_qps[w]
        return score
