"""OSDEC's agent and its variants: switches, network, and what is exported of it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from edgewise.arrays import Floats32
from edgewise.learn.defer.networks import Auxiliary, PolicyNetwork
from edgewise.policies.defer.learned import LearnedDeferral


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


class ExportedAgent(nn.Module):
    """What is exported of an agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent, self.network, self.auxiliary = agent, agent.network, agent.auxiliary

    def forward(self, jobs: Tensor, summary: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """As `LearnedDeferral` calls it."""
        extra, after = self.agent.extra(summary, memory)
        mean, _, _ = self.network(jobs, extra)
        return mean, after + 0.0 * summary[:, :1]  # keeps every input, whatever the variant reads
