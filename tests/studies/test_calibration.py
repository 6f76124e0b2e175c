"""ASET's worlds: what is frozen, what a world is, when it fits, and the chooser that knows what comes."""

import math
from pathlib import Path

import numpy as np
import pytest

from edgewise.config import load_scenario
from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.policies.dispatch.meta import PAPER, Chosen
from edgewise.sim.sites import simulation_of
from edgewise.sim.streams.rollout import Room
from edgewise.workloads.generate import mean_load_qps
from edgewise_studies.calibration import (
    best,
    fitting,
    learned,
    measure,
    page,
    predicates,
    room,
    slices,
    space,
)
from edgewise_studies.calibration.predicates import Measured
from edgewise_studies.frozen import check_setting, setting_text

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_what_is_measured_is_what_was_frozen():
    check_setting("aset-calibration", setting_text(predicates.setting()), RESULTS)
    other = predicates.setting() | {"load_qps": 1000.0}
    with pytest.raises(ScenarioError, match=r"load_qps was 985.0, now 1000.0"):
        check_setting("aset-calibration", setting_text(other), RESULTS)


def test_every_part_of_every_range_is_used_once():
    points = [space.point(world) for world in range(space.WORLDS)]
    for name, span in space.RANGES.items():
        values = np.array([each[name] for each in points])
        if name in space.CHOICES:
            counts = np.bincount(values.astype(int), minlength=int(span.high))
            assert counts.size == span.high and np.ptp(counts) <= 2, name
        else:
            scale = np.log if span.log else np.asarray
            shares = (scale(values) - scale(span.low)) / (scale(span.high) - scale(span.low))
            assert sorted((shares * space.WORLDS).astype(int)) == list(range(space.WORLDS)), name
    with pytest.raises(EdgewiseError, match="world 512: there are 512"):
        space.point(space.WORLDS)


@pytest.mark.parametrize("world", [1, 2])
def test_a_world_is_as_its_point_says_and_brings_the_load_of_the_paper(world):
    at, edge, centre = space.point(world), space.scenario_of(world, "edge"), space.scenario_of(world, "dc")
    streams = edge.streams
    assert mean_load_qps(streams.applications, streams.arrivals, edge.duration_s) == pytest.approx(985.0)
    assert max(app.length_s[1] for app in streams.applications) <= at["longest_s"]
    assert (
        edge.retry_refused == bool(at["retry"])
        and edge.streams.gateways == space.FEEDBACK[int(at["feedback"])][0]
    )
    for variant in edge.catalog.variants:
        assert variant.capacity_qps == pytest.approx(at["fill"] * space.most_qps(variant))
    topology = edge.spec.model_dump()["topology"]
    assert topology["central_office"]["servers"] == round(at["office_servers"])
    assert topology["cloud"]["delay_s"] == pytest.approx(0.015 * at["delays"])
    assert len(edge.topology.sites) == len(centre.topology.sites) == space.ANTENNAS
    assert len(centre.topology.workers) < len(edge.topology.workers)
    fast = space.scenario_of(world, "edge-100").streams
    assert mean_load_qps(fast.applications, fast.arrivals, 480.0) > 1600.0


def test_weights_without_spread_are_those_that_ship():
    shipped = load_scenario("full-edge").streams.applications
    made = space.drawn_weights(list(shipped), 3, 0.0)
    ours = np.array([app.weight for app in shipped])
    assert made / made.max() == pytest.approx(ours / ours.max(), rel=0.06)  # 985 instead of 1,000 queries/s


def one_that_fits():
    """Every predicate is met."""

    def one(success, failed, apps):
        return Measured(success, failed, 1.0 - success - failed, dict(zip("ab", apps, strict=True)))

    def all_(best, *, low, failed=0.02, first=(0.9, 0.6), rest=(0.6, 0.9)):
        return {
            name: one(best if k == 0 else low, failed, first if k == 0 else rest)
            for k, name in enumerate(PAPER)
        }

    found = {
        "dc": all_(0.70, low=0.66), "co": all_(0.80, low=0.72), "edge": all_(0.90, low=0.75),
        "edge-20": all_(0.97, low=0.965), "edge-100": all_(0.80, low=0.70), "burst": all_(0.85, low=0.80),
    }  # fmt: skip
    return found


