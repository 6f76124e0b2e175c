"""The dispatcher that decides where nobody is named: in time, and of those least harm to others."""

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Candidates, Item
from edgewise.policies.registry import policy


@policy("least-harm")
class LeastHarm(ScorePolicy):
    """Least likely to be late; of workers that are in time the one that others miss least.

        min  P(late) + m⁴ / 10 + h,    a = 2(d + 2σ) + D_v + b + 2δ + ζ/u,    s = D^i - a
        P(late) = max( exp(-4 s (1 - u) / D_v), exp(-2 s (1 - l) / (2δ + ζ/u)) )
        m = max(u, l),    h = 8 a / D^i over shared links, else -0.4 a / D^i

    u is how full the worker would be and l the fullest link on the way, b that link's backlog: a query that
    comes evenly waits for longer than s behind others with about this probability. m keeps the scarcest
    from filling. h is what is left to others: where ways are nobody's queue, who has time goes far and leaves
    near and fast workers to those who have none; where they are shared, a stream stays near, since gateways
    that move streams at the same moment do not yet know what the others put on a link. Weights were chosen on
    training seed 42 of six scenarios.
    """

    def score(self, view: Candidates, item: Item) -> Floats:
        """P(late), the fullness of what is scarcest, and what the way costs others."""
        answer_s = view.impedance_s + view.backlog_s + view.sending_s
        slack_s = np.maximum(item.deadline_s - answer_s, 0.0)
        worker, link = (view.load_qps + view.share_qps) / view.capacity_qps, view.link_load
        late = np.exp(-4.0 * slack_s * np.maximum(1.02 - worker, 0.02) / view.processing_s)
        held_up = np.exp(-2.0 * slack_s * np.maximum(1.02 - link, 0.02) / view.sending_s)
        late = np.where(link > 0.0, np.maximum(late, held_up), late)
        harm = np.where(link > 0.0, 8.0, -0.4) * answer_s / item.deadline_s
        return late + 0.1 * np.maximum(worker, link) ** 4 + harm
