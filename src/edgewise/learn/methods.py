"""What can be trained, by the name that `edgewise train` has for it; all go through one harness.

A method takes its options, and returns the name of its files, its trainer and its validation seeds. Other
packages offer methods of theirs by an entry point of the group `edgewise.trainers`.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from edgewise.errors import PolicyError
from edgewise.learn import harness
from edgewise.learn.dqn import DqnConfig, DqnTrainer
from edgewise.learn.harness import Step, Trainer, silent
from edgewise.policies.dispatch.meta import ALL, PAPER
from edgewise.seeds import VALIDATION

JUDGED = VALIDATION[:50]
Prepared = tuple[str, Trainer, range]
Method = Callable[..., Prepared]


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
        what: "chooser", "aset", or a method that another package offers, as edgewise-studies does "defer"
            and "kais".
        name: of the files; by default it says method and options.
        command, tensorboard, step: see `harness.train`.
        options: of the method.
    Raises:
        PolicyError: an option has no such value.
        RunError: see `harness.train`.
    """
    offered = {each.name: each for each in entry_points(group="edgewise.trainers")}
    check_choice("method", what, (*METHODS, *offered))
    method = METHODS[what] if what in METHODS else offered[what].load()
    usual, trainer, seeds = method(**options)
    return harness.train(
        trainer,
        folder,
        name or usual,
        command=command,
        validation=seeds,
        tensorboard=tensorboard,
        step=step,
    )


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Refuse an option's value that is none of its choices.

    Raises:
        PolicyError: it is none.
    """
    if value not in choices:
        raise PolicyError(f"{what} {value!r}: use one of {', '.join(choices)}")


def chooser(
    scenario: str = "full-edge",
    state: str = "history",
    improve: str = "double,dueling,n-step,best",
    episodes: int = 40,
    seed: int = 0,
) -> Prepared:
    """By DQN, a network that chooses the static policy of each window, of nine."""
    check_choice("--state", state, ("history", "pooled"))
    config = DqnConfig(scenario, state, ALL, episodes=episodes, seed=seed).improved(improve.split(","))
    return f"chooser-{Path(scenario).stem}", DqnTrainer(config), JUDGED[:5]


def aset(scenario: str = "full-edge", episodes: int = 40, seed: int = 0) -> Prepared:
    """ASET as published: its state, its seven static policies, and algorithm 1 as printed."""
    config = DqnConfig(scenario, "history", PAPER, episodes=episodes, seed=seed).improved(["none"])
    return f"aset-{Path(scenario).stem}", DqnTrainer(config), JUDGED[:5]


METHODS: Mapping[str, Method] = {"chooser": chooser, "aset": aset}