def worse(found, setting, name, **changes):
    return found | {setting: found[setting] | {name: found[setting][name]._replace(**changes)}}


def with_all(found, **changes):
    return {
        policy: each._replace(**{name: change(each) for name, change in changes.items()})
        for policy, each in found.items()
    }


BROKEN = {
    "dc-alike": lambda found: worse(found, "dc", "cheaper", success=0.59),
    "co-higher": lambda found: worse(found, "co", "cheaper", success=0.65),
    "co-much-higher": lambda found: found | {"co": with_all(found["dc"], success=lambda m: m.success + 0.01)},
    "edge-apart": lambda found: found | {"edge": with_all(found["edge"], success=lambda m: 0.9)},
    "edge-fails": lambda found: worse(found, "edge", PAPER[0], failed=0.005),
    "edge-rejects": lambda found: found | {"edge": with_all(found["edge"], rejected=lambda m: 0.1)},
    "apps-differ": lambda found: worse(found, "edge", PAPER[0], applications={"a": 0.9, "b": 0.9}),
    "impedance-low": lambda found: worse(found, "edge-20", "least-impedance", success=0.95),
    "rates-fall": lambda found: found | {"edge-100": with_all(found["edge-100"], success=lambda m: 0.95)},
    "impedance-rejects": lambda found: worse(found, "edge-100", "least-impedance", rejected=0.18),
    "burst-struggle": lambda found: worse(found, "burst", PAPER[0], success=0.895),
    "apps-differ-burst": lambda found: worse(found, "burst", PAPER[0], applications={"a": 0.9, "b": 0.9}),
}  # fmt: skip


@pytest.mark.parametrize("name", predicates.PREDICATES)
def test_each_predicate_can_be_missed_alone(name):
    met = predicates.judge(one_that_fits())
    assert list(met) == list(predicates.PREDICATES) and all(met.values())
    missed = {each for each, good in predicates.judge(BROKEN[name](one_that_fits())).items() if not good}
    assert missed == {name}


def test_what_was_not_measured_is_not_judged():
    found = {"dc": one_that_fits()["dc"]}
    assert predicates.judge(found) == {"dc-alike": True}


def fake(success):
    """Rows of a world in which policies fare as told."""

    def runs_of(world, setting, wanted):
        asked.append((world, setting))
        return [
            {"world": world, "setting": setting, "seed": seed, "policy": policy,
             "success": success(policy, setting), "failed": 0.0, "rejected": 0.0, "pool": 0.5}
            for seed, policy in wanted
        ]  # fmt: skip

    asked: list[tuple[int, str]] = []
    return runs_of, asked


def test_a_search_goes_on_and_leaves_worlds_that_miss_too_much(monkeypatch, tmp_path):
    runs_of, asked = fake(lambda policy, setting: 0.5 + 0.05 * PAPER.index(policy))
    monkeypatch.setattr(measure, "runs_of", runs_of)
    path, later = tmp_path / "worlds.csv", math.inf
    assert measure.search(path, [0, 1], later) == 2
    # dc is not alike, co no higher: three are missed before full-edge is measured.
    assert asked == [(0, "dc"), (0, "co"), (1, "dc"), (1, "co")]
    assert measure.search(path, [0, 1], later) == 2 and len(asked) == 4
    assert measure.search(path, [0, 1, 2], -math.inf) == 2
    assert len(measure.read(path)) == 4 * len(PAPER)
    found = measure.found_of(measure.read(path), 1)
    assert found["co"]["farthest"] == Measured(0.6, 0.0, 0.0, {"pool": 0.5})
    with pytest.raises(EdgewiseError, match="choices are made on validation seeds"):
        measure.search(path, [0], later, seeds=[1_000_000])


@pytest.fixture
def small(monkeypatch):
    settings = {"topology.antennas": 2, "duration_s": 75, "streams.arrivals.clients_per_min": 200}

    def scenario_of(world, setting):
        gateways = "one" if setting == "edge" else "per_site"
        return load_scenario("full-edge-scarce", {**settings, "streams.gateways": gateways})

    for module in (measure, room):
        monkeypatch.setattr(module, "scenario_of", scenario_of)
    return scenario_of


