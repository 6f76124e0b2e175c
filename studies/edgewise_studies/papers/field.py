"""What load balancers of the field do, beside the rules of a paper: each is a row of the study's tables.

power-of-two       two workers at random, the less full one (Mitzenmacher 2001); ships with edgewise
least-request      the worker with the fewest queries, as last measured (Envoy's and nginx's rule, of all)
stream-threshold   the nearest worker of fewer than k streams (NVIDIA's stream distribution), else the fewest

The same for requests of services, with requests in place of queries and streams, under the autoscaler that
Kubernetes has (`FIELD_REQUESTS`); two-choices ships with edgewise.

k is chosen on validation seeds, as the rival among the three is.
"""

from functools import cache
from typing import Any

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Candidates, Item
from edgewise.core.orchestrate import HOLD, ReplicaView, hosts
from edgewise.policies.requests.rules import RequestDispatch

THRESHOLDS = (2, 4, 8, 16)
FIELD = ("power-of-two", "least-request", *(f"stream-threshold-{most}" for most in THRESHOLDS))
FIELD_REQUESTS = ("two-choices", "least-request", *(f"request-threshold-{most}" for most in THRESHOLDS))
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


class RequestThreshold(RequestDispatch):
    """The nearest node with fewer requests of the service than the threshold, else the one with the fewest.

    With a threshold of 0 that is least-request. Where no node has a replica, the cloud.
    """

    def __init__(self, most: int) -> None:
        self.name, self._most = f"request-threshold-{most}" if most else LeastRequest.name, most

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) stations of the heads."""
        service = np.maximum(view.head_service, 0)[:, :, None]
        there = (view.waiting + view.busy).swapaxes(1, 2)  # (W, S, N + 1)
        requests = np.take_along_axis(there, service, axis=1)
        rank = np.where(requests < self._most, self.system.delay_s, FAR + requests)
        rank = np.where(hosts(view), rank, np.inf)
        rank[:, :, 0] = 1e9  # after every node
        return np.where(view.head >= 0, rank.argmin(axis=2), HOLD)


def load_requests(name: str) -> Any:
    """A policy for requests by name: of the field, else as edgewise has it."""
    if name == LeastRequest.name:
        return RequestThreshold(0)
    known, _, most = name.rpartition("-")
    return RequestThreshold(int(most)) if known == "request-threshold" else policies.load("requests", name)


def load(name: str) -> Any:
    """A dispatch policy by name: of the field, else as edgewise has it."""
    if name == LeastRequest.name:
        return LeastRequest()
    known, _, most = name.rpartition("-")
    return stream_threshold(int(most))() if known == "stream-threshold" else policies.load("dispatch", name)
