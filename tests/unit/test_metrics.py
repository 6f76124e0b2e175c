"""Histograms without locks show what prometheus_client's own show."""

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from edgewise.runtime.metrics import DELAYS_S, ThreadHistogram

amounts = st.lists(st.tuples(st.sampled_from(DELAYS_S) | st.floats(0, 9), st.integers(0, 1)), max_size=30)


def page(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line and "_sum" not in line]


@given(amounts)
def test_tally_is_a_prometheus_histogram(noted):
    tally = ThreadHistogram("delay_seconds", "Delays.", DELAYS_S, "who", ["a", "b"], None)
    theirs = Histogram("delay_seconds", "Delays.", ["who"], buckets=DELAYS_S, registry=None)
    children = [theirs.labels(name) for name in "ab"]
    for amount, which in noted:
        tally.note(amount, which)
        children[which].observe(amount)
    assert page(tally) == page(theirs)
    sums = [s.value for family in tally.collect() for s in family.samples if s.name.endswith("_sum")]
    assert sums == pytest.approx([sum(x for x, w in noted if w == which) for which in (0, 1)])
