"""One training from beginning to end: train, save on the way, judge on validation seeds, export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.policy import DispatchPolicy
from edgewise.core.world import World
from edgewise.errors import RunError
from edgewise.learn.dqn import DqnConfig, DqnTrainer, Report
from edgewise.learn.export import export
from edgewise.policies.dispatch.aset import Aset
from edgewise.sim.simulate import Simulation

SAVE_EVERY = 10  # episodes
Step = Callable[[str], None]


def train(
    config: DqnConfig,
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
        validation: seeds on which the policy and its actions are compared.
        tensorboard: write events into the folder.
        step: told what goes on.
    Raises:
        RunError: NAME.pt is of another training, or tensorboard is not installed.
    """
    torch.set_num_threads(1)  # networks this small gain nothing from more
    saved = folder / f"{name}.pt"
    trainer = _resumed(saved, config) if saved.exists() else DqnTrainer(config)
    write = events(folder / name) if tensorboard else lambda figures: None

    def report(figures: dict[str, float]) -> None:
        write(figures)
        step(
            f"episode {figures['episode']:.0f} of {config.episodes}, success {100 * figures['success']:.1f} %"
        )
        if figures["episode"] % SAVE_EVERY == 0:
            trainer.save(saved)

    trainer.train(report)
    trainer.save(saved)
    return judged(trainer, folder, name, command, validation, step)


def judged(
    trainer: DqnTrainer, folder: Path, name: str, command: str, validation: Sequence[int], step: Step
) -> Path:
    """Export a trained network with its success, and that of its actions, on validation seeds."""
    path = export(trainer, folder, name, command, {}, validation)
    mine = type("Mine", (Aset,), {"card": str(path)})
    candidates: dict[str, Callable[[], DispatchPolicy]] = {"aset": mine}
    candidates |= {action: _loader(action) for action in trainer.config.actions}
    scores = {}
    for who, make in candidates.items():
        step(f"validation: {who}")
        scores[who] = round(success(trainer.config.scenario, make, validation), 5)
    return export(trainer, folder, name, command, scores, validation)


def success(scenario: str, make: Callable[[], DispatchPolicy], seeds: Sequence[int]) -> float:
    """Mean share of queries answered in time."""
    loaded = load_scenario(scenario)
    world = World.build(loaded.catalog, loaded.topology)
    shares = []
    for seed in seeds:
        run = Simulation(loaded, make(), seed, world=world)
        run.run_until(np.inf)
        run.serve_rest()
        shares.append(run.tally.queries[0].sum() / max(run.tally.queries.sum(), 1))
    return float(np.mean(shares))


def _loader(name: str) -> Callable[[], DispatchPolicy]:
    return lambda: policies.load("dispatch", name)


def _resumed(path: Path, config: DqnConfig) -> DqnTrainer:
    trainer = DqnTrainer.load(path, config.episodes)
    if replace(trainer.config, episodes=config.episodes) != config:
        raise RunError(
            f"{path}: was made by another configuration; remove it, or use another --name or --out"
        )
    return trainer


def events(folder: Path) -> Report:
    """Writes success, ε and loss of every episode for TensorBoard.

    Raises:
        RunError: tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RunError("--tensorboard needs tensorboard: pip install tensorboard") from error
    writer: Any = SummaryWriter(str(folder))

    def write(figures: dict[str, float]) -> None:
        for key, value in figures.items():
            if key != "episode":
                writer.add_scalar(key, value, int(figures["episode"]))
        writer.flush()

    return write
