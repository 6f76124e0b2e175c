"""Histograms of Prometheus that one thread fills without a lock."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

DELAYS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Histogram:
    """Counts amounts by size, for one thread: without a lock, and the bucket is found by halving.

    The library's own takes a lock for every figure, which costs a query as much as its whole decision.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts, self._sum = [0] * (len(bounds) + 1), 0.0

    def observe(self, amount: float) -> None:
        """Count an amount."""
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """How many amounts are no greater than each bound, and the sum of all."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True)), self._sum


class _Histograms(Collector):
    """A histogram for each value of a label."""

    def __init__(self, name: str, what: str, label: str, members: dict[str, Histogram]) -> None:
        self._about, self._label, self._members = (name, what), label, members

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(*self._about, labels=[self._label])
        for value, member in self._members.items():
            family.add_metric([value], *member.buckets())
        yield family


def histograms(
    name: str,
    what: str,
    bounds: Sequence[float],
    label: str,
    values: Sequence[str],
    registry: CollectorRegistry | None,
) -> list[Histogram]:
    """One histogram for each value of a label.

    Args:
        name, what: of the metric.
        bounds: upper, of the buckets.
        registry: where it can be read; None: nowhere.
    """
    members = {value: Histogram(bounds) for value in values}
    if registry is not None:
        registry.register(_Histograms(name, what, label, members))
    return list(members.values())
