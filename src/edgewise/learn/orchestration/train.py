"""Two time scales at once: a frame of slots for the dispatcher, then one step of the orchestrator.

    for each episode                       one batch of worlds, seeds that no other episode has
        for each frame
            the orchestrator changes replicas
            for each slot: every site dispatches
            the dispatcher learns from the frame; V' becomes V
        the orchestrator learns from the episode

Either half may be a fixed policy.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise import policies
from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaView
from edgewise.errors import RunError
from edgewise.learn.harness import Figures
from edgewise.learn.orchestration import cmmac, gpg
from edgewise.learn.orchestration.cmmac import DispatchConfig, Dispatcher, forwarded, reward_of
from edgewise.learn.orchestration.gpg import ScaleConfig, Scaler
from edgewise.learn.orchestration.judged import Fixed, HalvesTrainer
from edgewise.learn.orchestration.settings import TrainingSetting
from edgewise.policies.dispatch.requests import KernelDispatch
from edgewise.policies.dispatch.requests.learned import feature_hash
from edgewise.sim.slots.replica_state import DROPPED, IN_TIME, LATE
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome

AGENTS = {
    "dispatcher": ("actor", "critic", "target", "fate", "adam"),
    "scaler": ("network", "adam"),
}  # what is saved of each
PAYLOAD_BYTES = 250e3  # mean, of one forwarded request in "rate"
IMITATIONS = 16  # steps towards the orchestrator that is imitated, per frame


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Of one training.

    Attributes:
        dispatch, scale: what learns; None keeps the fixed policy handed to `Training`.
        worlds: of an episode.
        copies: so many of them have the same requests, and differ by what is drawn from π. Their mean is
            the orchestrator's baseline: that of other requests tells loads apart, not decisions. Divides
            `worlds`.
        episodes: of the training.
        seed: of weights and worlds, 0 … 19.
        warm_episodes: ours: first so many episodes imitate the fixed policies, then learning begins.
    """

    dispatch: DispatchConfig | None = field(default_factory=DispatchConfig)
    scale: ScaleConfig | None = field(default_factory=ScaleConfig)
    worlds: int = 32
    copies: int = 1
    episodes: int = 20
    seed: int = 0
    warm_episodes: int = 0


METHODS = {
    "paper": TrainingConfig(copies=2),
    "stacked": TrainingConfig(scale=gpg.ScaleConfig(body="stacked"), copies=2),
    "improved": TrainingConfig(cmmac.IMPROVED, gpg.IMPROVED, warm_episodes=3),
}


