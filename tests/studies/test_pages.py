"""Pages of results: what they conclude, and that they are those of what was measured."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from edgewise_studies import pages, papers as papers, run
from edgewise_studies.frozen import read_looks

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FOLDERS = sorted(said.parent for said in RESULTS.glob("*/said.yaml"))


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["holds", "holds"], "confirmed"),
        (["fails", "inconclusive"], "refuted"),
        (["holds", "fails"], "partly"),
        (["holds", "inconclusive"], "partly"),
        (["inconclusive"], "open"),
        ([], "open"),
    ],
)
def test_several_claims_say_together(statuses, expected):
    assert pages.verdict(statuses) == expected


def claim(id="one", method="as published", ci=(0.004, 0.008), status="holds", **more):
    return {"id": id, "statement": "s", "method": method, "setting": "published", "paper": "p",
            "estimate": 0.006, "ci": list(ci), "n": 9, "status": status,
            "detail": "needs at least 0; so"} | more  # fmt: skip


def test_what_is_asked_now_decides():
    assert pages.status_now(claim(), {}) == "holds"
    assert pages.status_now(claim(), {"one": (0.01, float("inf"))}) == "fails"
    assert pages.status_now(claim(ci=(0.004, 0.02)), {"one": (0.01, float("inf"))}) == "inconclusive"


@pytest.fixture
def folder(tmp_path):
    """A paper with one claim of its method and one of ours."""
    place = tmp_path / "small"
    place.mkdir()
    claims = [claim(status="fails"), claim("two", "edgewise")]
    whole = {"paper": "p", "claims": claims, "seeds": [7, 8], "elapsed_s": 90.0}
    (place / "claims.json").write_text(json.dumps(whole))
    (place / "withdrawn.json").write_text(json.dumps({"claims": [claim("old", why="it could not fail")]}))
    (place / "said.yaml").write_text(
        "title: T\nintro: I\nasked_now: {two: [0.01, .inf]}\nstatements:\n"
        "- {says: both | sides, published: 1, claims: [one, two], why: so}\n"
        "- {says: ours alone, published: 2, claims: [two]}\n"
        "- {says: by hand, published: 3, verdict: partly, why: elsewhere}\n"
    )
    return place


def test_a_method_of_ours_decides_nothing_about_the_paper(folder):
    look = {
        "paper": "small",
        "seeds": [7, 8],
        "finished": True,
        "quick": False,
        "time": "2030-01-31T",
        "commit": "ab",
    }
    page = pages.write(folder, [look]).read_text(encoding="utf-8")
    lines = page.splitlines()
    assert "| both \\| sides | 1 |" in page and lines[0] == "# T"
    (both,) = [line for line in lines if line.startswith("| both")]
    (ours,) = [line for line in lines if line.startswith("| ours")]
    (hand,) = [line for line in lines if line.startswith("| by hand")]
    assert "**refuted**" in both and "**open (ours: refuted)**" in ours and "**partly**" in hand
    assert "holds as asked then, fails as asked now" in page
    assert "`old`: it could not fail" in page
    with (folder / "claims.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["status"], row["low"], row["asked"]) for row in rows] == [
        ("one", "fails", "0.004", "needs at least 0"),
        ("two", "fails", "0.004", "needs at least 0"),
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pages_are_those_of_what_was_measured(folder, tmp_path):
    written = [f"{folder.name}/index.md"]
    for each in (folder, *(RESULTS / part for part in pages.read_said(folder).parts)):
        shutil.copytree(each, tmp_path / each.name, ignore=shutil.ignore_patterns("training"))
        written.append(f"{each.name}/claims.csv")
    pages.write(tmp_path / folder.name, read_looks(RESULTS))
    for name in written:
        assert (tmp_path / name).read_text("utf-8") == (RESULTS / name).read_text("utf-8"), (
            f"{name}: `python -m edgewise_studies.pages` writes it"
        )


def test_another_part_of_a_paper_stands_on_its_page_under_its_own_name(folder):
    part = folder.with_name("part")
    part.mkdir()
    whole = {"paper": "q", "claims": [claim(status="holds")], "seeds": [1, 2, 3], "elapsed_s": 60.0}
    (part / "claims.json").write_text(json.dumps(whole))
    said = (folder / "said.yaml").read_text().replace("claims: [one, two]", "claims: [part/one]")
    (folder / "said.yaml").write_text(said + "parts: [part]\n")
    look = {"finished": True, "quick": False, "time": "2030-01-31T", "commit": "ab"}
    looks = [look | {"paper": "small", "seeds": [7, 8]}, look | {"paper": "part", "seeds": [1, 2, 3]}]
    page = pages.write(folder, looks).read_text(encoding="utf-8")
    (both,) = [line for line in page.splitlines() if line.startswith("| both")]
    assert "`part/one`" in both and "**confirmed**" in both
    assert "| `one` |" in page and "| `part/one` |" in page and (part / "claims.csv").exists()
    assert "`part` was measured on 2030-01-31" in page and "3 test seeds, 1 to 3, in 1 minutes" in page
    assert "reproduce small --seeds 7:9" in page and "reproduce part --seeds 1:4" in page


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_said_names_claims_and_figures_that_are_there(folder):
    said = pages.read_said(folder)
    known = set(pages.all_claims(folder, said))
    for each in said.statements:
        assert set(each) <= {"says", "published", "claims", "verdict", "why"}
        assert set(each.get("claims", ())) <= known and ("verdict" not in each or each["why"])
    answered = {id for each in said.statements for id in each.get("claims", ())}
    assert set(said.asked_now) <= known and all((folder / name).is_file() for name in said.figures)
    papers_own = {
        id for id, each in pages.all_claims(folder, said).items() if each["method"] == "as published"
    }
    assert papers_own - answered <= {"otfa-milp"}  # past the paper


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_claim_that_fails_has_its_reason(folder):
    said = pages.read_said(folder)
    explained = {id for each in said.statements if each.get("why") for id in each.get("claims", ())}
    for each in pages.all_claims(folder, said).values():
        if pages.status_now(each, said.asked_now) == "fails":
            assert each["id"] in explained | set(said.past), each["id"]


def test_every_paper_has_a_page():
    parts = {part for folder in FOLDERS for part in pages.read_said(folder).parts}
    looked_at = {name for name in run.registered() if (RESULTS / name / "claims.json").is_file()}
    assert {folder.name for folder in FOLDERS} | parts == looked_at


REPEATED = [
    (folder, part)
    for folder in FOLDERS
    for part in (folder.name, *pages.read_said(folder).parts)
    if (RESULTS / part / "former.json").is_file()
]


@pytest.mark.parametrize(("folder", "part"), REPEATED, ids=[part for _, part in REPEATED])
def test_the_look_before_stands_beside_the_last(folder, part):
    page, of_part = (folder / "index.md").read_text("utf-8"), RESULTS / part
    _, _, shown = page.partition("## The look before")
    before, former = "" if part == folder.name else f"{part}/", pages.read_claims(of_part, "former.json")
    assert former and all(f"| `{before}{each['id']}` |" in shown for each in former)
    seeds = [
        json.loads((of_part / name).read_text("utf-8"))["seeds"] for name in ("claims.json", "former.json")
    ]
    assert set(seeds[0]).isdisjoint(seeds[1])
