"""What load balancers of the field do, beside the rules of a paper: each is a row of the study's tables.

power-of-two       two workers at random, the less full one (Mitzenmacher 2001); ships with edgewise
least-request      the worker with the fewest queries, as last measured (Envoy's and nginx's rule, of all)
stream-threshold   the nearest worker of fewer than k streams (NVIDIA's stream distribution), else the fewest

k is chosen on validation seeds, as the rival among the three is.
"""

from functools import cache
from typing import Any

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Candidates, Item

THRESHOLDS = (2, 4, 8, 16)
FIELD = ("power-of-two", "least-request", *(f"stream-threshold-{most}" for most in THRESHOLDS))
FAR = 1e3  # more than any way takes, s


class LeastRequest(ScorePolicy):
    """The fewest queries, waiting or served, as last measured."""

    name = "least-request"

    def score(self, view: Candidates, item: Item) -> Floats:
        """Queries at the worker."""
        return view.queue


@cache
def stream_threshold(most: int) -> type[ScorePolicy]:
    """The policy of a threshold; numba takes it for a constant."""

    class StreamThreshold(ScorePolicy):
        """The nearest worker with fewer streams than the threshold, else the one with the fewest."""

        name = f"stream-threshold-{most}"

        def score(self, view: Candidates, item: Item) -> Floats:
            """One-way delay, and beyond the threshold the number of streams."""
            return np.where(view.streams < most, view.network_s, FAR + view.streams)

    return StreamThreshold


def load(name: str) -> Any:
    """A dispatch policy by name: of the field, else as edgewise has it."""
    if name == LeastRequest.name:
        return LeastRequest()
    known, _, most = name.rpartition("-")
    return stream_threshold(int(most))() if known == "stream-threshold" else policies.load("dispatch", name)
