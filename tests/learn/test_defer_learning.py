"""Features, environment, trainer, export: small runs that can go wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from edgewise import policies
from edgewise.core.defer import Objective, Slots
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError, RunError
from edgewise.learn.harness import write_card
from edgewise.learn.methods import train
from edgewise.policies.cards import SHIPPED
from edgewise.sim.slots.defer import DeferralWorlds, pool_size, simulate
from edgewise.workloads.deferrable import PAPER, generate
from edgewise_studies.training import methods
from edgewise_studies.training.osdec import ppo
from edgewise_studies.training.osdec.networks import VARIANTS, Agent, tuned
from edgewise_studies.training.osdec.situations import name_of

SMALL = replace(PAPER, slots=24, jobs_per_slot=4.0, load_mean=0.85)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_trains_a_little_and_keeps_capacity(name):
    config = replace(VARIANTS[name], workers=2, epochs=1)
    trainer = ppo.PpoTrainer(config, SMALL, 0, 2)
    trainer.train()
    agent, curve = trainer.agent, trainer.curve
    before = Agent(config, 0).network.state_dict()
    moved = [
        not torch.equal(a, b)
        for a, b in zip(before.values(), agent.network.state_dict().values(), strict=True)
    ]
    assert len(curve) == 2 and any(moved)
    out = ppo.evaluate(agent, SMALL, range(500_000, 500_003))
    assert (out.started > 0).all() and np.isfinite(out.reward).all()


def test_training_finds_the_only_order_that_pays():
    """Delay is so dear that starting long-waiting jobs loses: the reward must rise well above its start."""
    config = replace(VARIANTS["ppo-att"], workers=8, policy_rate=(3e-3, 3e-3), value_rate=(3e-3, 3e-3))
    pattern = replace(SMALL, window_most=3, jobs_per_slot=8.0)
    objective = Objective(delay=8.0)
    untrained = ppo.evaluate(Agent(config, 1), pattern, range(500_000, 500_030), objective)
    trainer = ppo.PpoTrainer(config, pattern, 1, 12, objective)
    trainer.train()
    trained = ppo.evaluate(trainer.agent, pattern, range(500_000, 500_030), objective)
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
    trainer = ppo.PpoTrainer(VARIANTS[name], SMALL, 0, 1)
    card = write_card(tmp_path, name, trainer.networks(tmp_path / name))
    busy = replace(SMALL, jobs_per_slot=20.0, slots=16)  # more jobs than the 64 places of "ppo-mlp"
    worlds = generate(busy, range(3))
    assert pool_size(worlds) > 64
    mine = simulate(worlds, trainer.agent.policy("x"))
    theirs = simulate(worlds, policies.load("defer", str(card)))
    np.testing.assert_array_equal(mine.start, theirs.start)
    said = json.loads(card.read_text())
    said["golden"][0][0] += 0.1
    card.write_text(json.dumps(said))
    with pytest.raises(PolicyError, match="decides otherwise in the golden cases"):
        policies.load("defer", str(card))
    network = card.with_suffix(".onnx")
    network.write_bytes(network.read_bytes() + b"\0")
    with pytest.raises(PolicyError, match="is not the file"):
        policies.load("defer", str(card))


def test_features_do_not_see_the_future():
    """Two sets of worlds that agree up to slot 10 and differ later give the same decisions up to there."""
    worlds = generate(SMALL, range(2))
    later = worlds.left_over.copy()
    later[:, 11:] = 1.0
    agent = Agent(VARIANTS["osdec"], 0)
    for policy in (agent.policy("osdec"), policies.load("defer", "tetris")):
        loops = [DeferralWorlds(w) for w in (worlds, worlds._replace(left_over=later))]
        for loop in loops:
            policy.reset(Slots(900.0, 1), Key(7))
            for _ in range(11):
                loop.step(np.asarray(policy.decide(loop.view())) != 0)  # turns, or starts
        np.testing.assert_array_equal(loops[0].start, loops[1].start)


def test_what_all_copies_of_a_world_gain_is_taken_out():
    gain = torch.tensor([[1.0, 3.0, 10.0, 10.0], [0.0, 0.0, 5.0, -5.0]])
    wanted = torch.tensor([[-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, -5.0]])
    torch.testing.assert_close(ppo.less_luck(gain, 2), wanted)
    torch.testing.assert_close(ppo.less_luck(gain, 1), gain)
    config = replace(VARIANTS["ppo-att"], workers=4, copies=2)
    seen = []
    original = ppo.generate
    try:
        ppo.generate = lambda pattern, seeds: seen.append(list(seeds)) or original(pattern, seeds)
        ppo.PpoTrainer(replace(config, epochs=1), SMALL, 1, 2).train()
    finally:
        ppo.generate = original
    assert seen[:2] == [[20_000, 20_000, 20_001, 20_001], [20_004, 20_004, 20_005, 20_005]]


def test_revenue_paid_while_jobs_run_adds_up_to_revenue_paid_at_their_start():
    """Without a discount a potential changes no sum over a world, only when it is paid."""
    batches = []
    for shaped in (False, True):
        config = replace(VARIANTS["ppo-att"], shaped=shaped, gamma=1.0)
        agent = Agent(config, 0)
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
    monkeypatch.setattr(methods, "situations", lambda: {"paper": (SMALL, Objective())})
    monkeypatch.setattr(methods, "JUDGED", range(500_000, 500_003))
    path = train("defer", tmp_path, method="osdec-skip", seed=1, iterations=2)
    card = json.loads(path.read_text())
    assert path.name == "osdec-skip-1.json" and card["config"]["seed"] == 1 and len(card["curve"]) == 1
    assert set(card["scores"]) == {"osdec-skip-1", "fifo", "sjf", "tetris"}
    assert policies.load("defer", str(path)).skip and card["config"]["pattern_sha256"] == SMALL.sha256()
    for wrong in ({"method": "dqn"}, {"situation": "core-9"}):
        with pytest.raises(PolicyError, match="use one of"):
            methods.defer(**wrong)
    assert name_of("osdec", 2, "core-2", "paper") == "osdec-core-2-paper-recipe-2"


def test_a_stopped_training_goes_on_exactly(tmp_path):
    config = replace(tuned(VARIANTS["osdec"]), workers=4)
    whole = ppo.PpoTrainer(config, SMALL, 0, 3)
    whole.train()
    half = ppo.PpoTrainer(config, SMALL, 0, 3)
    half.train(until=1)
    half.save(tmp_path / "half.pt")
    torch.manual_seed(99)
    again = ppo.PpoTrainer(config, SMALL, 0, 3)
    again.load(tmp_path / "half.pt")
    again.train()
    assert again.curve == whole.curve
    for part in ("network", "auxiliary"):
        one, other = (getattr(trainer.agent, part).state_dict() for trainer in (whole, again))
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_run_that_would_leave_its_training_seeds_is_refused():
    with pytest.raises(RunError, match="seed 0 … 19"):
        ppo.PpoTrainer(VARIANTS["osdec"], SMALL, 20, 1)


def test_the_shipped_policy_loads_on_the_frozen_pattern_and_an_unknown_one_is_named():
    worlds = generate(PAPER, range(500_000, 500_010))
    ours = simulate(worlds, policies.load("defer", "osdec")).reward
    for rival in ("fifo", "sjf", "tetris"):
        gain = ours - simulate(worlds, policies.load("defer", rival)).reward
        assert gain.mean() > 3 * gain.std(ddof=1) / 10**0.5
    card = json.loads((SHIPPED / "defer" / "osdec.json").read_text())
    assert card["pattern_sha256"] == PAPER.sha256()
    with pytest.raises(PolicyError, match="did you mean 'osdec'"):
        policies.load("defer", "osdek")
