"""Paired statistics against scipy and against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from edgewise.errors import PolicyError
from edgewise.report.intervals import bootstrap_interval, mean_interval, quantile_interval
from edgewise.report.statistics import as_family, best_baseline, compare, holm

MIRRORED = {"win": "loss", "loss": "win", "tie": "tie", "inconclusive": "inconclusive"}

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
    assert [row.verdict for row in family] == ["inconclusive", "inconclusive"]
    assert family[0].p_holm == pytest.approx(2 * alone.p)


def test_a_difference_below_the_minimum_effect_is_a_tie() -> None:
    base = np.linspace(0.8, 0.9, 20)
    a = base + 0.005 + 0.0005 * (-1.0) ** np.arange(20)
    assert compare({"a": a, "base": base}, rival="base")[0].verdict == "tie"
    assert compare({"a": a, "base": base}, rival="base", minimum_effect=0.001)[0].verdict == "win"
    assert compare({"base": base, "a": a}, rival="a", minimum_effect=0.001)[0].verdict == "loss"


def test_verdicts_by_hand() -> None:
    # n = 4 with deviations ±e: s = e √(4/3), half-width t(3, 0.975) s / 2 = 3.1824 · 0.57735 e.
    base = np.full(4, 0.5)

    def verdict(shift: float, e: float, minimum: float = 0.01) -> str:
        (row,) = compare({"a": base + shift + e * np.array([1, -1, 1, -1]), "b": base}, "b", minimum)
        half = 3.182446 * np.sqrt(4 / 3) * e / 2
        assert (row.low, row.high) == pytest.approx((shift - half, shift + half), abs=1e-6)
        return row.verdict

    assert verdict(0.02, 0.001) == "win"
    assert verdict(-0.02, 0.001) == "loss"
    assert verdict(0.005, 0.001) == "tie"  # surely above 0, and surely too small to count
    assert verdict(0.005, 0.01) == "inconclusive"  # the interval leaves ±0.01
    assert verdict(0.02, 0.05) == "inconclusive"  # large, and may be luck
    assert verdict(0.009, 0.001, 0.0) == "win"


def test_ratios_are_compared_by_their_logarithm() -> None:
    rng = np.random.default_rng(5)
    slow = np.exp(rng.normal(0.0, 1.0, 30))  # seconds; spread over orders of magnitude
    fast = 0.9 * slow * np.exp(rng.normal(0.0, 0.01, 30))
    (row,) = compare({"fast": fast, "slow": slow}, "slow", ratio=True, lower_is_better=True)
    oracle = stats.ttest_rel(np.log(fast), np.log(slow)).confidence_interval(0.95)
    assert (row.low, row.high) == pytest.approx((np.expm1(oracle.low), np.expm1(oracle.high)))
    assert row.difference == pytest.approx(stats.gmean(fast / slow) - 1)
    assert row.difference == pytest.approx(-0.1, abs=0.01) and row.verdict == "win"
    assert compare({"fast": fast, "slow": slow}, "slow", ratio=True)[0].verdict == "loss"
    # As plain differences the few slow seeds drown the effect.
    assert compare({"fast": fast, "slow": slow}, "slow", lower_is_better=True)[0].p > 100 * row.p
    with pytest.raises(ValueError, match="a ratio needs values > 0"):
        compare({"a": np.array([0.0, 1.0]), "b": np.array([1.0, 1.0])}, ratio=True)


@given(st.floats(-0.05, 0.05), st.floats(0.0, 0.02))
def test_ratio_verdicts_are_antisymmetric(shift: float, spread: float) -> None:
    b = np.array([1.0, 2.0, 3.0, 4.0])
    values = {"a": b * np.exp(shift + spread * np.array([1.0, -1.0, 0.5, -0.5])), "b": b}
    (ab,), (ba,) = compare(values, "b", ratio=True), compare(values, "a", ratio=True)
    assert ab.verdict == MIRRORED[ba.verdict]
    assert (1 + ab.difference) * (1 + ba.difference) == pytest.approx(1.0)


def test_the_interval_covers_as_often_as_it_says() -> None:
    # Of 2,000 experiments of 8 seeds the 95 % interval holds the true difference in 1,900 ± 3 √95.
    rng = np.random.default_rng(11)
    experiments, true = 2000, 0.02
    common = rng.normal(0.0, 0.3, (experiments, 8))  # what seeds have in common must cancel out
    noise = rng.normal(true, 0.05, (experiments, 8))
    rows = [compare({"a": c + d, "b": c})[0] for c, d in zip(common, noise, strict=True)]
    covered = sum(row.low <= true <= row.high for row in rows)
    assert abs(covered - 0.95 * experiments) < 3 * np.sqrt(experiments * 0.95 * 0.05)


def test_wins_by_luck_are_as_rare_as_the_level_says() -> None:
    # Five policies like the rival: Holm keeps the chance of any win or loss at 5 % or less.
    rng = np.random.default_rng(12)
    families = [
        compare({name: rng.normal(0.5, 0.1, 6) for name in "abcdef"}, "a", minimum_effect=0.0)
        for _ in range(800)
    ]
    lucky = sum(any(row.verdict in ("win", "loss") for row in rows) for rows in families)
    assert lucky <= 0.05 * 800 + 3 * np.sqrt(800 * 0.05 * 0.95)


def test_bootstrap_agrees_with_the_t_interval_on_many_values() -> None:
    x = np.random.default_rng(7).exponential(1.0, 400)
    t, bootstrap = mean_interval(x), bootstrap_interval(x)
    assert bootstrap.low == pytest.approx(t.low, abs=0.02) and bootstrap.high == pytest.approx(
        t.high, abs=0.02
    )
    assert bootstrap == bootstrap_interval(x) and bootstrap != bootstrap_interval(x, seed=1)
    assert bootstrap_interval([3.0]).low is None
    assert (bootstrap_interval([3.0, 3.0]).low, bootstrap_interval([3.0, 3.0]).high) == (3.0, 3.0)


def test_bootstrap_covers() -> None:
    rng = np.random.default_rng(13)
    covered = 0
    for _ in range(300):
        interval = bootstrap_interval(rng.exponential(1.0, 40), resamples=500)
        covered += interval.low <= 1.0 <= interval.high
    assert 0.86 <= covered / 300 <= 0.98  # a little too narrow, as its docstring says


def test_families_are_corrected_together() -> None:
    base = np.full(4, 0.8)
    better = base + np.array([0.015, 0.025, 0.05, 0.06])
    rows = [compare({"better": better, "base": base}, rival="base")[0] for _ in range(3)]
    assert {row.verdict for row in rows} == {"win"}
    together = as_family(rows)
    assert [row.p_holm for row in together] == pytest.approx(holm([row.p or 1.0 for row in rows]))
    assert {row.verdict for row in together} == {"inconclusive"}


def test_the_best_baseline() -> None:
    values = {"a": np.array([0.7, 0.8]), "b": np.array([0.9, 0.8]), "c": np.array([0.85, 0.85])}
    assert best_baseline(values) == "b"  # equal means: the first
    assert best_baseline(values, lower_is_better=True) == "a"
    with pytest.raises(PolicyError, match="none given"):
        best_baseline({})


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    (row,) = compare({"a": np.array([0.9]), "b": np.array([0.1])})
    assert (row.low, row.high, row.p, row.p_holm) == (None, None, None, None)
    assert row.verdict == "inconclusive"
    assert "one seed" in row.note
    assert mean_interval([0.9]).low is None


def test_differences_without_variance() -> None:
    x = np.array([0.1, 0.7, 0.3])
    (same,) = compare({"a": x, "b": x.copy()})
    assert (same.p, same.low, same.high, same.verdict) == (1.0, 0.0, 0.0, "tie")
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
    assert ab.difference == -ba.difference
    assert ab.p == ba.p and ab.p_holm == ba.p_holm
    assert ab.verdict == MIRRORED[ba.verdict]
    if ab.low is not None and ab.high is not None:
        assert (ab.low, ab.high) == (-(ba.high or 0.0), -(ba.low or 0.0))
        assert ab.low <= ab.difference <= ab.high


@given(st.lists(st.floats(0.0, 1.0), max_size=8))
def test_holm_lies_between_p_and_bonferroni(p: list[float]) -> None:
    for raw, corrected in zip(p, holm(p), strict=True):
        assert raw <= corrected <= min(1.0, len(p) * raw) or corrected == raw


def test_a_quantile_lies_in_its_interval_as_often_as_it_says():
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        found = quantile_interval(rng.exponential(size=500), 0.9)
        assert found.low <= found.mean <= found.high
        inside += found.low <= np.log(10.0) <= found.high
    assert 0.92 <= inside / 400 <= 0.99
    assert quantile_interval(np.arange(20.0), 0.99).high is None
    with pytest.raises(ValueError, match="q is 1"):
        quantile_interval([1.0], 1.0)
