"""One training of KaiS from beginning to end: train, save on the way, judge on validation seeds, export."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgewise import policies
from edgewise.core.orchestration import ReplicaPolicy, RequestPolicy
from edgewise.errors import EdgewiseError
from edgewise.learn.orchestration import cmmac, gpg
from edgewise.learn.orchestration.evolve import (
    WEIGHTS,
    EvolveConfig,
    Generation,
    Search,
    first_vector,
)
from edgewise.learn.orchestration.export import export, export_search
from edgewise.learn.orchestration.settings import AUTOSCALER_TARGET, TrainingSetting
from edgewise.learn.orchestration.train import EpisodeLine, Fixed, Training, TrainingConfig, evaluate
from edgewise.learn.run import events
from edgewise.policies.dispatch.requests.rules import Weighted
from edgewise.policies.orchestrate.autoscale import Autoscaler

Step = Callable[[str], None]
BASELINES = (
    ("greedy", "autoscaler"),
    ("gsp-ss", "gsp-ss"),
    ("flow", "autoscaler"),
    ("greedy", "marginal"),
)
METHODS = {
    "paper": TrainingConfig(copies=2),
    "stacked": TrainingConfig(scale=gpg.ScaleConfig(body="stacked"), copies=2),
    "improved": TrainingConfig(cmmac.IMPROVED, gpg.IMPROVED, warm_episodes=3),
}


class Choice(NamedTuple):
    """Of the command line: method, half that learns, episodes (or generations), worlds, seed."""

    method: str
    half: str
    episodes: int
    worlds: int
    seed: int


class TrainingOutput(NamedTuple):
    """Where a training goes, and who hears of it.

    Attributes:
        folder, name: of its files.
        command: that the card names.
        validation: seeds on which the result and baselines are compared.
        write: told the figures of each episode.
        step: told what goes on.
    """

    folder: Path
    name: str
    command: str
    validation: Sequence[int]
    write: Callable[[dict[str, float]], None]
    step: Step


def carried_out(
    choice: Choice,
    where: TrainingSetting,
    folder: Path,
    name: str,
    *,
    command: str,
    validation: Sequence[int],
    tensorboard: bool = False,
    step: Step = lambda text: None,
) -> Path:
    """Train, or search for the method "evolved", or go on with what the folder holds; the card.

    Args:
        command, validation, step: see `TrainingOutput`.
        tensorboard: write events into the folder.
    Raises:
        EdgewiseError: no such method or half.
        RunError: the folder holds another training of that name, or tensorboard is not installed.
    """
    method, half, episodes, worlds, seed = choice
    run: Callable[[TrainingOutput], Path]
    if method == "evolved":
        _check_half(half)
        run = partial(_evolved, where, EvolveConfig(half, episodes, worlds=worlds, seed=seed))
    else:
        run = partial(_trained, where, config_of(method, half, worlds, episodes, seed))
    write = events(folder / name) if tensorboard else lambda figures: None
    return run(TrainingOutput(folder, name, command, validation, write, step))


def config_of(method: str, half: str, worlds: int, episodes: int, seed: int) -> TrainingConfig:
    """Of the command line.

    Args:
        method: "paper", "stacked" or "improved".
        half: "both", "dispatch" or "scale": what learns.
    Raises:
        EdgewiseError: no such method or half.
    """
    if method not in METHODS:
        raise EdgewiseError(f"--method {method!r}: use one of {', '.join(METHODS)}, evolved")
    _check_half(half)
    copies = math.gcd(METHODS[method].copies, worlds)
    config = replace(METHODS[method], worlds=worlds, copies=copies, episodes=episodes, seed=seed)
    if half == "dispatch":
        return replace(config, scale=None)
    return replace(config, dispatch=None) if half == "scale" else config


def _check_half(half: str) -> None:
    if half not in ("both", "dispatch", "scale"):
        raise EdgewiseError(f"--half {half!r}: use both, dispatch or scale")


def _trained(where: TrainingSetting, config: TrainingConfig, to: TrainingOutput) -> Path:
    """Train as configured, or go on with NAME.pt in the folder; the card."""
    saved = to.folder / f"{to.name}.pt"
    training = Training(where, config, fixed())
    if saved.exists():
        training.load(saved)

    def tell(line: EpisodeLine) -> None:
        to.step(
            f"episode {line.episode + 1} of {config.episodes}, {100 * line.rate:.1f} % in time, "
            f"{line.elapsed_s:.0f} s"
        )
        to.write({"episode": line.episode, "rate": line.rate, "cost_bytes": line.cost_bytes})
        training.save(saved)

    training.train(tell)
    training.save(saved)
    return _exported(training, to)


def fixed() -> Fixed:
    """What is imitated first, and runs in place of a half that does not learn: where evolution starts."""
    return Fixed(Weighted(first_vector()[:WEIGHTS]), policies.load("orchestrate", "marginal"))


def _exported(training: Training, to: TrainingOutput) -> Path:
    """The networks and their card, with their scores and those of baselines on validation seeds."""
    about: dict[str, Any] = {
        "command": to.command,
        "scenario": training.setting.name,
        "config": asdict(training.config),
        "seeds": {"training": list(_span(training)), "validation": list(to.validation)},
        "curve": [[line.episode, round(line.rate, 5), round(line.elapsed_s, 1)] for line in training.curve],
    }
    card = export(training, to.folder, to.name, about)
    scores = _scores(training.setting, policies_of(training, card), to)
    return export(training, to.folder, to.name, about | {"scores": scores})


def _evolved(where: TrainingSetting, config: EvolveConfig, to: TrainingOutput) -> Path:
    """Search, or go on with NAME.search.json in the folder; what was found and its card, with scores."""
    saved = to.folder / f"{to.name}.search.json"
    search = Search(where, config)
    if saved.exists():
        search.load(saved)

    def tell(line: Generation) -> None:
        to.step(f"generation {line.number + 1} of {config.generations}, goal {line.goal:.4f}")
        to.write({"episode": line.number, "goal": line.goal, "best": line.best})
        search.save(saved)

    found = search.search(tell)
    first, last = search.seeds(0).start, search.seeds(config.generations - 1).stop
    about: dict[str, Any] = {
        "command": to.command,
        "scenario": where.name,
        "config": asdict(config),
        "seeds": {"training": [first, last], "validation": list(to.validation)},
        "curve": [[line.number, round(line.goal, 5), round(line.elapsed_s, 1)] for line in found],
    }
    scores = _scores(where, search.policies(search.mean), to)
    return export_search(search, to.folder, to.name, about | {"scores": scores})


def _baselines() -> dict[str, tuple[RequestPolicy, ReplicaPolicy]]:
    """By name, the autoscaler with its tuned target."""
    tuned = {"autoscaler": Autoscaler(target=AUTOSCALER_TARGET)}
    return {
        f"{a} + {b}": (
            policies.load("dispatch", a, "requests"),
            tuned.get(b) or policies.load("orchestrate", b),
        )
        for a, b in BASELINES
    }


def _scores(
    where: TrainingSetting, ours: tuple[RequestPolicy, ReplicaPolicy], to: TrainingOutput
) -> dict[str, list[float]]:
    """By name: throughput rate and bytes of a world, of what was trained and of baselines."""
    scores = {}
    for who, (dispatch, scale) in ({to.name: ours} | _baselines()).items():
        to.step(f"validation: {who}")
        outcome = evaluate(where, dispatch, scale, to.validation)
        cost = float(outcome.cost_bytes.sum(axis=1).mean())
        scores[who] = [round(float(np.nanmean(outcome.throughput_rate)), 5), round(cost)]
    return scores


def policies_of(training: Training, card: Path) -> tuple[RequestPolicy, ReplicaPolicy]:
    """What a training made, as policies from its files; a teacher where it learned nothing."""
    dispatch, scale = training.fixed.dispatch, training.fixed.scale
    if training.dispatcher:
        dispatch = policies.load("dispatch", str(card), "requests")
    if training.scaler:
        scale = policies.load("orchestrate", str(card))
    return dispatch, scale


def _span(training: Training) -> tuple[int, int]:
    """First seed, and the one after the last, of the worlds that were used."""
    return training.seeds(0).start, training.seeds(max(0, len(training.curve) - 1)).stop
