"""The runs of a sweep: one for each point, policy and seed, kept as they end, so that none is done twice.

A point is a value for each varied key. Its scenario is loaded anew with these set, as by `--set`.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any

from edgewise import api, parallel
from edgewise.config import load_scenario
from edgewise.core.guard import Decided
from edgewise.errors import EdgewiseError, PolicyError, RunError, ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.report.decided import as_json, of_json
from edgewise.report.intervals import Interval, mean_interval
from edgewise.report.schema import WORK, Measure, measures_of
from edgewise.report.summary import summary_of
from edgewise.run import assigning
from edgewise.run.result import Result
from edgewise.sweeps.vary import Target, Vary

KEPT = "runs.jsonl"
Point = tuple[Any, ...]


@dataclass
class Points:
    """A scenario at points, under policies, on seeds.

    Attributes:
        source: file or name of the scenario.
        changes: path → value, set at every point.
        vary: the keys that vary; a point has a value for each.
        policies: alternatives of one decision, as `api.compare` takes them; none: the scenario's.
        fixed: policies of the other decisions.
        of: kind of work that is run where no policy says it; "": the first of the scenario.
        seeds: of every point.
        jobs, on: as `parallel.each` takes them.
        folder: where the rows of finished runs are kept; None: nowhere.
        resume: take the rows of the same runs that are kept there, or else forget them.
        progress: is called with the number of runs that are asked for, and later that of those that ended.
        rows: of each (point, policy, seed) its measures.
        impossible: points at which there can be no such scenario or no run of it, and why.
    """

    source: str
    vary: tuple[Vary, ...]
    policies: api.Alternatives = ()
    fixed: Mapping[Any, api.Policy] = field(default_factory=dict)
    of: str = ""
    seeds: tuple[int, ...] = tuple(range(10))
    changes: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    on: str = ""
    folder: Path | None = None
    resume: bool = False
    progress: Callable[[int, int], None] = lambda asked, ended: None
    rows: dict[tuple[Point, str, int], dict[str, Any]] = field(default_factory=dict)
    impossible: dict[Point, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({vary.path for vary in self.vary}) < len(self.vary):
            raise RunError("--vary: a path is given twice; give each once, with all its values")
        if not self.seeds:
            raise PolicyError("seeds: none given; use for example --seeds 0:10")
        self.base = self._base()
        if self.of in self.base.holds and not (self.policies or self.fixed):
            self.fixed = assigning.defaults(self.base, self.of)
        self.work, self._makers, self.held = api.alternatives(self.base, self.policies, self.fixed, "sweep")
        self.labels = tuple(self._makers)
        self.columns = {
            _column(work, measure, self.work): measure
            for work in assigning.beside(self.base, self.work)
            for measure in WORK[work].measures
        }
        self._code = _digest_of_files([*_listed(self.policies), *self.fixed.values()])
        self._known = self.kept() if self.resume else {}
        if self.folder is not None and not self.resume:
            (self.folder / KEPT).unlink(missing_ok=True)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Of the kind of work that varies, in the runs so far."""
        return measures_of(self.work, self.rows.values())

    def scenario(self, point: Point, more: Mapping[str, Any] = MappingProxyType({})) -> Scenario:
        """The scenario at a point, with more changes by path.

        Raises:
            ScenarioError: a path does not exist, or a value does not fit; names the nearest.
        """
        chosen = {vary.path: value for vary, value in zip(self.vary, point, strict=True)}
        return load_scenario(self.source, {**self.changes, **chosen, **more})

    def result(self, scenario: Scenario, label: str, seeds: Sequence[int]) -> Result:
        """All records of a scenario under a policy, which are not kept."""
        return api.simulated(scenario, self.work, {label: self._makers[label]}, self.held, seeds)

    def possible(self, point: Point) -> bool:
        """Whether there can be such a scenario; else `impossible` says why not."""
        if point not in self.impossible:
            try:
                self.scenario(point)
            except ScenarioError as error:
                self._cannot_run(point, str(error))
        return point not in self.impossible

    @property
    def names(self) -> list[str]:
        """Of the keys: the last part of each path, or whole paths where these would be the same."""
        last = [vary.name for vary in self.vary]
        return last if len(set(last)) == len(last) else [vary.path for vary in self.vary]

    def _base(self) -> Scenario:
        """The scenario with the first values; with the last ones where few nodes do not hold its workers."""
        try:
            return self.scenario(tuple(vary.values[0] for vary in self.vary))
        except ScenarioError as error:
            try:
                return self.scenario(tuple(vary.values[-1] for vary in self.vary))
            except ScenarioError:
                raise error from None

    def run(self, points: Iterable[Point]) -> None:
        """Have the rows of points under every policy and seed; all are loaded before the first one runs."""
        wanted = []
        for point in points:
            try:
                scenario = self.scenario(point)
            except ScenarioError as error:  # too small for what it is to hold, for example
                self._cannot_run(point, str(error))
                continue
            spec = hashlib.sha256(scenario.spec.model_dump_json().encode()).hexdigest()
            for label in self.labels:
                for seed in self.seeds:
                    key = f"{spec[:16]} {self._code} {label} {json.dumps(self.held)} {seed}"
                    if key in self._known:
                        self.rows[point, label, seed] = self._known[key]
                    elif (point, label, seed) not in self.rows:
                        wanted.append((key, scenario, point, label, seed))
        self.progress(len(wanted), 0)
        tasks = [(each[1], self.work, self._makers[each[3]], *each[3:]) for each in wanted]
        for number, row in parallel.each(measured, tasks, self.jobs, self.on):
            key, _, point, label, seed = wanted[number]
            self.progress(0, 1)
            if isinstance(row, str):
                self._cannot_run(point, row)
            else:
                self.rows[point, label, seed] = row
                self._keep(key, row)

    def _cannot_run(self, point: Point, why: str) -> None:
        """A point at which nothing is measured, so that it meets no target."""
        self.impossible[point] = why
        nothing: dict[str, Any] = {"decided": {}, "records": None} | dict.fromkeys(self.columns)
        self.rows |= {(point, label, seed): nothing for label in self.labels for seed in self.seeds}

    def interval(self, point: Point, label: str, measure: str) -> Interval | None:
        """A measure at a point: mean over seeds and its 95 % interval; None where no seed has a value."""
        found = self.values(point, label, measure)
        return mean_interval(found, possible=self.columns[measure].possible) if found else None

    def decided(self, point: Point | None = None, seed: int | None = None) -> dict[str, dict[str, Decided]]:
        """By label and decision how often policies were to decide, and did not.

        Args:
            point, seed: only there, and only under it; None: at all points, under all seeds.
        """
        found: dict[str, dict[str, Decided]] = {}
        for (at, label, under), row in self.rows.items():
            if point in (None, at) and seed in (None, under):
                for of in of_json(row["decided"]).values():
                    known = found.setdefault(label, {})
                    for decision, one in of.items():
                        known[decision] = known[decision] + one if decision in known else one
        return found

    def column(self, target: Target) -> str:
        """Where the measure of a target stands.

        Raises:
            EdgewiseError: no such work is run.
        """
        column = _column(target.work, target.measure, self.work)
        if column not in self.columns:
            run = " and ".join(assigning.beside(self.base, self.work))
            raise EdgewiseError(f"target {target}: is of {target.work}, but {run} are run; name their policy")
        return column

    def values(self, point: Point, label: str, measure: str) -> list[float]:
        """A measure at a point by seed, without seeds that have no value."""
        rows = [self.rows[point, label, seed] for seed in self.seeds]
        return [float(row[measure]) for row in rows if row[measure] is not None]

    def alike(self) -> list[list[str]]:
        """Policies whose records are identical at every point that was run, with every seed."""
        found: dict[frozenset[Any], list[str]] = {}
        for label in self.labels:
            mine = {(p, seed): row for (p, each, seed), row in self.rows.items() if each == label}
            records = frozenset((*where, row.get("records")) for where, row in mine.items())
            found.setdefault(records, []).append(label)
        return [names for names in found.values() if len(names) > 1]

    def _keep(self, key: str, row: Mapping[str, Any]) -> None:
        if self.folder is not None:
            with (self.folder / KEPT).open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, row]) + "\n")

    def kept(self) -> dict[str, dict[str, Any]]:
        """Rows in the folder by key; a last line that was cut off is taken away."""
        file = None if self.folder is None else self.folder / KEPT
        if file is None or not file.is_file():
            return {}
        text = file.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            file.write_text(whole, encoding="utf-8")
        try:
            found = dict(json.loads(line) for line in whole.splitlines())
            return {key: row for key, row in found.items() if "decided" in row}  # older ones do not say it
        except (TypeError, ValueError) as error:
            raise RunError(f"{file}: is damaged ({error}); delete it, or leave --resume out") from None


