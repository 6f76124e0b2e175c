"""`edgewise reproduce | looks | freeze` as a person meets them, and the textbook queues.

Only training seeds are used here: test seeds would be noted in the log of looks.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from edgewise import cli
from edgewise.errors import EdgewiseError
from edgewise_studies import cli as commands, run
from edgewise_studies.claims import at_least, exact
from edgewise_studies.papers import queues


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Results and output of one test only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "results_folder", lambda: tmp_path / "results")
    monkeypatch.setattr(run, "reproductions", {})
    made = run.reproduction("small", paper="Small [b]", claims={"one": "at least [1]", "two": "more"})
    made(lambda r: r.claim("one", exact(2.0), at_least(1.0)))
    return tmp_path


def edgewise(*arguments):
    return CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "160"})


def test_reproduce_prints_writes_and_notes(folders):
    done = edgewise("reproduce", "small", "--quick", "--json", "claims.json", "--out", "here")
    assert done.exit_code == 0, done.output
    for text in ("at least [1]", "holds", "not_in_quick", "1 holds, 1 not_in_quick; 5 seeds", "look noted"):
        assert text in done.output
    report = json.loads((folders / "claims.json").read_text())
    assert [claim["status"] for claim in report["claims"]] == ["holds", "not_in_quick"]
    listed = edgewise("looks").output
    assert "small quick" in listed and "1000000:1000005" in listed and "1 holds, 1 not_in_quick" in listed


def test_fresh_seeds_leave_no_look(folders):
    done = edgewise("reproduce", "small", "--seeds", "2000000:2000002")
    assert done.exit_code == 0 and "look noted" not in done.output
    assert (folders / "runs" / "reproduce-small" / "claims.json").exists()
    assert "no looks yet" in edgewise("looks").output


def test_without_a_name_all_are_listed(folders):
    assert "small" in edgewise("reproduce").output and "Small [b]" in edgewise("reproduce").output


def test_an_unknown_name_lists_what_exists(folders):
    with pytest.raises(EdgewiseError, match=r"'smal': .*did you mean 'small'\? known: small"):
        CliRunner().invoke(cli.app, ["reproduce", "smal"], catch_exceptions=False)


def test_freeze_once(folders):
    done = edgewise("freeze", "tiny")
    assert done.exit_code == 0 and "frozen: tiny" in done.output
    with pytest.raises(EdgewiseError, match="is frozen since"):
        CliRunner().invoke(cli.app, ["freeze", "tiny"], catch_exceptions=False)


def test_the_summary_gives_three_weightings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = edgewise("simulate", "tiny", "--seeds", "0:2")
    for heading in ("success %", "stream %", "app %"):
        assert heading in done.output


def test_the_example_of_the_documentation(folders, capsys):
    page = Path(__file__).parents[2] / "docs" / "honest-numbers.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for long, short in (("three-tier", "tiny"), ("2_000_010", "2_000_003"), ("[:10]", "[:3]")):
        assert long in example
        example = example.replace(long, short)
    exec(compile(example, str(page), "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    assert re.search(r"^better: \w+ \(needs at least 0\.01; ", printed, re.MULTILINE)
    assert re.search(r"wins against \S+ in \d of 7", printed)
    claims = json.loads((folders / "runs" / "distance" / "claims.json").read_text())["claims"]
    assert {claim["id"] for claim in claims} == {"better", "robust"}


def test_formulas_at_values_worked_out_by_hand():
    assert queues.mm1_wait(0.5) == 1.0 and queues.md1_wait(0.8) == pytest.approx(2.0)
    assert queues.mmc_wait(0.7, 1) == pytest.approx(queues.mm1_wait(0.7))
    # a = 1, c = 2: C = (1/2 · 2) / (1 + 1 + 1) = 1/3, W = (1/3) / (2 · 1/2).
    assert queues.mmc_wait(0.5, 2) == pytest.approx(1 / 3)


def test_the_queues_of_the_reproduction_are_those_of_the_formulas():
    for queue in queues.QUEUES:
        found = queues.simulated_waits_s(queue, 0.6, 300_000, range(5))
        assert found.mean() == pytest.approx(queue.wait(0.6), rel=0.05)
    assert queues.little_ratio(1, 100_000) == pytest.approx(1.0, abs=0.05)


def test_the_figure_draws_every_measured_wait():
    waits = {(queue.name, load): np.array([1.0, 2.0]) for queue in queues.QUEUES for load in (0.5, 0.8)}
    axes = queues.figure(waits).axes[0]
    assert axes.get_legend_handles_labels()[1] == ["M/M/1", "M/D/1", "M/M/4"]
    assert axes.get_yscale() == "log"


def test_the_reproduction_finds_a_wrong_formula(tmp_path, monkeypatch):
    # A claim that could not fail would prove nothing: halve a formula, and it fails.
    wrong = queues.Queue("M/D/1", lambda load: queues.md1_wait(load) / 2, 1, "normal")
    monkeypatch.setattr(queues, "QUEUES", (queues.QUEUES[0], wrong, queues.QUEUES[2]))
    monkeypatch.setattr(queues, "QUERIES_QUICK", 200_000)
    monkeypatch.setattr(queues, "CLAIMED_QUICK", (0.5,))
    monkeypatch.setattr(queues, "LITTLE_QUERIES", 20_000)
    report = run.carry_out("queues", tmp_path, tmp_path, quick=True, seeds=range(10))
    status = {claim.id: claim.status for claim in report.claims}
    assert status["md1-50"] == "fails" and status["mm1-50"] in ("holds", "inconclusive")
    assert (tmp_path / "waits.png").exists() and not (tmp_path / "looks.jsonl").exists()
