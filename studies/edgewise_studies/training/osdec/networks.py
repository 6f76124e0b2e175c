"""OSDEC's agent and its variants: a pool of jobs in, mean and deviation of each one's confidence score out.

Three bodies: `Attention` takes any number of jobs, `FixedLength` the first N places, `Pointer` reads them
in sequence. `Auxiliary` predicts the next slot's summary from the past.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from edgewise.arrays import Floats32
from edgewise.policies.defer.rules import JOB_FEATURES, SUMMARY_FEATURES, TARGETS, LearnedDeferral

FEATURES, SUMMARY = len(JOB_FEATURES), len(SUMMARY_FEATURES)
LEAST_DEVIATION = 0.05


class Block(nn.Module):
    """Transformer encoder layer with one head                        (Vaswani et al. 2017, section 3)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.look = nn.Linear(width, 3 * width)  # query, key and value of each row
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """(B, P, D) rows that have seen each other; padding is not looked at."""
        query, key, value = self.look(x).chunk(3, dim=2)
        absent = ((present - 1.0) * 1e9)[:, None]
        weights = torch.baddbmm(absent, query, key.transpose(1, 2), alpha=x.shape[-1] ** -0.5).softmax(dim=-1)
        x = self.norm1(x + weights @ value)
        return self.norm2(x + self.feed(x))


class Attention(nn.Module):
    """Shared encoder of OSDEC (section 4.2.3): the same weights for each job, any number of jobs."""

    def __init__(self, inputs: int, width: int, layers: int = 1) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """(B, P, D)."""
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, present)
        return x


class FixedLength(nn.Module):
    """A perceptron over the first `places` jobs; later ones get nothing (the paper's "PPO")."""

    def __init__(self, inputs: int, width: int, places: int = 64) -> None:
        super().__init__()
        self.places, self.width = places, width
        self.body = nn.Sequential(
            nn.Linear(places * inputs, 64), nn.ReLU(), nn.Linear(64, places * width), nn.ReLU()
        )

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """(B, P, D)."""
        batch, jobs, inputs = x.shape
        fixed = torch.cat([x, x.new_zeros(batch, self.places, inputs)], dim=1)[:, : self.places]
        rows = self.body(fixed.flatten(1)).reshape(batch, self.places, self.width)
        nothing = torch.zeros_like(x[:, :, :1]).expand(-1, -1, self.width)  # as many as there are jobs
        return torch.cat([rows, nothing], dim=1)[:, :jobs]


class Pointer(nn.Module):
    """Pointer network (Vinyals et al. 2015): a recurrent encoder, and one query that points at the jobs.

    All scores come from a single query, not from a sequence of picks: one slot, one action.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(inputs, width, batch_first=True)
        self.rows, self.query = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """(B, P, D)."""
        encoded, (last, _) = self.encoder(x)
        return torch.tanh(self.rows(encoded) + self.query(last[0])[:, None])


class Past(nn.Module):
    """Gated recurrent unit (Cho et al. 2014), written out so that it exports to ONNX."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.input, self.hidden = nn.Linear(inputs, 3 * size), nn.Linear(size, 3 * size)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """(B, S), (B, H) → (B, H)."""
        reset_x, keep_x, new_x = self.input(x).chunk(3, dim=1)
        reset_h, keep_h, new_h = self.hidden(memory).chunk(3, dim=1)
        keep = torch.sigmoid(keep_x + keep_h)
        fresh = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        return (1.0 - keep) * fresh + keep * memory


class Auxiliary(nn.Module):
    """Predicts the next slot's capacity, mean cores, mean duration and violation       (section 4.2.2).

    A GRU over the summaries of past slots, a shared layer (low-level information) and a task layer
    (high-level information), both of dimension 5.
    """

    memory = 16

    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.past = Past(SUMMARY, self.memory)
        self.shared, self.task = nn.Linear(self.memory, size), nn.Linear(size, size)
        self.predict = nn.Linear(size, TARGETS)

    def forward(self, summary: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(B, S), (B, H) → low (B, 5), high (B, 5), prediction (B, 4), memory (B, H)."""
        memory = self.past(summary, memory)
        low = torch.tanh(self.shared(memory))
        high = torch.tanh(self.task(low))
        return low, high, self.predict(high), memory


class PolicyNetwork(nn.Module):
    """Body and heads: μ through tanh, σ through softplus, the value a mean over jobs.

    Args:
        body: "attention", "fixed" or "pointer".
        extra: figures of auxiliary information.
        width: of each job's row.
        deviation: σ before training, > LEAST_DEVIATION; None leaves it to the weights (about 0.7).
    """

    def __init__(
        self, body: str = "attention", extra: int = 0, width: int = 32, deviation: float | None = None
    ) -> None:
        super().__init__()
        bodies = {"attention": Attention, "fixed": FixedLength, "pointer": Pointer}
        if body not in bodies:
            raise ValueError(f"body {body!r}: use one of {', '.join(bodies)}")
        self.body = bodies[body](FEATURES + extra, width)
        self.mean, self.deviation = nn.Linear(width, 1), nn.Linear(width, 1)
        if deviation is not None:
            nn.init.constant_(self.deviation.bias, math.log(math.expm1(deviation - LEAST_DEVIATION)))
        self.value = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, jobs: Tensor, extra: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, P, F), (B, E) → μ (B, P), σ (B, P), value (B,)."""
        present = (jobs[:, :, 5:8].sum(dim=2) > 0.5).to(jobs.dtype)
        rows = torch.cat([jobs, extra[:, None].expand(-1, jobs.shape[1], -1)], dim=2)
        seen = self.body(rows, present)
        mean = torch.tanh(self.mean(seen)).squeeze(2)
        deviation = nn.functional.softplus(self.deviation(seen)).squeeze(2) + LEAST_DEVIATION
        value = (self.value(seen).squeeze(2) * present).sum(dim=1) / present.sum(dim=1).clamp_min(1.0)
        return mean, deviation, value


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
