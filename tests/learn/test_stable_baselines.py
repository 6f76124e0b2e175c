"""Stable-Baselines3 trains on the environments as they are."""

import stable_baselines3 as sb3

from edgewise.config import load_scenario
from edgewise.learn.env import DispatchEnv


def test_stable_baselines_trains_on_it():
    env = DispatchEnv(load_scenario("tiny"))
    model = sb3.DQN("MlpPolicy", env, learning_starts=4, train_freq=1, batch_size=4, buffer_size=100, seed=1)
    model.learn(12)
    action, _ = model.predict(env.reset(seed=1)[0])
    assert env.action_space.contains(action)
