"""What a sweep or a sizing found, and the folder that it leaves.

    runs/<name>/
        scenario.yaml     the scenario at its first point
        points.parquet    a row for each run: values of the keys, policy, seed, measures
        points.csv        the same
        summary.json      command, keys, targets, what was found, and means with intervals
        figure.png        the measure over the first key, or what was tried of two
        report.html       all of it on one page
        runs.jsonl        rows of the runs that ended, for --resume

Rows are in the order of values, policies and seeds, in whatever order the runs ended.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure
from pyarrow import csv, parquet as pq

from edgewise.config import dump_scenario
from edgewise.errors import EdgewiseError, RunError, ScenarioError
from edgewise.report import sweeps as drawing
from edgewise.report.records import write_whole
from edgewise.report.schema import Measure
from edgewise.report.statistics import Interval
from edgewise.report.sweeps import Curve
from edgewise.sweeps import knee as knees, size as sizing
from edgewise.sweeps.knee import Knee
from edgewise.sweeps.points import KEPT, Point, Points
from edgewise.sweeps.size import Enough
from edgewise.sweeps.vary import Target

FILES = (
    "scenario.yaml", "points.parquet", "points.csv", "summary.json", "figure.png", "report.html", KEPT,
)  # fmt: skip
INTERVALS = "Line: mean over seeds; band: 95 % interval; dotted: the knee, dashed: the target."
TRIED = "Every point that was run; the frontier joins those where less of one key needs more of the other."


@dataclass(frozen=True)
class Answer:
    """What was found at the points that were run.

    Attributes:
        kind: "sweep" or "size".
        points: with the rows of all runs.
        targets: what is to be reached.
        found: a knee of every curve, or the choices, the cheapest first.
        sentences: the same in words.
        command: how to repeat it.
    """

    kind: str
    points: Points
    targets: tuple[Target, ...]
    found: Sequence[Knee] | Sequence[Enough]
    sentences: tuple[str, ...]
    command: str = ""

    @property
    def table(self) -> pa.Table:
        """A row for each run; keys that vary are columns called by their paths, numbers in SI."""
        points = self.points
        rows = []
        for point, label, seed in self._order():
            values = {vary.path: self._number(k, point) for k, vary in enumerate(points.vary)}
            rows.append(values | {"policy": label, "seed": seed} | points.rows[point, label, seed])
        return pa.Table.from_pylist(rows)

    def summary(self) -> dict[str, Any]:
        """Plain values of everything: keys, targets, what was found, and every point with its means."""
        points = self.points
        return {
            "kind": self.kind,
            "scenario": points.base.name,
            "work": points.work,
            "vary": {vary.path: list(vary.values) for vary in points.vary},
            "targets": [str(target) for target in self.targets],
            "policies": list(points.labels),
            "fixed": dict(points.held),
            "seeds": list(points.seeds),
            "command": self.command,
            "sentences": list(self.sentences),
            "impossible": [{"point": list(point), "why": why} for point, why in points.impossible.items()],
            "found": [_plain(each._asdict()) for each in self.found],
            "points": [
                {"point": list(point), "policy": label}
                | {column: _plain(points.interval(point, label, column)) for column in points.columns}
                for point, label in self._tried()
            ],
        }

    def save(self, folder: str | Path) -> Path:
        """Write scenario, tables, figure, summary and report.

        Raises:
            RunError: they cannot be written.
        """
        place = Path(folder)
        figure = drawing.as_png(self._figure())
        scenario = dump_scenario(self.points.base)
        table = self.table
        texts = {"scenario.yaml": scenario, "summary.json": json.dumps(self.summary(), indent=1) + "\n"}
        for name, text in texts.items():
            write_whole(place / name, text, name)
        try:
            pq.write_table(table, place / "points.parquet", compression="zstd")
            csv.write_csv(table, place / "points.csv")
            (place / "figure.png").write_bytes(figure)
        except OSError as error:
            raise RunError(f"cannot write {place}: {error}; check the path and its rights") from error
        self._write_page(place / "report.html", figure, scenario)
        return place

    def _number(self, axis: int, point: Point) -> Any:
        vary = self.points.vary[axis]
        return point[axis] if vary.numbers is None else vary.numbers[vary.values.index(point[axis])]

    def _tried(self) -> list[tuple[Point, str]]:
        """Points and policies that were run, in order."""
        points = self.points
        ran = {(point, label) for point, label, _ in points.rows}
        return [
            each for each in product(product(*(v.values for v in points.vary)), points.labels) if each in ran
        ]

    def _order(self) -> list[tuple[Point, str, int]]:
        return [(point, label, seed) for point, label in self._tried() for seed in self.points.seeds]

    def _figure(self) -> Figure:
        points, values = self.points, [vary.values for vary in self.points.vary]
        if self.kind == "size" and len(values) == 2:
            tried = {point: knees.met(points, self.targets, point, label) for point, label in self._tried()}
            chosen = [each.point for each in self.found if isinstance(each, Enough)]
            return drawing.border(tried, chosen, [vary.path for vary in points.vary], values)
        column = self._asked()[0]
        curves = [
            self._curve(label, rest, column) for rest in product(*values[1:]) for label in points.labels
        ]
        target = self.targets[0].value if self.targets else None
        return drawing.curves(
            [one for one in curves if one.found], points.vary[0].path, points.columns[column], target
        )

    def _curve(self, label: str, rest: Point, column: str) -> Curve:
        vary, tried = self.points.vary[0], set(self._tried())
        at = vary.numbers or [float(k) for k in range(len(vary.values))]
        here = sorted(zip(at, vary.values, strict=True), key=lambda each: each[0])
        ran = [
            (x, value, found)
            for x, value in here
            if ((value, *rest), label) in tried
            and (found := self.points.interval((value, *rest), label, column)) is not None
        ]
        mine = [knee for knee in self.found if isinstance(knee, Knee) and knee[:2] == (label, rest)]
        bends = [knee.value for knee in mine if knee.kind in ("up to", "from", "break")]
        knee = next((at[vary.values.index(v)] if v in vary.values else v for v in bends), None)
        name = knees.curve_name(self.points, label, rest)
        return Curve(
            name, [str(value) for _, value, _ in ran], [x for x, *_ in ran], [i for *_, i in ran], knee
        )

    def shown(self, every: bool = False) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of the points: keys, policy, and means ± half an interval.

        Args:
            every: of every measure, or else of the targets' alone.
        """
        points = self.points
        chosen = list(points.columns) if every else self._asked()
        headings = [*points.names, "policy", *(points.columns[column].heading for column in chosen)]
        rows = []
        for point, label in self._tried():
            cells = [_cell(points.columns[one], points.interval(point, label, one)) for one in chosen]
            rows.append([*map(str, point), label, *cells])
        return headings, rows

    def _asked(self) -> list[str]:
        """Columns of the targets, or the first one."""
        asked = [self.points.column(target) for target in self.targets]
        return list(dict.fromkeys(asked)) or [next(iter(self.points.columns))]

    def _write_page(self, path: Path, figure: bytes, scenario: str) -> None:
        points = self.points
        headings, rows = self.shown(every=True)
        keys = [vary.path for vary in points.vary]
        two = self.kind == "size" and len(keys) == 2
        drawing.write_page(
            path,
            figure,
            kind=self.kind,
            title=f"{points.base.name}: {', '.join(keys)}",
            caption=TRIED if two else INTERVALS,
            facts={"Seeds": len(points.seeds), "Version": version("edgewise"), "Command": self.command},
            sentences=self.sentences,
            headings=headings,
            rows=rows,
            scenario=scenario,
        )


