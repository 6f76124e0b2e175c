"""Full runs of the reproductions of ASET and KaiS as published, trainings and all, of a few moments each."""

from dataclasses import replace

import pytest

from edgewise_studies import papers as papers, run
from edgewise_studies.calibration import learned
from edgewise_studies.calibration.space import SHIPPED
from edgewise_studies.papers import aset_published, kais_published
from edgewise_studies.training.kais import published

SEEDS = (2_000_000, 2_000_001)


def short(scenario):
    """Its first half minute."""
    return replace(scenario, duration_s=30.0)


@pytest.fixture(autouse=True)
def unfrozen(monkeypatch):
    """What is measured here is less than what was frozen."""
    monkeypatch.setattr(run.Run, "check_setting", lambda self: None)


@pytest.fixture
def few(monkeypatch):
    """Two worlds, half a minute long, and two trainings of two episodes in each."""
    simulation_of, run_one, scenario_of = (
        aset_published.simulation_of,
        aset_published.run_one,
        learned.scenario_of,
    )
    monkeypatch.setattr(
        aset_published, "simulation_of", lambda world, *how: simulation_of(short(world), *how)
    )
    monkeypatch.setattr(aset_published, "run_one", lambda world, *how: run_one(short(world), *how))
    monkeypatch.setattr(learned, "scenario_of", lambda *cell: short(scenario_of(*cell)))
    worlds = (SHIPPED, 0)
    monkeypatch.setattr(aset_published, "WORLDS", worlds)
    cells = tuple(cell for cell in aset_published.CELLS if cell.world in worlds)
    monkeypatch.setattr(aset_published, "CELLS", cells)
    monkeypatch.setattr(learned, "TRAININGS", (0, 20_000))
    monkeypatch.setattr(learned, "EPISODES", 2)
    monkeypatch.setattr(aset_published, "VALIDATED", aset_published.VALIDATED[:1])
    monkeypatch.setattr(aset_published.field_rules, "FIELD", ("power-of-two", "least-request"))
    curve_of = learned.curve_of
    monkeypatch.setattr(learned, "curve_of", lambda card: 20 * curve_of(card))
    return worlds


def test_aset_is_measured_in_every_world_it_is_trained_in(few, tmp_path):
    asked = dict(looks=tmp_path, seeds=SEEDS, jobs=1)
    report = run.carry_out("aset-published", tmp_path, tmp_path, **asked)
    made = {claim.id for claim in report.claims if claim.estimate is not None}
    elsewhere = {f"{load}-{world}" for load in ("edge", "burst") for world in (1, 2, 7, 9, 12)}
    assert made == set(run.find("aset-published").claims) - elsewhere
    assert {"gains.png", "interquartile.png", "profiles.png", "learning.png", "seven.png"} <= {
        file.name for file in tmp_path.glob("*.png")
    }
    cards = {card: card.stat().st_mtime_ns for card in (tmp_path / "trained").glob("*.json")}
    assert len(cards) == 2 * (2 * len(few) + 2)
    again = run.carry_out("aset-published", tmp_path, tmp_path, **asked)  # trains nothing anew
    assert cards == {card: card.stat().st_mtime_ns for card in cards}
    timed = {"switch-time"}
    assert [c.estimate for c in again.claims if c.id not in timed] == [
        c.estimate for c in report.claims if c.id not in timed
    ]


def test_kais_is_measured_in_slots_and_as_live(monkeypatch, tmp_path):
    short = replace(published.BASE, worlds=2, copies=2, episodes=2)
    monkeypatch.setattr(published, "BASE", short)
    monkeypatch.setattr(published, "BOTH", {"base": short, "near": short})
    monkeypatch.setattr(published, "GPG", replace(published.GPG, worlds=2, copies=2, episodes=2))
    monkeypatch.setattr(published, "CHECKED", published.CHECKED[:1])
    monkeypatch.setattr(kais_published, "TRAININGS", (2, 3))
    monkeypatch.setattr(kais_published, "VALIDATED", kais_published.VALIDATED[:1])
    monkeypatch.setattr(kais_published, "LIVE_VALIDATED", kais_published.VALIDATED[:1])
    monkeypatch.setattr(kais_published, "LIVE_SEEDS", 1)
    report = run.carry_out("kais-published", tmp_path, tmp_path, looks=tmp_path, seeds=SEEDS, jobs=1)
    assert not [claim.id for claim in report.claims if claim.estimate is None]
    live = [claim for claim in report.claims if claim.setting == "as live"]
    assert {claim.id for claim in live} == {
        "live-rate",
        "live-cost",
        "live-greedy",
        "live-flow",
        "live-field",
    }
    assert {"learning.png", "interquartile.png", "profiles.png"} <= {f.name for f in tmp_path.glob("*.png")}
