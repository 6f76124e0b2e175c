"""What trainings of KaiS's two halves share: a setting, seeds, and how what was found is judged."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgewise import policies
from edgewise.core.orchestrate import ReplicaPolicy, RequestPolicy
from edgewise.learn.harness import SEEDS_OF_A_RUN, Trainer, check_seed
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise_studies.training.kais.settings import AUTOSCALER_TARGET, TrainingSetting, evaluate

BASELINES = (
    ("greedy", "autoscaler"),
    ("gsp-ss", "gsp-ss"),
    ("flow", "autoscaler"),
    ("greedy", "marginal"),
)


class Fixed(NamedTuple):
    """Policies of both halves."""

    dispatch: RequestPolicy
    orchestrate: ReplicaPolicy


class HalvesTrainer(Trainer):
    """Trains dispatch, orchestration or both.

    Args:
        setting: what is trained on.
        config: how; has `seed`, 0 … 19.
        rounds: of the training.
        worlds: of a round that differ.
        kept: see `Trainer`.
    Raises:
        RunError: the training would leave its seeds.
    """

    def __init__(
        self, setting: TrainingSetting, config: Any, rounds: int, worlds: int, kept: Sequence[str]
    ) -> None:
        check_seed(config.seed, rounds, worlds)
        super().__init__(config, rounds, kept, scenario=setting.name)
        self.setting, self._first, self._worlds = setting, config.seed * SEEDS_OF_A_RUN, worlds

    def seeds(self, number: int) -> range:
        """Of a round's worlds."""
        first = self._first + number * self._worlds
        return range(first, first + self._worlds)

    def found(self, card: Path) -> Fixed:
        """What was trained, from its files; for a half that was not, what ran in its place."""
        raise NotImplementedError

    def rivals(self, card: Path) -> dict[str, Fixed]:
        """What was trained, and baselines, the autoscaler with its tuned target."""
        rivals = {card.stem: self.found(card)}
        for dispatch, scale in BASELINES:
            chosen = (
                Autoscaler(AUTOSCALER_TARGET)
                if scale == "autoscaler"
                else policies.load("orchestrate", scale)
            )
            rivals[f"{dispatch} + {scale}"] = Fixed(policies.load("requests", dispatch), chosen)
        return rivals

    def score(self, rival: Fixed, seeds: Sequence[int]) -> list[float]:
        """Throughput rate and bytes of a world."""
        outcome = evaluate(self.setting, *rival, seeds)
        cost = float(outcome.cost_bytes.sum(axis=1).mean())
        return [round(float(np.nanmean(outcome.throughput_rate)), 5), round(cost)]
