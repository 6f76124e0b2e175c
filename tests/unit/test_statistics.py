"""Paired statistics against scipy and against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from edgewise.errors import PolicyError
from edgewise.report.statistics import compare, holm, mean_interval

shares = st.integers(0, 10_000).map(lambda k: k / 10_000)
pairs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.lists(shares, min_size=n, max_size=n), st.lists(shares, min_size=n, max_size=n))
)


def test_agrees_with_the_paired_t_test_of_scipy() -> None:
    rng = np.random.default_rng(3)
    a = 0.9 + 0.02 * rng.standard_normal(10)
    b = a - 0.03 + 0.01 * rng.standard_normal(10)
    (row,) = compare({"a": a, "b": b}, rival="b")
    oracle = stats.ttest_rel(a, b)
    interval = oracle.confidence_interval(0.95)
    assert row.p == pytest.approx(oracle.pvalue)
    assert (row.low, row.high) == pytest.approx((interval.low, interval.high))
    assert row.difference == pytest.approx(np.mean(a - b))
    assert (row.mean, row.rival_mean) == pytest.approx((a.mean(), b.mean()))
    assert (row.n, row.verdict, row.note) == (10, "win", "")


def test_mean_interval_agrees_with_scipy() -> None:
    x = np.array([0.91, 0.93, 0.9, 0.97])
    interval = mean_interval(x, 0.9)
    low, high = stats.t.interval(0.9, 3, loc=x.mean(), scale=stats.sem(x))
    assert (interval.low, interval.high, interval.n) == (pytest.approx(low), pytest.approx(high), 4)


def test_holm_by_hand() -> None:
    # sorted 0.01·4 = 0.04, 0.02·3 = 0.06, 0.03·2 = 0.06, 0.9·1 = 0.9; running maximum changes none
    assert holm([0.02, 0.9, 0.01, 0.03]) == pytest.approx([0.06, 0.9, 0.04, 0.06])
    # 0.02·3 = 0.06; 0.025·2 = 0.05 is raised to 0.06; 0.5
    assert holm([0.5, 0.02, 0.025]) == pytest.approx([0.5, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_correction_can_take_a_win_away() -> None:
    base = np.array([0.80, 0.80, 0.80, 0.80])
    better = base + np.array([0.015, 0.025, 0.05, 0.06])
    alone = compare({"better": better, "base": base}, rival="base")[0]
    assert alone.p is not None and 0.025 < alone.p < 0.05 and alone.verdict == "win"
    noise = base + np.array([0.03, -0.02, 0.01, -0.03])
    family = compare({"better": better, "noise": noise, "base": base}, rival="base")
    assert [row.verdict for row in family] == ["no difference", "no difference"]
    assert family[0].p_holm == pytest.approx(2 * alone.p)


def test_a_difference_below_the_minimum_effect_is_no_win() -> None:
    base = np.linspace(0.8, 0.9, 20)
    a = base + 0.005 + 0.0005 * (-1.0) ** np.arange(20)
    assert compare({"a": a, "base": base}, rival="base")[0].verdict == "no difference"
    assert compare({"a": a, "base": base}, rival="base", minimum_effect=0.001)[0].verdict == "win"
    assert compare({"base": base, "a": a}, rival="a", minimum_effect=0.001)[0].verdict == "loss"


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    (row,) = compare({"a": np.array([0.9]), "b": np.array([0.1])})
    assert (row.low, row.high, row.p, row.p_holm) == (None, None, None, None)
    assert row.verdict == "no difference"
    assert "one seed" in row.note
    assert mean_interval([0.9]).low is None


def test_differences_without_variance() -> None:
    x = np.array([0.1, 0.7, 0.3])
    (same,) = compare({"a": x, "b": x.copy()})
    assert (same.p, same.low, same.high, same.verdict) == (1.0, 0.0, 0.0, "no difference")
    (shift,) = compare({"a": x + 0.05, "b": x})
    assert (shift.p, shift.verdict) == (0.0, "win")
    assert (shift.low, shift.high) == pytest.approx((0.05, 0.05))
    assert "same in every seed" in shift.note


def test_without_a_rival_every_pair_is_compared() -> None:
    x = np.array([0.1, 0.2])
    rows = compare({"a": x, "b": x, "c": x})
    assert [(row.policy, row.rival) for row in rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert compare({"a": x}) == []


def test_errors_name_the_value() -> None:
    x = np.array([0.1, 0.2])
    with pytest.raises(PolicyError, match="'closet'"):
        compare({"closest": x}, rival="closet")
    with pytest.raises(ValueError, match="lengths differ"):
        compare({"a": x, "b": x[:1]})
    with pytest.raises(ValueError, match="finite"):
        compare({"a": x, "b": np.array([0.1, np.nan])})
    with pytest.raises(ValueError, match="level is 95"):
        mean_interval(x, 95)


@given(pairs)
def test_antisymmetric(pair: tuple[list[float], list[float]]) -> None:
    values = {"a": np.array(pair[0]), "b": np.array(pair[1])}
    (ab,) = compare(values, rival="b")
    (ba,) = compare(values, rival="a")
    mirrored = {"win": "loss", "loss": "win", "no difference": "no difference"}
    assert ab.difference == -ba.difference
    assert ab.p == ba.p and ab.p_holm == ba.p_holm
    assert ab.verdict == mirrored[ba.verdict]
    if ab.low is not None and ab.high is not None:
        assert (ab.low, ab.high) == (-(ba.high or 0.0), -(ba.low or 0.0))
        assert ab.low <= ab.difference <= ab.high


@given(st.lists(st.floats(0.0, 1.0), max_size=8))
def test_holm_lies_between_p_and_bonferroni(p: list[float]) -> None:
    for raw, corrected in zip(p, holm(p), strict=True):
        assert raw <= corrected <= min(1.0, len(p) * raw) or corrected == raw
