"""Figures of speed in README and docs are those that were measured last."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULT = {
    "queue": {
        "measured": {"date": "2030-01-02"},
        "rows": [{"name": "edgewise"}, {"name": "A, b", "ratio": 54.3}],
    },
    "gateway": {
        "measured": {"date": "2030-01-01"},
        "rows": [
            {"size": "32 B", "connections": 1, "added_s": [0.0003, 0.0001, 0.0002]},
            {"size": "32 B", "connections": 16, "added_s": [0.5]},
        ],
    },
}


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import figures

    return figures


@pytest.mark.parametrize(
    ("mark", "shown"),
    [
        ("queue/rows/A, b/ratio .3g", "54.3"),
        ("queue/rows/A, b/ratio 1e-1*.2f", "5.43"),
        ("gateway/rows/32 B;1/added_s 1e3*.2f", "0.20"),
        ("gateway/rows/32 B;1/added_s/max 1e3*.1f", "0.3"),
        ("*/measured/date/min s", "2030-01-01"),
        ("*/measured/date/max s", "2030-01-02"),
    ],
)
def test_a_figure_is_written_between_its_marks(figures, mark, shown):
    text = f"before <!-- bench {mark} -->old<!-- / -->× after, <!-- else -->kept<!-- / -->"
    assert figures.inserted(text, RESULT, "page") == text.replace("old", shown)


def test_a_figure_of_a_claim_is_the_one_that_was_measured(figures):
    mark = "<!-- claim ents/E1-otfa-tp/estimate 100*.0f -->{}<!-- / -->"
    assert figures.inserted(mark.format("43"), RESULT, "page") == mark.format("15")
    with pytest.raises(ValueError, match="no figure 'ents/E0/estimate'"):
        figures.inserted(mark.replace("E1-otfa-tp", "E0"), RESULT, "page")


@pytest.mark.parametrize("mark", ["queue/rows/C/ratio .3g", "nope/x .1f", "queue/rows/A, b/ratio s"])
def test_a_figure_that_is_not_there_names_its_line(figures, mark):
    with pytest.raises(ValueError, match=r"page:2: no figure '.*' in form '"):
        figures.inserted(f"\n<!-- bench {mark} -->old<!-- / -->", RESULT, "page")


def test_documents_have_the_figures_that_were_measured_last(figures):
    result = json.loads((figures.RESULTS / "bench.json").read_text(encoding="utf-8"))
    marks = 0
    for page in figures.documents():
        text = page.read_text(encoding="utf-8")
        marks += len(figures.MARK.findall(text))
        assert figures.inserted(text, result, page.name) == text, "make bench-docs"
        assert text.count("<!-- bench ") + text.count("<!-- claim ") == len(figures.MARK.findall(text)), (
            f"{page}: a mark that is none"
        )
    assert marks > 30
