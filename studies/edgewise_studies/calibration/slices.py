"""The same question for many worlds, in slices: seconds instead of a minute for each.

`edgewise.sim.streams.rollout` simulates queries in a short slice of each window only, with one gateway that
knows all loads and clients who do not ask again, whatever the world says. What a chooser gains there is
comparable among worlds, and says where to look.
"""

import csv
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from edgewise.policies.dispatch.meta import PAPER
from edgewise.seeds import only_validation_seeds
from edgewise.sim.streams.rollout import room_for_switching
from edgewise_studies.calibration.measure import append
from edgewise_studies.calibration.predicates import ROOM_SEEDS
from edgewise_studies.calibration.room import ROOM_SETTINGS
from edgewise_studies.calibration.space import SHIPPED, WORLDS, scenario_of

COLUMNS = ("world", "setting", "seed", "best", "success", "gain")
EVERY = ("edge", "burst")  # settings of worlds that do not fit
Cell = tuple[int, str, int]  # world, setting, seed


def read(path: Path) -> dict[Cell, float]:
    """Gains by cell, at least 0: who knows what comes can also stay with the best policy."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(int(r["world"]), r["setting"], int(r["seed"])): max(float(r["gain"]), 0.0) for r in rows}


def cells(worlds: Iterable[int]) -> Iterable[Cell]:
    """Those of worlds that fit on all seeds, then those of all worlds on one."""
    yield from (
        (world, setting, seed)
        for seed in ROOM_SEEDS
        for setting in ROOM_SETTINGS
        for world in (SHIPPED, *worlds)
    )
    yield from ((world, setting, ROOM_SEEDS[0]) for world in range(WORLDS) for setting in EVERY)


def explore(path: Path, worlds: Iterable[int], until: float) -> int:
    """Measure cells that have not been measured, beginning nothing after `until` of `time.monotonic`."""
    only_validation_seeds(ROOM_SEEDS)
    done = set(read(path))
    for cell in cells(worlds):
        if cell in done:
            continue
        if time.monotonic() > until:
            break
        world, setting, seed = cell
        found = room_for_switching(scenario_of(world, setting), seed, PAPER)
        best = max(found.static, key=found.static.__getitem__)
        figures = (*cell, best, round(found.static[best], 6), round(found.gain, 6))
        append(path, COLUMNS, [dict(zip(COLUMNS, figures, strict=True))])
        done.add(cell)
    return len(done)


def by_world(known: Mapping[Cell, float], setting: str) -> dict[int, float]:
    """Mean gain over the seeds measured, of each world."""
    found: dict[int, list[float]] = {}
    for (world, which, _), gain in known.items():
        if which == setting:
            found.setdefault(world, []).append(gain)
    return {world: float(np.mean(gains)) for world, gains in found.items()}
