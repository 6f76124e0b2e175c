"""Training of KaiS in small worlds: it resumes exactly, imitates, evolves, and its settings are frozen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import policies
from edgewise.errors import EdgewiseError, RunError, ScenarioError
from edgewise.learn.harness import write_card
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise_studies.frozen import check_setting, setting_text
from edgewise_studies.papers.kais import frozen
from edgewise_studies.papers.kais_trained import STEADY, is_best, settled, smoothed
from edgewise_studies.training import methods
from edgewise_studies.training.kais.cmmac import DispatchConfig
from edgewise_studies.training.kais.settings import FIRST, TrainingSetting, description, evaluate, setting
from edgewise_studies.training.kais.train import (
    METHODS,
    WEIGHTS,
    EvolveConfig,
    Search,
    Training,
    TrainingConfig,
    first_vector,
)

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def small() -> TrainingSetting:
    return setting("edge-cloud-small", frames=2, frame_slots=20)


def weights_of(training: Training) -> list[np.ndarray]:
    assert training.dispatcher and training.scaler
    parts = (training.dispatcher.actor, training.dispatcher.critic, training.scaler.network)
    return [p.detach().numpy().copy() for part in parts for p in part.parameters()]


@pytest.mark.parametrize("method", ["paper", "stacked", "improved"])
def test_a_stopped_training_goes_on_exactly(method: str, small: TrainingSetting, tmp_path: Path) -> None:
    config = replace(METHODS[method], worlds=4, episodes=3, warm_episodes=int(method == "improved"))
    whole = Training(small, config, methods.teachers())
    whole.train()
    first = Training(small, replace(config, episodes=2), methods.teachers())
    first.train()
    first.save(tmp_path / "half.pt")
    torch.manual_seed(99)
    again = Training(small, config, methods.teachers())
    again.load(tmp_path / "half.pt")
    again.train()
    assert again.curve == whole.curve
    for a, b in zip(weights_of(again), weights_of(whole), strict=True):
        assert np.array_equal(a, b)
    other = Training(small, replace(config, seed=1), methods.teachers())
    with pytest.raises(RunError, match="another configuration"):
        other.load(tmp_path / "half.pt")


def test_imitation_comes_close_to_the_rule(small: TrainingSetting) -> None:
    config = replace(METHODS["improved"], worlds=8, episodes=3, warm_episodes=3, scale=None)
    training = Training(small, config, methods.teachers())
    training.train()
    assert training.dispatcher is not None
    rule = evaluate(
        small, methods.teachers().dispatch, policies.load("orchestrate", "none"), range(500_000, 500_008)
    )
    agent = training.dispatcher

    class Imitator:
        name, batched = "imitator", True

        def reset(self, world: object, key: object) -> None:
            """Nothing to forget."""

        def decide(self, view: object) -> np.ndarray:
            return agent.best(view)  # type: ignore[arg-type]

    ours = evaluate(small, Imitator(), policies.load("orchestrate", "none"), range(500_000, 500_008))
    assert ours.throughput_rate.mean() > rule.throughput_rate.mean() - 0.1


def test_a_stopped_search_goes_on_exactly_and_its_result_ships(
    small: TrainingSetting, tmp_path: Path
) -> None:
    config = EvolveConfig(generations=3, population=6, best=2, worlds=2)
    whole, first, again = Search(small, config), Search(small, replace(config, generations=2)), None
    whole.train()
    first.train()
    first.save(tmp_path / "half.pt")
    again = Search(small, config)
    again.load(tmp_path / "half.pt")
    again.train()
    assert np.array_equal(whole.mean, again.mean)
    assert not np.array_equal(whole.mean, first_vector())
    with pytest.raises(RunError, match="another configuration"):
        Search(small, replace(config, seed=1)).load(tmp_path / "half.pt")
    card = write_card(tmp_path, "mine", whole.networks(tmp_path / "mine"))
    seeds = range(500_000, 500_004)
    both = policies.load("requests", str(card)), policies.load("orchestrate", str(card))
    shipped = evaluate(small, *both, seeds)
    direct = evaluate(small, *whole.policies(whole.mean), seeds)
    assert np.array_equal(shipped.in_time, direct.in_time)


def test_one_half_is_searched_alone(small: TrainingSetting) -> None:
    search = Search(small, EvolveConfig("orchestrate", generations=1, population=4, best=2, worlds=2))
    search.train()
    assert np.allclose(search.mean[:WEIGHTS], first_vector()[:WEIGHTS])
    assert not np.allclose(search.mean[WEIGHTS:], first_vector()[WEIGHTS:])


def test_wrong_choices_are_named(small: TrainingSetting) -> None:
    with pytest.raises(ScenarioError, match="learned orchestration knows"):
        setting("nowhere")
    for wrong in ({"method": "best"}, {"half": "third"}, {"method": "evolved", "half": "third"}):
        ((option, value),) = list(wrong.items())[-1:]
        with pytest.raises(EdgewiseError, match=f"--{option} '{value}'"):
            methods.kais("edge-cloud-small", **wrong)
    with pytest.raises(RunError, match="copies 3: must divide the 8 worlds"):
        Training(small, TrainingConfig(worlds=8, copies=3), methods.teachers())
    with pytest.raises(RunError, match="need seed 0 … 19"):
        Training(small, TrainingConfig(seed=20), methods.teachers())


def test_copies_have_the_same_requests_and_are_judged_against_each_other(small: TrainingSetting) -> None:
    training = Training(
        small, TrainingConfig(dispatch=None, worlds=4, copies=2, episodes=2), methods.teachers()
    )
    assert list(training.seeds(1)) == [2, 3]
    scaler = training.scaler
    assert scaler is not None
    worlds = ReplicaWorlds(small.system, small.draw([0, 0, 1, 1]), small.slots, [0, 0, 1, 1])
    worlds.reset()
    before = [p.detach().clone() for p in scaler.network.parameters()]
    scaler.act(worlds.view)
    scaler.rewards = [torch.tensor([0.2, 0.2, 0.9, 0.9])]  # loads differ, decisions do not
    scaler.learn(copies=2)
    assert all(torch.equal(a, b) for a, b in zip(before, scaler.network.parameters(), strict=True))
    scaler.act(worlds.view)
    scaler.rewards = [torch.tensor([0.2, 0.2, 0.9, 0.9])]
    scaler.learn()
    assert not all(torch.equal(a, b) for a, b in zip(before, scaler.network.parameters(), strict=True))


def test_only_the_critic_learns_in_the_first_episode(small: TrainingSetting) -> None:
    training = Training(small, TrainingConfig(scale=None, worlds=2, episodes=2), methods.teachers())
    dispatcher = training.dispatcher
    assert dispatcher is not None
    parts = (dispatcher.actor, dispatcher.critic)
    start = [[p.detach().clone() for p in part.parameters()] for part in parts]

    def moved() -> list[bool]:
        return [
            not all(torch.equal(a, b) for a, b in zip(old, part.parameters(), strict=True))
            for old, part in zip(start, parts, strict=True)
        ]

    training.curve.append(training.round())
    assert moved() == [False, True]
    training.curve.append(training.round())
    assert moved() == [True, True]


@pytest.mark.parametrize("printed", [False, True])
def test_as_printed_the_actor_learns_at_once_and_the_target_follows_an_episode(
    printed: bool, small: TrainingSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig(DispatchConfig(printed=printed), scale=None, worlds=2, episodes=2)
    training = Training(small, config, methods.teachers())
    dispatcher = training.dispatcher
    assert dispatcher is not None
    first, follow, followed = weights(dispatcher.actor), dispatcher.refresh, list[int]()
    monkeypatch.setattr(dispatcher, "refresh", lambda: followed.append(1) or follow())
    training.curve.append(training.round())
    moved = not all(map(np.array_equal, first, weights(dispatcher.actor)))
    assert moved == printed
    followed.clear()
    training.curve.append(training.round())
    assert len(followed) == (1 if printed else 2)  # an episode has two frames
    assert all(map(np.array_equal, weights(dispatcher.target), weights(dispatcher.critic)))


def weights(network: torch.nn.Module) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in network.parameters()]


def test_a_curve_settles_at_nine_tenths_of_its_gain() -> None:
    curve = np.concatenate([np.full(5, 0.4), np.linspace(0.42, 0.6, 10), np.full(25, 0.6)])
    assert settled(curve) == 14  # 0.58
    assert settled(np.linspace(0.5, 0.4, 40)) == 40
    rough = np.array([[0.0, 1.0] * 10])
    assert np.allclose(smoothed(rough)[:, 5:], 0.5, atol=0.11)
    assert smoothed(rough)[0, 0] == 0.0


def test_settings_are_as_they_were_frozen() -> None:
    first = setting_text({name: description(name) for name in FIRST})
    assert len(check_setting("kais", first, RESULTS)) == 64
    assert len(check_setting("kais-scarce", frozen(), RESULTS)) == 64


def test_the_best_networks_are_those_of_the_best_steady_stretch() -> None:
    rates = np.repeat([0.4, 0.6, 0.2], STEADY)
    best = [n for n in range(1, len(rates) + 1) if is_best(rates[:n])]
    assert best[-1] == 2 * STEADY
    assert is_best(np.array([0.5, 0.4]))
