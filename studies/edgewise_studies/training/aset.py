"""Trainings of ASET as published: they give the network that they end with, or the best on the way.

Algorithm 1 ends with its last network. A training that gives the best one looks every few episodes how its
network does, without exploring, in worlds of its own; nothing else of it changes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.learn.dqn import DqnConfig, DqnTrainer
from edgewise.learn.env import DispatchEnv
from edgewise.learn.harness import Figures


class AsetTraining(DqnTrainer):
    """Judged by whoever trains it, and not by the harness."""

    def rivals(self, card: Path) -> dict[str, Any]:
        """None."""
        return {}

    def more_scores(self, rivals: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """None."""
        return {}


class BestOnTheWay(AsetTraining):
    """Gives the network that answered most in time of those that were looked at.

    Args:
        seen_in: seeds of the worlds in which networks are looked at.
        every: so many episodes.
    """

    def __init__(self, config: DqnConfig, env: DispatchEnv, seen_in: Sequence[int], every: int) -> None:
        super().__init__(config, env)
        self.seen_in, self.every = seen_in, every
        self.best_network, self.best_success = copy.deepcopy(self.network), -1.0
        self.kept = (*self.kept, "best_network", "best_success")

    def round(self) -> Figures:
        """As it is otherwise; then look, each few episodes."""
        figures, episode = super().round(), len(self.curve) + 1
        if episode > self.config.warm_up and episode % self.every == 0:
            success = float(np.mean([self.watch(seed) for seed in self.seen_in]))
            if success >= self.best_success:
                self.best_success = success
                self.best_network.load_state_dict(self.network.state_dict())
            figures["seen"] = success
        return figures

    def networks(self, stem: Path) -> dict[str, Any]:
        """Those of the best."""
        self.network.load_state_dict(self.best_network.state_dict())
        return super().networks(stem)
