"""GPG: which nodes change in a frame, and which replica they add or remove     (KaiS, section III-B).

REINFORCE with a baseline per time: ∇ Σ_τ log π(a_τ|s_τ) (Σ_{τ' ≥ τ} u_τ' - μ_τ) (eq. 10). μ_τ is the mean
over the worlds of a batch that have the same requests: that of all worlds tells loads apart, not decisions
(input-dependent baselines, Mao et al. 2019). u = exp(-Σ_n |Q_n| / scale): without `scale`, of which the paper
knows nothing, it underflows on long queues, so that all gradients vanish. H nodes are drawn without
replacement by Gumbel top-k (Kool et al. 2019), for which log π is that of drawing them one after the other;
the paper takes the H most likely.

Bodies: "graph" (paper), "stacked" (figure 11b), "pairs" (ours: features of each node and service, every
node may change one replica in a frame).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import Floats, Ints
from edgewise.core.orchestrate import ReplicaView
from edgewise.learn.harness import descend
from edgewise.model.orchestration import System
from edgewise.policies.cards import runner
from edgewise.policies.orchestrate.learned import LearnedScaling
from edgewise.policies.requests.features import (
    PAIR_FEATURES,
    changes_possible,
    node_state,
    pair_rows,
)
from edgewise.policies.requests.learned import golden_of
from edgewise_studies.training.kais.networks import (
    MASKED,
    GraphBody,
    Orchestrator,
    Pairs,
    StackedBody,
    write_half,
)


@dataclass(frozen=True, slots=True)
class ScaleConfig:
    """Of the orchestrator; the paper's unless marked as ours.

    Attributes:
        body: see the module.
        chosen: H; "pairs" changes every node.
        rate: of Adam.
        reward: "queues" (paper) or "rate" (ours): requests in time less those not, over arrivals.
        queue_scale: requests by which Σ|Q_n| is divided.
        image_cost: of an image byte, in "rate", per byte of all payloads of the frame (ours).
        masked: impossible changes are not drawn (ours); otherwise they become l = 0.
        clip, epochs: PPO (ours); 0, 1 is the paper's rule.
        entropy: weight of the bonus (ours).
        batch: "frame", a step of Adam for each (algorithm 1, line 10), or "episode" (ours).
    """

    body: str = "graph"
    chosen: int = 2
    rate: float = 1e-3
    reward: str = "queues"
    queue_scale: float = 50.0
    image_cost: float = 0.0
    masked: bool = True
    clip: float = 0.0
    epochs: int = 1
    entropy: float = 0.0
    batch: str = "frame"


IMPROVED = ScaleConfig(
    body="pairs", rate=5e-4, reward="rate", clip=0.2, epochs=4, image_cost=0.02, batch="episode"
)


class Frame(NamedTuple):
    """One decision: network input, possible changes (W, N, 2S + 1), nodes, changes (W, H), log π (W,)."""

    state: Tensor
    possible: Tensor
    nodes: Tensor
    changes: Tensor
    chance: Tensor


class Scaler:
    """Network of the orchestrator and what it learns from.

    Args:
        system: whose shape the network has.
        config: of the run.
        seed: of weights and of exploration.
    """

    def __init__(self, system: System, config: ScaleConfig, seed: int) -> None:
        torch.manual_seed(seed + 1_000_003)
        self.system, self.config = system, config
        width = 5 + 2 * system.services
        own = [np.flatnonzero(system.site_of == b).tolist() for b in range(system.sites)]
        if config.body == "pairs":
            self.network: Orchestrator | Pairs = Pairs(len(PAIR_FEATURES))
        else:
            body = GraphBody(width, own) if config.body == "graph" else StackedBody(width, system.nodes)
            self.network = Orchestrator(body, system.services, config.chosen)
        self.adam = torch.optim.Adam(self.network.parameters(), lr=config.rate)
        self.frames: list[Frame] = []
        self.rewards: list[Tensor] = []

    def inputs(self, view: ReplicaView) -> tuple[Tensor, Tensor]:
        """Network input, and the mask of changes (W, N, 2S + 1)."""
        features = pair_rows if isinstance(self.network, Pairs) else node_state
        possible = changes_possible(self.system, view)
        if not self.config.masked:
            possible = np.ones_like(possible)
        return torch.from_numpy(features(self.system, view)), torch.from_numpy(possible)

    def act(self, view: ReplicaView) -> Ints:
        """(W, H, 2) commands drawn from π, remembered for `learn`."""
        state, possible = self.inputs(view)
        with torch.no_grad():
            nodes, logits = self._changes(state, possible, draw=True)
            flat = torch.softmax(logits, dim=2).flatten(0, 1)
            changes = torch.multinomial(flat, 1).view(nodes.shape)
            chance, _ = self.chance_of(state, possible, nodes, changes)
        self.frames.append(Frame(state, possible, nodes, changes, chance))
        return self._commands(nodes, changes)

    def best(self, view: ReplicaView) -> Ints:
        """(W, H, 2) the most likely commands."""
        with torch.no_grad():
            nodes, logits = self._changes(*self.inputs(view), draw=False)
        return self._commands(nodes, logits.argmax(dim=2))

    def export(self, stem: Path) -> dict[str, Any]:
        """The network's file, STEM.orchestrate.onnx; what the card says of it."""
        nodes, services, pairs = self.system.nodes, self.system.services, self.config.body == "pairs"
        shape = (2, services, len(PAIR_FEATURES)) if pairs else (nodes, 5 + 2 * services + 1)
        part = write_half(
            self.network, stem, "orchestrate", shape, ["values"] if pairs else ["nodes", "values"]
        )
        said = {"pairs": pairs, "masked": self.config.masked}
        infer = runner(stem.with_name(f"{stem.name}.orchestrate.onnx"))
        policy = LearnedScaling(stem.name, infer, shape=(nodes, services), **said)
        return part | said | golden_of(policy, services, self.system.site_of)

    def _changes(self, state: Tensor, possible: Tensor, draw: bool) -> tuple[Tensor, Tensor]:
        """Nodes (W, H), drawn or the most valuable, and the values of their changes (W, H, 2S + 1)."""
        if isinstance(self.network, Pairs):
            nodes = torch.arange(self.system.nodes).expand(state.shape[0], -1)
            return nodes, self.network(state).masked_fill(~possible, MASKED)
        embedded = self.network.body(state)
        values = self.network.heads.nodes(embedded)
        if draw:
            values = values - torch.log(-torch.log(torch.rand_like(values).clamp(1e-9, 1 - 1e-7)))
        nodes = values.topk(self.config.chosen, dim=1).indices
        return nodes, self._masked(self.network.scales(embedded, nodes), possible, nodes)

    def earn(self, view: ReplicaView, in_time: Floats, violated: Floats, image_share: Floats) -> None:
        """Reward of the last frame.

        Args:
            view: after the frame.
            in_time, violated: (W,) requests that ended in it.
            image_share: (W,) image bytes pulled over payload bytes of the frame.
        """
        if self.config.reward == "queues":
            reward = np.exp(-view.waiting[:, 1:].sum(axis=(1, 2)) / self.config.queue_scale)
        else:
            reward = (in_time - violated) / np.maximum(in_time + violated, 1.0)
            reward = reward - self.config.image_cost * image_share
        self.rewards.append(torch.from_numpy(np.asarray(reward, dtype=np.float32)))

    def learn(self, copies: int = 1) -> None:
        """Update the network from the episode's frames, which are then forgotten.

        Args:
            copies: so many worlds, one after the other, had the same requests.
        """
        frames, config = self.frames, self.config
        back = torch.stack(self.rewards).flip(0).cumsum(0).flip(0)  # (F, W) Σ_{τ' ≥ τ} u
        alike = back.view(len(back), -1, copies if copies > 1 else back.shape[1])
        gain = (alike - alike.mean(dim=2, keepdim=True)).view(back.shape)
        if config.clip > 0.0:
            gain = gain / gain.std().clamp_min(1e-6)
        if config.batch == "episode":
            frames, gain = [Frame(*map(torch.cat, zip(*frames, strict=True)))], gain.reshape(1, -1)
        for _ in range(config.epochs):
            for frame, worth in zip(frames, gain, strict=True):
                self._descend(self._loss(frame, worth))
        self.frames, self.rewards = [], []

    def _loss(self, frame: Frame, gain: Tensor) -> Tensor:
        """-log π · gain (eq. 10), or PPO's, of one frame or several."""
        config = self.config
        chance, spread = self.chance_of(frame.state, frame.possible, frame.nodes, frame.changes)
        worth = chance * gain
        if config.clip > 0.0:
            ratio = (chance - frame.chance).clamp(-5.0, 5.0).exp()
            bounded = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
            worth = torch.minimum(ratio * gain, bounded * gain)
        return -(worth + config.entropy * spread).mean()

    def imitate(self, state: Tensor, possible: Tensor, commands: Ints) -> None:
        """One step towards another policy's first command of every node ("pairs" only)."""
        assert isinstance(self.network, Pairs)
        aim = first_changes(self.system, commands)
        usable = possible.gather(2, aim[:, :, None]).squeeze(2)
        chances = torch.log_softmax(self.network(state).masked_fill(~possible, MASKED), dim=2)
        self._descend(-chances.gather(2, aim[:, :, None]).squeeze(2)[usable].mean())

    def chance_of(
        self, state: Tensor, possible: Tensor, nodes: Tensor, changes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log π of nodes and changes, and the entropy of the changes; (R,) each."""
        if isinstance(self.network, Pairs):
            chosen = torch.zeros(state.shape[0])
            logits = self.network(state).masked_fill(~possible, MASKED)
        else:
            embedded = self.network.body(state)
            chosen = ordered_chance(self.network.heads.nodes(embedded), nodes)
            logits = self._masked(self.network.scales(embedded, nodes), possible, nodes)
        chances = torch.log_softmax(logits, dim=2)
        drawn = chances.gather(2, changes[:, :, None]).squeeze(2).sum(dim=1)
        spread = -(chances.exp() * chances.clamp_min(-30.0)).sum(dim=2).mean(dim=1)
        return chosen + drawn, spread

    @staticmethod
    def _masked(scales: Tensor, possible: Tensor, nodes: Tensor) -> Tensor:
        here = possible.gather(1, nodes[:, :, None].expand(-1, -1, possible.shape[2]))
        return scales.masked_fill(~here, MASKED)

    def _commands(self, nodes: Tensor, changes: Tensor) -> Ints:
        return torch.stack([nodes, changes - self.system.services], dim=2).numpy()

    def _descend(self, loss: Tensor) -> None:
        descend(self.adam, loss, list(self.network.parameters()), 1.0)


def ordered_chance(values: Tensor, nodes: Tensor) -> Tensor:
    """(R,) log-probability of drawing `nodes` (R, H) one after the other from softmax(values), none twice.

    Σ_k [v_{n_k} - log Σ_{n not in n_1 … n_{k-1}} exp v_n]                      (Kool et al. 2019, eq. 3)
    """
    total = torch.zeros(values.shape[0])
    left = values
    for k in range(nodes.shape[1]):
        node = nodes[:, k : k + 1]
        total = total + (values.gather(1, node) - torch.logsumexp(left, dim=1, keepdim=True)).squeeze(1)
        left = left.scatter(1, node, MASKED)
    return total


def first_changes(system: System, commands: Ints) -> Tensor:
    """(W, N) index 0 … 2S of each node's first command that changes something, S where there is none."""
    found = np.full((commands.shape[0], system.nodes), system.services, dtype=np.int64)
    for k in reversed(range(commands.shape[1])):
        world = np.flatnonzero(commands[:, k, 1] != 0)
        found[world, commands[world, k, 0]] = commands[world, k, 1] + system.services
    return torch.from_numpy(found)
