"""Scenarios, commands and policies of requests and replicas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import edgewise as ew
from edgewise import config, policies
from edgewise.cli import app
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.services import spread
from edgewise.policies.cards import SHIPPED
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise.policies.orchestrate.shadow import GreedyShadow
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
from edgewise.workloads.services import simulated_services
from edgewise_studies.training.kais.settings import setting


@pytest.mark.parametrize(
    ("name", "sites", "nodes", "services"),
    [
        ("edge-cloud", 5, 40, 30),
        ("edge-cloud-complex", 10, 100, 30),
        ("scarce", 5, 40, 30),
        ("kais-demo", 2, 6, 12),
    ],
)
def test_shipped_scenarios_have_the_sizes_of_the_paper(
    name: str, sites: int, nodes: int, services: int
) -> None:
    system = simulated_services(config.load_scenario(name)).system
    assert (system.sites, system.nodes, system.services) == (sites, nodes, services)
    assert (system.initial.sum(axis=0) > 0).all(), "every service runs somewhere"
    number = np.bincount(system.site_of)
    if name == "edge-cloud-complex":
        assert (number.min(), number.max()) == (3, 15)


def test_a_wrong_scenario_names_the_field_and_the_fix() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'kais-demo'"):
        config.load_scenario("kais-dmo")


def _long_names(count: int) -> list[dict[str, object]]:
    return [
        {"name": "big", "count": count, "memory_bytes": "1GB", "cpu_cores": 1, "image_bytes": "1MB"},
        {"name": "big-1", "memory_bytes": "1GB", "cpu_cores": 1, "image_bytes": "1MB"},
    ]


ONE = {"services.gateways": "one"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"services.slot_s": 0}, "services.slot_s: 0 is too small; use a number > 0"),
        ({"services.requests.rate": 3}, "unknown key 'rate'; did you mean 'rate_qps'"),
        ({"services.requests": {"rate_qps": 3}}, "services.requests.service_s: is missing; add it"),
        ({"services.initial_share": 1.5}, "services.initial_share: 1.5"),
        ({"services.offered": [{"variant": "x", "deadline_s": 1}]}, "variant: unknown variant 'x'; there"),
        ({"services.offered.service.image_byte": 1}, "unknown key 'image_byte'; did you mean 'image_bytes'"),
        ({"services.offered": _long_names(2)}, "services.offered: the name 'big-1' is given twice"),
        ({"services.offered.service.memory_bytes": "9GB"},
         "services.offered[0]: a replica of 'service' holds 9e+09 bytes, nodes have up to 8e+09"),
        ({"services.initial_share": None, "services.offered.service.initial": 5},
         "services.offered[0].initial: "),
        ({"clusters.cloud.nodes.cloud.resources.storage_bytes": "1GB"},
         "clusters.cloud: all images are 1.26e+09 bytes; give its nodes as much storage_bytes"),
        ({"clusters.site.nodes.a.resources.storage_bytes": "1MB"},
         "images of the first replicas on 'site-0.a' are"),
        ({"services.requests": None}, "services.requests: is missing; add what arrives"),
        ({"services.frame_s": 499.8}, "frame_s: 499.8 is not a multiple of services.slot_s, 0.5; use 500"),
        ({"duration_s": 1100}, "duration_s: 1100 is not a multiple of services.frame_s, 500; use 1000"),
        ({"links.1.bandwidth_bps": "2Gbps"}, "links[1].bandwidth_bps: the cables it runs over have it"),
        ({"sites": [{"name": "a", "cluster": "site-0", "uplink_bps": "1Gbps"},
                    {"name": "b", "cluster": "site-1", "uplink_bps": "100Mbps"}], **ONE},
         "links: to nodes have rates of 1e+08, 1e+09 bits/s (the least of uplink_bps and bandwidth_bps), and "
         "there is one with `services: {gateways: one}`"),
        ({"links.0.over": None}, "all nodes share one cable of each site; add `over: \"lan-{site}\"`"),
        ({"links.0.over": "wan", "links.1.over": "wan"}, "all nodes share one cable of each site"),
        ({"links.2.over": "lan-{site}"}, "all sites share one cable to the cloud; add `over: wan`"),
        ({"links.1.deviation_s": "1ms", **ONE}, "deviation_s 0.001 to nodes, and there is none with `ser"),
        ({"links.wan.shared": "both"}, "`shared: both` is not simulated for services"),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_names_the_field_and_the_fix(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        simulated_services(config.load_scenario("kais-demo", changes))
    assert message in str(caught.value)


def test_replicas_run_in_what_workers_leave_and_sites_manage_their_own_nodes() -> None:
    changes = {"clusters.west.nodes.west.resources.memory_bytes": "4GB", "links.1.delay_s": "0.5ms"}
    system = simulated_services(config.load_scenario("kais-live", changes)).system
    assert system.site_of.tolist() == [0, 0, 1, 1], "its own nodes, though others are nearer"
    assert system.memory_bytes[1:].tolist() == [4e9, 4e9, 2.5e9, 2.5e9]
    one_way = simulated_services(config.load_scenario("kais-live", {"services.answers": False})).system
    assert np.array_equal(
        2.0 * one_way.delay_s, simulated_services(config.load_scenario("kais-live")).system.delay_s
    )


def test_replicas_are_spread_in_turn_as_far_as_memory_goes() -> None:
    placed = spread(np.array([2.0, 1.0]), np.array([1.0, 0.5]))
    assert placed.tolist() == [[1, 1], [1, 0]]


def test_the_same_seed_gives_the_same_requests_alone_and_with_others() -> None:
    found = simulated_services(
        config.load_scenario("kais-demo", {"services.frame_s": 100, "duration_s": 100})
    )
    many, one = found.draw(range(5)), found.draw([3])
    for all_of, alone in zip(many, one, strict=True):
        assert np.array_equal(all_of[3], alone[0])
    assert many.count.mean() == pytest.approx(300, rel=0.1)
    assert (np.diff(many.arrival_s, axis=1) >= 0).all()


@pytest.mark.parametrize("kind", ["P1", "P2", "P3", "P4", "P1-P4", "sequences"])
def test_a_scenario_states_the_pattern_of_its_requests(kind: str) -> None:
    loaded = config.load_scenario("scarce", {"services.requests.pattern": kind, "duration_s": 50})
    found, learned = simulated_services(loaded), setting("scarce", kind, frames=2)
    assert (found.slots, found.slots * found.system.slot_s) == (learned.slots, 50.0)
    for mine, its in zip(found.draw(range(2)), learned.draw(range(2)), strict=True):
        assert np.array_equal(mine, its)
    spec = loaded.services
    assert spec is not None and (spec.cores_held, spec.requests.pattern) == ("request", kind)  # type: ignore[union-attr]


def test_replicas_hold_their_cores_for_life_where_the_scenario_says_so() -> None:
    changes = {"services.cores_held": "life", "services.offered.service.cpu_cores": 40}
    system, worlds = _demo(changes)
    nodes, first = slice(system.first_machine[1], None), worlds.reset().free_cpu_cores.copy()
    held = system.initial @ system.service_cpu_cores
    assert held.any() and np.allclose(first[:, nodes], system.cpu_cores[nodes] - held)
    full = np.tile(np.arange(system.nodes)[:, None, None], (1, 60, 1)).reshape(1, -1, 1)
    commands = np.concatenate([full, np.ones_like(full)], axis=2).repeat(2, axis=0)
    valid = worlds.scale(commands)
    assert valid.any() and not valid.all(), "a replica is added while its cores are free"
    assert (worlds.view.free_cpu_cores[:, nodes] < system.service_cpu_cores[0]).any(axis=1).all()
    with pytest.raises(ScenarioError, match="holds 300 cores, nodes have up to 200"):
        config.load_scenario("kais-demo", {**changes, "services.offered.service.cpu_cores": 300})


@pytest.mark.parametrize("name", ["autoscaler", "gsp-ss", "marginal"])
def test_policies_add_replicas_only_where_nodes_have_cores_for_them(name: str) -> None:
    most = {"services.initial_share": 0.25, "services.offered.service.memory_bytes": "100MB"}
    changes = {"services.cores_held": "life", "services.offered.service.cpu_cores": 40, **most}
    system, worlds = _demo(changes)
    policy = policies.load("orchestrate", name)
    policy.reset(system, Key(0))
    view, added = worlds.reset(), 0
    view.busy[:, 1] = 30  # far more than there are cores for
    view.arrived[:] = 1000
    for _ in range(2):
        commands = policy.decide(view)
        valid = worlds.scale(commands)
        assert valid[commands[:, :, 1] > 0].all(), "a replica is asked for where its cores are not free"
        added += int((commands[:, :, 1] > 0).sum())
    assert added > 0


def _demo(changes: dict[str, object] | None = None) -> tuple[System, ReplicaWorlds]:
    short = {"services.frame_s": 25, "duration_s": 100}
    found = simulated_services(config.load_scenario("kais-demo", short | (changes or {})))
    drawn = found.draw(range(2))
    return found.system, ReplicaWorlds(found.system, drawn, found.slots, range(2))


@pytest.mark.parametrize("dispatch", policies.names("requests"))
@pytest.mark.parametrize("scaling", [n for n in policies.names("orchestrate") if n != "kais-scarce"])
def test_policies_combine_freely(dispatch: str, scaling: str) -> None:
    _, worlds = _demo()
    outcome = simulate(worlds, policies.load("requests", dispatch), policies.load("orchestrate", scaling))
    if dispatch == "cloud-only":  # the way to the cloud is narrow
        assert (outcome.throughput_rate < 0.3).all()
    else:
        assert (outcome.throughput_rate > 0.3).all()
    total = (outcome.in_time + outcome.late + outcome.dropped).sum(axis=1) + outcome.waiting
    assert np.array_equal(total, outcome.arrived.sum(axis=1))


def test_the_demo_without_returned_cores_does_worse() -> None:
    rates = []
    for returns in (True, False):
        _, worlds = _demo({"services.returns_cores": returns})
        rates.append(simulate(worlds, policies.load("requests", "greedy")).throughput_rate.mean())
    assert rates[0] > rates[1]


def test_the_autoscaler_follows_its_rule() -> None:
    system, worlds = _demo()
    scaler = Autoscaler(target=0.5, tolerance=0.1, stabilisation=2, least=1, most=10)
    scaler.reset(system, Key(0))
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
    scaler.reset(system, Key(0))
    worlds.view.busy[:, 1] = 1
    worlds.view.ready[:, 1:] += 3
    scaler.decide(worlds.view)  # wants 2 of each
    worlds.view.busy[:] = 0
    commands = scaler.decide(worlds.view)
    removed = np.bincount(-commands[0, :, 1][commands[0, :, 1] < 0] - 1, minlength=system.services)
    alive = worlds.view.ready[0, 1:].sum(axis=0)
    assert np.array_equal(alive - removed, np.full(system.services, 2))


def test_greedy_placement_serves_the_load_and_moves_nothing_without_need() -> None:
    system, worlds = _demo()
    policy = GreedyShadow(headroom=1.0)
    policy.reset(system, Key(0))
    now = worlds.view.ready[0, 1:]
    load = np.zeros(system.services)
    load[0] = 1.5
    placed = policy.place(load, now)
    assert placed[:, 0].sum() == 2
    assert placed[:, 1:].sum() == 0
    assert (placed <= now).all(), "the two that are there are enough"


@pytest.mark.parametrize("gateways", ["one", "per_site"])
@pytest.mark.parametrize("name", ["kais-live", "scarce"])
def test_a_run_has_a_row_for_each_request_that_arrived(name: str, gateways: str) -> None:
    settings = {"duration_s": 9 if name == "kais-live" else 75, "services.gateways": gateways}
    scenario = config.load_scenario(name, settings)
    result = ew.simulate(scenario, {"requests": "greedy", "orchestrate": "autoscaler"}, seeds=range(2))
    items, windows = result.items.to_pandas(), result.windows.to_pandas()
    assert (items.outcome == "waiting").any() and (items.end_s > 0).any()
    nowhere = set(items.outcome[items.station.isna()])
    if gateways == "one":  # where one request of a site is sent in a slot
        assert nowhere
    else:  # a gateway does not know that one takes less than is usual
        assert nowhere <= {"dropped"}
    sites = {site.name for site in scenario.topology.sites}
    assert set(items.site) == sites and items.service.nunique() > 1
    for seed, mine in items.groupby("seed"):
        frames = windows[windows.seed == seed]
        assert list(mine.request) == list(range(frames.arrived.sum()))
        for _, frame in frames.iterrows():
            ended = mine[(mine.end_s > frame.start_s) & (mine.end_s <= frame.end_s)]
            counts = ended.outcome.value_counts()
            late = [int(counts.get(what, 0)) for what in ("in_time", "late")]
            assert late == [frame.in_time, frame.late]
        assert (mine.outcome == "dropped").sum() == frames.dropped.sum()
        assert (mine.outcome == "waiting").sum() == frames.waiting.sum()
    done = items[items.outcome == "in_time"]
    assert (done.end_s <= done.deadline_s + 1e-6).all() and (done.arrival_s < done.end_s).all()
    assert items[items.outcome == "waiting"].end_s.isna().all()


def test_unknown_policies_are_named_with_the_nearest() -> None:
    with pytest.raises(PolicyError, match="did you mean 'greedy'"):
        policies.load("requests", "gredy")
    with pytest.raises(PolicyError, match="did you mean 'autoscaler'"):
        policies.load("orchestrate", "autoscale")


def test_the_command_writes_a_run(tmp_path: Path) -> None:
    arguments = ["simulate", "kais-demo", "--policy", "requests=closest", "--policy", "orchestrate=gsp-ss"]
    arguments += [
        "--seeds",
        "0:2",
        "--set",
        "duration_s=50",
        "--set",
        "services.frame_s=25",
        "--out",
        str(tmp_path / "run"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    frames = pq.read_table(tmp_path / "run" / "windows.parquet").to_pydict()
    assert len(frames["seed"]) == 4
    rate = [sum(frames["in_time"][i : i + 2]) / sum(frames["arrived"][i : i + 2]) for i in (0, 2)]
    assert rate == pytest.approx([row["success"] for row in rows])
    for row in rows:  # every request is somewhere
        assert row["success"] + row["late"] + row["dropped"] + row["waiting"] == pytest.approx(1.0)
    again = config.load_scenario(tmp_path / "run" / "scenario.yaml")
    assert again == config.load_scenario("kais-demo", {"services.frame_s": 25, "duration_s": 50})


@pytest.mark.parametrize("named", ["kais-scarce", "a path"])
def test_simulate_runs_cards_by_name_and_by_path(tmp_path: Path, named: str) -> None:
    card = str(SHIPPED / "kais" / "kais-scarce.json") if named == "a path" else named
    small = (
        "--set",
        "duration_s=2",
        "--set",
        "services.frame_s=2",
        "--seeds",
        "0:1",
        "--out",
        str(tmp_path / "run"),
    )
    done = CliRunner().invoke(app, ["simulate", "kais-demo", "--policy", f"requests={card}", *small])
    assert done.exit_code == 0, (done.output, done.exception)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["fixed"]["requests"] == "kais-scarce"
