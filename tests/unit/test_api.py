"""The public surface: what users import, and how bad input is answered."""

import json

import pytest

import edgewise as ew
from edgewise import policies
from edgewise.errors import EdgewiseError, PolicyError
from edgewise.report import records

SURFACE = set(
    [
        "Candidates",
        "Comparison",
        "Decisions",
        "DispatchPolicy",
        "DispatchView",
        "EdgewiseError",
        "Item",
        "Items",
        "Result",
        "ScorePolicy",
        "compare",
        "load_scenario",
        "policy",
        "simulate",
    ]
)


def test_surface_is_what_is_documented():
    assert set(ew.__all__) == SURFACE
    assert all(getattr(ew, name).__doc__ for name in SURFACE)


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
    from edgewise.model.scenario import parse_scenario

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
    assert manifest["faults"] == {"Broken": dict(result.faults["Broken"])}


def test_policies_of_a_long_comparison_can_be_told_apart(tmp_path):
    from edgewise.report.figures import success_over_time

    names = [
        name
        for name in policies.names("dispatch")
        if name not in ("aset", "lookahead", "bandit") and not name.startswith("aset-")
    ]
    folder = ew.compare("tiny", names, seeds=range(1)).result.save(tmp_path / "run")
    (axes,) = success_over_time(records.read_run(folder)).axes
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    shapes = {(line.get_color(), line.get_marker()) for line in axes.lines}
    assert len(axes.lines) == len(looks) == len(shapes) == len(names) > 8
    assert not axes.collections, "ten bands would hide each other"
