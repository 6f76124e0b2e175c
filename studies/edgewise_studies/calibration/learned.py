"""What ASET learns in the worlds that fit: its network and algorithm 1, choosing among its seven policies.

In each world and setting it is trained a few times from other seeds, and each training decides on validation
seeds beside each of the seven alone. Neither had a part in choosing the worlds.

Needs torch.
"""

import csv
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgewise import policies
from edgewise.policies.dispatch.meta import PAPER
from edgewise.report.intervals import mean_interval
from edgewise.seeds import only_validation_seeds
from edgewise_studies.calibration.space import SHIPPED, scenario_of
from edgewise_studies.resuming import resumed

SETTINGS = ("edge", "burst")
SEEDS = (500_200, 500_201, 500_202)  # none of those by which worlds were chosen
TRAININGS = tuple(range(0, 100_000, 20_000))  # the first episode's seed of each
EPISODES = 40  # as many as of the cards that ship
# Constants that the paper does not print, each tried by one training in two cells; first the chooser's.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "first": {},
    "near": {"gamma": 0.5},
    "far": {"gamma": 0.99},
    "slow": {"learning_rate": 1e-4},
    "fast": {"learning_rate": 2e-3},
}
USED = "fast"  # the best of them on validation seeds
TRIED_IN = ((SHIPPED, "edge"), (0, "burst"))
COLUMNS = ("world", "setting", "policy", "training", "seed", "success")
CURVES = ("world", "setting", "training", "episode", "success")
NETWORK = "aset"  # the network's rows; others are named as their policy, of no training


class Learned(NamedTuple):
    """What trainings reach in a setting of a world.

    Attributes:
        best: of the seven, over all seeds.
        success: its mean.
        gains: of each training, above it, paired by seed and averaged.
    """

    best: str
    success: float
    gains: tuple[float, ...]

    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean gain over trainings; None of a single one."""
        return interval_of(self.gains)


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of a mean by Student's t; None of a single value."""
    found = mean_interval(values)
    return None if found.low is None or found.high is None else (found.low, found.high)


def explore(folder: Path, work: Path, worlds: Sequence[int], until: float) -> int:
    """Train and measure what is missing, the first training of every world before the second of any.

    Args:
        folder: of the rows.
        work: of trainings under way and their cards, to go on with.
        until: of `time.monotonic`; begins nothing after it.
    Returns:
        How many trainings are measured now.
    """
    only_validation_seeds(SEEDS)
    with resumed(folder / "learned.csv", COLUMNS, 4) as (done, write):
        for count, (training, (world, setting)) in enumerate(product(TRAININGS, cells(worlds))):
            if time.monotonic() > until:
                return count
            alone = [name for name in PAPER if (str(world), setting, name, "") not in done]
            for name in alone if training == TRAININGS[0] else ():
                write(scores(world, setting, name, "", partial(policies.load, "dispatch", name)))
            if (str(world), setting, NETWORK, str(training)) not in done:
                card = train(work, world, setting, training)
                _write_curve(folder, (world, setting, training), curve_of(card))
                make = partial(policies.load, "dispatch", str(card))
                write(scores(world, setting, NETWORK, training, make))
    return len(TRAININGS) * len(cells(worlds))


def cells(worlds: Iterable[int]) -> list[tuple[int, str]]:
    """World and setting of every training."""
    return [(world, setting) for setting, world in product(SETTINGS, worlds)]


def tune(folder: Path, work: Path, until: float) -> int:
    """Try variants in two cells, judged as all trainings are; how many are measured."""
    with resumed(folder / "tuning.csv", ("variant", *COLUMNS), 3) as (done, write):
        for count, (variant, (world, setting)) in enumerate(product(VARIANTS, TRIED_IN)):
            if time.monotonic() > until:
                return count
            if (variant, str(world), setting) not in done:
                card = train(work, world, setting, TRAININGS[0], variant)
                make = partial(policies.load, "dispatch", str(card))
                rows = scores(world, setting, NETWORK, TRAININGS[0], make)
                write([(variant, *row) for row in rows])
    return len(VARIANTS) * len(TRIED_IN)


def _write_curve(folder: Path, of: tuple[int, str, int], curve: Sequence[float]) -> None:
    with resumed(folder / "curves.csv", CURVES, 3) as (done, write):
        if tuple(map(str, of)) not in done:
            write([(*of, number, success) for number, success in enumerate(curve, 1)])


def scores(world: int, setting: str, policy: str, training: int | str, make: Any) -> list[Sequence[Any]]:
    """Rows of COLUMNS, one for each of SEEDS."""
    from edgewise.learn.dqn import mean_success

    scenario = scenario_of(world, setting)
    return [(world, setting, policy, training, seed, mean_success(scenario, make, [seed])) for seed in SEEDS]


def train(
    work: Path, world: int, setting: str, training: int, variant: str = USED, improved: str = "none"
) -> Path:
    """ASET as published, trained in a world; where its card is. What is there is not trained again.

    Args:
        work: of trainings under way and their cards.
        training: one of TRAININGS.
        variant: one of VARIANTS.
        improved: by one of `dqn.IMPROVEMENTS`.
    """
    from edgewise.learn import harness
    from edgewise.learn.dqn import DqnConfig, DqnTrainer
    from edgewise.learn.env import DispatchEnv

    where = "ships" if world < 0 else str(world)
    name = f"aset-{where}-{setting}-{training}-{variant}" + ("" if improved == "none" else f"-{improved}")
    card = work / f"{name}.json"
    if not card.exists():
        scenario = scenario_of(world, setting)
        config = DqnConfig(scenario.name, "history", PAPER, EPISODES, training).improved([improved])
        config = replace(config, **VARIANTS[variant])
        env = DispatchEnv(scenario, PAPER, "history", bound=False)
        command = f"python -m edgewise_studies.calibration {'learned' if improved == 'none' else improved}"
        harness.train(DqnTrainer(config, env), work, name, command=command, validation=())
    return card


def curve_of(card: Path) -> list[float]:
    """Success of each episode of a training."""
    return [success for _, success in json.loads(card.read_text(encoding="utf-8"))["curve"]]


def read(path: Path) -> dict[tuple[int, str], Learned]:
    """What was learned, by world and setting, where at least one training is measured."""
    found = {cell: _learned(means) for cell, means in means_of(path).items()}
    return {cell: each for cell, each in found.items() if each.gains}


def means_of(path: Path) -> dict[tuple[int, str], dict[tuple[str, str], float]]:
    """Mean success over seeds, by world and setting, and then by policy and training."""
    if not path.exists():
        return {}
    shares: dict[tuple[int, str], dict[tuple[str, str], list[float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            of = shares.setdefault((int(row["world"]), row["setting"]), {})
            of.setdefault((row["policy"], row["training"]), []).append(float(row["success"]))
    return {
        cell: {who: float(np.mean(each)) for who, each in found.items()} for cell, found in shares.items()
    }


def _learned(means: Mapping[tuple[str, str], float]) -> Learned:
    alone = {policy: mean for (policy, training), mean in means.items() if not training}
    best = max(alone, key=alone.__getitem__)
    gains = tuple(mean - alone[best] for (_, training), mean in means.items() if training)
    return Learned(best, alone[best], gains)
