"""Features, environment, trainer, export: small runs that can go wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from edgewise import policies
from edgewise.core.deferral import Objective
from edgewise.errors import PolicyError
from edgewise.learn.defer import export, ppo, run
from edgewise.policies.cards import SHIPPED
from edgewise.sim.slots.defer import DeferralWorlds, pool_size, simulate
from edgewise.workloads.deferrable import PAPER, generate

SMALL = replace(PAPER, slots=24, jobs_per_slot=4.0, load_mean=0.85)


@pytest.mark.parametrize("name", ppo.VARIANTS)
def test_every_variant_trains_a_little_and_keeps_capacity(name):
    config = replace(ppo.VARIANTS[name], workers=2, epochs=1)
    agent, curve = ppo.train(config, SMALL, 0, 2)
    before = ppo.Agent(config, 0).network.state_dict()
    moved = [
        not torch.equal(a, b)
        for a, b in zip(before.values(), agent.network.state_dict().values(), strict=True)
    ]
    assert len(curve) == 2 and any(moved)
    out = ppo.evaluate(agent, SMALL, range(500_000, 500_003))
    assert (out.started > 0).all() and np.isfinite(out.reward).all()


def test_training_finds_the_only_order_that_pays():
    """Delay is so dear that starting long-waiting jobs loses: the reward must rise well above its start."""
    config = replace(ppo.VARIANTS["ppo-att"], workers=8, policy_rate=(3e-3, 3e-3), value_rate=(3e-3, 3e-3))
    pattern = replace(SMALL, window_most=3, jobs_per_slot=8.0)
    objective = Objective(delay=8.0)
    untrained = ppo.evaluate(ppo.Agent(config, 1), pattern, range(500_000, 500_030), objective)
    agent, _ = ppo.train(config, pattern, 1, 12, objective)
    trained = ppo.evaluate(agent, pattern, range(500_000, 500_030), objective)
    assert trained.reward.mean() > untrained.reward.mean() + 3 * trained.reward.std() / 30**0.5


def test_advantages_match_the_definition():
    rng = np.random.default_rng(0)
    reward, value = torch.tensor(rng.random((5, 2))), torch.tensor(rng.random((5, 2)))
    batch = ppo.Steps(*[None] * 5, value, reward, None)._replace(value=value, reward=reward)
    got, target = ppo.advantages(batch, 0.9, 0.8)
    following = torch.cat([value[1:], torch.zeros(1, 2)])
    delta = reward + 0.9 * following - value
    for t in range(5):
        wanted = sum((0.9 * 0.8) ** k * delta[t + k] for k in range(5 - t))
        torch.testing.assert_close(got[t], wanted)
    torch.testing.assert_close(target, got + value)


@pytest.mark.parametrize("name", ["osdec", "ppo-att", "ppo-mlp", "pointer-net"])
def test_exported_policy_decides_like_the_agent_and_changed_files_are_refused(name, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra `live` is not installed")
    agent = ppo.Agent(ppo.VARIANTS[name], 0)
    path = export.export(agent, tmp_path, name, {"command": "none"})
    busy = replace(SMALL, jobs_per_slot=20.0, slots=16)  # more jobs than the 64 places of "ppo-mlp"
    worlds = generate(busy, range(3))
    assert pool_size(worlds) > 64
    mine, theirs = (
        simulate(worlds, agent.policy("x")),
        simulate(worlds, policies.load("defer", str(path.with_suffix(".json")))),
    )
    np.testing.assert_array_equal(mine.start, theirs.start)
    card = json.loads(path.with_suffix(".json").read_text())
    card["golden"]["scores"][0][0] += 0.1
    path.with_suffix(".json").write_text(json.dumps(card))
    with pytest.raises(PolicyError, match="otherwise in the golden cases"):
        policies.load("defer", str(path.with_suffix(".json")))
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(PolicyError, match="is not the file"):
        policies.load("defer", str(path.with_suffix(".json")))


def test_features_do_not_see_the_future():
    """Two sets of worlds that agree up to slot 10 and differ later give the same decisions up to there."""
    worlds = generate(SMALL, range(2))
    later = worlds.left_over.copy()
    later[:, 11:] = 1.0
    agent = ppo.Agent(ppo.VARIANTS["osdec"], 0)
    for policy in (agent.policy("osdec"), policies.load("defer", "tetris")):
        loops = [DeferralWorlds(w) for w in (worlds, worlds._replace(left_over=later))]
        for loop in loops:
            policy.reset((0, 7))
            for _ in range(11):
                loop.step(policy.start(loop.view()))
        np.testing.assert_array_equal(loops[0].start, loops[1].start)


def test_what_all_copies_of_a_world_gain_is_taken_out():
    gain = torch.tensor([[1.0, 3.0, 10.0, 10.0], [0.0, 0.0, 5.0, -5.0]])
    wanted = torch.tensor([[-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, -5.0]])
    torch.testing.assert_close(ppo.less_luck(gain, 2), wanted)
    torch.testing.assert_close(ppo.less_luck(gain, 1), gain)
    config = replace(ppo.VARIANTS["ppo-att"], workers=4, copies=2)
    seen = []
    original = ppo.generate
    try:
        ppo.generate = lambda pattern, seeds: seen.append(list(seeds)) or original(pattern, seeds)
        ppo.train(replace(config, epochs=1), SMALL, 1, 2)
    finally:
        ppo.generate = original
    assert seen == [[20_000, 20_000, 20_001, 20_001], [20_004, 20_004, 20_005, 20_005]]


def test_revenue_paid_while_jobs_run_adds_up_to_revenue_paid_at_their_start():
    """Without a discount a potential changes no sum over a world, only when it is paid."""
    batches = []
    for shaped in (False, True):
        config = replace(ppo.VARIANTS["ppo-att"], shaped=shaped, gamma=1.0)
        agent = ppo.Agent(config, 0)
        torch.manual_seed(5)
        batches.append(ppo.rollout(agent, DeferralWorlds(generate(SMALL, range(3)))))
    late, early = batches[1].reward, batches[0].reward
    assert not torch.allclose(late, early)
    torch.testing.assert_close(late.sum(dim=0), early.sum(dim=0), rtol=1e-4, atol=1e-3)


def test_minibatches_take_every_step_once_and_leave_out_empty_places():
    jobs = torch.zeros(100, 7, 11)
    for step in range(100):
        jobs[step, : step % 7 + 1, 6] = 1.0
    number, seen = torch.arange(100), []
    for rows in ppo.minibatches(jobs, 8):
        seen += rows(number).tolist()
        assert rows(jobs).shape[1] == max(step % 7 + 1 for step in rows(number).tolist())
    assert sorted(seen) == list(range(100))


def test_a_run_ships_with_its_card_and_unknown_choices_are_named(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="the extra `live` is not installed")
    monkeypatch.setattr(run, "situations", lambda: {"paper": (SMALL, Objective())})
    monkeypatch.setattr(run, "VALIDATION", range(500_000, 500_003))
    path = run.make("osdec-skip", 1, 2, tmp_path)
    card = json.loads(path.with_suffix(".json").read_text())
    assert path.name == "osdec-skip-1.onnx" and card["seed"] == 1 and len(card["curve"]) == 1
    assert (
        policies.load("defer", str(path.with_suffix(".json"))).skip
        and card["pattern_sha256"] == SMALL.sha256()
    )
    for wrong in (("dqn", 0, 1, tmp_path), ("osdec", 0, 1, tmp_path, "core-9")):
        with pytest.raises(PolicyError, match="is none of"):
            run.make(*wrong)
    assert export.name_of("osdec", 2, "core-2", "paper") == "osdec-core-2-paper-recipe-2"


def test_a_run_that_would_leave_its_training_seeds_is_refused():
    with pytest.raises(ValueError, match="seed 0 … 19"):
        ppo.train(ppo.VARIANTS["osdec"], SMALL, 20, 1)


def test_the_shipped_policy_loads_on_the_frozen_pattern_and_an_unknown_one_is_named():
    pytest.importorskip("onnxruntime", reason="the extra `live` is not installed")
    worlds = generate(PAPER, range(500_000, 500_010))
    ours = simulate(worlds, policies.load("defer", "osdec")).reward
    for rival in ("fifo", "sjf", "tetris"):
        gain = ours - simulate(worlds, policies.load("defer", rival)).reward
        assert gain.mean() > 3 * gain.std(ddof=1) / 10**0.5
    card = json.loads((SHIPPED / "defer" / "osdec.json").read_text())
    assert card["pattern_sha256"] == PAPER.sha256()
    with pytest.raises(PolicyError, match="did you mean 'osdec"):
        policies.load("defer", "osdek")
