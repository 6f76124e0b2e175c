"""The tutorial's own policy, as its reader runs it."""

import re
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgewise import policies
from edgewise.cli import app
from edgewise.testing import check_policy

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "own-policy.md"


@pytest.fixture
def mine(tmp_path):
    (code, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(code.strip().splitlines()) <= 20
    (tmp_path / "mine.py").write_text(code)
    return tmp_path


def test_the_policy_of_the_tutorial_keeps_the_contract(mine):
    check_policy(type(policies.load("dispatch", f"{mine / 'mine.py'}:NearNotCrowded")))


def test_one_command_compares_it_with_all_others(mine):
    (command,) = re.findall(r"^edgewise (compare three-tier .*)$", PAGE.read_text(encoding="utf-8"), re.M)
    with chdir(mine):
        done = CliRunner().invoke(app, command.replace("0:10", "0:2").split(), env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    fit = [name for name in policies.names("dispatch") if not name.startswith("aset-")]  # any topology
    assert not [name for name in (*fit, "NearNotCrowded") if name not in done.output]
    assert (mine / "runs/three-tier-compare/report.html").is_file()


OWN = re.compile(r"`(\w+\.py)`, and `edgewise (simulate .*?)`:\n\n```python\n(.*?)```", re.S)
TOYS = OWN.findall(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "command", "code"), TOYS, ids=[file for file, _, _ in TOYS])
def test_a_policy_of_each_decision_keeps_the_contract_and_runs(file, command, code, tmp_path):
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    (tmp_path / file).write_text(code)
    decision, _, named = re.search(r"--policy (\S+)", command).group(1).partition("=")
    with chdir(tmp_path):
        check_policy(lambda: policies.load(decision, named))
        done = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
    assert done.exit_code == 0 and named.partition(":")[2] in done.output, done.output
