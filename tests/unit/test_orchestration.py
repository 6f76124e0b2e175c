"""Scenarios, commands and policies of requests and replicas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgewise import config
from edgewise.cli import app
from edgewise.errors import PolicyError, ScenarioError
from edgewise.learn.orchestration.export import SHIPPED
from edgewise.model.orchestration import System
from edgewise.model.orchestration_spec import build_system, spread
from edgewise.policies import orchestrate, requests
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise.policies.orchestrate.shadow import GreedyShadow
from edgewise.sim.replicas import ReplicaWorlds, simulate
from edgewise.workloads.steady import steady


@pytest.mark.parametrize(
    ("name", "sites", "nodes", "services"),
    [("edge-cloud", 5, 40, 30), ("edge-cloud-complex", 10, 100, 30), ("kais-demo", 2, 6, 12)],
)
def test_shipped_scenarios_have_the_sizes_of_the_paper(
    name: str, sites: int, nodes: int, services: int
) -> None:
    system = build_system(config.load_orchestration(name))
    assert (system.sites, system.nodes, system.services) == (sites, nodes, services)
    assert (system.initial.sum(axis=0) > 0).all(), "every service runs somewhere"
    number = np.bincount(system.site_of)
    if name == "edge-cloud-complex":
        assert (number.min(), number.max()) == (3, 15)


def test_a_wrong_scenario_names_the_field_and_the_fix() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'kais-demo'"):
        config.load_orchestration("kais-dmo")
    with pytest.raises(ScenarioError, match=r"slot_s.*is too small; use a number > 0"):
        config.load_orchestration("kais-demo", {"slot_s": 0})
    with pytest.raises(ScenarioError, match=r"requests\.rate"):
        config.load_orchestration("kais-demo", {"requests.rate": 3})
    spec = config.load_orchestration("kais-demo", {"cloud.disk_bytes": "1GB"})
    with pytest.raises(ScenarioError, match=r"cloud\.disk_bytes: all images are 1\.26e\+09 bytes"):
        build_system(spec)


def test_replicas_are_spread_in_turn_as_far_as_memory_goes() -> None:
    placed = spread(np.array([2.0, 1.0]), np.array([1.0, 0.5]))
    assert placed.tolist() == [[1, 1], [1, 0]]


def test_the_same_seed_gives_the_same_requests_alone_and_with_others() -> None:
    spec = config.load_orchestration("kais-demo")
    system = build_system(spec)
    many, one = steady(spec.requests, system, range(5), 100.0), steady(spec.requests, system, [3], 100.0)
    for all_of, alone in zip(many, one, strict=True):
        assert np.array_equal(all_of[3], alone[0])
    assert many.count.mean() == pytest.approx(300, rel=0.1)
    assert (np.diff(many.arrival_s, axis=1) >= 0).all()


def _demo(**changes: object) -> tuple[System, ReplicaWorlds]:
    spec = config.load_orchestration("kais-demo", {"frames": 4, "frame_slots": 50, **changes})
    system, slots = build_system(spec), spec.frames * spec.frame_slots
    drawn = steady(spec.requests, system, range(2), slots * spec.slot_s)
    return system, ReplicaWorlds(system, drawn, slots, range(2))


@pytest.mark.parametrize("dispatch", requests.names())
@pytest.mark.parametrize("scaling", orchestrate.names())
def test_policies_combine_freely(dispatch: str, scaling: str) -> None:
    _, worlds = _demo()
    outcome = simulate(worlds, requests.load(dispatch), orchestrate.load(scaling))
    if dispatch == "cloud-only":  # the way to the cloud is narrow
        assert (outcome.throughput_rate < 0.3).all()
    else:
        assert (outcome.throughput_rate > 0.3).all()
    total = (outcome.in_time + outcome.late + outcome.dropped).sum(axis=1) + outcome.waiting
    assert np.array_equal(total, outcome.arrived.sum(axis=1))


def test_the_demo_without_returned_cores_does_worse() -> None:
    rates = []
    for returns in (True, False):
        _, worlds = _demo(returns_cpu=returns)
        rates.append(simulate(worlds, requests.load("greedy")).throughput_rate.mean())
    assert rates[0] > rates[1]


def test_the_autoscaler_follows_its_rule() -> None:
    system, worlds = _demo()
    scaler = Autoscaler(target=0.5, tolerance=0.1, stabilisation=2, least=1, most=10)
    scaler.reset(system)
    view = worlds.view
    current = np.full((2, system.services), 4)
    view.waiting[:] = 0
    view.busy[:, 1, 0] = 2  # exactly the target
    view.busy[:, 1, 1] = 3  # half as much again
    view.busy[:, 1, 2] = 8  # four times, but at most twice or 4 more
    view.busy[:, 1, 3] = 1
    want = scaler.desired(view, current)[0]
    assert want[:5].tolist() == [4, 6, 8, 2, 1]
    view.busy[:, 1, 0], current[:, 0] = 21, 40
    assert scaler.desired(view, current)[0, 0] == 10, "most"


def test_scaling_down_waits_for_the_stabilisation() -> None:
    system, worlds = _demo()
    scaler = Autoscaler(target=0.5, stabilisation=2)
    scaler.reset(system)
    worlds.view.busy[:, 1] = 1
    worlds.view.ready[:, 1:] += 3
    scaler.scale(worlds.view)  # wants 2 of each
    worlds.view.busy[:] = 0
    commands = scaler.scale(worlds.view)
    removed = np.bincount(-commands[0, :, 1][commands[0, :, 1] < 0] - 1, minlength=system.services)
    alive = worlds.view.ready[0, 1:].sum(axis=0)
    assert np.array_equal(alive - removed, np.full(system.services, 2))


def test_greedy_placement_serves_the_load_and_moves_nothing_without_need() -> None:
    system, worlds = _demo()
    policy = GreedyShadow(headroom=1.0)
    policy.reset(system)
    now = worlds.view.ready[0, 1:]
    load = np.zeros(system.services)
    load[0] = 1.5
    placed = policy.place(load, now)
    assert placed[:, 0].sum() == 2
    assert placed[:, 1:].sum() == 0
    assert (placed <= now).all(), "the two that are there are enough"


def test_unknown_policies_are_named_with_the_nearest() -> None:
    with pytest.raises(PolicyError, match="did you mean 'greedy'"):
        requests.load("gredy")
    with pytest.raises(PolicyError, match="did you mean 'autoscaler'"):
        orchestrate.load("autoscale")


def test_the_command_writes_a_run(tmp_path: Path) -> None:
    arguments = ["orchestrate", "kais-demo", "--dispatch", "closest", "--orchestrate", "gsp-ss"]
    arguments += [
        "--seeds",
        "0:2",
        "--set",
        "frames=2",
        "--set",
        "frame_slots=50",
        "--out",
        str(tmp_path / "run"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    frames = pq.read_table(tmp_path / "run" / "frames.parquet").to_pydict()
    assert len(frames["seed"]) == 4
    rate = [sum(frames["in_time"][i : i + 2]) / sum(frames["arrived"][i : i + 2]) for i in (0, 2)]
    assert rate == pytest.approx(run["throughput_rate_by_seed"])
    again = config.load_orchestration(tmp_path / "run" / "scenario.yaml")
    assert again == config.load_orchestration("kais-demo", {"frames": 2, "frame_slots": 50})


def test_the_schema_of_the_command_is_printed() -> None:
    done = CliRunner().invoke(app, ["schema", "orchestrate"])
    assert "frame_slots" in json.loads(done.output)["properties"]


@pytest.mark.parametrize("named", ["kais-scarce", "a path"])
def test_orchestrate_runs_cards_by_name_and_by_path(tmp_path: Path, named: str) -> None:
    card = str(SHIPPED / "kais-scarce.json") if named == "a path" else named
    small = ("--set", "frames=1", "--set", "frame_slots=4", "--seeds", "0:1", "--out", str(tmp_path / "run"))
    done = CliRunner().invoke(app, ["orchestrate", "kais-demo", "--dispatch", card, *small])
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["dispatch"] == card
