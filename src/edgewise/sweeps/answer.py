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

import base64
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
from edgewise.report import decided, words
from edgewise.report.html import environment
from edgewise.report.intervals import Interval
from edgewise.report.records import write_whole
from edgewise.report.style import as_png
from edgewise.run.result import said_alike
from edgewise.sweeps import size as sizing, verdicts
from edgewise.sweeps.figures import Curve, border, curves
from edgewise.sweeps.limited import LimitedPoint, limited
from edgewise.sweeps.points import KEPT, Point, Points
from edgewise.sweeps.size import Enough, Knee
from edgewise.sweeps.vary import Target


def write_page(path: Path, image: bytes, **found: Any) -> None:
    """Write the page of a sweep or of the demo, whole or not at all.

    Args:
        image: PNG of its figure.
        found: kind, title, sentences, facts, caption, section, about, headings, rows and scenario, as the
            template names them.
    Raises:
        RunError: it cannot be written.
    """
    data = base64.b64encode(image).decode("ascii")
    write_whole(path, environment().get_template("sweep.html.j2").render(image=data, **found), "report")


FILES = (
    "scenario.yaml", "points.parquet", "points.csv", "summary.json", "figure.png", "report.html", KEPT,
)  # fmt: skip
CURVES = 6  # whose limits are named
INTERVALS = (
    "Line: mean over seeds; band: 95 % interval; dotted: the knee, dashed: the target, star: the choice."
)
TRIED = "Every point that was run; stars are those chosen, where less of one key needs more of the other."


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
        limited: what limits, where targets are missed, and of what was found.
    """

    kind: str
    points: Points
    targets: tuple[Target, ...]
    found: Sequence[Knee] | Sequence[Enough]
    sentences: tuple[str, ...]
    command: str = ""
    limited: tuple[LimitedPoint, ...] = ()

    @property
    def table(self) -> pa.Table:
        """A row for each run; keys that vary are columns called by their paths, numbers in SI."""
        points = self.points
        rows = []
        for point, label, seed in self._order():
            values = {vary.path: self._number(k, point) for k, vary in enumerate(points.vary)}
            measures = {name: points.rows[point, label, seed][name] for name in points.columns}
            stood_in = {"fallback_share": decided.share(points.decided(point, seed), label)}
            rows.append(values | {"policy": label, "seed": seed} | stood_in | measures)
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
            "limited": [each.as_json() for each in self.limited],
            "decided": decided.as_json(points.decided()),
            "points": [
                {
                    "point": list(point),
                    "policy": label,
                    "fallback_share": decided.share(points.decided(point), label),
                }
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
        figure = as_png(self._figure())
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
            tried = {point: sizing.met(points, self.targets, point, label) for point, label in self._tried()}
            chosen = [each.point for each in self.found if isinstance(each, Enough)]
            return border(tried, chosen, [vary.path for vary in points.vary], values)
        column = self._asked()[0]
        drawn = [self._curve(label, rest, column) for rest in product(*values[1:]) for label in points.labels]
        target = self.targets[0].value if self.targets else None
        return curves(
            [one for one in drawn if one.found], points.vary[0].path, points.columns[column], target
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
        name = sizing.curve_name(self.points, label, rest)
        enough = {each.point[0] for each in self.found if isinstance(each, Enough)}
        chosen = next((x for x, value, _ in ran if value in enough), None)
        shown = [str(value) for _, value, _ in ran]
        return Curve(name, shown, [x for x, *_ in ran], [i for *_, i in ran], knee, chosen)

    def shown(self, every: bool = False) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of the points: keys, policy, and means with their intervals.

        Args:
            every: of every measure, or else of the targets' alone.
        """
        points = self.points
        some = [one for one in points.columns if any(row[one] is not None for row in points.rows.values())]
        chosen = some if every else self._asked()
        tried = verdicts.best_first(points, self._tried(), self._asked()[0])
        columns = [(name, [str(point[k]) for point, _ in tried]) for k, name in enumerate(points.names)]
        columns.append(("policy", [label for _, label in tried]))
        for one in chosen:
            cells = [sizing.with_ends(points.columns[one], points.interval(*each, one)) for each in tried]
            columns.append((points.columns[one].heading, cells))
        columns.append(("verdict", [verdicts.in_words(points, self.targets, each) for each in tried]))
        columns.append(("left over", [verdicts.left_over(points, each) for each in tried]))
        shares = [decided.column(points.decided(point), [label]) for point, label in tried]
        if any(shares):
            columns.append((decided.HEADING, [each[0] if each else "0.0" for each in shares]))
        said = [(heading, cells) for heading, cells in columns if any(cells)]
        return [heading for heading, _ in said], [
            list(row) for row in zip(*(c for _, c in said), strict=True)
        ]

    def _asked(self) -> list[str]:
        """Columns of the targets, or the first one."""
        asked = [self.points.column(target) for target in self.targets]
        return list(dict.fromkeys(asked)) or [self.points.measures[0].key]

    def _write_page(self, path: Path, figure: bytes, scenario: str) -> None:
        points = self.points
        headings, rows = self.shown(every=True)
        keys = [vary.path for vary in points.vary]
        two = self.kind == "size" and len(keys) == 2
        write_page(
            path,
            figure,
            kind=self.kind,
            title=f"{points.base.name}: {', '.join(keys)}",
            caption=TRIED if two else INTERVALS,
            facts={
                **words.scenario(points.base),
                "Policies": "; ".join(words.policies(points.decided(), points.labels)),
                "Seeds": len(points.seeds),
                "Version": version("edgewise"),
                "Command": self.command,
            },
            sentences=(*self.sentences, *decided.lines(points.decided())),
            section="Points",
            about="Means over seeds, and their 95 % intervals; the scenario is that of the first point.",
            headings=headings,
            rows=rows,
            scenario=scenario,
        )


