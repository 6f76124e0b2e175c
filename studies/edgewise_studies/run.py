"""Reproductions: how one is declared, found and carried out, and what it receives.

@reproduction("aset", paper="ASET", claims={"beats-closest": "ASET answers more than closest"})
def aset(run: Run) -> None:
    scenario = run.scenario("three-tier")
    ...
    run.claim("beats-closest", compared(row), better_by(0.01))

Claims are declared before anything runs, so that none can be dropped for its outcome.

What the figures have in common stands here, too: labels, whiskers, bands, boxes.
"""

import difflib
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from edgewise import parallel
from edgewise.arrays import Floats
from edgewise.errors import EdgewiseError, RunError
from edgewise.model.scenario import Scenario
from edgewise.report import style
from edgewise.report.intervals import mean_interval
from edgewise.report.statistics import best_baseline
from edgewise.report.style import legend_below, new_axes
from edgewise.seeds import kind_of, only_validation_seeds
from edgewise_studies import points
from edgewise_studies.claims import Claim, Criterion, Finding, Method, Report, Setting, Status
from edgewise_studies.frozen import (
    append_look,
    check_frozen,
    check_setting,
    checkout,
    code,
    digest_of,
    knows_frozen,
    sha256,
)
from edgewise_studies.looks import USED_UP, check_unseen, test_range
from edgewise_studies.twins import as_published

