"""What ships is as live; a run as published says so wherever its figures stand."""

import json
from importlib.metadata import entry_points

import pytest
from typer.testing import CliRunner

from edgewise.cli import app
from edgewise.config import load_scenario, offered_scenarios, shipped_scenarios
from edgewise.errors import ScenarioError
from edgewise.model.setting import published, setting
from in_process import edgewise

SHORT = ("--seeds", "0:2", "--set", "duration_s=14400", "--set", "jobs.drawn.per_slot=3")
PUBLISHED = {
    "streams.gateways: one", "services.gateways: one", "jobs.room: pooled", "services.returns_cores: false",
}  # fmt: skip


@pytest.mark.parametrize("name", shipped_scenarios())
def test_what_ships_is_simulated_as_live(name):
    scenario = load_scenario(name)
    found = {key for work in scenario.holds for key in published(scenario, work)}
    assert found.isdisjoint(PUBLISHED)


@pytest.mark.parametrize("name", offered_scenarios())
def test_a_twin_is_a_shipped_scenario_but_for_its_name_and_what_is_published(name):
    (entry,) = entry_points(group="edgewise.scenarios", name=name)
    base, settings = entry.load()[name]
    twin, shipped = load_scenario(name), load_scenario(base)
    assert twin.name == name and name in offered_scenarios()
    assert load_scenario(base, {"name": name, **settings}).spec == twin.spec
    (work,) = twin.spec.holds
    assert len(published(twin, work)) == len(published(shipped, work)) + len(settings)
    changed = load_scenario(name, {"duration_s": 2 * twin.duration_s})  # as any other
    assert changed.duration_s == 2 * twin.duration_s and published(changed, work) == published(twin, work)


def test_settings_are_named_in_tables_json_manifest_and_report(tmp_path):
    pool = "as published (jobs.room: pooled)"
    for name, words in (("deferrable", "as live"), ("deferrable-published", pool)):
        assert setting(load_scenario(name), "jobs") == words
        done = edgewise("simulate", name, *SHORT, "--out", tmp_path / name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert words in " ".join(done.stdout.split())
        assert json.loads((tmp_path / name / "manifest.json").read_text())["settings"] == {"jobs": words}
        assert words in (tmp_path / name / "report.html").read_text()
        again = CliRunner().invoke(app, ["simulate", name, *SHORT, "--json", "--out", str(tmp_path / name)])
        assert json.loads(again.stdout)["settings"] == {"jobs": words}


def test_a_name_that_nobody_offers_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ScenarioError, match="did you mean 'scarce-published'"):
        load_scenario("scarce-publishd")
