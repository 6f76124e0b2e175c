"""The public surface: what users import, and how bad input is answered."""

import json
import subprocess
import sys

import pyarrow.compute as pc
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.config import load_scenario
from edgewise.errors import EdgewiseError, PolicyError
from edgewise.report import records
from edgewise.run import assigning

SURFACE = {
    "Candidates", "Comparison", "Decisions", "DispatchPolicy", "DispatchView", "EdgewiseError",
    "Item", "Items", "Result", "ScorePolicy", "check_policy", "compare", "load_policy", "load_scenario",
    "policy", "replay", "simulate",
}  # fmt: skip
GAMES = {"DeferGame", "RequestsGame", "OrchestrateGame", "PlaceGame", "SplitGame"}
ENVIRONMENTS = {"AgentsEnv", "BatchEnv", "DispatchEnv", "JointEnv"} | GAMES


def test_surface_is_what_is_documented():
    assert set(ew.__all__) == SURFACE | ENVIRONMENTS | {"train", "export", "Agent"}
    assert all(getattr(ew, name).__doc__ for name in SURFACE)
    assert set(ew.__all__) <= set(dir(ew))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = ew.nope


def test_environments_are_there_where_gymnasium_is():
    pytest.importorskip("gymnasium")
    pytest.importorskip("pettingzoo")
    assert all(hasattr(getattr(ew, name), "begin" if name in GAMES else "reset") for name in ENVIRONMENTS)


def test_importing_the_package_loads_nothing_slow():
    code = (
        "import sys, edgewise; print([n for n in ('numba', 'pyarrow', 'scipy', 'torch') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


WORK = [
    ("tiny", {"dispatch": ["closest", "cheaper"]}, {}),
    ("kais-demo", {"orchestrate": ["none", "marginal"]}, {"duration_s": 50, "services.frame_s": 25}),
    ("recognition", {"place": ["tp", "lr"]}, {"topology.nodes": 10, "pipelines.0.count": 3}),
    ("split-inception", {"split": ["nona", "whole-random"]}, {"duration_s": 20}),
    ("deferrable", {"defer": ["fifo", "sjf"]}, {"jobs.drawn.per_slot": 3}),
]


@pytest.mark.parametrize(("name", "chosen", "changes"), WORK)
def test_any_decision_is_simulated_and_compared_with_one_schema(tmp_path, name, chosen, changes):
    scenario = load_scenario(name, changes)
    ((decision, names),) = chosen.items()
    ticks = []
    found = ew.compare(scenario, chosen, range(2), progress=lambda: ticks.append(1))
    assert len(ticks) == 4 and found.result.policies == tuple(names)
    (row,) = found.rows
    values = found.result.values()
    assert (row.policy, row.rival, row.n) == (names[1], names[0], 2)
    assert row.mean == pytest.approx(values[names[1]].mean())
    difference = values[names[1]].mean() - values[names[0]].mean()
    share = found.result.measures[0].share
    assert row.difference == pytest.approx(difference if share else difference / values[names[0]].mean())
    run = records.read_run(found.result.save(tmp_path / "run"))
    assert run.items.num_rows == found.result.items.num_rows
    assert {row["seed"] for row in run.summary} == {0, 1}
    alone = ew.simulate(scenario, {decision: names[1]}, range(2)).windows
    mine = found.result.windows.filter(pc.equal(found.result.windows["policy"], names[1]))
    assert alone.drop_columns(["policy"]) == mine.drop_columns(["policy"])
    assert "</html>" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("name", ["tiny", "kais-demo", "recognition", "split-inception", "deferrable"])
def test_where_no_policies_are_named_others_are_compared_with_the_usual_one(name):
    scenario = load_scenario(name)
    (work,) = scenario.holds
    for decision, usual in assigning.defaults(scenario, work).items():
        names = assigning.names(scenario, decision)
        assert names[0] == usual and len(names) > 3 and names[1:] == sorted(names[1:])


def test_records_become_data_frames():
    pandas = pytest.importorskip("pandas")
    result = ew.simulate("deferrable", "sjf", range(2))
    items, summary = result.to_pandas(), result.to_pandas("summary")
    assert isinstance(items, pandas.DataFrame) and list(summary["seed"]) == [0, 1]
    started = items.groupby("seed")["started_s"].count()
    assert list(started) == list(summary["started"])


def test_simulate_accepts_names_files_and_classes(tmp_path):
    from edgewise.policies.dispatch.static import Closest

    scenario = ew.load_scenario("tiny")
    by_name = ew.simulate("tiny", "closest", seeds=[1])
    by_class = ew.simulate(scenario, Closest, seeds=[1])
    assert by_name.items == by_class.items


def test_saved_run_reads_back(tmp_path):
    comparison = ew.compare("tiny", ["least-impedance", "closest"], seeds=range(3), rival="closest")
    folder = comparison.result.save(tmp_path / "run")
    run = records.read_run(folder)
    order = [(name, "ascending") for name in ("policy", "seed", "stream")]
    assert run.items.sort_by(order).to_pylist() == comparison.result.items.sort_by(order).to_pylist()
    assert run.manifest["rival"] == "closest"
    assert json.loads((folder / "manifest.json").read_text())["seeds"] == [0, 1, 2]
    assert ew.load_scenario(folder / "scenario.yaml") == comparison.result.scenario
    assert (folder / "report.html").stat().st_size > 10_000
    assert "least-impedance" in str(comparison)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ew.compare("tiny", ["closest"]), "at least two"),
        (lambda: ew.compare("tiny", ["closest", "closest"], seeds=[0]), "given twice"),
        (lambda: ew.compare("tiny", ["closest", "least-impedance"], seeds=[0], rival="x"), "rival"),
        (lambda: ew.simulate("tiny", "closest", seeds=[]), "--seeds 0:5"),
    ],
)
def test_wrong_arguments_say_what_to_do(call, message):
    with pytest.raises(PolicyError, match=message):
        call()


