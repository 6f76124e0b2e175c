"""cMMAC: a dispatcher at each site, one critic for all in training            (KaiS, section III-A).

As the paper says: L = (V(s_t) - (u_{t+1} + γ V'(s_{t+1})))² (its Σ_a π multiplies a term without a),
A = u_{t+1} + γ V'(s_{t+1}) - V(s_t), ∇ log π · A. Sites share the actor's weights and differ by a one-hot
entry. Where the paper says nothing, or what it says does not learn in short trainings:

    V'          becomes V after every frame (paper: every episode), since V sees one slot further each time;
                in the first episode only V learns
    advantages  of a frame are centred and scaled: the lag of V' gives all of them one sign, which makes
                whatever was drawn more likely
    entropy     has a small bonus: the cloud is always allowed, and a policy that only knows the cloud
                learns nothing more

Options of ours:

    scored   one small network scores every station from features of that station; any number of nodes
    gae      λ > 0: generalised advantages (Schulman et al. 2016) instead of one step
    clip     > 0: PPO's clipped ratio over several epochs (Schulman et al. 2017)
    reward   "rate": requests in time less those not, over the mean of what ends, less what forwarding costs
    own      > 0: the dispatched request's own fate, known at the end of the frame, counts besides; its
             chance of success, judged from the site's state, is taken off. Only training knows it.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.orchestrate import HOLD, ReplicaView, SlotResult, context_mask, hosts
from edgewise.learn.games.services import shared_reward
from edgewise.learn.harness import descend
from edgewise.model.orchestration import System
from edgewise.policies.cards import runner
from edgewise.policies.requests.features import (
    STATION_FEATURES,
    StationRows,
    local_state,
    squash,
    station_rows,
)
from edgewise.policies.requests.learned import LearnedDispatch, golden_of
from edgewise_studies.training.kais.networks import MASKED, Actor, Critic, Scorer, layers, write_half

SETTLING_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class DispatchConfig:
    """Of the dispatcher; the paper's unless marked as ours.

    Attributes:
        scored: ours; see the module.
        context: "resources": F of the paper; "hosts": also nodes that host the service and are full (ours).
        rate: of Adam.
        gamma: discount of a slot; the paper has no figure, its public demo 0.9, which sees ten slots ahead.
        balance: ε, the weight of load balancing in the reward.
        reward: "paper" or "rate" (ours).
        forwarding: what a byte sent to another site or the cloud costs, in "rate", per mean payload.
        own: weight of the request's own fate (ours); see the module.
        gae, clip, epochs: ours; 0, 0, 1 is the paper's rule.
        entropy: weight of the bonus (ours).
        printed: as the paper prints it, without what the module lists: V' becomes V after an episode, V has
            no episode for itself, advantages stay as they are. The bonus is set by `entropy` all the same.
        minibatch: slots of all worlds in one step of Adam.
    """

    scored: bool = False
    context: str = "resources"
    rate: float = 5e-4
    gamma: float = 0.97
    balance: float = 1.0
    reward: str = "paper"
    forwarding: float = 0.0
    own: float = 0.0
    gae: float = 0.0
    clip: float = 0.0
    epochs: int = 1
    entropy: float = 0.2
    printed: bool = False
    minibatch: int = 20


IMPROVED = DispatchConfig(
    scored=True,
    context="hosts",
    reward="rate",
    forwarding=0.02,
    own=2.0,
    gamma=0.98,
    gae=0.95,
    clip=0.2,
    epochs=2,
    entropy=0.002,
)


class SlotInputs(NamedTuple):
    """What a slot's decision was made from.

    Attributes:
        local: (W, B, D) local states.
        cloud: (W, E) the cloud's queue by service.
        allowed: (W · B, N + 1) context mask; the cloud where there is no request.
        present: (W · B,) sites with a request.
        rows: of every allowed station, for a scored actor.
    """

    local: Tensor
    cloud: Tensor
    allowed: Tensor
    present: Tensor
    rows: StationRows | None


def reward_of(config: DispatchConfig, result: SlotResult, forwarded: Floats, expected: float) -> Floats:
    """(W,) reward of a slot.

    Args:
        forwarded: (W,) payloads sent to another site or to the cloud, in mean payloads.
        expected: requests that end in a slot on average, for "rate".
    """
    if config.reward == "paper":
        return shared_reward(result, config.balance)
    return (result.in_time - result.violated - config.forwarding * forwarded) / expected


class Dispatcher:
    """Actor, critic and what they learn from.

    Args:
        system: whose shape the networks have.
        config: of the run.
        seed: of weights and of exploration.
    """

    def __init__(self, system: System, config: DispatchConfig, seed: int) -> None:
        torch.manual_seed(seed)
        self.system, self.config = system, config
        self.state = system.services + 5 + 5 * int(np.bincount(system.site_of).max())
        self.actor: Actor | Scorer = (
            Scorer(len(STATION_FEATURES))
            if config.scored
            else Actor(self.state, system.sites, system.stations)
        )
        self.critic, self.target = (Critic(self.state, system.sites, system.services) for _ in range(2))
        self.refresh()
        self.fate = layers(self.state, (32,), 1)  # log-odds that a request ends in time
        learned = [*self.actor.parameters(), *self.critic.parameters(), *self.fate.parameters()]
        self.adam = torch.optim.Adam(learned, lr=config.rate)
        self.memory = SlotMemory()

    def refresh(self) -> None:
        """V' becomes V."""
        self.target.load_state_dict(self.critic.state_dict())

    def see(self, view: ReplicaView) -> SlotInputs:
        """Features of a slot."""
        system = self.system
        allowed = (context_mask if self.config.context == "resources" else hosts)(view)
        rows = station_rows(system, view, allowed) if self.config.scored else None
        cloud = squash((view.waiting[:, 0] + view.busy[:, 0]).astype(np.float64))
        return SlotInputs(
            torch.from_numpy(local_state(system, view)),
            torch.from_numpy(cloud.astype(np.float32)),
            torch.from_numpy(allowed.reshape(-1, system.stations)),
            torch.from_numpy((view.head >= 0).reshape(-1)),
            rows,
        )

    def chances(self, seen: list[SlotInputs]) -> Tensor:
        """(n · W · B, N + 1) log π of n slots; masked stations have about -1e9."""
        allowed = torch.cat([each.allowed for each in seen])
        if isinstance(self.actor, Scorer):
            cells = [each.rows.cell + i * each.allowed.numel() for i, each in enumerate(seen) if each.rows]
            values = torch.from_numpy(np.concatenate([each.rows.values for each in seen if each.rows]))
            logits = torch.full((allowed.numel(),), MASKED)
            logits = logits.index_put((torch.from_numpy(np.concatenate(cells)),), self.actor(values))
            logits = logits.view(allowed.shape)
            empty = ~torch.cat([each.present for each in seen])
            logits = torch.where(empty[:, None], torch.zeros(()), logits)
        else:
            local = torch.cat([each.local for each in seen])
            site = torch.eye(self.system.sites).expand(local.shape[0], -1, -1)
            logits = self.actor(torch.cat([local, site], dim=2).flatten(0, 1))
        return torch.log_softmax(logits.masked_fill(~allowed, MASKED), dim=1)

    def act(self, view: ReplicaView) -> Ints:
        """Stations drawn from π, remembered for `learn`."""
        seen = self.see(view)
        with torch.no_grad():
            chances = self.chances([seen])
            action = torch.multinomial(chances.exp(), 1).squeeze(1)
        self.memory.add(seen, action, chances.gather(1, action[:, None]).squeeze(1), view.head.copy())
        return self._stations(view, action)

    def best(self, view: ReplicaView) -> Ints:
        """The most likely stations, without exploration."""
        with torch.no_grad():
            return self._stations(view, self.chances([self.see(view)]).argmax(dim=1))

    def export(self, stem: Path) -> dict[str, Any]:
        """The actor's file, STEM.requests.onnx; what the card says of it."""
        scored = self.config.scored
        inputs = len(STATION_FEATURES) if scored else self.state + self.system.sites
        part = write_half(self.actor, stem, "requests", (inputs,), ["values"])
        said: dict[str, Any] = {"scored": scored, "context": self.config.context, "inputs": inputs}
        policy = LearnedDispatch(stem.name, runner(stem.with_name(f"{stem.name}.requests.onnx")), **said)
        return part | said | golden_of(policy, self.system.services, self.system.site_of)

    def _stations(self, view: ReplicaView, action: Tensor) -> Ints:
        return np.where(view.head >= 0, action.numpy().reshape(view.head.shape), HOLD)

    def learn(self, view: ReplicaView, fates: Floats | None = None) -> None:
        """Update the networks from what was remembered.

        Args:
            view: of the slot after it.
            fates: (W, R) 1 for requests that ended in time, 0 for those that did not, nan for others.
        """
        memory, config = self.memory, self.config
        self.memory = SlotMemory()
        states = [*memory.seen, self.see(view)]
        gain, aim = self.advantages(states, torch.stack(memory.reward))
        used = torch.stack([each.present for each in memory.seen]).view(gain.shape)
        if used.any() and not config.printed:
            gain = (gain - gain[used].mean()) / gain[used].std().clamp_min(1e-6)
        if config.own > 0.0 and fates is not None:
            gain = gain + config.own * self._own_gain(memory, fates).view(gain.shape)
        for _ in range(config.epochs):
            for chosen in self._minibatches(len(memory.seen)):
                self._descend(memory, chosen, gain[chosen], aim[chosen])

    def settle(self, view: ReplicaView) -> None:
        """Only V learns from what was remembered, in rounds after each of which V' becomes V.

        A V that sees a few slots ahead tells the actor to send everything to the cloud: nodes' use costs at
        once, and a request that is late there costs when it ends.
        """
        memory, self.memory = self.memory, SlotMemory()
        states, reward = [*memory.seen, self.see(view)], torch.stack(memory.reward)
        for _ in range(SETTLING_ROUNDS):
            _, aim = self.advantages(states, reward)
            for chosen in self._minibatches(len(memory.seen)):
                self._step(self._error([memory.seen[i] for i in chosen], aim[chosen]))
            self.refresh()

    def _minibatches(self, slots: int) -> tuple[Tensor, ...]:
        return torch.randperm(slots).chunk(math.ceil(slots / self.config.minibatch))

    def _error(self, seen: list[SlotInputs], aim: Tensor) -> Tensor:
        value = self.critic(torch.cat([s.local for s in seen]), torch.cat([s.cloud for s in seen]))
        return (value - aim.flatten(0, 1)).square().mean()

    def _step(self, loss: Tensor) -> None:
        descend(self.adam, loss, [*self.actor.parameters(), *self.critic.parameters()], 1.0)

    def advantages(self, states: list[SlotInputs], reward: Tensor) -> tuple[Tensor, Tensor]:
        """(T, W, B) advantages and targets of V; with gae = 0 the paper's, of one step."""
        with torch.no_grad():
            local, cloud = torch.cat([s.local for s in states]), torch.cat([s.cloud for s in states])
            shape = (len(states), -1, self.system.sites)
            value, later = (net(local, cloud).view(shape) for net in (self.critic, self.target))
            aim = reward[:, :, None] + self.config.gamma * later[1:]
            gain = aim - value[:-1]
            for t in reversed(range(len(gain) - 1)) if self.config.gae > 0.0 else ():
                gain[t] += self.config.gamma * self.config.gae * gain[t + 1]
            return gain, (gain + value[:-1] if self.config.gae > 0.0 else aim)

    def _own_gain(self, memory: "SlotMemory", fates: Floats) -> Tensor:
        """(T · W, B) fate of each dispatched request less its chance, 0 if unknown; learns the chance."""
        world = np.arange(fates.shape[0])[:, None]
        known = np.concatenate(
            [np.where(h >= 0, fates[world, np.maximum(h, 0)], np.nan) for h in memory.head]
        )
        fate = torch.from_numpy(known.astype(np.float32))
        odds = self.fate(torch.cat([each.local for each in memory.seen])).squeeze(2)
        here = ~fate.isnan()
        if here.any():
            loss = torch.nn.functional.binary_cross_entropy_with_logits(odds[here], fate[here])
            descend(self.adam, loss)
        return torch.where(here, fate - torch.sigmoid(odds.detach()), torch.zeros(()))

    def _descend(self, memory: "SlotMemory", chosen: Tensor, gain: Tensor, aim: Tensor) -> None:
        config, seen = self.config, [memory.seen[i] for i in chosen]
        chances = self.chances(seen)
        action = torch.cat([memory.action[i] for i in chosen])
        before = torch.cat([memory.chance[i] for i in chosen])
        now = chances.gather(1, action[:, None]).squeeze(1)
        weight = torch.cat([s.present for s in seen]).float()
        gains = gain.flatten()
        if config.clip > 0.0:
            ratio = (now - before).exp()
            worth = torch.minimum(ratio * gains, ratio.clamp(1.0 - config.clip, 1.0 + config.clip) * gains)
        else:
            worth = now * gains
        spread = -(chances.exp() * chances.clamp_min(-30.0)).sum(dim=1)
        policy = -((worth + config.entropy * spread) * weight).sum() / weight.sum().clamp_min(1.0)
        self._step(policy + self._error(seen, aim))

    def imitate(self, seen: list[SlotInputs], stations: Ints) -> None:
        """One step towards another policy's stations (n · W, B): cross entropy."""
        aim = torch.from_numpy(stations).flatten()
        chances = self.chances(seen)
        allowed = torch.cat([each.allowed for each in seen])
        usable = torch.cat([each.present for each in seen]) & (aim >= 0)
        usable &= allowed.gather(1, aim.clamp_min(0)[:, None]).squeeze(1)
        loss = -chances.gather(1, aim.clamp_min(0)[:, None]).squeeze(1)[usable].mean()
        descend(self.adam, loss)


@dataclass
class SlotMemory:
    """Slots since the last update."""

    seen: list[SlotInputs] = field(default_factory=list)
    action: list[Tensor] = field(default_factory=list)
    chance: list[Tensor] = field(default_factory=list)
    reward: list[Tensor] = field(default_factory=list)
    head: list[Ints] = field(default_factory=list)

    def add(self, seen: SlotInputs, action: Tensor, chance: Tensor, head: Ints) -> None:
        """A decision on these heads; its reward follows."""
        self.head.append(head)
        self.seen.append(seen)
        self.action.append(action)
        self.chance.append(chance)

    def earn(self, reward: Floats) -> None:
        """(W,) reward of the last decision."""
        self.reward.append(torch.from_numpy(reward.astype(np.float32)))


def forwarded(system: System, view: ReplicaView, stations: Ints) -> Floats:
    """(W,) bytes that these stations make go to the cloud or to nodes of other sites."""
    sites = np.arange(system.sites)
    away: Bools = (stations == 0) | ((stations > 0) & (system.site_of[np.maximum(stations - 1, 0)] != sites))
    return (away * view.head_payload_bytes).sum(axis=1)
