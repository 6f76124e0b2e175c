"""The reproduction of OSDEC: intervals over training runs."""

import numpy as np
import pytest

from edgewise_studies.claims import Claim, at_most
from edgewise_studies.papers.osdec import SPREAD, spread_finding


def test_the_interval_of_a_ratio_of_deviations_holds_the_true_one_in_19_of_20():
    draw = np.random.default_rng(5)
    ours, theirs = draw.normal(0.0, 2.0, (4_000, 5)), draw.normal(0.0, 1.0, (4_000, 5))
    found = [
        spread_finding(ratio, 5, "") for ratio in (ours.std(axis=1, ddof=1) / theirs.std(axis=1, ddof=1))
    ]
    inside = [each.ci[0] <= 2.0 <= each.ci[1] for each in found]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize(("ratio", "status"), [(3.76, "fails"), (1.0, "inconclusive"), (0.2, "holds")])
def test_five_runs_decide_only_where_deviations_differ_much(ratio, status):
    claim = Claim.of("v", "s", "edgewise", "published", "p", spread_finding(ratio, 5, ""), at_most(SPREAD))
    assert claim.status == status