def test_errors_have_one_root():
    assert issubclass(PolicyError, EdgewiseError)


def test_a_run_without_any_query_is_no_crash():
    from edgewise.model.parsing import parse_scenario

    data = ew.load_scenario("tiny").spec.model_dump(exclude_none=True)
    data["streams"]["arrivals"] = {"clients_per_min": 1e-6}
    scenario = parse_scenario(data, "empty")
    assert ew.simulate(scenario, "closest", seeds=[0]).summary() == []
    with pytest.raises(PolicyError, match="no values"):
        ew.compare(scenario, ["closest", "cheaper"], seeds=range(2))


class Broken(ew.ScorePolicy):
    """Reads what no view has."""

    def score(self, view, item):
        return view.nope


def test_what_the_fallback_decided_for_a_broken_policy_is_told(tmp_path):
    result = ew.compare("tiny", [Broken, "closest"], seeds=range(2)).result
    assert set(result.faults) == {"Broken"}
    assert result.faults["Broken"]["raised AttributeError"] > 2
    manifest = json.loads((result.save(tmp_path / "run") / "manifest.json").read_text())
    (found,) = manifest["decided"]["Broken"].values()
    assert found["share"] == 1.0 and not result.decided["closest"]["dispatch"].instead
    ((times, why),) = result.decided["Broken"]["dispatch"].faults.values()
    assert found["faults"] == [{"kind": "raised AttributeError", "times": times, "why": why}]
    assert "has no attribute 'nope' (test_api.py:" in why


def test_policies_of_a_long_comparison_can_be_told_apart(tmp_path):
    from edgewise.report.figures import success_over_time

    names = [
        name
        for name in policies.names("dispatch")
        if name not in ("chooser", "lookahead", "bandit") and not name.startswith("chooser-")
    ]
    folder = ew.compare("tiny", names, seeds=range(1)).result.save(tmp_path / "run")
    (axes,) = success_over_time(records.read_run(folder)).axes
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    shapes = {(line.get_color(), line.get_marker()) for line in axes.lines}
    assert len(axes.lines) == len(looks) == len(shapes) == len(names) > 8
    assert not axes.collections, "ten bands would hide each other"
