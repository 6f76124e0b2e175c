"""Static dispatch policies, one score over feasible workers: ASET's, then rivals that know more of load.

Each is one expression of the item's view; the core masks what is infeasible and breaks ties. Any learned
policy has to beat them.
"""

import numpy as np

from edgewise.arrays import Bools, Floats
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Candidates, Item
from edgewise.kernels.compiled import kernel
from edgewise.policies.registry import policy

SMALL = 1e-3  # floor of loads (queries/s) and delays (s), so that an idle worker's weight stays finite


@policy("closest")
class Closest(ScorePolicy):
    """The nearest worker: min d + 2σ                                (ASET, closest)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """One-way network delay."""
        return view.network_s


@policy("least-impedance")
class LeastImpedance(ScorePolicy):
    """The fastest answer: min 2(d + 2σ) + D_v (ASET, least impedance), and what links have still to send."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Expected end-to-end delay."""
        return view.impedance_s + view.backlog_s


@policy("load-balancing")
class LoadBalancing(ScorePolicy):
    """The least loaded worker: min L                                (ASET, load balancing)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Load in queries/s."""
        return view.load_qps


@policy("farthest")
class Farthest(ScorePolicy):
    """The most distant worker: max d + 2σ                           (ASET, farthest)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """One-way network delay, negated."""
        return -view.network_s


@policy("cheaper")
class Cheaper(ScorePolicy):
    """The slowest answer that is in time: max 2(d + 2σ) + D_v       (ASET, cheaper; its text says max)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Expected end-to-end delay, negated."""
        return -view.impedance_s


@policy("random-by-latency")
class RandomByLatency(ScorePolicy):
    """At random, in proportion to 1 / (2(d + 2σ) + D_v)            (ASET, random proportional to latency)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Exponential race: the first of clocks whose mean is the impedance."""
        return race(view.draw, np.maximum(view.impedance_s, SMALL), view.feasible)


@policy("random-by-load")
class RandomByLoad(ScorePolicy):
    """At random, in proportion to C_v / L                           (ASET, random proportional to load)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Exponential race: the first of clocks whose mean is L / C, with L floored."""
        return race(view.draw, np.maximum(view.load_qps, SMALL) / view.capacity_qps, view.feasible)


@kernel
def race(draw: Floats, mean: Floats, feasible: Bools) -> Floats:
    """Finish times of exponential clocks: the smallest is worker w with probability ∝ 1 / mean_w.

    A clock that cannot be the first gets a time that it surely exceeds, since -log u >= 1 - u:
    that spares most of the logarithms.

    Args:
        draw: (W,) uniform in (0, 1).
        mean: (W,) > 0.
        feasible: (W,) the workers that may win.
    """
    first = np.inf
    time = (1.0 - draw) * mean
    for w in range(draw.size):
        if feasible[w] and time[w] < first:
            time[w] = -np.log(draw[w]) * mean[w]
            first = min(first, time[w])
    return time


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
