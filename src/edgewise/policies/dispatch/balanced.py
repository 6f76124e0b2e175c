"""Load-aware dispatch beyond ASET: rivals that any learned policy has to beat."""

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Candidates, Item
from edgewise.policies.registry import policy


@policy("least-loaded-feasible")
class LeastLoadedFeasible(ScorePolicy):
    """The worker that would be least full: min (L + η ρ) / C_v."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Utilisation after binding."""
        return (view.load_qps + view.share_qps) / view.capacity_qps


@policy("slack-aware")
class SlackAware(ScorePolicy):
    """Least likely to be late, and of those the one that is worst for others: who has time goes far.

        P(late) ≈ exp(-s (1 - u) / D_v),    s = D^i - (2(d + 2σ) + D_v + b) - 3.6 ms

    as waiting in an M/M/1 queue exceeds s, with u the utilisation after binding and b the backlog of the
    way's busiest link; 3.6 ms stand for access and uplink, which the view does not tell. A worker whose
    answer takes 10 ms less must bring 30 points less of P(late): chosen on training seeds 11 to 18 and 42
    to 46 of ASET's topologies, also with half the servers in the data centre, at 20 to 100 clients per
    minute.
    """

    def score(self, view: Candidates, item: Item) -> Floats:
        """P(late) less 30/s · (2(d + 2σ) + D_v + b)."""
        answer_s = view.impedance_s + view.backlog_s
        free = np.maximum(1.02 - (view.load_qps + view.share_qps) / view.capacity_qps, 0.02)
        slack_s = item.deadline_s - 0.0036 - answer_s
        return np.exp(-slack_s * free / view.processing_s) - 30.0 * answer_s


@policy("power-of-two")
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
