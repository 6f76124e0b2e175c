"""One grammar: what read scenarios of another form is gone, and every command says what it does not run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgewise import api, config
from edgewise.cli import app
from edgewise.errors import ScenarioError
from edgewise.model.grammar.scenario import NEEDS
from edgewise.model.left_out import not_run

GONE = [
    ("edgewise.model.orchestration_spec", None),
    ("edgewise.config", "load_orchestration"),
    ("edgewise.config", "shipped_orchestrations"),
    ("edgewise.config", "orchestration_schema"),
    ("edgewise.model.jobs", None),
    ("edgewise.model.pipelines", "parse_description"),
    ("edgewise.workloads.job_files", None),
    ("edgewise.workloads.network_files", None),
    ("edgewise.workloads.streaming", None),
    ("edgewise.workloads.pipeline_profiler", "load_description"),
    ("edgewise.workloads.pipelines", "streaming_jobs"),
]


@pytest.mark.parametrize(("module", "name"), GONE)
def test_the_old_readers_are_gone(module: str, name: str | None) -> None:
    if name is not None:
        assert not hasattr(importlib.import_module(module), name)
    else:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)


def test_one_schema_has_every_kind_of_work_and_takes_no_argument() -> None:
    done = CliRunner().invoke(app, ["schema"])
    assert set(NEEDS) <= set(json.loads(done.output)["properties"])
    assert CliRunner().invoke(app, ["schema", "orchestrate"]).exit_code == 2


def test_scenarios_are_listed_by_the_work_that_they_hold() -> None:
    lines = CliRunner().invoke(app, ["scenarios"], env={"COLUMNS": "200"}).output.splitlines()[1:]
    names = (*config.shipped_scenarios(), *config.offered_scenarios())
    holds = {name: config.scenario_form(name).holds for name in names}
    assert len(lines) == len(holds)
    for line in lines:
        name, rest = line.split(maxsplit=1)
        assert rest.startswith(", ".join(holds[name]) + " ")
    assert {"streams", "services"} <= {kind for kinds in holds.values() for kind in kinds}


def test_what_is_not_run_is_said(tmp_path: Path) -> None:
    both = config.load_scenario("kais-live", {"timeline": [{"at_s": 1, "node": "west-0", "up": False}]})
    assert not_run(both, ("streams", "services", "timeline"), "x") == []
    assert [line.split(",")[0] for line in not_run(both, ("streams",), "edgewise simulate")] == [
        "edgewise simulate leaves out the services of this scenario",
        "edgewise simulate leaves out the timeline of this scenario",
    ]
    in_slots = ["--set", "services.gateways=one", "--set", "duration_s=3"]
    short = [*in_slots, "--seeds", "0", "--out", str(tmp_path)]
    for command, left in (
        (["simulate", "kais-live"], "edgewise simulate leaves out the services of this scenario, which"),
        (
            ["compare", "kais-live", "--policies", "closest,farthest"],
            "edgewise compare leaves out the services",
        ),
        (
            ["simulate", "kais-live", "--policy", "orchestrate=none"],
            "edgewise simulate leaves out the streams of this scenario, which",
        ),
    ):
        done = CliRunner().invoke(app, [*command, *short])
        assert done.exit_code == 0, done.output
        assert f"note: {left}" in done.output
    done = CliRunner().invoke(app, ["simulate", "campus-small", "--seeds", "0", "--out", str(tmp_path)])
    assert done.exit_code == 0 and "leaves out" not in done.output, done.output


@pytest.mark.parametrize(
    ("command", "scenario", "message"),
    [
        ("simulate --policy place=tp", "edge-cloud", "scenario 'edge-cloud': has no pipelines, which "
         "edgewise simulate --policy place runs; it has services, which edgewise simulate --policy"),
        ("simulate --policy defer=fifo", "tiny", "has no jobs, which edgewise simulate --policy defer runs"),
        ("compare --policies split=nona,equal", "edge-cloud", "has no graphs, which edgewise compare"),
        ("up", "edge-cloud", "edge-cloud: services.offered[0]: 'small' is simulated only"),
        ("gateway", "edge-cloud", "has no streams, which edgewise gateway runs"),
    ],
)  # fmt: skip
def test_a_scenario_without_the_work_that_a_command_runs_is_refused(
    command: str, scenario: str, message: str, tmp_path: Path
) -> None:
    more = {"up": ["--state", str(tmp_path)], "gateway": ["--worker", "a=http://b"]}.get(command, [])
    done = CliRunner().invoke(app, [*command.split(), scenario, *more])
    assert isinstance(done.exception, ScenarioError)
    assert message in str(done.exception)


def test_the_library_refuses_it_too() -> None:
    with pytest.raises(ScenarioError, match="has no jobs, which simulate --policy defer runs"):
        api.simulate("edge-cloud", {"defer": "fifo"})
