"""A claim's status follows from finding and criterion."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from edgewise.report.statistics import compare
from edgewise_studies.claims import (
    Claim,
    Criterion,
    Finding,
    at_least,
    at_most,
    better_by,
    compared,
    exact,
    measured,
    within,
)


def status(finding, criterion):
    return Claim.of("c", "s", "edgewise", "published", "p", finding, criterion).status


@pytest.mark.parametrize(
    ("criterion", "low", "high", "expected"),
    [
        (at_least(1.0), 1.0, 2.0, "holds"),
        (at_least(1.0), 0.9, 2.0, "inconclusive"),
        (at_least(1.0), 0.5, 0.9, "fails"),
        (at_least(1.0), 0.5, 1.0, "inconclusive"),
        (at_most(1.0), 0.5, 1.0, "holds"),
        (at_most(1.0), 1.1, 1.2, "fails"),
        (within(0.0, 1.0), 0.0, 1.0, "holds"),
        (within(0.0, 1.0), -0.1, 1.1, "inconclusive"),
        (within(0.0, 1.0), 1.1, 1.2, "fails"),
        (within(0.0, 1.0), -0.2, -0.1, "fails"),
        (better_by(0.01), 0.011, 0.03, "holds"),
        (better_by(0.01), 0.001, 0.03, "inconclusive"),  # surely better, perhaps by too little
        (better_by(0.01), -0.02, 0.009, "fails"),
    ],
)
def test_status_follows_from_the_whole_interval(criterion, low, high, expected):
    assert status(Finding((low + high) / 2, (low, high), 5), criterion) == expected


@given(st.floats(-10, 10), st.floats(0, 5), st.floats(-10, 10), st.floats(0, 5), st.floats(0, 3))
def test_a_wider_interval_never_turns_doubt_into_certainty(mean, half, low, width, more):
    criterion = within(low, low + width)
    narrow = status(Finding(mean, (mean - half, mean + half), 5), criterion)
    wide = status(Finding(mean, (mean - half - more, mean + half + more), 5), criterion)
    assert wide in (narrow, "inconclusive")


def test_one_seed_is_inconclusive_and_exact_figures_are_not():
    assert status(measured([5.0]), at_least(1.0)) == "inconclusive"
    assert status(exact(5.0), at_least(1.0)) == "holds"
    assert status(exact(0.5), at_least(1.0)) == "fails"


def test_a_bootstrap_that_disagrees_makes_a_claim_inconclusive():
    # One huge value among zeros: the t-interval reaches below 0, the bootstrap cannot.
    values = [0.0] * 19 + [1.0]
    finding = measured(values)
    assert finding.ci[0] < 0.0 <= finding.check[0]
    agreed = replace(finding, ci=(0.01, 0.2), check=(0.02, 0.2))
    assert status(agreed, at_least(0.01)) == "holds"
    disagreed = Claim.of(
        "c", "s", "edgewise", "published", "p", replace(agreed, check=(0.0, 0.2)), at_least(0.01)
    )
    assert disagreed.status == "inconclusive" and "bootstrap" in disagreed.detail
    assert measured([1.0, 2.0]).check is None


def test_a_claim_of_a_difference_needs_a_corrected_p():
    rng = np.random.default_rng(0)
    base = rng.normal(0.5, 0.1, 12)
    (row,) = compare({"ours": base + 0.05 + rng.normal(0, 0.01, 12), "rival": base}, "rival")
    assert status(compared(row), better_by(0.01)) == "holds"
    doubtful = Claim.of(
        "c", "s", "edgewise", "published", "p", compared(replace(row, p_holm=0.2)), better_by(0.01)
    )
    assert doubtful.status == "inconclusive" and "Holm" in doubtful.detail
    # "No worse than a point less" does not speak of a difference from 0.
    assert status(compared(replace(row, p_holm=0.2)), at_least(-0.01)) == "holds"


def test_criteria_that_say_nothing_and_figures_that_are_none_are_refused():
    for wrong in (lambda: within(2.0, 1.0), Criterion, lambda: better_by(0.0), lambda: at_least(np.nan)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError, match="'c': every figure must be finite"):
        Claim.of("c", "s", "edgewise", "published", "p", exact(np.inf), at_least(1.0))
