"""Two time scales at once: a frame of slots for the dispatcher, then one step of the orchestrator.

    for each episode                       one batch of worlds, seeds that no other episode has
        for each frame
            the orchestrator changes replicas
            for each slot: every site dispatches
            the dispatcher learns from the frame; V' becomes V
        the orchestrator learns from the episode

Either half may be a fixed policy. A training that was stopped goes on from its last episode exactly as it
would have: weights, optimisers and the generator are saved together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from edgewise.arrays import Floats, Ints
from edgewise.core.orchestration import ReplicaPolicy, ReplicaView, RequestPolicy
from edgewise.errors import RunError
from edgewise.learn.orchestration.cmmac import DispatchConfig, Dispatcher, forwarded, reward_of
from edgewise.learn.orchestration.gpg import ScaleConfig, Scaler
from edgewise.learn.orchestration.settings import TrainingSetting
from edgewise.policies.dispatch.requests import KernelDispatch
from edgewise.sim.slots.replica_state import DROPPED, IN_TIME, LATE
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome, simulate

SEEDS_OF_A_RUN = 20_000  # training seeds that run r draws its worlds from


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


class Fixed(NamedTuple):
    """Policies that are not learned, or are imitated first."""

    dispatch: RequestPolicy
    scale: ReplicaPolicy


class EpisodeLine(NamedTuple):
    """One episode: throughput rate with exploration, bytes of dispatch and images a world, seconds so far."""

    episode: int
    rate: float
    cost_bytes: float
    elapsed_s: float


class Training:
    """Agents of one training and how far they are.

    Args:
        setting: what is trained on.
        config: how.
        fixed: policies in place of a half that does not learn; both are imitated in warm episodes.
    Raises:
        RunError: the seed is not 0 … 19, the training would need more seeds than one has, or copies do not
            divide worlds.
    """

    def __init__(self, setting: TrainingSetting, config: TrainingConfig, fixed: Fixed) -> None:
        if config.copies < 1 or config.worlds % config.copies:
            raise RunError(f"copies {config.copies}: must divide the {config.worlds} worlds of an episode")
        if not 0 <= config.seed < 20 or config.worlds * config.episodes > SEEDS_OF_A_RUN:
            raise RunError(
                f"seed {config.seed}, {config.episodes} episodes of {config.worlds} worlds: need seed 0 … 19 "
                f"and at most {SEEDS_OF_A_RUN} worlds"
            )
        torch.set_num_threads(1)
        self.setting, self.config, self.fixed = setting, config, fixed
        system = setting.system
        self.dispatcher = Dispatcher(system, config.dispatch, config.seed) if config.dispatch else None
        self.scaler = Scaler(system, config.scale, config.seed) if config.scale else None
        self.curve: list[EpisodeLine] = []
        torch.manual_seed(config.seed)

    def seeds(self, episode: int) -> range:
        """Of an episode's worlds, each of which is there `copies` times."""
        distinct = self.config.worlds // self.config.copies
        first = self.config.seed * SEEDS_OF_A_RUN + episode * distinct
        return range(first, first + distinct)

    def train(self, tell: Callable[[EpisodeLine], None] = lambda line: None) -> list[EpisodeLine]:
        """All episodes that are left; `tell` hears of each."""
        started = time.perf_counter() - (self.curve[-1].elapsed_s if self.curve else 0.0)
        while len(self.curve) < self.config.episodes:
            episode = len(self.curve)
            outcome = self._episode(episode)
            rate, cost = float(outcome.throughput_rate.mean()), float(outcome.cost_bytes.sum(axis=1).mean())
            self.curve.append(EpisodeLine(episode, rate, cost, time.perf_counter() - started))
            tell(self.curve[-1])
        return self.curve

    def _episode(self, episode: int) -> ServiceOutcome:
        setting, seeds = self.setting, np.repeat(self.seeds(episode), self.config.copies).tolist()
        worlds = ReplicaWorlds(setting.system, setting.draw(seeds), setting.slots, seeds)
        for policy in self.fixed:
            policy.reset(setting.system)
        worlds.reset()
        warm = episode < self.config.warm_episodes
        while not worlds.done:
            before = worlds.outcome()
            self._frame(worlds, episode)
            if self.scaler is not None and not warm:
                self._judge(worlds.view, before, worlds.outcome())
        if self.scaler is not None and not warm:
            self.scaler.learn(self.config.copies)
        return worlds.outcome()

    def _frame(self, worlds: ReplicaWorlds, episode: int) -> None:
        """One orchestration, then all slots of the frame, then what the dispatcher learns."""
        warm = episode < self.config.warm_episodes
        learns = self.scaler is not None and not warm
        view = worlds.view
        worlds.scale(self.scaler.act(view) if self.scaler and learns else self._imitated_scale(view))
        if self.dispatcher is None and isinstance(self.fixed.dispatch, KernelDispatch):
            until = worlds.slot + self.setting.system.frame_slots
            worlds.run(self.fixed.dispatch.decide, self.fixed.dispatch.memory, until)
            return
        seen, shown = [], []
        for _ in range(self.setting.system.frame_slots):
            if self.dispatcher is not None and not warm:
                self._slot(worlds, self.dispatcher)
                continue
            shown.append(self.fixed.dispatch.dispatch(worlds.view))
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
        commands = self.fixed.scale.scale(view)
        if self.scaler is not None and self.scaler.config.body == "pairs":
            for _ in range(IMITATIONS):
                self.scaler.imitate(*self.scaler.inputs(view), commands)
        return commands

    def _judge(self, view: ReplicaView, before: ServiceOutcome, after: ServiceOutcome) -> None:
        def grown(name: str) -> Floats:
            total: Floats = getattr(after, name).sum(axis=1) - getattr(before, name).sum(axis=1)
            return total

        payload = np.maximum(grown("forwarded_bytes") + grown("local_bytes"), 1.0)
        assert self.scaler is not None
        self.scaler.earn(
            view, grown("in_time"), grown("late") + grown("dropped"), grown("image_bytes") / payload
        )

    def save(self, path: Path) -> None:
        """Everything that the rest of the training depends on.

        Raises:
            RunError: it cannot be written.
        """
        halves = {"dispatch": self.dispatcher, "scale": self.scaler}
        state: dict[str, Any] = {"config": asdict(self.config), "scenario": self.setting.name}
        state |= {"curve": [tuple(line) for line in self.curve], "generator": torch.get_rng_state()}
        state |= {name: _state_of(half) for name, half in halves.items() if half is not None}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error}; check the path and its rights") from error

    def load(self, path: Path) -> None:
        """Go on with what `save` wrote.

        Raises:
            RunError: it is of another training.
        """
        state = torch.load(path, weights_only=True)
        mine = asdict(self.config) | {"episodes": 0}
        if state["config"] | {"episodes": 0} != mine or state["scenario"] != self.setting.name:
            raise RunError(f"{path}: was made by another configuration; remove it, or use another --name")
        self.curve = [EpisodeLine(*line) for line in state["curve"]]
        for name, half in (("dispatch", self.dispatcher), ("scale", self.scaler)):
            if half is not None:
                for part, values in state[name].items():
                    getattr(half, part).load_state_dict(values)
        torch.set_rng_state(state["generator"])


