"""Every command that prints an answer prints it as JSON, too."""

import json
from unittest.mock import patch

import pytest
from typer.main import get_command

from edgewise.cli import app, jobs, nodes, state, switch
from in_process import edgewise

OTHERS = {
    "up": "serves, and its processes log JSON",
    "worker": "serves, and logs JSON",
    "pod": "serves, and logs JSON",
    "gateway": "serves, and logs JSON",
    "down": "says what it waits for",
    "schema": "is JSON",
    "dev openapi": "is JSON",
    "token": "is the token alone",
    "job output": "is what a job wrote",
    "init": "is a scenario",
}


def leaves(command, name=""):
    if not hasattr(command, "list_commands"):
        yield name.strip(), command
        return
    for each in command.list_commands(None):
        yield from leaves(command.get_command(None, each), f"{name} {each}")


def test_every_command_that_answers_has_json():
    flags = {
        name: {flag for each in command.params for flag in each.opts}
        for name, command in leaves(get_command(app))
    }
    without = {name for name, known in flags.items() if "--json" not in known}
    assert without - set(OTHERS) == set()


ANSWERS = {
    ("nodes", "/v1/nodes"): (nodes, []),
    ("streams", "/v1/streams"): (state, [{"stream": 1, "closed_s": None, "worker": "w", "gateway": "g"}]),
    ("workers", "/v1/workers"): (state, [{"name": "w", "state": "running", "restarts": 0, "gateways": {}}]),
    ("pipelines", "/v1/admin/pipelines"): (nodes, []),
    ("jobs", "/v1/admin/jobs"): (jobs, [{"id": 3, "ended_s": None}]),
    ("policy show", "/v1/policies"): (switch, [{"decision": "defer", "policy": "fifo"}]),
    ("policy show defer", "/v1/policies/defer"): (switch, {"decision": "defer", "available": ["fifo"]}),
    ("policy progress", "/v1/operations"): (switch, [{"id": 1}]),
    ("job cancel 3", "/v1/admin/jobs/3"): (jobs, {"id": 3, "state": "cancelled", "ended_s": 1.0}),
}


@pytest.mark.parametrize(("asked", "answered"), ANSWERS.items(), ids=[words for words, _ in ANSWERS])
def test_what_the_controller_answers_is_printed_as_it_is(asked, answered, tmp_path):
    (words, path), (module, found) = asked, answered

    def call(folder, method, where, *more, **patience):
        assert where == path
        return found

    with patch.object(module, "call", call):
        done = edgewise(*words.split(), "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout) == found


def test_lists_are_json(tmp_path):
    rows = json.loads(edgewise("scenarios", "--json", cwd=tmp_path).stdout)
    assert {"scenario", "holds", "what"} == set(rows[0]) and "tiny" in {row["scenario"] for row in rows}
    variants = json.loads(edgewise("catalog", "--json", cwd=tmp_path).stdout)
    assert variants and all(row["capacity_qps"] > 0 for row in variants)
    assert edgewise("simulate", "tiny", "--policy", "closest", "--seeds", "0", cwd=tmp_path).returncode == 0
    found = json.loads(edgewise("report", "runs/tiny-closest", "--json", cwd=tmp_path).stdout)
    assert found == {"report": "runs/tiny-closest/report.html"}
