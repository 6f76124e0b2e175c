"""The environments keep the contracts of Gymnasium and PettingZoo; none of this needs torch."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test

from edgewise import policies
from edgewise.errors import PolicyError
from edgewise.learn.env import NAME, DispatchEnv, Reward
from edgewise.learn.games import PlaceGame, SplitGame
from edgewise.learn.joint import AgentsEnv, BatchEnv, JointEnv
from edgewise.policies.dispatch.meta import PAPER
from edgewise.policies.place.baselines import EqualShares
from edgewise.sim.parts.graphs import simulate_split
from edgewise.sim.parts.pipelines import simulate_streaming
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
from edgewise.workloads.pipelines import pipelines_of
from small_games import GAMES, JOBS

NAMED = ("Requests", "Orchestrate", "Defer", "Split", "Place")


def possible(game, draws):
    """Random choices that the mask allows."""
    return (game.mask() * (1.0 + draws.random(game.mask().shape))).argmax(axis=2)


@pytest.mark.parametrize("name", GAMES)
def test_one_world_keeps_gymnasiums_contract(name):
    check_env(JointEnv(GAMES[name]()), skip_render_check=True)


@pytest.mark.parametrize("name", GAMES)
def test_agents_keep_pettingzoos_contract(name):
    parallel_api_test(AgentsEnv(GAMES[name]()), num_cycles=30)
    env = AgentsEnv(GAMES[name]())
    seen, _ = env.reset(seed=3)
    assert all(env.observation_space(agent).contains(found) for agent, found in seen.items())
    _, reward, *_ = env.step({agent: int(each["action_mask"].argmax()) for agent, each in seen.items()})
    assert len(set(reward.values())) == 1


@pytest.mark.parametrize("name", GAMES)
def test_a_world_of_a_batch_is_the_world_alone(name):
    batch, alone, draws = GAMES[name](), GAMES[name](), np.random.default_rng(0)
    batch.begin([3, 4])
    alone.begin([4])
    for _ in range(3):
        np.testing.assert_array_equal(batch.mask()[1:], alone.mask())
        np.testing.assert_array_equal(batch.observe()[1:], alone.observe())
        choices = possible(batch, draws)
        assert batch.act(choices)[1] == pytest.approx(alone.act(choices[1:])[0])


@pytest.mark.parametrize("name", GAMES)
def test_a_batch_begins_anew_after_its_end(name):
    env = BatchEnv(GAMES[name](), 2)
    first, _ = env.reset(seed=5)
    again, info = env.reset(seed=5)
    np.testing.assert_array_equal(first, again)
    draws, over = np.random.default_rng(0), np.zeros(2, dtype=bool)
    while not over.any():
        assert env.observation_space.contains(again)
        again, reward, lost, over, info = env.step(possible(env.game, draws))
        assert reward.shape == (2,) and not lost.any() and info["action_mask"].shape[0] == 2
    assert over.all()
    _, reward, _, over, _ = env.step(env.action_space.sample())
    assert not over.any() and not reward.any() and not env.game.done


@pytest.mark.parametrize("name", ["requests", "orchestrate", "defer"])
def test_a_forbidden_choice_costs_a_penalty_or_is_an_error(name):
    free, dear, strict = (JointEnv(GAMES[name](), penalty) for penalty in (0.0, 2.0, None))
    for env in (free, dear, strict):
        env.reset(seed=1)
    mask = free.game.mask()[0]
    wrong = (~mask).argmax(axis=1)  # a forbidden choice of every agent that has one
    rewards = [env.step(wrong)[1] for env in (free, dear)]
    assert rewards[0] - rewards[1] == pytest.approx(2.0 * (~mask).any(axis=1).sum())
    with pytest.raises(PolicyError, match="which its action mask forbids; it allows"):
        strict.step(wrong)


def test_doing_nothing_is_the_run_without_orchestration():
    game = GAMES["orchestrate"]()
    game.begin([7])
    while not game.done:
        game.act(np.full((1, len(game.agents)), game.system.services))
    worlds = ReplicaWorlds(game.system, game.draw([7]), game.slots, [7])
    wanted = simulate(worlds, policies.load("requests", "greedy"))
    np.testing.assert_array_equal(game.worlds.outcome().in_time, wanted.in_time)


def test_rewards_of_dispatch_are_the_papers():
    game, draws, rewards = GAMES["requests"](), np.random.default_rng(0), []
    game.begin([4])
    while not game.done:
        rewards += game.act(possible(game, draws)).tolist()
    assert len(rewards) == 3 * 40
    assert 0.0 < min(rewards) <= max(rewards) <= np.exp(-0.5) + 1e-12  # ν is at least 1/2


def test_rewards_of_jobs_add_up_to_the_loops():
    game = GAMES["defer"]()
    game.begin([3])
    total, slots = 0.0, 0
    while not game.done:
        total, slots = total + game.act(game.mask()[:, :, 1].astype(np.int64))[0], slots + 1
    assert slots == JOBS.slots and total == pytest.approx(game.worlds.outcome().reward[0])


def test_rewards_of_splitting_add_up_to_the_completion_times():
    class Turns:
        name = "turns"

        def reset(self, program, key):
            pass

        def decide(self, view):
            return np.arange(4) % 2 + view.query % 3

    game, total, query = GAMES["split"](), 0.0, 0
    assert isinstance(game, SplitGame)
    game.begin([3])
    while not game.done:
        total, query = total + game.act(np.arange(4)[None] % 2 + query % 3)[0], query + 1
    assert total == pytest.approx(-simulate_split(Turns(), game.program, 40, 3).time_s.sum())


def test_chosen_nodes_are_the_run_of_a_policy_that_chooses_them():
    class AtSource(EqualShares):
        name = "at-source"

        def nodes(self, view, pipeline, free, pipelines, speeds):
            need = pipeline.memory_bytes.sum()
            return np.full(pipeline.work_ops.size, pipeline.source) if need <= free[pipeline.source] else None

    game, total = GAMES["place"](), 0.0
    assert isinstance(game, PlaceGame)
    game.begin([3])
    (world,) = game.worlds
    while not game.done:
        pipeline = world.arrays[world.arrivals[game.asked]]
        total += game.act(np.full((1, len(game.agents)), pipeline.source))[0]
    wanted = simulate_streaming(game.network, pipelines_of(game.scenario, 3), AtSource(), 3)
    assert world.outcome().pipelines == wanted.pipelines
    assert total == pytest.approx(np.mean([each.frames for each in wanted.pipelines]))


@pytest.mark.parametrize("state", ["pooled", "history"])
def test_environment_keeps_the_contract_of_gymnasium(state):
    check_env(DispatchEnv("tiny", state=state), skip_render_check=True)


@pytest.mark.parametrize(
    "name", ["env:edgewise/Dispatch-v1", *(f"games:edgewise/{game}-v1" for game in NAMED)]
)
def test_each_decision_has_an_environment_named_with_a_version_that_shows_what_is_bounded(name):
    env = gymnasium.make(f"edgewise.learn.{name}")
    seen, _ = env.reset(seed=1)
    assert env.observation_space.contains(seen) and np.abs(seen).max() <= 1.0
    assert (env.observation_space.low >= -1.0).all() and (env.observation_space.high <= 1.0).all()
    assert env.spec.version == 1


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
        _, reward, lost, over, info = env.step(np.int64(PAPER.index("closest")))
        assert info["success"] + info["failed"] + info["rejected"] == pytest.approx(1.0)
        assert reward <= 0.0 and not lost
        shares.append(info["success"])
    assert len(shares) == math.ceil(env.scenario.duration_s / env.scenario.window_s)


def test_reward_is_the_papers():
    reward = Reward(phi=0.9, theta=0.5, c=0.02)
    assert reward.of(0.8, 3) == (pytest.approx(-0.2), False)
    assert reward.of(0.95, 4) == (pytest.approx(-0.005), False)
    assert reward.of(0.5, 1)[1]
