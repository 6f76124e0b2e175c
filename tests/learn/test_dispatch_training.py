"""DQN, ASET's trainer."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from edgewise.errors import PolicyError, RunError
from edgewise.learn import harness, methods
from edgewise.learn.dqn import DqnConfig, DqnTrainer
from edgewise.learn.harness import write_card
from edgewise.learn.networks import PaperNetwork, PooledNetwork
from edgewise.learn.replay import Replay
from edgewise.policies.dispatch.chooser import golden_states, trained
from edgewise.policies.dispatch.meta import ALL, PAPER

SMALL = DqnConfig(
    scenario="tiny",
    actions=PAPER,
    episodes=4,
    warm_up=1,
    steps_per_episode=3,
    batch=4,
    room=100,
    epsilon_episodes=2,
)


def test_n_step_returns_and_time_out():
    replay = Replay(20, (1,), gamma=0.5, steps=2)
    states = [np.full(1, k, dtype=np.float32) for k in range(4)]
    replay.add(states, [0, 1, 2], [1.0, 2.0, 4.0], lost=False)
    assert replay.reward[:3].tolist() == [2.0, 4.0, 4.0]
    assert replay.discount[:3].tolist() == [0.25, 0.25, 0.5]
    assert replay.following[:3].tolist() == [2, 3, 3]
    replay.add(states, [0, 1, 2], [1.0, 2.0, 4.0], lost=True)
    assert replay.discount[4:7].tolist() == [0.25, 0.0, 0.0]


def test_the_ring_forgets_transitions_whose_end_was_overwritten():
    replay = Replay(6, (1,), gamma=0.9)
    states = [np.full(1, k, dtype=np.float32) for k in range(4)]
    for _ in range(5):
        replay.add(states, [0, 1, 0], [0.0, 0.0, 0.0], lost=False)
        batch = replay.sample(32, np.random.default_rng(0))
        assert np.allclose(batch.following - batch.state, 1.0)


def test_training_resumes_exactly(tmp_path):
    whole = DqnTrainer(SMALL)
    whole.train()
    half = DqnTrainer(SMALL)
    half.train(until=2)
    half.save(tmp_path / "half.pt")
    again = DqnTrainer(SMALL)
    again.load(tmp_path / "half.pt")
    again.train()
    assert again.curve == whole.curve
    for a, b in zip(again.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_same_command_gives_the_same_policy(tmp_path):
    """The network, its decisions and its scores; also when the training was stopped and went on."""
    cards = []
    for name, lengths in (("once", [4]), ("again", [2, 4])):
        for episodes in lengths:
            card = harness.train(
                DqnTrainer(replace(SMALL, episodes=episodes)),
                tmp_path / name,
                "a",
                command="x",
                validation=range(500_000, 500_001),
            )
        cards.append(json.loads(card.read_text()))
    assert cards[0] == cards[1]
    assert set(cards[0]["scores"]) == {"a", *PAPER} and len(cards[0]["curve"]) == SMALL.episodes
    once, again = ((tmp_path / name / "a.onnx").read_bytes() for name in ("once", "again"))
    assert once == again


def test_another_configuration_does_not_go_on_with_a_stopped_training(tmp_path):
    DqnTrainer(SMALL).save(tmp_path / "a.pt")
    with pytest.raises(RunError, match="another configuration"):
        DqnTrainer(replace(SMALL, gamma=0.5)).load(tmp_path / "a.pt")


def test_a_damaged_training_is_said_to_be_one(tmp_path):
    trainer, path = DqnTrainer(SMALL), tmp_path / "a.pt"
    trainer.save(path)
    for damaged in (path.read_bytes()[:200], b"", b"no training"):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="is no training of this edgewise"):
            trainer.load(path)
    torch.save({"network": 1}, path)
    with pytest.raises(RunError, match="is no training of this edgewise"):
        trainer.load(path)


def test_tensorboard_gets_every_episode(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = DqnTrainer(replace(SMALL, episodes=2))
    harness.train(trainer, tmp_path, "a", command="", validation=[500_000], tensorboard=True)
    seen = EventAccumulator(str(tmp_path / "a")).Reload()
    assert set(seen.Tags()["scalars"]) == {"success", "epsilon", "loss"}
    assert [event.step for event in seen.Scalars("success")] == [1, 2]
    curve = [figures["success"] for figures in trainer.curve]
    assert [event.value for event in seen.Scalars("success")] == pytest.approx(curve)


def test_improvements_are_named():
    plain = SMALL.improved(["none"])
    assert (plain.double, plain.dueling, plain.n_step, plain.priority) == (False, False, 1, 0.0)
    some = SMALL.improved(["double", " prioritised"])
    assert some.double and not some.dueling and some.priority > 0.0
    with pytest.raises(PolicyError, match="doubel"):
        SMALL.improved(["doubel"])


def test_aset_is_as_published_and_the_chooser_is_ours():
    name, aset, _ = methods.aset("tiny")
    assert name == "aset-tiny" and aset.config == DqnConfig("tiny", "history", PAPER).improved(["none"])
    name, chooser, _ = methods.chooser("tiny")
    assert name == "chooser-tiny" and chooser.config == DqnConfig("tiny", actions=ALL)


@pytest.mark.parametrize("improvement", ["none", "double", "dueling", "n-step", "prioritised"])
def test_every_improvement_learns(improvement):
    trainer = DqnTrainer(replace(SMALL, episodes=2).improved([improvement]))
    first = [p.detach().clone() for p in trainer.network.parameters()]
    trainer.train()
    assert any(not torch.equal(a, b) for a, b in zip(first, trainer.network.parameters(), strict=True))


@pytest.mark.parametrize("state", ["pooled", "history"])
def test_the_exported_network_is_the_network(state, tmp_path):
    config = DqnConfig(
        scenario="tiny",
        state=state,
        actions=PAPER,
        episodes=1,
        warm_up=1,
        steps_per_episode=2,
        batch=4,
        room=60,
    )
    trainer = DqnTrainer(config)
    trainer.train()
    path = write_card(tmp_path, "small", trainer.networks(tmp_path / "small"))
    states = golden_states(state, trainer.env.world.workers)
    with torch.no_grad():
        expected = trainer.network(torch.from_numpy(states)).numpy()
    assert np.allclose(trained(path).values(states), expected, atol=1e-4)


def test_networks_have_a_value_for_each_action():
    assert PaperNetwork((5, 12, 25), 7)(torch.zeros(2, 5, 12, 25)).shape == (2, 7)
    pooled = PooledNetwork((5, 18), 7, dueling=True)
    assert pooled(torch.zeros(2, 9, 18)).shape == (2, 7)
