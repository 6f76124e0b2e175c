"""Two time scales at once: a frame of slots for the dispatcher, then one step of the orchestrator.

    for each episode                       one batch of worlds, seeds that no other episode has
        for each frame
            the orchestrator changes replicas
            for each slot: every site dispatches
            the dispatcher learns from the frame; V' becomes V
        the orchestrator learns from the episode

Either half may be a fixed policy.

Both halves found by the cross-entropy method (Rubinstein 1999) on whole worlds: ours.

Policy gradients need many worlds to see what a decision did to all others. A score of stations that is linear
in their features, and the terms of `MarginalValue`, are 31 numbers, few enough to try: draw vectors from a
normal distribution, keep the best quarter by the goal, fit the distribution to them. Both run inside the
compiled engine, so that a world of 1,000 slots takes about 7 ms.

    goal = throughput rate - price · cost bytes / payload bytes

Every candidate of a generation gets the same worlds; every generation has worlds of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from edgewise import policies
from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaPolicy, ReplicaView, RequestPolicy
from edgewise.errors import RunError
from edgewise.learn.harness import Figures, Tell, silent
from edgewise.policies.orchestrate.marginal import TERMS, MarginalValue, Terms
from edgewise.policies.requests import KernelDispatch
from edgewise.policies.requests.features import STATION_FEATURES
from edgewise.policies.requests.learned import feature_hash, golden_of
from edgewise.policies.requests.rules import Weighted
from edgewise.sim.slots.replica_state import DROPPED, IN_TIME, LATE
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome, simulate
from edgewise_studies.training.kais import cmmac, gpg
from edgewise_studies.training.kais.cmmac import DispatchConfig, Dispatcher, forwarded, reward_of
from edgewise_studies.training.kais.gpg import ScaleConfig, Scaler
from edgewise_studies.training.kais.judged import Fixed, HalvesTrainer
from edgewise_studies.training.kais.settings import TrainingSetting

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
        halves = {"requests": self.dispatcher, "orchestrate": self.scaler}
        parts = {name: half.export(stem) for name, half in halves.items() if half is not None}
        return {"features_sha256": feature_hash(), **parts}

    def found(self, card: Path) -> Fixed:
        """Policies of the card; the fixed one where nothing was learned."""
        dispatch, scale = self.fixed
        if self.dispatcher is not None:
            dispatch = policies.load("requests", str(card))
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
        if self.dispatcher is not None and self.dispatcher.config.printed:
            self.dispatcher.refresh()
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
        elif self.dispatcher is not None and self.dispatcher.config.printed:
            self.dispatcher.learn(worlds.view)
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


def untrained() -> Fixed:
    """What runs in place of a half that does not learn, where the paper's networks are trained."""
    return Fixed(policies.load("requests", "greedy"), policies.load("orchestrate", "none"))


def train_keeping_best(
    training: Training, saved: Path, best: Path, better: Callable[[], bool], tell: Tell = silent
) -> None:
    """Train to the end, or go on with what is saved; `best` is of the last episode that was `better`."""
    if saved.exists():
        training.load(saved)

    def keep(figures: Figures) -> None:
        tell(figures)
        training.save(saved)
        if better():
            training.save(best)

    training.train(keep)


def fates_of(worlds: ReplicaWorlds) -> Floats:
    """(W, R) 1 for requests that ended in time, 0 for late and dropped ones, nan for those under way."""
    state = worlds.state.truth.request["state"]
    return np.where(state == IN_TIME, 1.0, np.where((state == LATE) | (state == DROPPED), 0.0, np.nan))


WEIGHTS = len(STATION_FEATURES) + 1
KNOWN_WORLDS = 64  # whose arrivals tell what is known beforehand
FIRST = {
    "station is the cloud": 1.5,
    "station belongs to the site": 0.3,
    "waiting requests of the service": -1.0,
    "waiting requests of all services": -1.0,
    "free cores": 1.0,
    "room: deadline less way, wait and service time": 0.5,
    "fits now: a free replica, cores and memory": 4.0,
}


@dataclass(frozen=True, slots=True)
class EvolveConfig:
    """Of the search.

    Attributes:
        half: "both", "requests" (replicas by GSP-SS) or "orchestrate" (the first dispatch): what is searched.
        generations, population, best: how long, candidates, how many are kept.
        worlds: of a generation.
        width: first standard deviation; of logarithms for terms.
        price: of as many cost bytes as there are payload bytes, in rate.
        seed: of the search and its worlds, 0 … 19.
    """

    half: str = "both"
    generations: int = 40
    population: int = 24
    best: int = 6
    worlds: int = 16
    width: float = 0.5
    price: float = 0.6
    seed: int = 0


class Demand(NamedTuple):
    """(S,) arrivals per second and mean service time of each service, from training worlds."""

    rate_qps: Floats
    time_s: Floats