@pytest.mark.parametrize("setting", ["edge", "burst"])
def test_trying_leaves_no_trace_and_the_chooser_is_not_below_the_worst(small, setting):
    row = room.ahead(0, setting, 500_000)
    made = []

    def make():
        made.append(Chosen(PAPER))
        return made[-1]

    run = simulation_of(small(0, setting), make, 500_000)
    for window, chosen in enumerate(row["chosen"]):
        for policy in made:
            policy.index = int(chosen)
        run.run_until(25.0 * (window + 1))
    assert measure.figures_of(run)["success"] == row["success"]  # the same choices without copies
    alone = [each["success"] for each in measure.runs_of(0, setting, [(500_000, name) for name in PAPER])]
    assert min(alone) < row["success"] and len(row["chosen"]) == 3


def test_gains_are_above_the_policy_that_is_best_over_all_seeds(small):
    def row(seed, policy, success):
        return {
            "world": 0,
            "setting": "edge",
            "seed": seed,
            "policy": policy,
            "success": success,
            "pool": success,
        }

    rows = [row(seed, name, 0.5) for seed in (1, 2) for name in PAPER[2:]]
    rows += [row(1, PAPER[0], 0.9), row(2, PAPER[0], 0.7), row(1, PAPER[1], 0.6), row(2, PAPER[1], 0.8)]
    rows += [row(1, room.AHEAD, 0.92), row(2, room.AHEAD, 0.6), row(3, room.AHEAD, 0.1)]
    found = room.gains(rows, 0, "edge")
    assert (found["best"], found["seeds"]) == (PAPER[0], 2)
    assert found["success"] == pytest.approx(0.8) and found["episodes"] == pytest.approx(0.05)
    assert found["greedy"] == pytest.approx(-0.04) and found["windows"] == pytest.approx(0.06)
    assert found["applications"] == pytest.approx(0.0)  # of one application the best policy is the best
    assert room.gains([], 0, "edge") == {"seeds": 0}


@pytest.mark.parametrize(
    ("met", "chosen"),
    [
        ({0: 11, 1: 12, 2: 10, 3: 11, 4: 9}, [0, 1, 3]),
        ({0: 9, 1: 12, 2: 10, 3: 10}, [1, 2, 3]),
        (dict.fromkeys(range(20), 10), list(range(8))),
    ],
)
def test_worlds_fit_that_meet_as_many_as_three_meet(monkeypatch, met, chosen):
    monkeypatch.setattr(fitting, "counts", lambda rows: met)
    assert fitting.choose([]) == chosen


def test_too_few_worlds_are_no_choice():
    with pytest.raises(EdgewiseError, match="0 worlds were measured whole; measure more before choosing"):
        fitting.choose([])


def test_a_world_that_was_left_early_is_not_counted():
    where = {"seed": predicates.SEEDS[0], "failed": 0.0, "rejected": 0.0, "pool": 0.5, "success": 0.5}
    rows = [
        where | {"world": world, "setting": setting, "policy": policy}
        for world, settings in ((4, list(space.SETTINGS)), (5, ["dc", "co"]), (space.SHIPPED, ["dc"]))
        for setting in settings
        for policy in PAPER
    ]
    assert fitting.counts(rows) == {
        4: 2
    }  # alike on dc-cloud, and least impedance as good as the others at 20


def test_slices_of_worlds_that_fit_come_first_and_go_on(monkeypatch, tmp_path):
    asked = []

    def room_of(scenario, seed, names):
        asked.append((scenario.name, seed))
        return Room({"closest": 0.7, "farthest": 0.8}, 0.79 if len(asked) == 1 else 0.83, ())

    monkeypatch.setattr(slices, "room_for_switching", room_of)
    monkeypatch.setattr(slices, "WORLDS", 2)
    path, later = tmp_path / "slices.csv", math.inf
    assert slices.explore(path, [1], -math.inf) == 0
    count = 2 * 3 * 3 + 2  # two worlds in three settings on three seeds, and world 0 in two
    assert slices.explore(path, [1], later) == count == len(asked)
    assert slices.explore(path, [1], later) == count == len(asked)
    assert asked[1] == ("aset-1-edge", predicates.ROOM_SEEDS[0]) and asked[-1][0] == "aset-0-burst"
    found = slices.by_world(slices.read(path), "edge")
    assert found == pytest.approx({space.SHIPPED: 0.02, 1: 0.03, 0: 0.03})  # who would do worse stays
    assert "median 3.0 points, most 3.0 (world 1); a point and more in 2 of 2" in page.slices_said(
        slices.read(path), [1]
    )