PAYLOAD_BYTES = 250e3  # mean, of one forwarded request in "rate"
IMITATIONS = 16  # steps towards the orchestrator that is imitated, per frame


def fates_of(worlds: ReplicaWorlds) -> Floats:
    """(W, R) 1 for requests that ended in time, 0 for late and dropped ones, nan for those under way."""
    state = worlds.state.truth.request["state"]
    return np.where(state == IN_TIME, 1.0, np.where((state == LATE) | (state == DROPPED), 0.0, np.nan))


def _state_of(half: Dispatcher | Scaler) -> dict[str, Any]:
    names = (
        ("actor", "critic", "target", "fate", "adam") if isinstance(half, Dispatcher) else ("network", "adam")
    )
    return {name: getattr(half, name).state_dict() for name in names}


def evaluate(
    setting: TrainingSetting, dispatch: RequestPolicy, scale: ReplicaPolicy, seeds: Sequence[int]
) -> ServiceOutcome:
    """Worlds of these seeds under two policies; those that assume it are told the arrival rates (GSP-SS)."""
    drawn = setting.draw(seeds)
    for policy in (dispatch, scale):
        if hasattr(policy, "know"):
            policy.know(drawn, setting.system, setting.slots * setting.system.slot_s)
    return simulate(ReplicaWorlds(setting.system, drawn, setting.slots, seeds), dispatch, scale)
