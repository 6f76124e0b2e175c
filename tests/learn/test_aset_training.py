"""A training of ASET that gives the best of its networks on the way is otherwise the training that it is."""

from dataclasses import replace

import pytest
import torch
from test_dispatch_training import SMALL

from edgewise.learn.env import DispatchEnv
from edgewise.policies.dispatch.meta import PAPER
from edgewise_studies.calibration import best, learned
from edgewise_studies.training.aset import AsetTraining, BestOnTheWay

CONFIG = replace(SMALL, episodes=5, state="history").improved(["none"])
SEEN_IN = (500_000, 500_001)


def env():
    return DispatchEnv("tiny", PAPER, "history", bound=False)


def weights(network):
    return torch.cat([each.flatten() for each in network.state_dict().values()])


def looking(every=1):
    return BestOnTheWay(CONFIG, env(), SEEN_IN, every)


def test_looking_changes_nothing_of_the_training():
    plain, looks = AsetTraining(CONFIG, env()), looking()
    plain.train()
    looks.train()
    assert torch.equal(weights(plain.network), weights(looks.network))
    assert [line["success"] for line in plain.curve] == [line["success"] for line in looks.curve]
    assert [len(line) for line in looks.curve] == [3, 4, 4, 4, 4]  # not while it is warming up


def test_the_network_that_was_best_is_given(tmp_path, monkeypatch):
    seen = iter([0.2, 0.4, 0.9, 0.7, 0.6, 0.8, 0.1, 0.1])  # two worlds each: 0.3, 0.8, 0.7, 0.1
    monkeypatch.setattr(BestOnTheWay, "watch", lambda self, seed: next(seen))
    training, at = looking(), []
    training.train(lambda _: at.append(weights(training.network)))
    assert training.best_success == pytest.approx(0.8)
    training.networks(tmp_path / "best")
    assert torch.equal(weights(training.network), at[2]) and not torch.equal(at[2], at[4])


def test_it_goes_on_where_it_was_stopped(tmp_path):
    whole, half, again = looking(2), looking(2), looking(2)
    whole.train()
    half.train(until=3)
    half.save(tmp_path / "half.pt")
    again.load(tmp_path / "half.pt")
    again.train()
    assert (again.curve, again.best_success) == (whole.curve, whole.best_success)
    assert torch.equal(weights(again.best_network), weights(whole.best_network))


def test_both_networks_are_measured_beside_the_seven(tmp_path, monkeypatch):
    monkeypatch.setattr(learned, "EPISODES", 6)
    monkeypatch.setattr(learned, "TRAININGS", (0,))
    monkeypatch.setattr(best, "CELLS", ((0, "edge"),))
    scenario_of = learned.scenario_of
    monkeypatch.setattr(learned, "scenario_of", lambda *cell: replace(scenario_of(*cell), duration_s=60.0))
    assert best.explore(tmp_path, tmp_path / "work", float("inf")) == 1
    whole = (tmp_path / "best.csv").read_text()
    assert best.explore(tmp_path, tmp_path / "none", float("inf")) == 1  # trains and measures nothing anew
    assert (tmp_path / "best.csv").read_text() == whole and not (tmp_path / "none").exists()
    (found,) = best.read(tmp_path / "best.csv").values()
    assert found.rival in PAPER and len(found.last) == len(found.best) == 1