Progress = Callable[[str], None]
NEEDS_TRAINING = "needs training runs, which a wheel leaves out: give --evidence"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A paper's claims and the function that measures them.

    Attributes:
        name: on the command line.
        measure: makes the claims.
        paper: what is reproduced, for people.
        claims: id → statement, in the order of the report.
        ours: ids of the claims about a method of edgewise's own, see `Claim.method`.
        as_live: ids of the claims in a setting as live, see `Claim.setting`.
        withdrawn: id → why, of what once was a claim and is none: results on test seeds still have it.
        trained: ids of the claims that need training runs, which lie in docs/results and not in a wheel.
        training_of: the reproduction whose training runs these are; its own where nothing is said.
        seeds: how many test seeds a full and a quick run use.
        look: number of the complete look that is next, or was last; each has seeds of its own.
        setting: JSON of what is frozen as scenarios are; None where scenarios say everything.
        frozen_as: its name among what is frozen.
        needs: a package that a full run cannot do without, as torch.
    Raises:
        EdgewiseError: `ours`, `as_live` or `trained` names no declared claim, or `withdrawn` one.
    """

    name: str
    measure: "Callable[[Run], None]"
    paper: str
    claims: Mapping[str, str]
    ours: Collection[str] = ()
    as_live: Collection[str] = ()
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    trained: Collection[str] = ()
    training_of: str = ""
    seeds: tuple[int, int] = (20, 5)
    look: int = 2
    setting: Callable[[], str] | None = None
    frozen_as: str = ""
    needs: str = ""

    def __post_init__(self) -> None:
        for both in sorted(set(self.withdrawn) & set(self.claims)):
            raise EdgewiseError(f"reproduction {self.name!r}: {both!r} is declared and withdrawn; drop one")
        for which in ("ours", "as_live", "trained"):
            for strange in sorted(set(getattr(self, which)) - set(self.claims)):
                raise EdgewiseError(
                    f"reproduction {self.name!r}: {which} names {strange!r}, which is no declared claim"
                )

    def test_seeds(self, quick: bool) -> range:
        """Those of the look; a quick run tries things out, so it takes those that are used up."""
        return test_range(self.name, USED_UP if quick else self.look)[: self.seeds[quick]]

    def method(self, id: str) -> Method:
        """Whose method a claim is about."""
        return "edgewise" if id in self.ours else "as published"

    def setting_of(self, id: str) -> Setting:
        """In which world a claim is measured."""
        return "as live" if id in self.as_live else "published"


reproductions: dict[str, Reproduction] = {}


def reproduction(name: str, **what: Any) -> "Callable[[Callable[[Run], None]], Callable[[Run], None]]":
    """Register a function as the reproduction `name`; `what` are the other attributes of `Reproduction`."""

    def register(measure: Callable[[Run], None]) -> Callable[[Run], None]:
        reproductions[name] = Reproduction(name, measure, **{"frozen_as": name} | what)
        return measure

    return register


def registered() -> dict[str, Reproduction]:
    """Every reproduction by its name, sorted; `edgewise_studies.papers` imports those that ship."""
    return dict(sorted(reproductions.items()))


def find(name: str) -> Reproduction:
    """The reproduction called `name`.

    Raises:
        EdgewiseError: there is none; the message lists those that exist.
    """
    if name not in reproductions:
        close = difflib.get_close_matches(name, reproductions, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise EdgewiseError(f"reproduction {name!r}: no such name; {hint}known: {', '.join(registered())}")
    return reproductions[name]


@dataclass
class Run:
    """What a reproduction receives: seeds, and where its claims and figures go.

    No clock decides how much is measured: on a busy machine a run takes longer and finds the same.

    Attributes:
        what: the reproduction.
        quick: leave out what takes long, or measures time; what is left is a fixed amount of work.
        seeds: to measure on.
        folder: of the output.
        results: folder of the frozen scenarios.
        training: folder of the training runs; None where only the shipped policies are at hand.
        step: says what goes on, for people who wait.
        jobs: so many processes, where a case takes several.
        claims: made so far, by id.
        scenarios: name → SHA-256 of those loaded.
    """

    what: Reproduction
    quick: bool
    seeds: tuple[int, ...]
    folder: Path
    results: Path
    training: Path | None = None
    step: Progress = lambda text: None
    jobs: int = 1
    claims: dict[str, Claim] = field(default_factory=dict)
    scenarios: dict[str, str] = field(default_factory=dict)

    def every(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The result of a function for the arguments of each task, in their order, on `jobs` processes."""
        return parallel.every(function, tasks, self.jobs)

    def scenario(self, name: str | Path) -> Scenario:
        """Load a frozen scenario, in its paper's setting, and note its hash.

        Outside of a checkout nothing says what was frozen: the hash is noted all the same.

        Raises:
            ScenarioError: it cannot be loaded, is not frozen, or differs from what was frozen.
        """
        scenario = as_published(name)
        known = knows_frozen(self.results)
        self.scenarios[scenario.name] = check_frozen(scenario, self.results) if known else sha256(scenario)
        return scenario

    def check_setting(self) -> None:
        """Check the reproduction's own setting against what was frozen, and note its hash.

        Raises:
            ScenarioError: it is not frozen, or differs from what was frozen.
        """
        if self.what.setting is not None:
            name, text, known = self.what.frozen_as, self.what.setting(), knows_frozen(self.results)
            self.scenarios[name] = check_setting(name, text, self.results) if known else digest_of(text)

    def claim(self, id: str, finding: Finding, criterion: Criterion) -> Claim:
        """Make a declared claim.

        Raises:
            EdgewiseError: it was not declared, or is made twice.
        """
        what = self.what
        if id not in what.claims:
            raise EdgewiseError(
                f"claim {id!r}: {what.name} did not declare it; declared: {', '.join(what.claims)}"
            )
        if id in self.claims:
            raise EdgewiseError(f"claim {id!r}: {what.name} made it twice; the first one counts")
        paper = f"{what.name}: {what.paper}"
        whose = what.claims[id], what.method(id), what.setting_of(id)
        self.claims[id] = Claim.of(id, *whose, paper, finding, criterion)
        return self.claims[id]

    def rival(self, validation: Mapping[str, ArrayLike], seeds: Sequence[int]) -> str:
        """The best baseline on validation seeds.

        Args:
            validation: per baseline its values, larger is better.
            seeds: that gave them.
        Raises:
            EdgewiseError: a seed is not a validation seed.
        """
        only_validation_seeds(seeds)
        return best_baseline(validation)

    def figure(self, stem: str, figure: Figure) -> Path:
        """Save a figure as STEM.png in the output folder, and its points as STEM.csv.

        Raises:
            RunError: it cannot be written.
        """
        path = self.folder / f"{stem}.png"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            style.png(figure, path)
            points.write(figure, path.with_suffix(".csv"))
        except OSError as error:
            raise RunError(f"cannot write {path}: {error}; check the path and its rights") from error
        return path

    def finished_claims(self) -> tuple[Claim, ...]:
        """Every declared claim in order; those not made say so."""
        status: Status = "not_in_quick" if self.quick else "inconclusive"
        paper = f"{self.what.name}: {self.what.paper}"
        what = self.what
        return tuple(
            self.claims.get(id)
            or Claim.without_figures(
                id, statement, what.method(id), what.setting_of(id), paper, status, self._why(id)
            )
            for id, statement in what.claims.items()
        )

    def _why(self, id: str) -> str:
        """Why a claim was not made."""
        if self.training is None and id in self.what.trained:
            return NEEDS_TRAINING
        return "left out of a quick run" if self.quick else "declared, and not measured"


