"""The trainer of OSDEC and its variants: configuration, rollout, update, loop.

One iteration: 16 worlds of 128 slots are gone through (2,048 steps, the paper's batch), then the networks
are updated on minibatches of 64 steps. Worlds are whole, so nothing is bootstrapped at their ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import Floats, Floats32
from edgewise.core.deferral import CapacityView, Objective
from edgewise.core.keyed import Key
from edgewise.learn.defer.networks import Auxiliary, PolicyNetwork
from edgewise.model.deferrable import DeferralPattern
from edgewise.policies.defer.choose import choose
from edgewise.policies.defer.features import TARGETS, job_features, summary_features
from edgewise.policies.defer.learned import LearnedDeferral
from edgewise.sim.slots.defer import DeferralOutcome, DeferralWorlds, simulate
from edgewise.workloads.deferrable import generate

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
SEEDS_OF_A_RUN = 20_000  # training seeds that run r draws its worlds from


@dataclass(frozen=True, slots=True)
class PpoConfig:
    """Switches and hyper-parameters; the paper's (table 3) unless marked as ours.

    Attributes:
        algorithm: "ppo" or "reinforce".
        body: "attention", "fixed" or "pointer".
        high, low: concatenate high- and low-level auxiliary information.
        policy_rate, value_rate, auxiliary_rate: first and last learning rate, linear in between.
        gamma: discount.
        workers, minibatch: worlds of an iteration; steps of a minibatch.
        information: coefficient of the auxiliary information.
        trace, clip, epochs: λ of GAE, ε of PPO, passes over a batch (ours).
        reward_unit: rewards are divided by it (ours).
        copies: workers that go through the same world. What their mean gains in a slot is luck of the
            world, not of the choice, and is subtracted from the advantage (ours; 1 does nothing).
        shaped: revenue is paid while a job runs instead of when it starts, by a potential, so that
            what is optimal stays so (ours).
        skip: go on past a job that does not fit, where OSDEC stops (ours).
        deviation: σ before training; None leaves it to the weights, which make it about 0.7 (ours).
    """

    algorithm: str = "ppo"
    body: str = "attention"
    high: bool = False
    low: bool = False
    policy_rate: tuple[float, float] = (1e-4, 1e-5)
    value_rate: tuple[float, float] = (2e-4, 2e-5)
    auxiliary_rate: tuple[float, float] = (1e-2, 1e-3)
    gamma: float = 0.99
    workers: int = 16
    minibatch: int = 64
    information: float = 10.0
    trace: float = 0.95
    clip: float = 0.2
    epochs: int = 4
    reward_unit: float = 30.0
    copies: int = 1
    deviation: float | None = None
    shaped: bool = False
    skip: bool = False


VARIANTS = {
    "reinforce": PpoConfig(algorithm="reinforce"),
    "ppo-mlp": PpoConfig(body="fixed"),
    "pointer-net": PpoConfig(body="pointer"),
    "ppo-att": PpoConfig(),
    "ppo-att-auxh": PpoConfig(high=True),
    "ppo-att-auxl": PpoConfig(low=True),
    "osdec": PpoConfig(high=True, low=True),
    "osdec-skip": PpoConfig(high=True, low=True, skip=True),
}


def tuned(config: PpoConfig) -> PpoConfig:
    """The same method with our recipe: learns in a minute what the paper's rates do not in ten.

    Larger rates, less exploration, four workers on each world, revenue paid while jobs run, a discount that
    looks five slots ahead, auxiliary information as it is (times 1).
    """
    return replace(
        config,
        policy_rate=(2e-3, 2e-4),
        value_rate=(2e-3, 2e-4),
        gamma=0.8,
        information=1.0,
        epochs=2,
        reward_unit=100.0,
        copies=4,
        shaped=True,
        deviation=0.2,
    )


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


class Agent:
    """Network and auxiliary module of one run.

    Args:
        config: of the run.
        seed: of the weights and of exploration.
    """

    def __init__(self, config: PpoConfig, seed: int) -> None:
        torch.manual_seed(seed)
        self.config = config
        self.auxiliary = Auxiliary() if config.high or config.low else None
        self.network = PolicyNetwork(config.body, 5 * (config.high + config.low), deviation=config.deviation)

    def extra(self, summary: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Auxiliary information (B, 0, 5 or 10) and the new memory (B, H)."""
        if self.auxiliary is None:
            return summary[:, :0], memory
        low, high, _, memory = self.auxiliary(summary, memory)
        parts = [part for part, used in ((high, self.config.high), (low, self.config.low)) if used]
        return self.config.information * torch.cat(parts, dim=1), memory

    def policy(self, name: str) -> LearnedDeferral:
        """The agent without exploration noise, as a deferral policy."""

        def infer(jobs: Floats32, summary: Floats32, memory: Floats32) -> tuple[Floats32, Floats32]:
            with torch.no_grad():
                extra, after = self.extra(torch.from_numpy(summary), torch.from_numpy(memory))
                mean, _, _ = self.network(torch.from_numpy(jobs), extra)
            return mean.numpy(), after.numpy()

        return LearnedDeferral(name, infer, Auxiliary.memory, self.config.skip)


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
    left: Floats = (view.demand[:, :, 0] * slots).sum(axis=1)
    return left