def sweep(points: Points, targets: Sequence[Target] = (), command: str = "", cure: bool = False) -> Answer:
    """How far a scenario carries: run every combination of values, and find each curve's knee.

    Args:
        points: what varies, and how it is run.
        targets: to be met; without any 99 % of the first measure, where that is a share.
        cure: try by simulation what would help.
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
    found = sizing.knees(points, wanted)
    sentences = [*(knee.text for knee in found), *said_alike(points.alike()), *sizing.cannot_be(points)]
    named = []
    for knee in found[:CURVES]:
        point = (_beyond(points, knee), *knee.others)
        if point not in points.impossible:
            named.append(limited(points, wanted, point, knee.policy, cure and bool(wanted)))
            name = sizing.curve_name(points, knee.policy, knee.others)
            sentences += [f"{name}, at {point[0]}: {line}" for line in named[-1].lines]
    return Answer("sweep", points, wanted, found, tuple(sentences), command, tuple(named))


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
    sentences = sizing.in_words(points, wanted, found)
    point = found[0].point if found else sizing.most_of(points)
    named = []
    if points.possible(point) and point not in points.impossible:
        named.append(limited(points, wanted, point, points.labels[0], cure=not found))
        where = sizing.as_text(points, point)
        sentences += [f"{where}: {line}" for line in named[0].lines]
        if not found and (aside := _not_raised(points, named[0])):
            sentences.append(aside)
    return Answer("size", points, wanted, found, tuple(sentences), command, tuple(named))


def _beyond(points: Points, knee: Knee) -> Any:
    """The value at which it is worth to know what limits: the first that is surely too much, or the last.

    Of those that can be run, the one that is nearest to it.
    """
    values = points.vary[0].values
    ends = values[0 if knee.kind == "from" else -1]
    wanted = values.index(ends if knee.missed is None else knee.missed)
    ran = [k for k, value in enumerate(values) if (value, *knee.others) not in points.impossible]
    return values[min(ran, key=lambda k: abs(k - wanted), default=wanted)]


def _not_raised(points: Points, what: LimitedPoint) -> str | None:
    """That the keys that were varied do not raise what limits."""
    cures = [path for limit in what.limits[:1] for cure in limit.cures[:1] for path, _ in cure.changes]
    ends = {(path.split(".")[0], path.split(".")[-1]) for path in cures}
    varied = {(vary.path.split(".")[0], vary.path.split(".")[-1]) for vary in points.vary}
    if not cures or ends & varied or any(vary.is_load for vary in points.vary):
        return None
    keys = " and ".join(vary.path for vary in points.vary)
    return f"more of {keys} does not cure it: what limits is the {what.limits[0].kind} {what.limits[0].name}"


def _checked(points: Points, targets: Sequence[Target]) -> tuple[Target, ...]:
    for target in targets:
        points.column(target)  # says where it is of other work
    return tuple(targets)


def _plain(value: Any) -> Any:
    """Intervals and tuples as JSON has them."""
    if isinstance(value, Interval):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
