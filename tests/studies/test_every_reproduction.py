"""Every reproduction runs to its end with one seed, and makes all that it declares."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_reproductions import SEEDS, shorten

from edgewise.errors import EdgewiseError
from edgewise_studies import papers as papers, run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
TRAINED = {"aset", "kais", "aset-published", "kais-published"}  # a full run trains, which tests/learn does


def carried_out(name, folder, patch, **options):
    shorten(patch, name)
    return run.carry_out(name, folder, RESULTS, looks=folder, seeds=SEEDS, jobs=1, **options)


@pytest.mark.parametrize("name", sorted(set(run.registered()) - TRAINED))
def test_every_claim_is_made(name, tmp_path, monkeypatch):
    report = carried_out(name, tmp_path, monkeypatch)
    declared = run.find(name).claims
    assert [claim.id for claim in report.claims] == list(declared)
    assert not [claim.id for claim in report.claims if claim.estimate is None]
    assert len(list(tmp_path.glob("*.png"))) >= 1 and not (tmp_path / "looks.jsonl").exists()


def test_a_quick_run_of_kais_makes_all_but_what_is_trained_or_timed(tmp_path, monkeypatch):
    report = carried_out("kais", tmp_path, monkeypatch, quick=True)
    left_out = {claim.id for claim in report.claims if claim.estimate is None}
    assert left_out == {
        "learns", "gap", "frames-raw", "dispatch-delay", "orchestration-delay", "balance", "nodes", "graph",
        "graph-complex",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "made"), [("aset-published", "each-run"), ("kais-published", "closest")])
def test_a_quick_run_of_a_method_as_published_has_what_needs_no_training(name, made, tmp_path, monkeypatch):
    report = carried_out(name, tmp_path, monkeypatch, quick=True)
    assert {claim.id for claim in report.claims if claim.estimate is not None} == {made}
    assert len(list(tmp_path.glob("*.png"))) == 1


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is here")
def test_a_full_run_says_at_once_that_it_trains(tmp_path, monkeypatch):
    with pytest.raises(EdgewiseError, match=r"reproduce kais: a full run cannot import torch: pip install"):
        carried_out("kais", tmp_path, monkeypatch)


def test_a_visitor_leaves_the_checkout_clean(tmp_path, monkeypatch):
    """Looks at test seeds are noted where the figures go, and in docs/results where that is asked for."""
    before = state()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgewise_studies.papers.queues.QUERIES_QUICK", 1_000)
    from in_process import edgewise

    done = edgewise("reproduce", "queues", "--quick", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "look noted in runs/looks.jsonl" in done.stdout
    (look,) = map(json.loads, (tmp_path / "runs" / "looks.jsonl").read_text().splitlines())
    assert look["paper"] == "queues" and (tmp_path / "runs/reproduce-queues/claims.json").exists()
    assert "queues quick" in edgewise("looks", cwd=tmp_path).stdout
    assert state() == before


def state():
    """What git says has changed, with the log of looks."""
    said = subprocess.run(["git", "status", "--porcelain", "docs"], cwd=ROOT, capture_output=True, text=True)
    return said.stdout, (RESULTS / "looks.jsonl").read_bytes()
