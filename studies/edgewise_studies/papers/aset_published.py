"""ASET as published: its network and algorithm 1, choosing among its seven policies, where there may be room.

The paper leaves its worlds open, and in those that ship with edgewise little is to be had by choosing among
the seven. So its claims are tried in every world that fits what the paper says of static policies
(`edgewise_studies.calibration`), with trainings of its own in each: what is found is a distribution. The
rival is the best of the seven, by validation seeds; gains are paired by test seed.

Trainings are kept in the output folder: a run that was stopped goes on.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.policies.dispatch.meta import PAPER
from edgewise.sim.sites import simulation_of
from edgewise_studies.calibration import learned, measure, room
from edgewise_studies.calibration.space import SHIPPED, scenario_of
from edgewise_studies.claims import at_most, better_by, measured, within
from edgewise_studies.frozen import setting_text, sha256
from edgewise_studies.papers import field as field_rules
from edgewise_studies.papers.aset import run_one, slowest_choices
from edgewise_studies.run import Run, boxes, chart, reproduction
from edgewise_studies.trainings import (
    crossed,
    gains_figure,
    interquartile_figure,
    interquartile_mean,
    profile_figure,
)

WORLDS = (SHIPPED, 0, 1, 2, 7, 9, 12)  # the one that ships, and those that fit and were frozen
LOADS = {"edge": "A4: full-edge, λ = 60", "burst": "A5: full-edge under bursts"}  # in each world
POINT = 0.01
VALIDATED = learned.SEEDS
TENTH = 0.1  # of the time between streams, in which a choice is to be made


class Cell(NamedTuple):
    """A load or topology of a world."""

    world: int
    setting: str

    @property
    def id(self) -> str:
        """Of its claim."""
        return f"{self.setting}-{named(self.world)}"


def named(world: int) -> str:
    """Of a world, in ids."""
    return "ships" if world == SHIPPED else str(world)


CELLS = tuple(Cell(*cell) for cell in learned.cells(WORLDS))
LEVEL, ABOVE = Cell(SHIPPED, "dc"), Cell(SHIPPED, "co")  # topologies without workers at the access
FIELD_CELLS = (Cell(SHIPPED, "edge"), Cell(SHIPPED, "burst"))

_CLAIMS = {
    **{
        cell.id: f"{LOADS[cell.setting]}, world {named(cell.world)}: ASET is a point above its best policy"
        for cell in CELLS
    },
    **{f"{load}-all": f"{title}, all worlds: ASET is a point above" for load, title in LOADS.items()},
    LEVEL.id: "A2: dc-cloud, λ = 60, as shipped: ASET is within a point of its best policy (no room)",
    ABOVE.id: "A3: co-dc-cloud, λ = 60, as shipped: ASET is a point above its best policy",
    "burst-more": "A5: ASET gains a point more under bursts than at a steady rate, over all worlds",
    "switch-time": "A6: 95 % of choices take a tenth of the time between streams or less (CPU), as shipped",
    "plateau": "A7: the last ten of 40 episodes are as good as the ten before, ± 2 points, in the mean",
    **{
        f"field-{cell.setting}": f"{LOADS[cell.setting]}, as shipped: ASET is a point above the field"
        for cell in FIELD_CELLS
    },
    "each-run": "full-edge, as shipped: each run's best policy is at most a point above the best for all",
}


def frozen() -> str:
    """JSON of the hash of every scenario."""
    hashes = {cell.id: sha256(scenario_of(*cell)) for cell in (*CELLS, LEVEL, ABOVE)}
    how = {"trainings": list(learned.TRAININGS), "episodes": learned.EPISODES}
    return setting_text({"scenarios": hashes} | how)


@reproduction(
    "aset-published",
    paper="ASET as published: its network and algorithm 1, its seven policies",
    claims=_CLAIMS,
    ours={"each-run"},  # of no method: how much there is to choose
    seeds=(6, 3),
    look=4,
    setting=frozen,
    needs="torch",
)
def aset_published(run: Run) -> None:
    """A2 to A7 by trainings, A4 and A5 in every world; a quick run has the seven alone."""
    study = Study(run)
    if run.quick:
        _each_run(run, study)
        return
    _away(run, study)
    gains = {cell: _gains(run, study, cell) for cell in CELLS}
    for cell, (rival, found) in gains.items():
        run.claim(cell.id, crossed(found, _words(run, cell, rival, found)), better_by(POINT))
    _over_worlds(run, {cell: found for cell, (_, found) in gains.items()})
    _each_run(run, study)
    _field(run, study)
    _plateau(run, study)
    _switch_time(run, study)


def success_of(cell: Cell, name: str, seed: int) -> float:
    """Share of queries answered in time under a policy: a registered one, of the field, or a card."""
    run = simulation_of(scenario_of(*cell), partial(field_rules.load, name), seed)
    success: float = measure.figures_of(run)["success"]
    return success


class Study:
    """Successes of policies and trainings in cells, each measured once.

    Args:
        run: what it is for.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._known = run, dict[tuple[Cell, str, int], float]()

    def of(self, cell: Cell, names: Sequence[str], seeds: Sequence[int]) -> Floats:
        """(names, seeds)."""
        tasks = [(cell, name, seed) for name in names for seed in seeds]
        missing = [task for task in tasks if task not in self._known]
        self._known |= zip(missing, self._run.every(success_of, missing), strict=True)
        return np.array([self._known[task] for task in tasks]).reshape(len(names), len(seeds))

    def best(self, cell: Cell, names: Sequence[str] = PAPER) -> str:
        """Of several policies the best on validation seeds."""
        known = learned.read(self._run.results / "aset-calibration" / "learned.csv")  # the seven, there too
        if names == PAPER and cell in known:
            return known[cell].best
        found = self.of(cell, names, VALIDATED)
        return self._run.rival(dict(zip(names, found, strict=True)), VALIDATED)

    def cards(self, cell: Cell) -> list[str]:
        """The trainings of a cell."""
        self._run.step(f"trainings, {cell.id}")
        tasks = [(self._run.folder / "trained", *cell, training) for training in learned.TRAININGS]
        return [str(card) for card in self._run.every(learned.train, tasks)]

    def tested(self, cell: Cell) -> Floats:
        """(trainings, seeds) success on the seeds of the run."""
        return self.of(cell, self.cards(cell), self._run.seeds)