def measured(
    scenario: Scenario, work: str, makers: Mapping[str, Any], label: str, seed: int
) -> dict[str, Any] | str:
    """Measures of one run, what the fallback decided, and a digest of records; or why it cannot be run."""
    try:
        result = api.simulated(scenario, work, {label: makers}, {}, (seed,))
    except ScenarioError as error:  # more load than there are servers, for example
        return str(error)
    found: dict[str, Any] = {"decided": as_json(result.all_decided), "records": result.digest}
    for each in (result, *result.beside.values()):
        row = next(iter(summary_of(each.work, each.items, each.windows)), None)
        if row is None and each.work == work:
            return f"with seed {seed} none of its {work} comes; take more of them, or a longer duration_s"
        found |= {
            _column(each.work, measure, work): row and row[measure.key]
            for measure in WORK[each.work].measures
        }
    return found


def _column(work: str, measure: Measure, first: str) -> str:
    """Of the work that is judged the measure's key; of that beside it also which work it is."""
    return measure.key if work == first else f"{work}.{measure.key}"


def _listed(policies: api.Alternatives) -> list[api.Policy]:
    if isinstance(policies, Mapping):
        return [policy for names in policies.values() for policy in names]
    return list(policies)


def _digest_of_files(policies: Sequence[api.Policy]) -> str:
    """Changes with this version of edgewise and with the files that policies are in."""
    files = [path.read_bytes() for path in map(_file_of, policies) if path is not None and path.is_file()]
    return hashlib.sha256(b" ".join([version("edgewise").encode(), *files])).hexdigest()[:16]


def _file_of(policy: api.Policy) -> Path | None:
    if isinstance(policy, str | Path):
        return Path(str(policy).rpartition(":")[0] or str(policy))
    with suppress(TypeError, OSError):  # of an instance that is callable, or written at a prompt
        source = inspect.getsourcefile(policy if isinstance(policy, type | FunctionType) else type(policy))
        return Path(source) if source else None
    return None


def price(scenario: Scenario) -> tuple[float, str]:
    """What the hardware of a scenario costs, and in what: its nodes' `cost`, else their cores."""
    if costs := [node.cost for node in scenario.topology.nodes if node.cost is not None]:
        return math.fsum(costs), "cost"
    return sum(node.resources.cpu_cores for node in scenario.topology.nodes), "cores"