def test_the_page_says_in_how_many_worlds_there_is_room():
    found = {
        (world, "edge"): {"windows": gain} for world, gain in ((space.SHIPPED, 0.002), (3, 0.004), (8, 0.021))
    }
    said = page.conclusion(found, [3, 8, 9])
    assert "full-edge, λ = 60: 0.4 to 2.1 points, median 1.2; a point and more in 1 of 2 worlds" in said
    assert said.endswith("; as shipped +0.2.")


def test_frozen_worlds_are_still_the_same():
    assert len(fitting.frozen(RESULTS)) >= predicates.AT_LEAST_WORLDS


def test_a_training_is_read_beside_the_best_of_the_policies_alone(tmp_path):
    rows = ["world,setting,policy,training,seed,success"]
    for policy, training, shares in (("a", "", (0.5, 0.7)), ("b", "", (0.9, 0.1)), ("aset", 0, (0.6, 0.8))):
        rows += [f"3,edge,{policy},{training},{seed},{share}" for seed, share in enumerate(shares)]
    rows += ["4,edge,a,,0,0.5"]  # nothing was trained there yet
    (tmp_path / "learned.csv").write_text("\n".join(rows) + "\n")
    ((where, found),) = learned.read(tmp_path / "learned.csv").items()
    assert where == (3, "edge") and (found.best, found.success) == ("a", pytest.approx(0.6))
    assert found.gains == (pytest.approx(0.1),)
    assert found.interval() is None


def test_both_networks_of_a_training_are_read_where_both_are_measured(tmp_path):
    rows = [",".join(learned.COLUMNS)]
    alone = {name: 0.5 + 0.01 * k for k, name in enumerate(PAPER)}
    for setting in ("edge", "co"):
        rows += [f"-1,{setting},{name},,{seed},{share}" for name, share in alone.items() for seed in (0, 1)]
    rows += [f"-1,edge,aset,{training},0,{0.5 + training}" for training in (0, 0.1)]
    rows += [f"-1,edge,aset-best,{training},0,{0.6 + training}" for training in (0, 0.1)]
    rows += ["-1,co,aset,0,0,0.5"]  # the other one is missing
    (tmp_path / "best.csv").write_text("\n".join(rows) + "\n")
    ((where, found),) = best.read(tmp_path / "best.csv").items()
    assert where == (-1, "edge") and found.rival == PAPER[-1]
    assert found.last.tolist() == pytest.approx([-0.06, 0.04])
    assert found.best.tolist() == pytest.approx([0.04, 0.14])
    text = page.on_the_way({where: found})
    assert "-6.00, +4.00" in text and "+10.00 [+10.00, +10.00]" in text
    assert page.on_the_way({}) == ""


def test_trainings_have_an_interval_and_the_page_says_in_how_many_worlds_it_is_surely_below():
    surely, unsure = (
        learned.Learned("a", 0.9, (-0.02, -0.03, -0.025)),
        learned.Learned("b", 0.8, (-0.02, 0.01)),
    )
    low, high = surely.interval()
    assert (low, high) == (pytest.approx(-0.03742, abs=1e-5), pytest.approx(-0.01258, abs=1e-5))
    said = page.trained({(0, "edge"): surely, (1, "burst"): unsure})
    assert (
        "**1 of 5 trainings are above the best of the seven, by 1.00 points at most; the mean is -1.50 ["
        in said
    )
    assert "surely below in 1 of 2 worlds and settings, surely above in 0" in said
    assert "-2.50 [-3.74, -1.26]" in said