def _gains(run: Run, study: Study, cell: Cell) -> tuple[str, Floats]:
    """The rival, and (trainings, seeds) success of trained networks less its own."""
    rival = study.best(cell)
    run.step(f"test seeds, {cell.id}")
    return rival, study.tested(cell) - study.of(cell, [rival], run.seeds)


def _away(run: Run, study: Study) -> None:
    """Without workers at the access: where nothing is to be gained, and where the paper gains."""
    for cell, asked in ((LEVEL, within(-POINT, POINT)), (ABOVE, better_by(POINT))):
        rival, found = _gains(run, study, cell)
        run.claim(cell.id, crossed(found, _words(run, cell, rival, found)), asked)


def _words(run: Run, cell: Cell, rival: str, gains: Floats) -> str:
    """What stands beside a claim: the rival, every training, and what there was to gain."""
    each = ", ".join(f"{100.0 * gain:+.2f}" for gain in gains.mean(axis=1))
    said = f"against {rival}; trainings {each} points"
    rows = measure.read(run.results / "aset-calibration" / "room.csv")
    known = room.gains(rows, *cell)
    if known["seeds"]:
        said += f"; who knows what comes gains {100.0 * known['windows']:+.1f} (a validation seed)"
    return said


def _over_worlds(run: Run, gains: Mapping[Cell, Floats]) -> None:
    """All worlds at once: tables of (trainings, worlds)."""
    tables = {
        load: np.stack([gains[Cell(world, load)].mean(axis=1) for world in WORLDS], axis=1) for load in LOADS
    }
    for load, table in tables.items():
        words = f"{len(WORLDS)} worlds, {len(table)} trainings each; mean {100.0 * table.mean():+.2f} points"
        run.claim(f"{load}-all", interquartile_mean(table, words), better_by(POINT))
    run.claim("burst-more", interquartile_mean(tables["burst"] - tables["edge"]), better_by(POINT))
    shown = {LOADS[load]: 100.0 * table for load, table in tables.items()}
    of = "points above the best of the seven"
    run.figure("interquartile", interquartile_figure(shown, of))
    run.figure("profiles", profile_figure(shown, of))
    rows = {cell.id: (found.mean(axis=1), crossed(found).ci) for cell, found in gains.items()}
    run.figure("gains", gains_figure(rows, "ASET as published less the best of its seven policies"))


def _each_run(run: Run, study: Study) -> None:
    """How much one gains who knows before each run which of the seven will be best in it."""
    run.step("the seven alone, full-edge")
    cell = Cell(SHIPPED, "edge")
    found, rival = study.of(cell, PAPER, run.seeds), study.best(cell)
    more = found.max(axis=0) - found[PAPER.index(rival)]
    run.claim("each-run", measured(more, f"best for all: {rival}"), at_most(POINT))
    run.figure("seven", boxes(dict(zip(PAPER, found, strict=True)), "The seven alone, full-edge", "in time"))


def _field(run: Run, study: Study) -> None:
    for cell in FIELD_CELLS:
        run.step(f"load balancers of the field, {cell.id}")
        best = study.best(cell, field_rules.FIELD)
        gains = crossed(study.tested(cell) - study.of(cell, [best], run.seeds), f"against {best}")
        run.claim(f"field-{cell.setting}", gains, better_by(POINT))


def _plateau(run: Run, study: Study) -> None:
    """Curves of all trainings, and how much the last ten episodes differ from the ten before."""
    curves = np.array([learned.curve_of(Path(card)) for cell in CELLS for card in study.cards(cell)])
    changes = curves[:, -10:].mean(axis=1) - curves[:, -20:-10].mean(axis=1)
    run.claim("plateau", measured(changes, f"{len(changes)} trainings"), within(-0.02, 0.02))
    with chart(8.0, 4.2, "Success of training episodes, mean of ten", "episode", "success", columns=4) as (
        drawn,
        axes,
    ):
        for cell, each in zip(CELLS, curves.reshape(len(CELLS), -1, curves.shape[1]), strict=True):
            axes.plot(np.convolve(each.mean(axis=0), np.ones(10) / 10, "valid"), label=cell.id)
    run.figure("learning", drawn)


def _switch_time(run: Run, study: Study) -> None:
    """Processor time of choices over the time between streams, of each training on a test seed of its own."""
    cell = Cell(SHIPPED, "edge")
    scenario = scenario_of(*cell)
    each = zip(study.cards(cell), run.seeds, strict=False)
    taken = [run_one(scenario, card, seed).switch_s[1:] for card, seed in each]
    share = slowest_choices(scenario, taken)
    median_ms = 1e3 * float(np.median(np.concatenate(taken)))
    run.claim("switch-time", measured(share, f"p95 × streams/s; median {median_ms:.2f} ms"), at_most(TENTH))
