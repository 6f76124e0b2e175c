"""The default policy of streams is the one that loses least where it does worst; the table says so."""

import runpy
from pathlib import Path

import pytest

from edgewise import policies
from edgewise.config import shipped_scenarios

DOCS = Path(__file__).parents[3] / "docs"
MEASURE = runpy.run_path(str(DOCS / "results" / "defaults" / "measure.py"))
FOUND = MEASURE["read"]()


def test_the_default_loses_least_where_it_does_worst() -> None:
    gaps = MEASURE["gaps"](FOUND)
    first, (gap, _) = next(iter(gaps.items()))
    assert first == policies.USUAL["dispatch"] and gap < 0.07
    assert set(gaps) == set(MEASURE["candidates"]())
    assert {name for name, _ in FOUND} <= set(shipped_scenarios())


def test_the_page_has_the_table_of_the_file() -> None:
    assert MEASURE["table"](FOUND) in (DOCS / "concepts.md").read_text("utf-8")


@pytest.mark.parametrize("policy", [policies.USUAL["dispatch"], "least-loaded-feasible", "closest"])
@pytest.mark.parametrize("scenario", ["tiny", "cameras", "factory"])
def test_quick_columns_are_measured_anew(scenario: str, policy: str) -> None:
    assert MEASURE["success"](scenario, policy) == pytest.approx(FOUND[scenario, policy], abs=6e-6)
