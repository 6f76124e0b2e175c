"""A training that gives the best of its networks on the way is otherwise the training that it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_dispatch_training import SMALL

from edgewise.learn import dqn
from edgewise.learn.dqn import DqnTrainer
from edgewise.policies.dispatch.meta import PAPER
from edgewise.seeds import SEEN_IN
from edgewise_studies.calibration import best, learned

PLAIN = replace(SMALL, episodes=5, state="history").improved(["none"])
EMPTY = np.zeros((1, 1))
LOOKS = replace(PLAIN, seen_in=SEEN_IN[:2])


def weights(network):
    return torch.cat([each.flatten() for each in network.state_dict().values()])


@pytest.fixture(autouse=True)
def every_episode(monkeypatch):
    monkeypatch.setattr(dqn, "SEEN_EVERY", 1)


def test_looking_changes_nothing_of_the_training():
    plain, looks = DqnTrainer(PLAIN), DqnTrainer(LOOKS)
    plain.train()
    looks.train()
    assert torch.equal(weights(plain.network), weights(looks.network))
    assert [line["success"] for line in plain.curve] == [line["success"] for line in looks.curve]
    assert [len(line) for line in plain.curve] == [3] * 5
    assert [len(line) for line in looks.curve] == [3, 4, 4, 4, 4]  # not while it is warming up


@pytest.mark.parametrize(("config", "given"), [(LOOKS, 2), (PLAIN, 4)])
def test_the_network_that_was_best_is_given_and_the_last_where_nobody_looked(
    config, given, tmp_path, monkeypatch
):
    training, at, seen = DqnTrainer(config), [], iter([0.3, 0.8, 0.7, 0.1])
    monkeypatch.setattr(DqnTrainer, "watch", lambda self: next(seen))
    training.train(lambda _: at.append(weights(training.network)))
    written = []
    monkeypatch.setattr(dqn, "write_network", lambda network, *rest: written.append(network) or ("", [EMPTY]))
    training.networks(tmp_path / "best")
    assert torch.equal(weights(written[0]), at[given]) and not torch.equal(at[2], at[4])


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(dqn, "SEEN_EVERY", 2)
    whole, half, again = (DqnTrainer(LOOKS) for _ in range(3))
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
