"""The environments keep the contracts of Gymnasium and PettingZoo; none of this needs torch."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test

from edgewise import config
from edgewise.learn.defer.env import DeferralEnv
from edgewise.learn.env import NAME, DispatchEnv, Reward
from edgewise.learn.replica_env import ScaleEnv, SiteDispatchEnv
from edgewise.policies.dispatch.meta import PAPER as PAPERS_SEVEN
from edgewise.workloads.deferrable import PAPER

SMALL = replace(PAPER, slots=24, jobs_per_slot=4.0, load_mean=0.85)
SHORT = config.load_scenario("kais-demo", {"services.frame_s": 20, "duration_s": 60})


def test_dispatch_is_a_parallel_environment() -> None:
    parallel_api_test(SiteDispatchEnv(SHORT), num_cycles=150)


def test_orchestration_is_an_environment() -> None:
    check_env(ScaleEnv(SHORT), skip_render_check=True)


def _episode(seed: int) -> list[float]:
    env, rng, rewards = SiteDispatchEnv(SHORT), np.random.default_rng(seed), []
    seen, _ = env.reset(seed=seed)
    while env.agents:
        actions = {a: int(rng.choice(np.flatnonzero(seen[a]["action_mask"]))) for a in env.agents}
        for agent, found in seen.items():
            assert env.observation_space(agent).contains(found)
        seen, reward, *_ = env.step(actions)
        assert len(set(reward.values())) == 1
        rewards.append(next(iter(reward.values())))
    return rewards


def test_the_same_seed_gives_the_same_episode() -> None:
    one, two = _episode(4), _episode(4)
    assert one == two
    assert one != _episode(5)
    assert len(one) == 3 * 40
    assert 0.0 < min(one) <= max(one) <= np.exp(-0.5) + 1e-12  # ν is at least 1/2


@pytest.mark.parametrize("state", ["pooled", "history"])
def test_environment_keeps_the_contract_of_gymnasium(state):
    check_env(DispatchEnv("tiny", state=state), skip_render_check=True)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_steps_many_worlds_side_by_side(mode):
    kwargs = {"scenario": "tiny", "state": "history"}
    worlds = gymnasium.make_vec(f"edgewise.learn.env:{NAME}", 2, vectorization_mode=mode, **kwargs)
    states, infos = worlds.reset(seed=[3, 4])
    following, rewards, _, _, after = worlds.step(np.array([1, 5]))
    worlds.close()
    for k, action in enumerate((1, 5)):
        alone = DispatchEnv(**kwargs)
        state, info = alone.reset(seed=3 + k)
        assert np.array_equal(state, states[k]) and info["seed"] == infos["seed"][k]
        state, reward, *_, info = alone.step(np.int64(action))
        assert np.array_equal(state, following[k])
        assert reward == rewards[k] and info["success"] == after["success"][k]


def test_an_episode_is_the_run_of_the_policy():
    env = DispatchEnv("three-tier")
    env.reset(options={"episode": 7})
    over, shares = False, []
    while not over:
        _, reward, lost, over, info = env.step(np.int64(PAPERS_SEVEN.index("closest")))
        assert info["success"] + info["failed"] + info["rejected"] == pytest.approx(1.0)
        assert reward <= 0.0 and not lost
        shares.append(info["success"])
    assert len(shares) == env._run.tally.queries.shape[1]


def test_reward_is_the_papers():
    reward = Reward(phi=0.9, theta=0.5, c=0.02)
    assert reward.of(0.8, 3) == (pytest.approx(-0.2), False)
    assert reward.of(0.95, 4) == (pytest.approx(-0.005), False)
    assert reward.of(0.5, 1)[1]


def test_environment_keeps_gymnasiums_contract_and_its_reward_is_the_loops():
    env = DeferralEnv(SMALL, places=64)
    check_env(env, skip_render_check=True)
    env.reset(seed=3)
    rewards, done, info = [], False, {}
    while not done:
        _, reward, done, _, info = env.step(np.linspace(1, -1, 64, dtype=np.float32))
        rewards.append(reward)
    assert sum(rewards) == pytest.approx(info["reward"][0]) and len(rewards) == SMALL.slots
    with pytest.raises(ValueError, match="places is 2"):
        DeferralEnv(SMALL, places=2).reset(seed=0)