def sweep(points: Points, targets: Sequence[Target] = (), command: str = "") -> Answer:
    """How far a scenario carries: run every combination of values, and find each curve's knee.

    Args:
        points: what varies, and how it is run.
        targets: to be met; without any 99 % of the first measure, where that is a share.
    Raises:
        ScenarioError, PolicyError: something cannot be loaded.
    """
    wanted = _checked(points, targets)
    first = points.measures[0]
    if not wanted and first.share:
        wanted = (Target(points.work, first, True, 0.99),)
    points.run(product(*(vary.values for vary in points.vary)))
    if len(points.impossible) * len(points.labels) * len(points.seeds) == len(points.rows):
        raise ScenarioError(next(iter(points.impossible.values())))
    found = knees.knees(points, wanted)
    return Answer("sweep", points, wanted, found, tuple(knee.text for knee in found), command)


def size(points: Points, targets: Sequence[Target], command: str = "") -> Answer:
    """The cheapest hardware that surely meets targets, by few points of those allowed.

    Raises:
        EdgewiseError: no target, more than two keys, several policies, or one seed.
        ScenarioError, PolicyError: something cannot be loaded.
    """
    wanted = _checked(points, targets)
    if not wanted:
        raise EdgewiseError("--target: none given; say what to reach, for example streams.ok=99%")
    found = sizing.choices(points, wanted)
    return Answer("size", points, wanted, found, tuple(sizing.in_words(points, wanted, found)), command)


def _checked(points: Points, targets: Sequence[Target]) -> tuple[Target, ...]:
    for target in targets:
        points.column(target)  # says where it is of other work
    return tuple(targets)


def _cell(measure: Measure, found: Interval | None) -> str:
    """Mean and half of the interval as they are shown."""
    if found is None or found.high is None:
        return measure.shown(None if found is None else found.mean)
    return f"{measure.shown(found.mean)} ± {measure.shown(found.high - found.mean)}"


def _plain(value: Any) -> Any:
    """Intervals and tuples as JSON has them."""
    if isinstance(value, Interval):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
