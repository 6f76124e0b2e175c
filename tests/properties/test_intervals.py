"""Intervals of means: none says what cannot be, and those of shares hold the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import special

from edgewise.report.intervals import chance_above, mean_interval
from edgewise.report.schema import WORK, Measure
from edgewise.report.statistics import compare, judged
from edgewise.sweeps.vary import parse_target

SHARE, TIME = (0.0, 1.0), (0.0, math.inf)
THOUSANDTHS = st.integers(0, 1000).map(lambda whole: whole / 1000)
shares = st.lists(st.floats(0.0, 1.0) | st.sampled_from([0.0, 1.0, 0.5]), min_size=2, max_size=6)
times = st.lists(st.floats(0.0, 1e6), min_size=2, max_size=6)
# Parameters of beta distributions: shares near an end, in the middle, and at both ends.
LAWS = [(50.0, 1.0), (20.0, 0.5), (8.0, 2.0), (2.0, 2.0), (0.5, 0.5), (1.0, 30.0)]


@given(shares)
def test_the_interval_of_a_share_is_one_of_shares(values: list[float]) -> None:
    found = mean_interval(values, possible=SHARE)
    assert found.low is not None and found.high is not None
    assert 0.0 <= found.low <= found.mean + 1e-9 and found.mean - 1e-9 <= found.high <= 1.0


@given(times)
def test_the_interval_of_a_time_is_one_of_times(values: list[float]) -> None:
    free, found = mean_interval(values), mean_interval(values, possible=TIME)
    assert None not in (free.low, found.low)
    assert found.low == max(free.low or 0.0, 0.0) and found.high == free.high


@given(st.integers(2, 6).flatmap(lambda n: st.lists(st.tuples(*[THOUSANDTHS] * 3), min_size=n, max_size=n)))
def test_differences_of_shares_are_100_points_at_most(values: list[tuple[float, float, float]]) -> None:
    """And no policy is more than 100 % below the rival that differences are percent of."""
    summary = [
        {"policy": name, "seed": seed, "success": x, "mean_throughput_fps": 100.0 * x}
        for seed, row in enumerate(values)
        for name, x in zip("abc", row, strict=True)
    ]
    for row in (*judged("streams", summary, "abc"), *judged("streams", summary, "abc", "b")):
        assert row.low is not None and row.high is not None
        assert -1.0 <= row.low <= row.difference <= row.high <= 1.0
    rival = np.mean([row[1] for row in values])
    for row in judged("pipelines", summary, "abc", "b"):
        assert row.low is not None and (rival == 0.0 or -1.0 - 1e-9 <= row.low <= row.difference)


def test_what_an_interval_of_two_very_different_seeds_says() -> None:
    """It was 21.8 to 133.8 %, of values like these."""
    values = [0.58, 1.0, 0.75]
    assert mean_interval(values).high > 1.2  # type: ignore[operator]
    found = mean_interval(values, possible=SHARE)
    assert (found.low, found.high) == (pytest.approx(0.1444, abs=1e-4), pytest.approx(0.9862, abs=1e-4))
    (row,) = compare({"a": values, "b": [0.0, 0.9, 0.1]}, possible={"a": SHARE, "b": SHARE})
    assert row.high == 1.0 and row.low is not None and row.low > -1.0


@settings(deadline=None)
@given(shares.filter(lambda values: np.ptp(values) > 1e-6), st.sampled_from([SHARE, (-math.inf, math.inf)]))
def test_the_chance_of_a_side_is_that_of_the_interval(
    values: list[float], possible: tuple[float, float]
) -> None:
    found = mean_interval(values, possible=possible)
    assert found.low is not None and found.high is not None
    for end, chance in ((found.low, 0.975), (found.high, 0.025)):
        if possible != SHARE or 1e-9 < end < 1.0 - 1e-9:
            assert chance_above(values, end, possible) == pytest.approx(chance, abs=1e-3)


def test_the_chance_where_seeds_do_not_differ() -> None:
    assert [chance_above([0.9, 0.9], at, SHARE) for at in (0.8, 0.9, 0.95)] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("law", LAWS)
def test_intervals_of_shares_hold_the_mean_as_often_as_the_t_interval_or_more(
    law: tuple[float, float],
) -> None:
    """Of 20,000 experiments; the t-interval cut to 0 … 1 holds it exactly as often as the t-interval does."""
    draws, mean = np.random.default_rng(5), law[0] / sum(law)
    for n in (2, 3, 5):
        x = draws.beta(*law, (20_000, n))
        middle, error = x.mean(axis=1), x.std(axis=1, ddof=1) / np.sqrt(n)
        half = special.stdtrit(n - 1, 0.975) * error
        by_t = np.mean(np.abs(middle - mean) <= half)
        logit = special.logit(middle) - special.logit(mean)
        held = np.mean(np.abs(logit) <= half / (middle * (1.0 - middle)))
        assert held >= max(by_t, 0.91) and held < 0.97
        for values in x[:20]:  # the same by the function that is used
            found = mean_interval(values, possible=SHARE)
            assert found.low is not None and found.high is not None
            at, wide = special.logit(values.mean()), special.stdtrit(n - 1, 0.975) * values.std(ddof=1)
            wide /= np.sqrt(n) * values.mean() * (1.0 - values.mean())
            assert found.low == pytest.approx(special.expit(at - wide), abs=1e-9)
            assert found.high == pytest.approx(special.expit(at + wide), abs=1e-9)
    assert by_t < 0.945  # what the t-interval does with five seeds


def test_every_measure_says_what_can_be() -> None:
    """Shares are shown in percent and asked for in percent; only a reward may be negative."""
    measures = [(work, measure) for work, about in WORK.items() for measure in about.measures]
    assert {measure.key for _, measure in measures if measure.possible[0] != 0.0} == {"reward"}
    for work, measure in measures:
        assert measure.share == measure.heading.endswith("%") == (measure.most == 1.0), measure
        if measure.share:
            assert parse_target(f"{work}.{measure.key}<=95%").value == 0.95
    assert Measure("x", "x").possible == TIME
