"""The reproduction of ASET's claims by `chooser`: a quick run on a small world, and how claims are made."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.policy import assess
from edgewise.core.dispatch.views import DispatchView, Items
from edgewise.core.world import World
from edgewise.policies.dispatch.meta import PAPER
from edgewise.workloads.generate import generate_streams
from edgewise_studies.calibration import fitting, learned
from edgewise_studies.calibration.space import SHIPPED
from edgewise_studies.frozen import results_folder
from edgewise_studies.papers import aset, aset_published, field
from edgewise_studies.run import carry_out
from edgewise_studies.twins import as_published


@pytest.fixture
def small(monkeypatch):
    scenario = load_scenario("three-tier", {"duration_s": 50})
    monkeypatch.setattr(aset, "as_published", lambda *what: scenario)
    monkeypatch.setattr(aset.Run, "scenario", lambda run, name: scenario)
    return scenario


def test_a_quick_run_takes_what_ships_and_leaves_out_what_measures_time(small, tmp_path):
    report = carry_out("aset", tmp_path, tmp_path, quick=True, seeds=(2_000_000, 2_000_001))
    made = {claim.id for claim in report.claims if claim.status != "not_in_quick"}
    assert {claim.id for claim in report.claims} == set(aset._CLAIMS)
    assert made == {
        "a1-no-static-wins-all", "a4-full-edge", "a4-fails", "a7-plateau", "beyond-strongest", "beyond-every",
        "beyond-slack", "beyond-lookahead", "beyond-switching",
    }  # fmt: skip
    assert {path.stem for path in tmp_path.glob("*.png")} == {
        "a1-applications",
        "a4-full-edge",
        "a7-learning",
    }


@pytest.mark.parametrize(
    ("scenario", "topology"),
    [
        ("dc-cloud", "dc-cloud"),
        ("co-dc-cloud", "co-dc-cloud"),
        ("full-edge-burst", "full-edge"),
        ("full-edge-scarce-burst", "full-edge-scarce"),
    ],
)
def test_what_stands_for_chooser_was_trained_on_the_topology(scenario, topology):
    trained = {
        name: [f"{name}.json"] for name in ("dc-cloud", "co-dc-cloud", "full-edge", "full-edge-scarce")
    }
    reproduction = aset.Run(None, False, (), None, None)
    assert aset.Runs(reproduction, trained).cards(as_published(scenario)) == [f"{topology}.json"]
    assert aset.Runs(reproduction, {}).cards(as_published(scenario)) == ["chooser"]


def test_gains_of_several_trainings_are_paired_by_seed():
    def figures(share):
        return aset.Figures(np.array([share, 1 - share, 0.0]), np.zeros(1), {})

    runs = aset.Runs(aset.Run(None, False, (2_000_000, 2_000_001), None, None), {})
    found = {
        "chooser": [figures(share) for share in (0.8, 0.7, 0.9, 0.8)],  # two trainings, two seeds each
        "rival": [figures(0.7), figures(0.6)],
    }
    gain = runs.ahead(found, "chooser", "rival", "row")
    assert gain.estimate == pytest.approx(0.15) and gain.n == 2
    assert "trainings +10.00, +20.00 points" in gain.detail
    assert runs.ahead(found, "rival", "chooser").estimate == pytest.approx(-0.15)
    alone = runs.ahead({**found, "chooser": found["chooser"][:2]}, "chooser", "rival")
    assert alone.n == 2 and alone.ci == pytest.approx((0.1, 0.1))  # over seeds


def test_no_winner_is_how_far_the_nearest_policy_is_from_winning_everywhere():
    def figures(first, second):
        return aset.Figures(np.zeros(3), np.zeros(1), {"a": first, "b": second})

    found = {name: [figures(0.5, 0.5)] for name in PAPER} | {
        PAPER[0]: [figures(0.9, 0.6)],
        PAPER[1]: [figures(0.7, 0.8)],
    }
    weak = aset.weakest(found)
    assert (weak[PAPER[0]], weak[PAPER[1]]) == (("b", PAPER[1]), ("a", PAPER[0]))
    assert aset.no_winner(found, weak) == pytest.approx([0.2])
    both = found | {PAPER[2]: [figures(0.9, 0.8)]}  # wins everywhere
    assert aset.no_winner(both, aset.weakest(both)) == pytest.approx([0.0])


def test_noise_alone_makes_no_policy_weak():
    """Seven policies that are alike: each is behind somewhere on every seed, which says nothing."""
    draw = np.random.default_rng(3)

    def alike(count):
        apps = [{f"app {a}": float(draw.normal(0.8, 0.03)) for a in range(10)} for _ in range(count)]
        return [aset.Figures(np.zeros(3), np.zeros(1), each) for each in apps]

    weak = aset.weakest({name: alike(2) for name in PAPER})
    gaps = aset.no_winner({name: alike(20) for name in PAPER}, weak)
    assert gaps.mean() < 0.0  # the nearest of seven, and none of them is behind


@pytest.mark.parametrize(
    ("rejects", "rival_rejects", "gained"), [(0.0, 0.0, 0.1), (0.03, 0.0, 0.07), (0.0, 0.05, 0.1)]
)
def test_fewer_failures_are_not_bought_with_rejections(rejects, rival_rejects, gained):
    def figures(failed, rejected):
        return [aset.Figures(np.array([1 - failed - rejected, failed, rejected]), np.zeros(1), {})]

    found = {"chooser": figures(0.1, rejects), "rival": figures(0.2, rival_rejects)}
    assert aset.fewer_failures(found, "rival") == pytest.approx(np.array([[gained]]))


def test_the_strongest_are_the_best_on_validation():
    scores = dict(aset.card("chooser-full-edge-scarce")["scores"])
    first, second, third = aset.strongest("full-edge-scarce")
    del scores["chooser-full-edge-scarce"]
    assert [first, second, third] == sorted(scores, key=scores.__getitem__)[:-4:-1]


def test_load_balancers_of_the_field_choose_as_they_say():
    scenario = load_scenario("three-tier", {"duration_s": 25})
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    items = Items.of(world, generate_streams(scenario, 0)[:1])
    zeros, none = np.zeros(world.workers), np.zeros(world.workers, dtype=np.int64)
    up = zeros == 0.0
    idle = DispatchView(world, 0.0, 0, zeros, none, up, zeros, zeros, zeros, zeros, 0.0)
    (first,) = field.load("stream-threshold-2").decide(idle, items).worker
    (nearest,) = policies.load("dispatch", "closest").decide(idle, items).worker
    assert world.cluster[first] == world.cluster[nearest]
    feasible = np.flatnonzero(assess(idle, next(iter(items))).feasible)
    assert feasible.size > 2
    streams, queue = np.full_like(none, 5), np.full_like(zeros, 9.0)
    streams[feasible[-1]], queue[feasible[1]] = 3, 2.0  # fewest, and all at the threshold or above
    busy = DispatchView(world, 0.0, 0, zeros, streams, up, queue, zeros, zeros, zeros, 0.0)
    assert field.load("stream-threshold-2").decide(busy, items).worker.tolist() == [feasible[-1]]
    assert field.load("least-request").decide(busy, items).worker.tolist() == [feasible[1]]
    assert field.load("power-of-two").name == "power-of-two"


@pytest.mark.parametrize("topology", ["dc-cloud", "co-dc-cloud", "full-edge"])
def test_the_rival_is_the_best_of_the_papers_on_validation(topology):
    scores = aset.card(f"chooser-{topology}")["scores"]
    reproduction = aset.Run(None, True, (), None, None)
    assert aset.rival_of(reproduction, topology) == max(PAPER, key=scores.__getitem__)


def test_claims_about_aset_as_published_are_of_the_worlds_that_were_frozen():
    assert (SHIPPED, *fitting.frozen(results_folder())) == aset_published.WORLDS
    cells = {tuple(cell) for cell in aset_published.CELLS}
    assert cells == set(learned.cells(aset_published.WORLDS))
    assert list(aset_published.VALIDATED) == list(learned.SEEDS)