def log_chance(mean: Tensor, deviation: Tensor, action: Tensor, startable: Tensor) -> Tensor:
    """(B,) log-density of the scores of startable jobs; the others decide nothing."""
    off = (action - mean) / deviation
    density = -0.5 * off.square() - deviation.log() - HALF_LOG_TAU
    total: Tensor = (density * startable).sum(dim=1)
    return total


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


class PpoTrainer:
    """Optimisers of one run.

    Args:
        agent: what learns.
        iterations: over which the learning rates fall.
    """

    def __init__(self, agent: Agent, iterations: int) -> None:
        config, network = agent.config, agent.network
        self.agent, self.iterations = agent, iterations
        value = list(network.value.parameters())
        rest = [p for name, p in network.named_parameters() if not name.startswith("value.")]
        groups = [
            {"params": rest, "rates": config.policy_rate},
            {"params": value, "rates": config.value_rate},
        ]
        self.adam = torch.optim.Adam(groups, lr=config.policy_rate[0])
        self.auxiliary_adam = (
            None
            if agent.auxiliary is None
            else torch.optim.Adam([{"params": agent.auxiliary.parameters(), "rates": config.auxiliary_rate}])
        )

    def update(self, batch: Steps, iteration: int) -> None:
        """One iteration's updates."""
        for adam in (self.adam, self.auxiliary_adam):
            for group in adam.param_groups if adam else ():
                first, last = group["rates"]
                group["lr"] = first + (last - first) * min(1.0, iteration / max(1, self.iterations - 1))
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
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.agent.network.parameters(), 0.5)
        self.adam.step()

    def _predict(self, batch: Steps) -> None:
        """Mean squared error of the next slot's summary, through the whole sequence."""
        assert self.agent.auxiliary is not None and self.auxiliary_adam is not None
        memory = torch.zeros(batch.summary.shape[1], Auxiliary.memory)
        guesses = []
        for summary in batch.summary[:-1]:
            _, _, guess, memory = self.agent.auxiliary(summary, memory)
            guesses.append(guess)
        loss = (torch.stack(guesses) - batch.summary[1:, :, :TARGETS]).square().mean()
        self.auxiliary_adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.auxiliary_adam.step()


class Progress(NamedTuple):
    """One line of a training curve: iteration, mean reward of a trajectory with exploration, seconds."""

    iteration: int
    reward: float
    elapsed_s: float


def train(
    config: PpoConfig,
    pattern: DeferralPattern,
    seed: int,
    iterations: int,
    objective: Objective = Objective(),  # noqa: B008
    tell: Callable[[Progress, Agent], None] = lambda line, agent: None,
) -> tuple[Agent, list[Progress]]:
    """Train one run.

    Args:
        seed: of the run, 0 … 19; its worlds are training seeds that no other run uses.
        iterations: of `workers` worlds each.
    Raises:
        ValueError: the run would leave the training seeds.
    """
    if not 0 <= seed < 20 or iterations * config.workers > SEEDS_OF_A_RUN:
        raise ValueError(
            f"seed {seed}, {iterations} iterations: need seed 0 … 19 and at most 1250 iterations"
        )
    started, agent = time.perf_counter(), Agent(config, seed)
    trainer, curve = PpoTrainer(agent, iterations), []
    for iteration in range(iterations):
        first = seed * SEEDS_OF_A_RUN + iteration * config.workers
        drawn = [first + worker // config.copies for worker in range(config.workers)]
        loop = DeferralWorlds(generate(pattern, drawn), objective)
        batch = rollout(agent, loop)
        trainer.update(batch, iteration)
        reward = float(loop.outcome().reward.mean())
        curve.append(Progress(iteration, reward, time.perf_counter() - started))
        tell(curve[-1], agent)
    return agent, curve


def evaluate(
    agent: Agent,
    pattern: DeferralPattern,
    seeds: range,
    objective: Objective = Objective(),  # noqa: B008
) -> DeferralOutcome:
    """Mean scores, without exploration noise, on each seed."""
    policy = agent.policy("learned")
    policy.reset(Key(0))
    return simulate(generate(pattern, seeds), policy, objective)
