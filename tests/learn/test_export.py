"""Models of Stable-Baselines3 as cards: the policy takes the choices that the model would."""

import json

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.evaluation import evaluate_policy

import edgewise as ew
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError
from edgewise.learn.env import DispatchEnv
from edgewise.learn.joint import JointEnv, bounded
from edgewise.policies import cards
from edgewise.policies.dispatch.chooser import golden_states
from edgewise.policies.requests.features import changes_possible, node_state
from edgewise.policies.requests.learned import golden_system, golden_view
from notebooks import FOLDER, cells, said
from small_games import GAMES, SHORT

DECISIONS = ("requests", "orchestrate", "defer")


def small_ppo(env):
    return sb3.PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, seed=1).learn(64)


def likeliest(model, seen, allowed):
    """What the model would choose of what is allowed, by its own distribution."""
    with torch.no_grad():
        found = model.policy.get_distribution(torch.from_numpy(seen)).distribution
    logits = torch.stack([each.logits for each in found], dim=1).numpy()
    return np.where(allowed, logits, -np.inf).argmax(axis=2)


def test_a_model_decides_windows_as_it_did_in_training(tmp_path):
    env = DispatchEnv("tiny")
    model = sb3.DQN("MlpPolicy", env, learning_starts=4, train_freq=1, batch_size=4, buffer_size=100, seed=1)
    model.learn(12)
    card = ew.export(model, env, tmp_path / "mine.json")
    states = golden_states("pooled", env.world.workers)
    wanted = [int(model.predict(bounded(state), deterministic=True)[0]) for state in states]
    assert json.loads(card.read_text())["golden"] == wanted
    run = ew.compare("tiny", {"dispatch": ["closest", str(card)]}, seeds=range(2))
    assert "mine" in str(run)


def test_a_card_plays_windows_as_its_model_does(tmp_path):
    env = DispatchEnv("tiny")
    model = sb3.DQN("MlpPolicy", env, learning_starts=4, train_freq=1, batch_size=4, buffer_size=100, seed=1)
    agent = ew.Agent(ew.export(model.learn(12), env, tmp_path / "mine.json"), env)
    seen, _ = env.reset(seed=3)
    over = False
    while not over:
        wanted, _ = model.predict(seen, deterministic=True)
        found, _ = agent.predict(seen)
        assert found == wanted
        seen, _, lost, ended, _ = env.step(found)
        over = lost or ended
    batch = bounded(golden_states("pooled", env.world.workers))
    np.testing.assert_array_equal(agent.predict(batch)[0], model.predict(batch, deterministic=True)[0])
    assert len(set(agent.predict(batch)[0].tolist())) > 1


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_card_of_agents_earns_in_its_environment_what_its_model_does(decision, tmp_path):
    """As sb3-contrib evaluates a model that knows masks."""
    env = JointEnv(GAMES[decision](), penalty=None)
    model = MaskablePPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, seed=1).learn(64)
    agent = ew.Agent(ew.export(model, env, tmp_path / "mine.json"), env)
    (seen, _), over = env.reset(seed=3), False
    while not over:
        wanted, _ = model.predict(seen, deterministic=True, action_masks=env.action_masks())
        np.testing.assert_array_equal(agent.predict(seen)[0], wanted)
        seen, _, _, over, _ = env.step(wanted)
    mean, _ = evaluate_policy(agent, env, n_eval_episodes=1, warn=False)
    assert np.isfinite(mean)


def test_a_card_of_another_environment_is_refused(tmp_path):
    env = JointEnv(GAMES["requests"]())
    card = ew.export(small_ppo(env), env, tmp_path / "mine.json")
    with pytest.raises(PolicyError, match="decides requests, not orchestrate"):
        ew.Agent(card, JointEnv(GAMES["orchestrate"]()))
    with pytest.raises(PolicyError, match=r"is for \(\d+, \d+\), this environment has \(\d+, \d+\)"):
        ew.Agent(card, JointEnv(ew.RequestsGame("kais-live")))
    with pytest.raises(PolicyError, match=r"was not made by ew\.export"):
        ew.Agent(cards.shipped("requests")["kais-scarce"], env)


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_model_of_agents_is_a_policy(decision, tmp_path):
    env = JointEnv(GAMES[decision]())
    card = ew.export(small_ppo(env), env, tmp_path / "mine.json")
    policy = ew.load_policy(decision, card)
    assert (policy.decision, policy.name) == (decision, "mine")


def test_nodes_change_as_the_model_would(tmp_path):
    env = JointEnv(GAMES["orchestrate"]())
    model = small_ppo(env)
    policy = ew.load_policy("orchestrate", ew.export(model, env, tmp_path / "mine.json"))
    system = golden_system(env.game.system.services, env.game.system.site_of)
    view = golden_view(system)
    policy.reset(system, Key(0))
    allowed = changes_possible(system, view)
    wanted = likeliest(model, bounded(node_state(system, view)), allowed) - system.services
    np.testing.assert_array_equal(policy.decide(view)[:, :, 1], wanted)
    assert len({tuple(row) for row in wanted.tolist()}) > 1


def test_the_run_of_an_exported_model_is_its_own(tmp_path):
    env = JointEnv(GAMES["requests"](), penalty=None)
    model = MaskablePPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, seed=1)
    card = ew.export(model.learn(64), env, tmp_path / "mine.json")
    result = ew.simulate(SHORT, {"requests": str(card)}, seeds=range(1))
    (by_decision,) = result.decided.values()
    assert by_decision["requests"].questions > 0 and by_decision["requests"].instead == 0


def test_what_cannot_be_exported_says_why(tmp_path):
    env = JointEnv(GAMES["defer"]())
    model = small_ppo(env)
    with pytest.raises(PolicyError, match=r"ends in \.json"):
        ew.export(model, env, tmp_path / "mine.onnx")
    with pytest.raises(PolicyError, match="other observations or actions"):
        ew.export(model, JointEnv(GAMES["requests"]()), tmp_path / "mine.json")
    split = JointEnv(GAMES["split"]())
    with pytest.raises(PolicyError, match="no policy to export to"):
        ew.export(small_ppo(split), split, tmp_path / "mine.json")
    assert not (tmp_path / "mine.json").exists()


def test_a_card_of_another_system_is_refused(tmp_path):
    env = JointEnv(GAMES["orchestrate"]())
    card = ew.export(small_ppo(env), env, tmp_path / "mine.json")
    system = env.game.system
    policy = ew.load_policy("orchestrate", card)
    other = golden_system(system.services + 1, system.site_of)
    with pytest.raises(PolicyError, match="train it on this scenario"):
        policy.reset(other, Key(0))


def test_a_network_that_was_changed_is_refused(tmp_path):
    env = JointEnv(GAMES["defer"]())
    card = ew.export(small_ppo(env), env, tmp_path / "mine.json")
    network = card.with_suffix(".onnx")
    network.write_bytes(network.read_bytes() + b"\0")
    with pytest.raises(PolicyError, match="is not the file of its card"):
        ew.load_policy("defer", card)


def test_the_notebook_for_researchers_makes_a_card(tmp_path):
    """Its cell that needs torch, as it stands; tests/repository/test_notebooks.py runs the others."""
    (cell,) = cells(json.loads((FOLDER / "researcher.ipynb").read_text("utf-8")), tagged=True)
    (text,) = said(["".join(cell["source"])], tmp_path)
    assert "learned: success % " in text and "against closest" in text
    assert (tmp_path / "learned.json").is_file()