class Training(HalvesTrainer):
    """Agents of one training and how far they are.

    Args:
        setting: what is trained on.
        config: how.
        fixed: policies in place of a half that does not learn; both are imitated in warm episodes.
    Raises:
        RunError: the seed is not 0 … 19, the training would need more seeds than one has, or copies do not
            divide worlds.
    """

    headline = "rate"

    def __init__(self, setting: TrainingSetting, config: TrainingConfig, fixed: Fixed) -> None:
        if config.copies < 1 or config.worlds % config.copies:
            raise RunError(f"copies {config.copies}: must divide the {config.worlds} worlds of an episode")
        system, seed = setting.system, config.seed
        self.config, self.fixed = config, fixed
        self.dispatcher = Dispatcher(system, config.dispatch, seed) if config.dispatch else None
        self.scaler = Scaler(system, config.scale, seed) if config.scale else None
        kept = [f"{half}.{part}" for half, parts in AGENTS.items() if getattr(self, half) for part in parts]
        super().__init__(setting, config, config.episodes, config.worlds // config.copies, kept)
        torch.manual_seed(seed)

    def networks(self, stem: Path) -> dict[str, Any]:
        """Those of both halves that learned."""
        halves = {"dispatch": self.dispatcher, "scale": self.scaler}
        parts = {name: half.export(stem) for name, half in halves.items() if half is not None}
        return {"features_sha256": feature_hash(), **parts}

    def found(self, card: Path) -> Fixed:
        """Policies of the card; the fixed one where nothing was learned."""
        dispatch, scale = self.fixed
        if self.dispatcher is not None:
            dispatch = policies.load("dispatch", str(card), "requests")
        if self.scaler is not None:
            scale = policies.load("orchestrate", str(card))
        return Fixed(dispatch, scale)

    def round(self) -> Figures:
        """One episode: throughput rate with exploration, bytes of dispatch and images a world."""
        episode = len(self.curve)
        setting, seeds = self.setting, np.repeat(self.seeds(episode), self.config.copies).tolist()
        worlds = ReplicaWorlds(setting.system, setting.draw(seeds), setting.slots, seeds)
        for policy in self.fixed:
            policy.reset(setting.system, Key(0))
        worlds.reset()
        learning = self.scaler if episode >= self.config.warm_episodes else None
        while not worlds.done:
            before = worlds.outcome()
            self._frame(worlds, episode)
            if learning is not None:
                self._judge(worlds.view, before, worlds.outcome())
        if learning is not None:
            learning.learn(self.config.copies)
        outcome = worlds.outcome()
        rate, cost_bytes = outcome.throughput_rate.mean(), outcome.cost_bytes.sum(axis=1).mean()
        return {"rate": float(rate), "cost_bytes": float(cost_bytes)}

    def _frame(self, worlds: ReplicaWorlds, episode: int) -> None:
        """One orchestration, then all slots of the frame, then what the dispatcher learns."""
        warm = episode < self.config.warm_episodes
        learns = self.scaler is not None and not warm
        view = worlds.view
        worlds.scale(self.scaler.act(view) if self.scaler and learns else self._imitated_scale(view))
        if self.dispatcher is None and isinstance(self.fixed.dispatch, KernelDispatch):
            until = worlds.slot + self.setting.system.frame_slots
            worlds.run(self.fixed.dispatch.rule, self.fixed.dispatch.memory, until)
            return
        seen, shown = [], []
        for _ in range(self.setting.system.frame_slots):
            if self.dispatcher is not None and not warm:
                self._slot(worlds, self.dispatcher)
                continue
            shown.append(self.fixed.dispatch.decide(worlds.view))
            if self.dispatcher is not None:
                seen.append(self.dispatcher.see(worlds.view))
            worlds.step(shown[-1])
        if self.dispatcher is not None and warm:
            for first in range(0, len(seen), 10):
                self.dispatcher.imitate(seen[first : first + 10], np.stack(shown[first : first + 10]))
        elif self.dispatcher is not None and episode == self.config.warm_episodes:
            self.dispatcher.settle(worlds.view)
        elif self.dispatcher is not None:
            self.dispatcher.learn(worlds.view, fates_of(worlds))
            self.dispatcher.refresh()

    def _slot(self, worlds: ReplicaWorlds, dispatcher: Dispatcher) -> None:
        view, requests = worlds.view, self.setting
        stations = dispatcher.act(view)
        away = forwarded(requests.system, view, stations) / PAYLOAD_BYTES
        result = worlds.step(stations)
        dispatcher.memory.earn(reward_of(dispatcher.config, result, away, requests.system.sites / 2.0))

    def _imitated_scale(self, view: ReplicaView) -> Ints:
        commands = self.fixed.orchestrate.decide(view)
        if self.scaler is not None and self.scaler.config.body == "pairs":
            for _ in range(IMITATIONS):
                self.scaler.imitate(*self.scaler.inputs(view), commands)
        return commands

    def _judge(self, view: ReplicaView, before: ServiceOutcome, after: ServiceOutcome) -> None:
        def grown(name: str) -> Floats:
            return getattr(after, name).sum(axis=1) - getattr(before, name).sum(axis=1)

        payload = np.maximum(grown("forwarded_bytes") + grown("local_bytes"), 1.0)
        assert self.scaler is not None
        self.scaler.earn(
            view, grown("in_time"), grown("late") + grown("dropped"), grown("image_bytes") / payload
        )


def fates_of(worlds: ReplicaWorlds) -> Floats:
    """(W, R) 1 for requests that ended in time, 0 for late and dropped ones, nan for those under way."""
    state = worlds.state.truth.request["state"]
    return np.where(state == IN_TIME, 1.0, np.where((state == LATE) | (state == DROPPED), 0.0, np.nan))
