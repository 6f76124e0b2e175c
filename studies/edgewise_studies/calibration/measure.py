"""Worlds are measured setting by setting, and rows are written as soon as they are there: a search goes on.

A row is one policy in one setting of a world on one seed.
"""

import csv
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgewise import policies
from edgewise.core.world import World
from edgewise.policies.dispatch.meta import PAPER
from edgewise.seeds import only_validation_seeds
from edgewise.sim.simulate import Simulation
from edgewise.sim.sites import simulation_of
from edgewise_studies.calibration.predicates import MISSES, SEEDS, Found, Measured, misses
from edgewise_studies.calibration.space import SETTINGS, SHIPPED, scenario_of

APPS = (
    "pool",
    "workout",
    "ping-pong",
    "face",
    "assembly",
    "gaming",
    "cars",
    "tele-robots",
    "driving",
    "ar-vr",
)
COLUMNS = ("world", "setting", "seed", "policy", "success", "failed", "rejected", *APPS)
Row = dict[str, Any]  # COLUMNS; success by application, of those that sent queries


def read(path: Path) -> list[Row]:
    """Rows of a file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_typed(row) for row in csv.DictReader(file)]


def _typed(row: Mapping[str, str]) -> Row:
    whole = {name: int(row[name]) for name in ("world", "seed")}
    shares = {name: float(row[name]) for name in COLUMNS[4:] if row[name]}
    words = {name: row[name] for name in ("setting", "policy", "chosen") if name in row}
    return {**words, **whole, **shares}


def append(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a file, which gets a header when it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, tuple(columns), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


def found_of(rows: Iterable[Row], world: int) -> Found:
    """What was measured of a world: means over its seeds, of settings in which all seven policies ran."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["world"] == world:
            groups.setdefault((row["setting"], row["policy"]), []).append(row)
    found: dict[str, dict[str, Measured]] = {}
    for (setting, policy), each in groups.items():
        names = [app for app in APPS if all(app in row for row in each)]
        by_app = {app: float(np.mean([row[app] for row in each])) for app in names}
        success, failed, rejected = (
            float(np.mean([row[name] for row in each])) for name in ("success", "failed", "rejected")
        )
        found.setdefault(setting, {})[policy] = Measured(success, failed, rejected, by_app)
    return {setting: each for setting, each in found.items() if len(each) == len(PAPER)}


def search(path: Path, worlds: Iterable[int], until: float, seeds: Iterable[int] = SEEDS[:1]) -> int:
    """Measure worlds until a moment of `time.monotonic`; how many were begun.

    A world that misses too many predicates is not measured further. What the file has is not measured again.
    """
    chosen = tuple(seeds)
    only_validation_seeds(chosen)
    rows, begun = read(path), 0
    for world in worlds:
        own = [row for row in rows if row["world"] == world]
        begun += 1
        for setting in SETTINGS:
            if world != SHIPPED and misses(found_of(own, world)) > MISSES:
                break
            done = {(row["seed"], row["policy"]) for row in own if row["setting"] == setting}
            missing = [(s, p) for s in chosen for p in PAPER if (s, p) not in done]
            if not missing:
                continue
            if time.monotonic() > until:
                return begun - 1
            fresh = runs_of(world, setting, missing)
            append(path, COLUMNS, fresh)
            own += fresh
    return begun


def runs_of(world: int, setting: str, wanted: Iterable[tuple[int, str]]) -> list[Row]:
    """A row for each (seed, policy)."""
    scenario = scenario_of(world, setting)
    built = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    rows = []
    for seed, name in wanted:
        run = simulation_of(scenario, partial(policies.load, "dispatch", name), seed, world=built)
        rows.append({"world": world, "setting": setting, "seed": seed, "policy": name} | figures_of(run))
    return rows


def figures_of(run: Simulation) -> Row:
    """Shares of the queries of a run, which goes to its end, and success by application."""
    streams = run.run().streams
    queries = run.tally.queries.sum(axis=1).astype(np.float64)
    kinds, sent, ok = (np.array(streams[column]) for column in ("application", "queries", "ok"))
    by_app = {str(app): (ok[kinds == app].sum(), sent[kinds == app].sum()) for app in np.unique(kinds)}
    success, failed, rejected = (round(float(x), 6) for x in queries / max(queries.sum(), 1.0))
    apps = {app: round(float(good / every), 4) for app, (good, every) in by_app.items() if every}
    return {"success": success, "failed": failed, "rejected": rejected} | apps
