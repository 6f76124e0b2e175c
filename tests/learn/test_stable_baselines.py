"""Stable-Baselines3 and sb3-contrib train on the environments as they are."""

import pytest
import stable_baselines3 as sb3
from sb3_contrib import MaskablePPO

from edgewise.learn.env import DispatchEnv
from edgewise.learn.joint import JointEnv
from small_games import GAMES


def size(name):
    steps = 16 if name == "streams" else 64
    return {"n_steps": steps, "batch_size": steps, "n_epochs": 1, "seed": 1}


def env_of(name, penalty):
    return DispatchEnv("tiny") if name == "streams" else JointEnv(GAMES[name](), penalty)


@pytest.mark.parametrize("name", ["streams", *GAMES])
def test_ppo_trains_with_a_penalty_for_what_is_forbidden(name):
    env = env_of(name, 1.0)
    model = sb3.PPO("MlpPolicy", env, **size(name))
    model.learn(4 * model.n_steps)
    action, _ = model.predict(env.reset(seed=1)[0])
    assert env.action_space.contains(action)


@pytest.mark.parametrize("name", ["streams", *GAMES])
def test_masked_ppo_never_makes_a_forbidden_choice(name):
    env = env_of(name, None)  # which would be an error
    model = MaskablePPO("MlpPolicy", env, **size(name))
    model.learn(4 * model.n_steps)


def test_dqn_trains_on_windows():
    env = DispatchEnv("tiny")
    model = sb3.DQN("MlpPolicy", env, learning_starts=4, train_freq=1, batch_size=4, buffer_size=100, seed=1)
    model.learn(12)
    action, _ = model.predict(env.reset(seed=1)[0])
    assert env.action_space.contains(action)
