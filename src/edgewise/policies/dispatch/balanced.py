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
        draw = np.where(view.feasible, view.draw, np.inf)
        two = np.argsort(draw, kind="stable")[:2]
        score: Floats = np.full(draw.shape, np.inf)
        score[two] = (view.load_qps[two] + view.share_qps[two]) / view.capacity_qps[two]
        return score
