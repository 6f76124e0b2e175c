"""Rows of the benchmark: what they say is enough to get them again; those of the page are as they are now."""

import json
import re
from pathlib import Path

import pytest

from edgewise.config import edition, load_scenario
from edgewise.errors import PolicyError, ScenarioError
from edgewise.policies import DECISIONS
from edgewise.sweeps.benchmark import SEEDS, SUITE, benchmark, fingerprint, page_of
from in_process import edgewise

PAGE = Path(__file__).parents[3] / "docs" / "benchmark.md"
EXAMPLES = PAGE.parents[1] / "examples"
MINE = '''
from edgewise.policies.dispatch.static import Closest


class Mine(Closest):
    """Nearest first."""
'''


def rows_of_the_page():
    """By decision and policy: what stands under each heading."""
    text = PAGE.read_text("utf-8").partition("<!-- rows -->")[2].partition("<!-- end of rows -->")[0]
    found = {}
    for part in text.split("## ")[1:]:
        decision, (heads, _, *lines) = part.split()[0], [x for x in part.splitlines() if x.startswith("|")]
        names = [head.strip(" `").split("`")[0] for head in heads.strip("|").split("|")]
        for line in lines:
            cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
            found[decision, cells[0]] = dict(zip(names, cells, strict=True))
    return found


def test_the_page_has_rows_of_every_decision_of_policies_and_scenarios_as_they_are():
    rows = rows_of_the_page()
    assert {decision for decision, _ in rows} == set(DECISIONS) and len(rows) >= 25
    for (decision, policy), row in rows.items():
        where = f"{decision}={policy}: make the rows anew, as the page says"
        assert row["hash"] == fingerprint(decision, policy), where
        assert set(row) - {"policy", "hash"} == {edition(load_scenario(x)) for x in SUITE[decision]}, where


@pytest.mark.parametrize(
    ("decision", "policy", "scenarios"),
    [
        ("dispatch", "closest", ["three-tier", "cameras"]),
        ("dispatch", "least-impedance", ["three-tier", "cameras"]),
        ("defer", "tetris", ["deferrable"]),
    ],
)
def test_rows_of_the_page_come_out_again(decision, policy, scenarios):
    page = rows_of_the_page()[decision, policy]
    for score in benchmark(decision, policy, SEEDS, scenarios).scores:
        assert score.shown == page[score.scenario]


def test_a_row_says_all_that_it_takes_to_get_it_again(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    done = edgewise(
        "benchmark", "--policy", "mine.py:Mine", "--policy", "closest", "--seeds", "3:5",
        "--scenario", "tiny", "--json", cwd=tmp_path,
    )  # fmt: skip
    mine, closest = json.loads(done.stdout)
    assert mine["command"] == (
        "edgewise benchmark --policy dispatch=mine.py:Mine --seeds 3:5 --scenario tiny"
    )
    assert (mine["seeds"], mine["decision"]) == ("3:5", "dispatch")
    assert mine["scores"] == closest["scores"] and mine["hash"] != closest["hash"]
    (score,) = mine["scores"]
    assert score["scenario"] == edition(load_scenario("tiny")) and len(score["values"]) == 2
    assert score["mean"] == pytest.approx(sum(score["values"]) / 2)
    before = fingerprint("dispatch", f"{tmp_path}/mine.py:Mine")
    (tmp_path / "mine.py").write_text(MINE.replace("Nearest", "The nearest"))
    assert fingerprint("dispatch", f"{tmp_path}/mine.py:Mine") != before


def test_a_policy_that_decides_nothing_has_no_score(tmp_path):
    (tmp_path / "mine.py").write_text(
        MINE + "\n    def decide(self, view, streams):\n        raise RuntimeError\n"
    )
    done = edgewise(
        "benchmark", "--policy", "mine.py:Mine", "--seeds", "0", "--scenario", "tiny", "--markdown",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"\| `Mine` \| – \|", done.stdout) and "decided nothing itself" in done.stderr


def test_what_cannot_be_scored_is_said():
    with pytest.raises(ScenarioError, match="has no jobs"):
        benchmark("defer", "fifo", [0], ["tiny"])
    with pytest.raises(PolicyError, match="no dispatch policy"):
        benchmark("dispatch", "nearest-of-all", [0])


def test_tables_have_a_row_for_each_policy():
    rows = [benchmark("dispatch", name, [0], ["tiny"]) for name in ("closest", "farthest")]
    text = page_of(rows)
    assert [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| `")] == [
        "`closest`",
        "`farthest`",
    ]
    assert rows[0].scores[0].shown in text


def test_an_edition_is_that_scenario_or_none():
    tiny = load_scenario("tiny")
    assert re.fullmatch(r"tiny@[0-9a-f]{8}", edition(tiny))
    assert load_scenario(edition(tiny)) == tiny
    changed = load_scenario(edition(tiny), {"duration_s": 9})
    assert changed.duration_s == 9.0 and edition(changed) != edition(tiny)
    assert edition(load_scenario("tiny", {"description": "Else."})) == edition(tiny)
    with pytest.raises(ScenarioError, match=f"tiny@00000000: is {edition(tiny)} now"):
        load_scenario("tiny@00000000")
    with pytest.raises(ScenarioError, match="no such file"):
        load_scenario("nowhere@00000000")


def test_an_edition_is_the_same_wherever_files_lie(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        text = (EXAMPLES / "01-first-simulation" / "factory.yaml").read_text("utf-8")
        (tmp_path / name / "factory.yaml").write_text(text)
    found = {edition(load_scenario(tmp_path / name / "factory.yaml")) for name in ("one", "other")}
    assert len(found) == 1
