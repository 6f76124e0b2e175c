"""A full run of the reproduction of KaiS, training and all: one seed, trainings of two episodes."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from edgewise.policies.cards import SHIPPED
from edgewise_studies import papers as papers, run
from edgewise_studies.papers import kais_trained

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_every_claim_is_made(tmp_path, monkeypatch):
    least = {"worlds": 2, "copies": 2, "episodes": 2}
    monkeypatch.setattr(kais_trained, "BOTH", replace(kais_trained.BOTH, **least))
    monkeypatch.setattr(kais_trained, "GPG", replace(kais_trained.GPG, **least))
    monkeypatch.setattr(kais_trained, "EVOLVED", replace(kais_trained.EVOLVED, generations=2, worlds=2))
    for name in ("SEEDS", "FRAMES_BOTH", "FRAMES_GPG"):
        monkeypatch.setattr(kais_trained, name, 1)
    report = run.carry_out("kais", tmp_path, RESULTS, looks=tmp_path, seeds=(2_000_000,), jobs=1)
    assert [claim.id for claim in report.claims] == list(run.find("kais").claims)
    assert not [claim.id for claim in report.claims if claim.estimate is None]
    assert {"k1.png", "k7-rate.png", "searches.png"} <= {file.name for file in tmp_path.glob("*.png")}
    assert not (tmp_path / "looks.jsonl").exists()


def test_searches_are_those_of_the_card_that_ships():
    card = json.loads((SHIPPED / "kais" / "kais-scarce.json").read_text(encoding="utf-8"))
    assert card["config"] == asdict(kais_trained.EVOLVED) and card["scenario"] == kais_trained.BOTH_ON
    how = "--scenario scarce --pattern sequences --method evolved --episodes 24 --worlds 12"
    assert card["command"] == f"edgewise train kais {how} --name kais-scarce"
