"""The trainer of OSDEC and its variants: rollout, update, loop.

One iteration: 16 worlds of 128 slots are gone through (2,048 steps, the paper's batch), then the networks
are updated on minibatches of 64 steps. Worlds are whole, so nothing is bootstrapped at their ends.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.core.defer import CapacityView, DeferralPolicy, Objective
from edgewise.learn.harness import SEEDS_OF_A_RUN, Figures, Trainer, check_seed, descend, write_network
from edgewise.model.work import DeferralPattern
from edgewise.policies.cards import runner
from edgewise.policies.defer.rules import (
    TARGETS,
    LearnedDeferral,
    choose,
    feature_hash,
    golden_scores,
    golden_views,
    job_features,
    summary_features,
)
from edgewise.sim.slots.defer import DeferralOutcome, DeferralWorlds, simulate
from edgewise.workloads.deferrable import generate
from edgewise_studies.training.osdec.networks import Agent, Auxiliary, ExportedAgent, PpoConfig

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
WATCHED = range(500_000, 500_020)  # worlds of the training curve
EVERY = 2  # iterations between two points of it
RIVALS = ("fifo", "sjf", "tetris")


class Steps(NamedTuple):
    """Steps of one iteration; (T, W, …) arrays, flattened for the update."""

    jobs: Tensor
    extra: Tensor
    startable: Tensor
    action: Tensor
    log_chance: Tensor
    value: Tensor
    reward: Tensor
    summary: Tensor


def rollout(agent: Agent, loop: DeferralWorlds) -> Steps:
    """Go through worlds with exploration: scores are drawn from N(μ, σ)                  (OSDEC eq. 5)."""
    steps: list[tuple[Tensor, ...]] = []
    config, owed = agent.config, np.zeros(loop.worlds.worlds)
    memory = torch.zeros(loop.worlds.worlds, Auxiliary.memory)
    view = loop.reset()
    while not loop.done:
        jobs, summary = torch.from_numpy(job_features(view)), torch.from_numpy(summary_features(view))
        with torch.no_grad():
            extra, memory = agent.extra(summary, memory)
            mean, deviation, value = agent.network(jobs, extra)
            action = torch.normal(mean, deviation)
            startable = torch.from_numpy(view.startable.astype(np.float32))
            chance = log_chance(mean, deviation, action, startable)
        reward = loop.step(choose(view, action.double().numpy(), skip=config.skip))
        if not loop.done:
            view = loop.view()
        before, owed = owed, np.zeros_like(owed) if loop.done else work_left(view)
        if config.shaped:
            reward = reward + before - config.gamma * owed
        rewards = torch.from_numpy(reward / config.reward_unit).float()
        steps.append((jobs, extra, startable, action, chance, value, rewards, summary))
    return Steps(*(torch.stack(column) for column in zip(*steps, strict=True)))


def work_left(view: CapacityView) -> Floats:
    """(W,) core-slots that running jobs still hold: less its negative as a potential, revenue comes late.

    r' = r + γ Φ(s') - Φ(s), Φ = -work left         (Ng, Harada and Russell 1999, theorem 1)
    """
    slots = np.maximum(view.ends - view.now, 0)
    return (view.demand[:, :, 0] * slots).sum(axis=1)


def log_chance(mean: Tensor, deviation: Tensor, action: Tensor, startable: Tensor) -> Tensor:
    """(B,) log-density of the scores of startable jobs; the others decide nothing."""
    off = (action - mean) / deviation
    density = -0.5 * off.square() - deviation.log() - HALF_LOG_TAU
    return (density * startable).sum(dim=1)


def advantages(batch: Steps, gamma: float, trace: float) -> tuple[Tensor, Tensor]:
    """(T, W) generalised advantages and value targets.

    A_t = Σ_k (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} - V_t       (Schulman et al. 2016, eq. 16)
    """
    out = torch.zeros_like(batch.reward)
    following = torch.zeros(batch.reward.shape[1])
    carry = torch.zeros_like(following)
    for t in reversed(range(batch.reward.shape[0])):
        delta = batch.reward[t] + gamma * following - batch.value[t]
        carry = delta + gamma * trace * carry
        out[t], following = carry, batch.value[t]
    return out, out + batch.value


def normalised(gain: Tensor) -> Tensor:
    """Mean 0, deviation 1."""
    return (gain - gain.mean()) / gain.std().clamp_min(1e-6)


def less_luck(gain: Tensor, copies: int) -> Tensor:
    """(T, W) advantages less their mean over the copies of a world, which differ by exploration alone.

    A baseline that depends on the world's future does not bias the gradient, for the choice does not
    change that future (Mao et al. 2019, Variance reduction for RL in input-driven environments, section 4).
    """
    if copies == 1:
        return gain
    grouped = gain.reshape(gain.shape[0], -1, copies)
    return (grouped - grouped.mean(dim=2, keepdim=True)).flatten(1, 2)


def minibatches(jobs: Tensor, size: int) -> Iterator[Callable[[Tensor], Tensor]]:
    """Random minibatches, each as a function that takes its steps from (B, …) or (B, P, …) tensors.

    Steps are drawn eight minibatches at a time and go into them by the size of their pools, so that
    places that are empty in all of a minibatch can be left out: it takes half the time.
    """
    places = jobs.shape[1]
    filled = (jobs[:, :, 5:8].sum(dim=2) > 0.5).sum(dim=1)
    for drawn in torch.split(torch.randperm(jobs.shape[0]), 8 * size):
        for chosen in torch.split(drawn[filled[drawn].argsort()], size):
            most = max(1, int(filled[chosen].max()))

            def rows(x: Tensor, chosen: Tensor = chosen, most: int = most) -> Tensor:
                return x[chosen, :most] if x.dim() > 1 and x.shape[1] == places else x[chosen]

            yield rows


class PpoTrainer(Trainer):
    """A training of one agent.

    Args:
        config: of the run.
        pattern, objective: of its worlds.
        seed: of the run, 0 … 19; its worlds are training seeds that no other run uses.
        iterations: of `workers` worlds each; the learning rates fall over them.
    Raises:
        RunError: the run would leave the training seeds.
    """

    headline = "validation"

    def __init__(
        self,
        config: PpoConfig,
        pattern: DeferralPattern,
        seed: int,
        iterations: int,
        objective: Objective = Objective(),  # noqa: B008
    ) -> None:
        check_seed(seed, iterations, config.workers)
        self.agent = Agent(config, seed)
        network, auxiliary = self.agent.network, self.agent.auxiliary
        value = list(network.value.parameters())
        rest = [p for name, p in network.named_parameters() if not name.startswith("value.")]
        groups = [
            {"params": rest, "rates": config.policy_rate},
            {"params": value, "rates": config.value_rate},
        ]
        self.adam = torch.optim.Adam(groups, lr=config.policy_rate[0])
        kept, self.auxiliary_adam = ["agent.network", "adam"], None
        if auxiliary is not None:
            learned = {"params": auxiliary.parameters(), "rates": config.auxiliary_rate}
            self.auxiliary_adam = torch.optim.Adam([learned])
            kept += ["agent.auxiliary", "auxiliary_adam"]
        about = {"seed": seed, "iterations": iterations, "pattern_sha256": pattern.sha256()}
        super().__init__(config, iterations, kept, **about, objective=objective._asdict())
        self.pattern, self.objective, self._first = pattern, objective, seed * SEEDS_OF_A_RUN

    def seeds(self, number: int) -> range:
        """Of an iteration's worlds; with copies some are left out."""
        first = self._first + number * self.agent.config.workers
        return range(first, first + self.agent.config.workers)

    def round(self) -> Figures:
        """One iteration: mean reward with exploration; every other one also without, on validation worlds."""
        iteration, config = len(self.curve), self.agent.config
        drawn = [self.seeds(iteration)[worker // config.copies] for worker in range(config.workers)]
        loop = DeferralWorlds(generate(self.pattern, drawn), self.objective)
        self.update(rollout(self.agent, loop), iteration)
        figures = {"reward": float(loop.outcome().reward.mean())}
        if iteration % EVERY == EVERY - 1:
            figures["validation"] = self.score(self.agent.policy("learned"), WATCHED)
        return figures

    def networks(self, stem: Path) -> dict[str, Any]:
        """Network and auxiliary module in one file, and how they score the jobs of the golden views."""
        names = {"jobs": {0: "worlds", 1: "jobs"}, "summary": {0: "worlds"}, "memory": {0: "worlds"}}
        free = names | {"scores": {0: "worlds", 1: "jobs"}, "next_memory": {0: "worlds"}}
        view = next(golden_views())
        memory = np.zeros((1, Auxiliary.memory), dtype=np.float32)
        examples = {"jobs": job_features(view), "summary": summary_features(view), "memory": memory}
        path = stem.with_name(f"{stem.name}.onnx")
        digest, _ = write_network(ExportedAgent(self.agent), path, examples, ["scores", "next_memory"], free)
        skip, slot_s = self.agent.config.skip, self.pattern.slot_s
        made = LearnedDeferral(stem.name, runner(path), Auxiliary.memory, skip, slot_s)
        return {
            "slot_s": slot_s,
            "memory": Auxiliary.memory,
            "skip": skip,
            "features_sha256": feature_hash(),
            "onnx_sha256": digest,
            "golden": golden_scores(made).round(6).tolist(),
        }

    def rivals(self, card: Path) -> dict[str, DeferralPolicy]:
        """The trained policy and three rules."""
        return {card.stem: policies.load("defer", str(card))} | {
            rule: policies.load("defer", rule) for rule in RIVALS
        }

    def score(self, rival: DeferralPolicy, seeds: Sequence[int]) -> float:
        """Mean reward of a world."""
        worlds = generate(self.pattern, seeds)
        return round(float(simulate(worlds, rival, self.objective).reward.mean()), 2)

    def update(self, batch: Steps, iteration: int) -> None:
        """One iteration's updates."""
        for adam in (self.adam, self.auxiliary_adam):
            for group in adam.param_groups if adam else ():
                first, last = group["rates"]
                group["lr"] = first + (last - first) * min(1.0, iteration / max(1, self.rounds - 1))
        if self.agent.config.algorithm == "reinforce":
            self._reinforce(batch)
        else:
            self._ppo(batch)
        if self.auxiliary_adam is not None:
            self._predict(batch)

    def _ppo(self, batch: Steps) -> None:
        config = self.agent.config
        gain, target = advantages(batch, config.gamma, config.trace)
        gain = normalised(less_luck(gain, config.copies))
        flat = [x.flatten(0, 1) for x in (*batch[:5], gain, target)]
        for _ in range(config.epochs):
            for rows in minibatches(flat[0], config.minibatch):
                jobs, extra, startable, action, before, gains, targets = (rows(x) for x in flat)
                mean, deviation, value = self.agent.network(jobs, extra)
                ratio = (log_chance(mean, deviation, action, startable) - before).exp()
                clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
                policy = -torch.minimum(ratio * gains, clipped * gains).mean()  # OSDEC eq. 8
                self._descend(policy + (value - targets).square().mean())  # eq. 9

    def _reinforce(self, batch: Steps) -> None:
        """Monte-Carlo returns, less their mean over the worlds in the same slot (Williams 1992)."""
        gain, _ = advantages(
            batch._replace(value=torch.zeros_like(batch.value)), self.agent.config.gamma, 1.0
        )
        gain = normalised(less_luck(gain - gain.mean(dim=1, keepdim=True), self.agent.config.copies))
        flat = [x.flatten(0, 1) for x in (batch.jobs, batch.extra, batch.startable, batch.action, gain)]
        for rows in minibatches(flat[0], self.agent.config.minibatch):
            jobs, extra, startable, action, gains = (rows(x) for x in flat)
            mean, deviation, _ = self.agent.network(jobs, extra)
            self._descend(-(log_chance(mean, deviation, action, startable) * gains).mean())

    def _descend(self, loss: Tensor) -> None:
        descend(self.adam, loss, list(self.agent.network.parameters()), 0.5)

    def _predict(self, batch: Steps) -> None:
        """Mean squared error of the next slot's summary, through the whole sequence."""
        assert self.agent.auxiliary is not None and self.auxiliary_adam is not None
        memory = torch.zeros(batch.summary.shape[1], Auxiliary.memory)
        guesses = []
        for summary in batch.summary[:-1]:
            _, _, guess, memory = self.agent.auxiliary(summary, memory)
            guesses.append(guess)
        loss = (torch.stack(guesses) - batch.summary[1:, :, :TARGETS]).square().mean()
        descend(self.auxiliary_adam, loss)


def evaluate(
    agent: Agent,
    pattern: DeferralPattern,
    seeds: range,
    objective: Objective = Objective(),  # noqa: B008
) -> DeferralOutcome:
    """Mean scores, without exploration noise, on each seed."""
    return simulate(generate(pattern, seeds), agent.policy("learned"), objective)
