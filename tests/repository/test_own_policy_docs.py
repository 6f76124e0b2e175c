"""The tutorial's own policy, as its reader runs it, and the examples of policies."""

import re
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgewise import policies
from edgewise.cli import app
from edgewise.testing import check_policy

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "own-policy.md"
EXAMPLES = ROOT / "examples" / "03-every-decision"


@pytest.fixture
def mine(tmp_path):
    (code, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(code.strip().splitlines()) <= 20
    assert code == (ROOT / "examples" / "02-own-policy" / "mine.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(code)
    return tmp_path


def test_the_policy_of_the_tutorial_keeps_the_contract(mine):
    check_policy(type(policies.load("dispatch", f"{mine / 'mine.py'}:NearNotCrowded")))


def test_one_command_compares_it_with_all_others(mine):
    (command,) = re.findall(r"^edgewise (compare three-tier .*)$", PAGE.read_text(encoding="utf-8"), re.M)
    with chdir(mine):
        done = CliRunner().invoke(app, command.replace("0:10", "0:2").split(), env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    fit = [name for name in policies.names("dispatch") if not name.startswith("chooser-")]  # any topology
    assert not [name for name in (*fit, "NearNotCrowded") if name not in done.output]
    assert (mine / "runs/three-tier-compare/report.html").is_file()


TOYS = re.findall(
    r"^edgewise simulate .*--policy (\w+)=(\w+\.py):(\w+)", (EXAMPLES / "README.md").read_text("utf-8"), re.M
)


@pytest.mark.parametrize(("decision", "file", "name"), TOYS, ids=[file for _, file, _ in TOYS])
def test_a_policy_of_each_decision_keeps_the_contract(decision, file, name):
    code = (EXAMPLES / file).read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    check_policy(lambda: policies.load(decision, f"{EXAMPLES / file}:{name}"))


def test_there_is_a_policy_of_each_decision():
    assert {decision for decision, _, _ in TOYS} == set(policies.DECISIONS) - {"dispatch"}
