"""A full run of the reproduction by `chooser`, trainings and all: one seed, and half a minute of a world."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgewise.learn import methods
from edgewise.learn.dqn import DqnConfig
from edgewise_studies import papers as papers, run
from edgewise_studies.papers import aset, aset_trained

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def short(scenario):
    """Its first half minute."""
    return replace(scenario, duration_s=30.0)


def test_every_claim_is_made_over_two_trainings(tmp_path, monkeypatch):
    run_one, bound, curve_of = aset.run_one, aset.hindsight_bound, aset.curve_of
    monkeypatch.setattr(aset, "run_one", lambda scenario, *rest: run_one(short(scenario), *rest))
    monkeypatch.setattr(aset, "hindsight_bound", lambda scenario, seed: bound(short(scenario), seed))
    monkeypatch.setattr(aset, "curve_of", lambda card: 20 * curve_of(card))
    monkeypatch.setattr(aset_trained, "SEEDS", (0, 20_000))
    monkeypatch.setattr(aset_trained, "EPISODES", dict.fromkeys(aset_trained.EPISODES, 2))
    report = run.carry_out("aset", tmp_path, RESULTS, looks=tmp_path, seeds=(2_000_000,), jobs=1)
    assert not [claim.id for claim in report.claims if claim.estimate is None]
    (a4,) = (claim for claim in report.claims if claim.id == "a4-full-edge")
    assert a4.n == 2 and "; trainings " in a4.detail
    assert len(list((tmp_path / "trained").glob("*.json"))) == 2 * len(aset_trained.EPISODES)
    assert {"a6-switch-time.png", "a4-rates.png", "gains.png", "robustness.png"} <= {
        file.name for file in tmp_path.glob("*.png")
    }


@pytest.mark.parametrize("topology", aset_trained.EPISODES)
def test_trainings_are_those_of_the_card_that_ships(topology):
    card = aset.card(f"chooser-{topology}")
    seed, episodes = card["config"]["seed"], aset_trained.EPISODES[topology]
    assert seed in aset_trained.SEEDS and len(card["curve"]) == episodes
    length = "" if episodes == DqnConfig().episodes else f" --episodes {episodes}"
    asked = f"--scenario {topology}-published{length} --seed {seed} --name chooser-{topology}"
    assert card["command"] == f"edgewise train chooser {asked}"
    _, trainer, _ = methods.chooser(f"{topology}-published", episodes=episodes, seed=seed)
    assert json.loads(json.dumps(trainer.identity)) == card["config"]