def carry_out(
    name: str,
    folder: Path,
    results: Path,
    *,
    looks: Path | None = None,
    evidence: Path | None = None,
    quick: bool = False,
    seeds: Sequence[int] | None = None,
    step: Progress = lambda text: None,
    jobs: int = 1,
) -> Report:
    """Carry out a reproduction and note the look, if it is one.

    A run that ends early may have shown figures: it is noted too, as not finished.

    Args:
        folder: for figures.
        results: holds frozen scenarios.
        looks: holds the log of looks; None takes `results`.
        evidence: holds NAME/training, the training runs; None takes those in `results`.
        seeds: None takes the reproduction's test seeds.
        step: told what goes on.
        jobs: so many processes; the claims are the same for any number.
    Raises:
        EdgewiseError: no such reproduction, training runs or a package that it needs are missing, it is to
            be published and its predicates are not frozen or its seeds were looked at, or what it raises.
    """
    what = find(name)
    if what.needs and not quick and find_spec(what.needs) is None:
        fix = "pip install 'edgewise-studies[learn]', or give --quick, which leaves out what is trained"
        raise EdgewiseError(f"reproduce {name}: a full run cannot import {what.needs}: {fix}")
    if looks is not None and looks.resolve() == results.resolve() and seeds is None and not quick:
        check_unseen(what, results)
    training = _training(what, results, evidence, quick)
    chosen = tuple(what.test_seeds(quick) if seeds is None else seeds)
    made_by = code(checkout())  # before the run: what was read is what runs
    started_s = time.perf_counter()
    run = Run(what, quick, chosen, folder, results, training, step, jobs)
    finished = False
    try:
        run.check_setting()
        what.measure(run)
        finished = True
    finally:
        if any(kind_of(seed) == "test" for seed in chosen):
            append_look(
                looks or results,
                name,
                made_by,
                run.finished_claims() if finished else tuple(run.claims.values()),
                seeds=chosen,
                quick=quick,
                finished=finished,
                scenarios=run.scenarios,
            )
    elapsed_s = time.perf_counter() - started_s
    return Report(what.name, run.finished_claims(), chosen, run.scenarios, elapsed_s)


def _training(what: Reproduction, results: Path, evidence: Path | None, quick: bool) -> Path | None:
    """Folder of the training runs; a quick run can do without, and leaves out what needs them."""
    folder = (evidence or results) / (what.training_of or what.name) / "training"
    if not what.trained or folder.is_dir():
        return folder if what.trained else None
    if quick and evidence is None:
        return None
    claims = ", ".join(id for id in what.claims if id in what.trained)
    raise EdgewiseError(
        f"reproduce {what.name}: no folder {folder}, and these claims need the training runs in it: "
        f"{claims}. They are in docs/results of edgewise's source repository, not in its wheel: give "
        "`--evidence CHECKOUT/docs/results`, or `--quick`, which measures the rest with the shipped policies"
    )


@contextmanager
def chart(
    width: float, height: float, title: str, x: str = "", y: str = "", columns: int = 0
) -> Iterator[tuple[Figure, Axes]]:
    """Axes to draw on, which then get labels, a grid, and names below in so many columns (0: none)."""
    drawn, axes = new_axes(width, height, title)
    yield drawn, axes
    axes.set(xlabel=x, ylabel=y)
    axes.grid(color="#E3E3E3", linewidth=0.8)
    if columns:
        legend_below(axes, columns)


def whiskers(axes: Axes, x: Sequence[float], values: Sequence[ArrayLike], **style: Any) -> None:
    """The mean of each set of values with its 95 % interval; none is negative."""
    found = [mean_interval(each, possible=(0.0, math.inf)) for each in values]
    lower, upper = (
        [0.0 if end is None else abs(end - one.mean) for one, end in zip(found, ends, strict=True)]
        for ends in ([one.low for one in found], [one.high for one in found])
    )
    axes.errorbar(x, [one.mean for one in found], yerr=[lower, upper], capsize=3, **style)


def band(axes: Axes, x: ArrayLike, curves: Floats, label: str) -> None:
    """The mean of (N, T) curves, and all between the least and the greatest."""
    (line,) = axes.plot(np.asarray(x), curves.mean(axis=0), label=label)
    low, high = curves.min(axis=0), curves.max(axis=0)
    axes.fill_between(np.asarray(x), low, high, color=line.get_color(), alpha=0.15, lw=0)


def boxes(values: Mapping[str, Floats], title: str, y: str = "", width: float = 6.4) -> Figure:
    """A box for each name's values, and each of them as a dot."""
    with chart(width, 3.8, title, y=y) as (drawn, axes):
        axes.boxplot(list(values.values()), tick_labels=list(values), showfliers=False)
        for place, (name, each) in enumerate(values.items(), 1):
            axes.plot(np.full(len(each), place), each, ".", color="#777777", ms=3, alpha=0.5, label=name)
        axes.tick_params(axis="x", labelrotation=30 if len(values) > 4 else 0)
    return drawn