def known_beforehand(setting: TrainingSetting, seeds: Sequence[int]) -> Demand:
    """What worlds of these seeds say of the setting's services."""
    drawn, services = setting.draw(seeds), setting.system.services
    real = np.arange(drawn.arrival_s.shape[1]) < drawn.count[:, None]
    number = np.bincount(drawn.service[real], minlength=services)
    total_s = np.bincount(drawn.service[real], weights=drawn.service_s()[real], minlength=services)
    horizon_s = setting.slots * setting.system.slot_s * len(seeds)
    return Demand(number / horizon_s, np.where(number > 0, total_s / np.maximum(number, 1), 1.0))


def first_vector() -> Floats:
    """Dispatch that fills free stations and avoids queues; the terms' defaults, as logarithms."""
    weights = np.array([FIRST.get(name, 0.0) for name in STATION_FEATURES] + [np.log(0.3)])
    return np.concatenate([weights, np.log(Terms().vector())])


def policies_of_vector(vector: Floats, known: Demand, name: str) -> tuple[Weighted, MarginalValue]:
    """Dispatch and orchestration of a vector."""
    terms = Terms(*np.exp(vector[WEIGHTS:]).tolist())
    return Weighted(vector[:WEIGHTS], name), MarginalValue(terms, known.rate_qps, known.time_s, name)


def goal_of(outcome: ServiceOutcome, price: float) -> float:
    """See the module."""
    payload = float(outcome.forwarded_bytes.sum() + outcome.local_bytes.sum())
    rate = float(np.nanmean(outcome.throughput_rate))
    return rate - price * float(outcome.cost_bytes.sum()) / max(payload, 1.0)


class Search(HalvesTrainer):
    """A search and how far it is.

    Args:
        setting: what is searched on.
        config: how.
    Attributes:
        mean: of the vectors: (weights,) of dispatch, then logarithms of orchestration's terms.
        known: what the setting's services are like.
    Raises:
        RunError: the seed is not 0 … 19, or the search would need more seeds than one has.
    """

    headline = "goal"

    def __init__(self, setting: TrainingSetting, config: EvolveConfig) -> None:
        super().__init__(setting, config, config.generations, config.worlds, ("rng", "mean", "width"))
        self.config = config
        self.rng = np.random.default_rng(config.seed)
        self.mean = first_vector()
        self.width = np.full(self.mean.size, config.width)
        fixed = {"requests": slice(WEIGHTS, None), "orchestrate": slice(0, WEIGHTS), "both": slice(0, 0)}
        self.width[fixed[config.half]] = 0.0
        first = self.seeds(0).start
        self.known = known_beforehand(setting, range(first, first + KNOWN_WORLDS))

    def round(self) -> Figures:
        """One generation: goal of the mean and of the best candidate."""
        goals = self._generation(len(self.curve))
        return {"goal": float(goals[0]), "best": float(goals.max())}

    def networks(self, stem: Path) -> dict[str, Any]:
        """Parameters of both halves: weights of a linear score, and terms; neither needs an ONNX file."""
        dispatch, scale = policies_of_vector(self.mean, self.known, stem.name)
        services = self.setting.system.services
        weights = {"weights": self.mean[:WEIGHTS].round(9).tolist()}
        found: dict[str, Any] = {"requests": weights | golden_of(dispatch, services)}
        if self.config.half != "requests":
            known = {key: value.round(9).tolist() for key, value in self.known._asdict().items()}
            said = dict(zip(TERMS, np.exp(self.mean[WEIGHTS:]).round(9).tolist(), strict=True))
            found["orchestrate"] = {"terms": said, **known, **golden_of(scale, services)}
        return {"features_sha256": feature_hash(), **found}

    def found(self, card: Path) -> Fixed:
        """What the vector in the middle decides."""
        return Fixed(*self.policies(self.mean, card.stem))

    def _generation(self, number: int) -> Floats:
        config, seeds = self.config, self.seeds(number)
        drawn = self.setting.draw(seeds)
        candidates = self.mean + self.width * self.rng.standard_normal((config.population, self.mean.size))
        candidates[0] = self.mean
        goals = np.empty(config.population)
        for i, vector in enumerate(candidates):
            worlds = ReplicaWorlds(self.setting.system, drawn, self.setting.slots, seeds)
            goals[i] = goal_of(simulate(worlds, *self.policies(vector)), config.price)
        kept = candidates[np.argsort(-goals)[: config.best]]
        floor = np.where(self.width > 0.0, 0.03, 0.0)
        self.mean = 0.3 * self.mean + 0.7 * kept.mean(axis=0)
        self.width = np.maximum(0.5 * self.width + 0.5 * kept.std(axis=0), floor)
        return goals

    def policies(self, vector: Floats, name: str = "evolved") -> tuple[RequestPolicy, ReplicaPolicy]:
        """Dispatch and orchestration of a vector; the half that is not searched is a baseline."""
        dispatch, scale = policies_of_vector(vector, self.known, name)
        if self.config.half == "requests":
            return dispatch, policies.load("orchestrate", "gsp-ss")
        return dispatch, scale
