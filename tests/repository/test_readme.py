"""The commands of the README say what stands there; pages that promise tests name some that are there."""

import re
from pathlib import Path

import pytest
import yaml

from edgewise.config import load_scenario

ROOT = Path(__file__).resolve().parents[2]
FIGURE = re.compile(r"\d[\d,]*\.?\d*")


@pytest.fixture(scope="module")
def readme():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from bench import readme

    return readme


def test_commands_say_what_the_readme_shows(readme, tmp_path):
    """Every figure of an output, in its order; how tables are laid out may change."""
    listed = readme.shown()
    assert len(listed) == 5
    for command, shown in listed:
        found = readme.said(command, tmp_path)
        figures = FIGURE.findall(shown)
        assert figures == FIGURE.findall(found), command
        assert figures or shown == found, command  # what says no figure says the same words
    (page,) = (tmp_path / "runs").glob("factory-compare/report.html")
    assert '<svg class="site"' in page.read_text(encoding="utf-8")


def test_pictures_of_the_readme_are_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert {"docs/images/site.svg", "docs/images/site-nodes.png"} <= set(pictures)
    assert all((ROOT / picture).stat().st_size > 3000 for picture in pictures)
    links = re.findall(r"\]\((?!https?://|#)([^)#]*)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


WRITTEN = [file for file in sorted((ROOT / "examples").glob("*/*.yaml")) if file.name != "nodes.yaml"]
"""All but the nodes to which a script brings the work."""


@pytest.mark.parametrize("example", WRITTEN, ids=lambda path: path.name)
def test_examples_can_be_loaded(example):
    assert load_scenario(example).spec.holds


def test_what_is_promised_names_tests_that_are_there():
    text = (ROOT / "docs" / "readiness.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for promise, state, shown in rows:
        paths = re.findall(r"`(tests/[^`]*)`", shown)
        assert paths or "make" in shown or state.strip() == "not yet", promise
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_page_is_in_the_side_bar_or_left_out_on_purpose():
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    aside = {page for page in pages if page.startswith(("decisions/", "results/"))}
    assert listed == pages - aside


def test_the_side_bar_begins_with_goals_and_ends_with_the_reference():
    nav = yaml.safe_load(
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].split("\nnot_in")[0]
    )
    assert [next(iter(part)) for part in nav] == ["Use it", "How it was found", "Reference"]
    linking = [
        page for page in (ROOT / "docs").glob("*.md") if "decisions/index.md" in page.read_text("utf-8")
    ]
    assert linking, "pages on decisions are reached from no other"
