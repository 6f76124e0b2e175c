"""What ASET reaches if a training gives the best of its networks on the way, in place of the last one.

Some trainings settle on a policy that is points behind another of the seven. In three cells every training is
repeated as it was, but looks at its networks in worlds of its own; both networks are judged side by side.

Needs torch.
"""

import time
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.policies.dispatch.meta import PAPER
from edgewise.seeds import only_validation_seeds
from edgewise_studies.calibration import learned
from edgewise_studies.calibration.space import SHIPPED
from edgewise_studies.resuming import resumed

CELLS = ((SHIPPED, "edge"), (SHIPPED, "co"), (2, "edge"))  # in the last a training ends 13 points behind
BEST = "aset-best"  # rows of the best on the way


class Both(NamedTuple):
    """Gains of (trainings,) over the best of the seven, in a cell.

    Attributes:
        rival: the best of the seven.
        last, best: of the network that a training ends with, and of the best on the way.
    """

    rival: str
    last: Floats
    best: Floats


def explore(folder: Path, work: Path, until: float) -> int:
    """Measure what is missing; begins nothing after `until` of `time.monotonic`. How many are measured."""
    only_validation_seeds(learned.SEEDS)
    with resumed(folder / "best.csv", learned.COLUMNS, 4) as (done, write):
        for count, (training, cell) in enumerate(product(learned.TRAININGS, CELLS)):
            if time.monotonic() > until:
                return count
            world, setting = cell
            for name in PAPER:
                if (str(world), setting, name, "") not in done and training == learned.TRAININGS[0]:
                    write(learned.scores(*cell, name, "", partial(policies.load, "dispatch", name)))
            for name, improved in ((learned.NETWORK, "none"), (BEST, "best")):
                if (str(world), setting, name, str(training)) not in done:
                    card = learned.train(work, *cell, training, improved=improved)
                    make = partial(policies.load, "dispatch", str(card))
                    write(learned.scores(*cell, name, training, make))
    return len(learned.TRAININGS) * len(CELLS)


def read(path: Path) -> Mapping[tuple[int, str], Both]:
    """Of each cell in which as many of both networks are measured."""
    both = {cell: _both(means) for cell, means in learned.means_of(path).items()}
    return {cell: each for cell, each in both.items() if each.last.size == each.best.size > 0}


def _both(means: Mapping[tuple[str, str], float]) -> Both:
    rival = max(PAPER, key=lambda name: means[name, ""])
    last, best = (
        np.array([mean - means[rival, ""] for (name, _), mean in means.items() if name == whose])
        for whose in (learned.NETWORK, BEST)
    )
    return Both(rival, last, best)
