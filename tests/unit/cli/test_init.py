"""`edgewise init`: what it writes is a scenario that can be checked and simulated, and explains itself."""

import json
import sys
from unittest.mock import patch

import pytest
import yaml

import edgewise as ew
from edgewise.cli import init
from in_process import edgewise


@pytest.mark.parametrize("cloud", ["--cloud", "--no-cloud"])
def test_what_is_written_passes_check_and_simulate(tmp_path, cloud):
    options = ("--boxes", "2", "--cameras", "20", cloud, "--out", "shop.yaml")
    done = edgewise("init", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "next: edgewise check shop.yaml, edgewise simulate shop.yaml" in done.stdout.replace("\n", " ")
    loaded = ew.load_scenario(tmp_path / "shop.yaml")
    assert loaded.name == "shop" and len(loaded.topology.nodes) == 2 + (cloud == "--cloud")
    assert [source.count for source in loaded.streams.sources] == [20]
    assert "#" in (tmp_path / "shop.yaml").read_text()
    done = edgewise("check", "shop.yaml", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["servable"] and not found["unserved"]
    done = edgewise(
        "simulate", "shop.yaml", "--set", "duration_s=20", "--seeds", "0:2", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert all(row["success"] > 0.99 for row in json.loads(done.stdout)["summary"])


def test_without_a_file_it_is_printed_and_no_terminal_is_asked(tmp_path):
    done = edgewise("init", cwd=tmp_path)
    assert done.returncode == 0 and yaml.safe_load(done.stdout)["name"] == "site"
    assert yaml.safe_load(done.stdout)["clusters"][0]["nodes"][0]["count"] == 4


def test_a_file_that_is_there_stays(tmp_path):
    (tmp_path / "a.yaml").write_text("mine")
    done = edgewise("init", "--out", "a.yaml", cwd=tmp_path)
    assert done.returncode == 2 and "exists; name another file" in done.stderr.replace("\n", " ")
    assert (tmp_path / "a.yaml").read_text() == "mine"


def test_an_answer_that_does_not_fit_is_said(tmp_path):
    done = edgewise("init", "--deadline", "soon", "--out", "a.yaml", cwd=tmp_path)
    assert done.returncode == 2 and "deadline_s" in done.stderr and not (tmp_path / "a.yaml").exists()


def test_on_a_terminal_it_asks(monkeypatch, tmp_path):
    answers = iter(["3", "16", "7", "2", "300ms", "n"])
    asked = []
    monkeypatch.setattr(
        init.typer, "prompt", lambda text, type, **_: asked.append(text) or type(next(answers))
    )
    monkeypatch.setattr(init.typer, "confirm", lambda text, **_: asked.append(text) or next(answers) == "y")
    with patch.object(sys.stdin, "isatty", lambda: True, create=True):
        done = edgewise("init", "--out", "asked.yaml", cwd=tmp_path)
    assert done.returncode == 0 and len(asked) == 6
    loaded = ew.load_scenario(tmp_path / "asked.yaml")
    assert len(loaded.topology.nodes) == 3 and loaded.streams.sources[0].count == 7
    assert loaded.streams.sources[0].deadline_s == 0.3
