"""Alibaba cluster-trace-v2018, table `batch_task`, as requests for services (KaiS, section IV-A).

The published table has no header: task_name, instance_num, job_name, task_type, status, start_time,
end_time, plan_cpu (100 is a core), plan_mem (share of the largest machine, in percent). Line ends may be
CRLF and rows may end in a comma. Rows that make no sense are counted by reason and left out; rows with
end <= start, which the table has for unfinished tasks, are among them.

Services: the trace holds 11 task types, one of them over 80 % of all rows, so a type alone is no service.
A service here is a type and a class of demand: the 30 most frequent triples (task_type, plan_cpu,
plan_mem), from the most to the least frequent. They cover 99 % of rows. Any other row belongs to the
service closest by |Δ log plan_cpu| + |Δ log plan_mem|, among those of its type if there is one.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.errors import ScenarioError

COLUMNS = (
    "task_name",
    "instance_num",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
)
SERVICES = 30
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class BatchTasks:
    """Usable rows in order of start.

    Attributes:
        job: (R,) number of the job, in order of appearance.
        kind: (R,) task_type.
        start_s, duration_s: (R,) seconds; durations are positive.
        cpu_cores: (R,) planned.
        memory_share: (R,) planned, in percent of the largest machine.
        bad: reason → rows left out.
    """

    job: Ints
    kind: Ints
    start_s: Floats
    duration_s: Floats
    cpu_cores: Floats
    memory_share: Floats
    bad: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BatchModel:
    """What is kept of a trace: services and how they arrive.

    Attributes:
        share: (W,) of all requests, by service; falls.
        kind: (W,) task_type.
        cpu_cores: (W,) that a request needs.
        memory_share: (W,) percent of the largest machine.
        duration_s: (W, Q) quantiles of the duration at `QUANTILES`.
        gap_s: (Q,) quantiles of the time between two starts that differ.
        batch: (Q,) quantiles of how many tasks start in the same second.
        sticky: chance that a task needs the service of the one before it in its batch.
    """

    share: Floats
    kind: Ints
    cpu_cores: Floats
    memory_share: Floats
    duration_s: Floats
    gap_s: Floats
    batch: Floats
    sticky: float

    def to_json(self) -> dict[str, object]:
        """Plain values, rounded so that the file stays small."""
        arrays = {name: getattr(self, name) for name in self.__slots__ if name != "sticky"}
        return {name: np.round(values, 6).tolist() for name, values in arrays.items()} | {
            "sticky": round(self.sticky, 6),
            "quantiles": list(QUANTILES),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, object]) -> "BatchModel":
        """The model of `to_json`.

        Raises:
            ScenarioError: a key is missing, or the quantiles are others.
        """
        if list(QUANTILES) != plain.get("quantiles"):
            raise ScenarioError(f"quantiles {plain.get('quantiles')}: need {list(QUANTILES)}; fit it anew")
        try:
            arrays: dict[str, Any] = {
                name: np.array(plain[name], dtype=np.int64 if name == "kind" else np.float64)
                for name in cls.__slots__
                if name != "sticky"
            }
            return cls(**arrays, sticky=float(str(plain["sticky"])))
        except KeyError as error:
            raise ScenarioError(f"batch model: key {error} is missing; fit it anew") from None


def read_batch_tasks(paths: Path | str | Sequence[Path | str]) -> BatchTasks:
    """Read one or more files (.csv or .csv.gz) of the published layout.

    Raises:
        ScenarioError: a file cannot be read, or no row is usable.
    """
    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    bad: Counter[str] = Counter()
    raw = (row for path in files for row in csv_rows(path))
    rows = sorted(sensible(raw, _read, bad), key=lambda row: row[2])
    if not rows:
        raise ScenarioError(
            f"{', '.join(map(str, files)) or 'no file'}: no usable row; left out: {dict(bad) or 'none'}"
        )
    jobs, kind, start, duration, cpu, memory = map(np.array, zip(*rows, strict=True))
    number = {name: index for index, name in enumerate(dict.fromkeys(jobs))}
    job = np.array([number[name] for name in jobs])
    return BatchTasks(job, kind, start, duration, cpu, memory, dict(bad))


def csv_rows(path: Path) -> Iterator[list[str]]:
    """Rows of a file (.csv or .csv.gz) that are not empty.

    Raises:
        ScenarioError: it cannot be read.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield from filter(None, csv.reader(file))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None


def sensible(
    rows: Iterable[Any], read: Callable[[Any], tuple[Any, ...] | str], bad: Counter[str]
) -> Iterator[Any]:
    """What `read` makes of rows; those that it says a reason of are counted by it in `bad` and left out."""
    for row in rows:
        try:
            found = read(row)
        except ValueError:
            found = "not a number"
        if isinstance(found, str):
            bad[found] += 1
        else:
            yield found


def _read(row: Sequence[str]) -> tuple[str, int, float, float, float, float] | str:
    """Job, task_type, start, duration, cores and memory share of a row, or what is wrong with it."""
    if len(row) < len(COLUMNS) or any(row[len(COLUMNS) :]):
        return f"{'fewer' if len(row) < len(COLUMNS) else 'more'} than {len(COLUMNS)} columns"
    kind, (start, end, cpu, memory) = int(row[3]), map(float, row[5:9])
    reasons = {
        "not finite": not np.isfinite([start, end, cpu, memory]).all(),
        "ends before it starts, or at once": end <= start,
        "plan_cpu is not positive": cpu <= 0.0,
        "plan_mem is not positive": memory <= 0.0,
    }
    return next(
        (why for why, so in reasons.items() if so), (row[2], kind, start, end - start, cpu / 100.0, memory)
    )


def services_of(trace: BatchTasks, services: int = SERVICES) -> tuple[Ints, Floats]:
    """Service of each row by the rule of the module.

    Returns:
        (R,) service; (W, 3) task_type, cores, memory share of each service, W <= services.
    """
    triples = np.stack([trace.kind, trace.cpu_cores, trace.memory_share], axis=1)
    keys, inverse, count = np.unique(triples, axis=0, return_inverse=True, return_counts=True)
    chosen = keys[np.argsort(-count, kind="stable")[:services]]
    distance = np.abs(np.log(keys[:, None, 1:]) - np.log(chosen[None, :, 1:])).sum(axis=2)
    other_type = keys[:, None, 0] != chosen[None, :, 0]
    service_of_key = np.argmin(distance + 1e6 * other_type, axis=1)
    return service_of_key[inverse.reshape(-1)].astype(np.int64), chosen


def fit(trace: BatchTasks, services: int = SERVICES) -> BatchModel:
    """Quantiles and shares of a trace."""
    service, chosen = services_of(trace, services)
    share = np.bincount(service, minlength=len(chosen)) / service.size
    durations = np.stack(
        [np.quantile(trace.duration_s[service == index], QUANTILES) for index in range(len(chosen))]
    )
    starts, first, batch = np.unique(trace.start_s, return_index=True, return_counts=True)
    inside = np.ones(service.size, dtype=bool)
    inside[first] = False
    same = service[1:][inside[1:]] == service[:-1][inside[1:]]
    expected = float((share**2).sum())  # two independent tasks agree so often anyway
    sticky = max(0.0, (float(same.mean()) - expected) / (1.0 - expected)) if same.size else 0.0
    return BatchModel(
        share,
        chosen[:, 0].astype(np.int64),
        chosen[:, 1],
        chosen[:, 2],
        durations,
        np.quantile(np.diff(starts), QUANTILES) if starts.size > 1 else np.ones(len(QUANTILES)),
        np.quantile(batch, QUANTILES).astype(np.float64),
        sticky,
    )
