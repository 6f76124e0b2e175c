"""Policies are found by name, file and entry point, and errors say what to do."""

import importlib
import sys

import pytest

import edgewise as ew
from edgewise import policies
from edgewise.errors import PolicyError
from edgewise.testing import check_policy

MINE = """
from edgewise import ScorePolicy

class Mine(ScorePolicy):
    \"\"\"Expected delay, stretched by load.\"\"\"

    def score(self, view, item):
        return view.impedance_s * (1.0 + view.load_qps / view.capacity_qps)
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return f"{tmp_path / 'mine.py'}:Mine"


def test_policy_from_a_file_runs_and_keeps_the_contract(mine):
    check_policy(lambda: policies.load("dispatch", mine))
    result = ew.compare("tiny", ["closest", mine], seeds=range(2)).result
    assert result.policies == ("closest", "Mine")


def test_policy_from_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "edgewise_plugin.py").write_text(MINE)
    info = tmp_path / "edgewise_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: edgewise-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[edgewise.policies]\nplugged = edgewise_plugin:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert "plugged" in policies.names("dispatch")
    assert type(policies.load("dispatch", "plugged")).__module__ == "edgewise_plugin"
    sys.modules.pop("edgewise_plugin")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("closet", "did you mean 'closest'"),
        ("missing.py:Mine", "no file missing.py"),
        ("missing.py", "name the class too"),
    ],
)
def test_errors_name_the_fix(name, message):
    with pytest.raises(PolicyError, match=message):
        policies.load("dispatch", name)


def test_errors_in_a_policy_file(tmp_path, mine):
    with pytest.raises(PolicyError, match="did you mean 'Mine'"):
        policies.load("dispatch", mine.replace(":Mine", ":Mime"))
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(PolicyError, match="ZeroDivisionError"):
        policies.load("dispatch", f"{tmp_path / 'broken.py'}:X")
    (tmp_path / "lacks.py").write_text("class X: pass")
    with pytest.raises(PolicyError, match="says decision = None; say one of dispatch, requests, split"):
        policies.load("dispatch", f"{tmp_path / 'lacks.py'}:X")


def test_a_taken_name_is_refused():
    with pytest.raises(PolicyError, match="is taken by"):
        policies.policy("closest")(type("Other", (), {"decision": "dispatch"}))
