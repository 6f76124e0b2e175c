"""What can be trained, by the name that `edgewise train` has for it; all go through one harness.

A method takes its options, and returns the name of its files, its trainer and its validation seeds.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgewise import policies
from edgewise.errors import PolicyError
from edgewise.learn import harness
from edgewise.learn.defer.networks import VARIANTS, tuned
from edgewise.learn.defer.ppo import PpoTrainer
from edgewise.learn.defer.situations import name_of, situations
from edgewise.learn.dqn import DqnConfig, DqnTrainer
from edgewise.learn.harness import Step, Trainer, silent
from edgewise.learn.orchestration.judged import Fixed
from edgewise.learn.orchestration.settings import setting
from edgewise.learn.orchestration.train import (
    METHODS as KAIS,
    WEIGHTS,
    EvolveConfig,
    Search,
    Training,
    first_vector,
)
from edgewise.policies.dispatch.meta import ALL, PAPER
from edgewise.policies.dispatch.requests.rules import Weighted

VALIDATION = range(500_000, 500_050)
Prepared = tuple[str, Trainer, range]


def train(
    what: str,
    folder: Path,
    name: str = "",
    *,
    command: str = "",
    tensorboard: bool = False,
    step: Step = silent,
    **options: Any,
) -> Path:
    """Train by a method, or go on with what the folder holds; returns the card.

    Args:
        what: "aset", "defer" or "kais".
        name: of the files; by default it says method and options.
        command, tensorboard, step: see `harness.train`.
        options: of the method.
    Raises:
        PolicyError: an option has no such value.
        RunError: see `harness.train`.
    """
    _check("method", what, METHODS)
    usual, trainer, seeds = METHODS[what](**options)
    return harness.train(
        trainer,
        folder,
        name or usual,
        command=command,
        validation=seeds,
        tensorboard=tensorboard,
        step=step,
    )


def _check(what: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise PolicyError(f"{what} {value!r}: use one of {', '.join(choices)}")


def aset(
    scenario: str = "full-edge",
    state: str = "history",
    improve: str = "double,dueling,n-step",
    paper_actions: bool = False,
    episodes: int = 40,
    seed: int = 0,
) -> Prepared:
    """ASET by DQN: a network chooses the static policy of each window."""
    _check("--state", state, ("history", "pooled"))
    config = DqnConfig(scenario, state, PAPER if paper_actions else ALL, episodes=episodes, seed=seed)
    trainer = DqnTrainer(config.improved(improve.split(",")))
    return f"aset-{Path(scenario).stem}", trainer, VALIDATION[:5]


def defer(
    method: str = "osdec", situation: str = "paper", recipe: str = "ours", seed: int = 0, iterations: int = 16
) -> Prepared:
    """OSDEC or a variant of it: when deferrable jobs start."""
    _check("method", method, VARIANTS)
    _check("--situation", situation, situations())
    _check("--recipe", recipe, ("ours", "paper"))
    pattern, objective = situations()[situation]
    config = VARIANTS[method] if recipe == "paper" else tuned(VARIANTS[method])
    trainer = PpoTrainer(config, pattern, seed, iterations, objective)
    return name_of(method, seed, situation, recipe), trainer, VALIDATION


def kais(
    scenario: str = "scarce",
    pattern: str = "P4",
    method: str = "improved",
    half: str = "both",
    episodes: int = 20,
    worlds: int = 32,
    frames: int = 10,
    seed: int = 0,
) -> Prepared:
    """KaiS's dispatch of requests and orchestration, or one of them, by policy gradients or by search."""
    _check("--method", method, (*KAIS, "evolved"))
    _check("--half", half, ("both", "dispatch", "scale"))
    where = setting(scenario, pattern, frames)
    trainer: Trainer
    if method == "evolved":
        trainer = Search(where, EvolveConfig(half, episodes, worlds=worlds, seed=seed))
    else:
        copies = math.gcd(KAIS[method].copies, worlds)
        config = replace(KAIS[method], worlds=worlds, copies=copies, episodes=episodes, seed=seed)
        if half == "dispatch":
            config = replace(config, scale=None)
        elif half == "scale":
            config = replace(config, dispatch=None)
        trainer = Training(where, config, teachers())
    return f"kais-{method}-{scenario}", trainer, VALIDATION[:5]


def teachers() -> Fixed:
    """What is imitated first, and runs in place of a half that does not learn: where evolution starts."""
    return Fixed(Weighted(first_vector()[:WEIGHTS]), policies.load("orchestrate", "marginal"))


METHODS: dict[str, Callable[..., Prepared]] = {"aset": aset, "defer": defer, "kais": kais}
