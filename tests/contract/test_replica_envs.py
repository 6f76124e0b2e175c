"""The environments keep the contracts of PettingZoo and Gymnasium."""

from __future__ import annotations

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

from gymnasium.utils.env_checker import check_env  # noqa: E402
from pettingzoo.test import parallel_api_test  # noqa: E402

from edgewise import config  # noqa: E402
from edgewise.learn.replica_env import ScaleEnv, SiteDispatchEnv  # noqa: E402

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
