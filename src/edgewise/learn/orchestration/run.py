"""One training of KaiS from beginning to end: train, save on the way, judge on validation seeds, export."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
from edgewise.learn.orchestration.export import export, export_search, load_dispatch, load_scale
from edgewise.learn.orchestration.settings import AUTOSCALER_TARGET, Setting
from edgewise.learn.orchestration.train import Config, Fixed, Line, Training, evaluate
from edgewise.learn.run import events
from edgewise.policies import orchestrate, requests
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise.policies.requests.rules import Weighted
from edgewise.sim.replicas import Outcome

Step = Callable[[str], None]
BASELINES = (
    ("greedy", "autoscaler"),
    ("gsp-ss", "gsp-ss"),
    ("flow", "autoscaler"),
    ("greedy", "marginal"),
)
METHODS = {
    "paper": Config(copies=2),
    "stacked": Config(scale=gpg.ScaleConfig(body="stacked"), copies=2),
    "improved": Config(cmmac.IMPROVED, gpg.IMPROVED, warm_episodes=3),
}


class Choice(NamedTuple):
    """Of the command line: method, half that learns, episodes (or generations), worlds, seed."""

    method: str
    half: str
    episodes: int
    worlds: int
    seed: int


def carried_out(
    choice: Choice,
    where: Setting,
    folder: Path,
    name: str,
    *,
    command: str,
    validation: Sequence[int],
    tensorboard: bool = False,
    step: Step = lambda text: None,
) -> Path:
    """`train`, or `evolved` for the method of that name; the card."""
    method, half, episodes, worlds, seed = choice
    make: Callable[..., Path]
    if method == "evolved":
        _check_half(half)
        search = EvolveConfig(half=half, generations=episodes, worlds=worlds, seed=seed)
        make = partial(evolved, where, search)
    else:
        make = partial(train, where, config_of(method, half, worlds, episodes, seed))
    return make(folder, name, command=command, validation=validation, tensorboard=tensorboard, step=step)


def config_of(method: str, half: str, worlds: int, episodes: int, seed: int) -> Config:
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


def train(
    where: Setting,
    config: Config,
    folder: Path,
    name: str,
    *,
    command: str,
    validation: Sequence[int],
    tensorboard: bool = False,
    step: Step = lambda text: None,
) -> Path:
    """Train as configured, or go on with NAME.pt in the folder; returns the path of the card.

    Args:
        command: that the card names.
        validation: seeds on which the result and baselines are compared.
        tensorboard: write events into the folder.
        step: told what goes on.
    Raises:
        RunError: NAME.pt is of another training, or tensorboard is not installed.
    """
    saved = folder / f"{name}.pt"
    training = Training(where, config, fixed())
    if saved.exists():
        training.load(saved)
    write = events(folder / name) if tensorboard else lambda figures: None

    def tell(line: Line) -> None:
        step(
            f"episode {line.episode + 1} of {config.episodes}, {100 * line.rate:.1f} % in time, "
            f"{line.elapsed_s:.0f} s"
        )
        write({"episode": line.episode, "rate": line.rate, "cost_bytes": line.cost_bytes})
        training.save(saved)

    training.train(tell)
    training.save(saved)
    return judged(training, folder, name, command, validation, step)


def fixed() -> Fixed:
    """What is imitated first, and runs in place of a half that does not learn: where evolution starts."""
    return Fixed(Weighted(first_vector()[:WEIGHTS]), orchestrate.load("marginal"))


def judged(
    training: Training, folder: Path, name: str, command: str, validation: Sequence[int], step: Step
) -> Path:
    """Export the networks, with their scores and those of baselines on validation seeds."""
    about: dict[str, Any] = {
        "command": command,
        "scenario": training.setting.name,
        "config": asdict(training.config),
        "seeds": {"training": list(_span(training)), "validation": list(validation)},
        "curve": [[line.episode, round(line.rate, 5), round(line.elapsed_s, 1)] for line in training.curve],
    }
    card = export(training, folder, name, about)
    pairs: dict[str, tuple[RequestPolicy, ReplicaPolicy]] = {name: policies_of(training, card)}
    pairs |= _baselines()
    scores = _judged(training.setting, pairs, validation, step)
    return export(training, folder, name, about | {"scores": scores})


def evolved(
    where: Setting,
    config: EvolveConfig,
    folder: Path,
    name: str,
    *,
    command: str,
    validation: Sequence[int],
    tensorboard: bool = False,
    step: Step = lambda text: None,
) -> Path:
    """Search, or go on with NAME.search.json in the folder; judge and export what was found; the card.

    Raises:
        RunError: NAME.search.json is of another search, or tensorboard is not installed.
    """
    saved = folder / f"{name}.search.json"
    search = Search(where, config)
    if saved.exists():
        search.load(saved)
    write = events(folder / name) if tensorboard else lambda figures: None

    def tell(line: Generation) -> None:
        step(f"generation {line.number + 1} of {config.generations}, goal {line.goal:.4f}")
        write({"episode": line.number, "goal": line.goal, "best": line.best})
        search.save(saved)

    found = search.search(tell)
    about: dict[str, Any] = {
        "command": command,
        "scenario": where.name,
        "config": asdict(config),
        "seeds": {
            "training": [search.seeds(0).start, search.seeds(config.generations - 1).stop],
            "validation": list(validation),
        },
        "curve": [[line.number, round(line.goal, 5), round(line.elapsed_s, 1)] for line in found],
    }
    pairs = {name: search.policies(search.mean)}
    pairs |= _baselines()
    return export_search(search, folder, name, about | {"scores": _judged(where, pairs, validation, step)})


def _baselines() -> dict[str, tuple[RequestPolicy, ReplicaPolicy]]:
    """By name, the autoscaler with its tuned target."""
    tuned = {"autoscaler": Autoscaler(target=AUTOSCALER_TARGET)}
    return {f"{a} + {b}": (requests.load(a), tuned.get(b) or orchestrate.load(b)) for a, b in BASELINES}


def _judged(
    where: Setting,
    pairs: Mapping[str, tuple[RequestPolicy, ReplicaPolicy]],
    validation: Sequence[int],
    step: Step,
) -> dict[str, list[float]]:
    scores = {}
    for who, (dispatch, scale) in pairs.items():
        step(f"validation: {who}")
        scores[who] = _scores(evaluate(where, dispatch, scale, validation))
    return scores


def _scores(outcome: Outcome) -> list[float]:
    """Throughput rate and bytes of a world."""
    cost = float(outcome.cost_bytes.sum(axis=1).mean())
    return [round(float(np.nanmean(outcome.throughput_rate)), 5), round(cost)]


def policies_of(training: Training, card: Path) -> tuple[RequestPolicy, ReplicaPolicy]:
    """What a training made, as policies from its files; a teacher where it learned nothing."""
    dispatch: RequestPolicy = load_dispatch(card) if training.dispatcher else training.fixed.dispatch
    scale: ReplicaPolicy = load_scale(card) if training.scaler else training.fixed.scale
    return dispatch, scale


def _span(training: Training) -> tuple[int, int]:
    """First seed, and the one after the last, of the worlds that were used."""
    return training.seeds(0).start, training.seeds(max(0, len(training.curve) - 1)).stop
