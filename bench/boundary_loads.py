"""Loads of a factory that ran live and simulated, and from which on the two part: see `bench.boundary`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from bench import live_beside

DURATION_S = 30.0
RATE_QPS = 5.0  # of a camera, as the factory has it
KINDS = {"streams": "in time", "services": "in time"}  # whose shares the boundary is of


class Size(NamedTuple):
    """A factory, and the machine that carries it.

    Attributes:
        cpus: processors that everything shares.
        halls: of the factory.
        buffer_bytes: how much may wait for the link to the cloud; 0: no bound.
    """

    cpus: int
    halls: int
    buffer_bytes: int = 0

    def named(self) -> str:
        """In words."""
        bound = f", {self.buffer_bytes / 1e3:g} kB may wait for the link" * bool(self.buffer_bytes)
        return f"{self.halls} halls on {self.cpus} processor{'s' * (self.cpus > 1)}{bound}"


class Load(NamedTuple):
    """All runs of one size and load, in the mean.

    Attributes:
        size: of the factory and the machine.
        cameras: in each hall.
        seeds: how many runs.
        waited: share of the time in which processes could run and waited to.
        cores: that processes took, of all of them together.
        others: that everything else on the machine took meanwhile.
        shares: by kind of work, live and simulated.
        p50_s: of cameras' queries, live and simulated.
        p95_s: the same.
    """

    size: Size
    cameras: int
    seeds: int
    waited: float
    cores: float
    others: float
    shares: dict[str, tuple[float, float]]
    p50_s: tuple[float, float]
    p95_s: tuple[float, float]

    @property
    def offered_qps(self) -> float:
        """Queries that all cameras together send."""
        return self.size.halls * self.cameras * RATE_QPS

    def off(self) -> float:
        """Points by which the share that is furthest off is off, with its sign."""
        return max((100.0 * (live - simulated) for live, simulated in self.shares.values()), key=abs)


def read_loads(folder: Path) -> list[Load]:
    """What the runs of a folder came to, those that failed left out; by size and load."""
    runs: dict[tuple[Size, int], list[dict[str, Any]]] = {}
    for row in live_beside.read_rows(folder):
        if "failed" not in row:
            runs.setdefault((size_of(row), row["cameras"]), []).append(row)
    return [_load(*at, rows) for at, rows in sorted(runs.items())]


def each_run(folder: Path) -> list[Load]:
    """The same, each run by itself."""
    rows = [row for row in live_beside.read_rows(folder) if "failed" not in row]
    return [_load(size_of(row), row["cameras"], [row]) for row in rows]


def size_of(row: dict[str, Any]) -> Size:
    """Of a run."""
    return Size(*(row[name] for name in Size._fields))


def _load(size: Size, cameras: int, rows: Sequence[dict[str, Any]]) -> Load:
    def mean(work: str, name: str) -> tuple[float, float]:
        live, simulated = ([row[side][work][name] for row in rows] for side in ("live", "simulated"))
        return fmean(live), fmean(simulated)

    shares = {work: mean(work, name) for work, name in KINDS.items()}
    waited, others = (fmean(row[name] for row in rows) for name in ("waited", "others"))
    cores = fmean(sum(ran for ran, *_ in row["cores"].values()) for row in rows)
    delays = (mean("streams", "cameras p50_s"), mean("streams", "cameras p95_s"))
    return Load(size, cameras, len(rows), waited, cores, others, shares, *delays)


def by_size(loads: Sequence[Load]) -> dict[Size, list[Load]]:
    """Those of each size, from light to heavy."""
    found: dict[Size, list[Load]] = {}
    for each in sorted(loads, key=lambda load: load.cameras):
        found.setdefault(each.size, []).append(each)
    return dict(sorted(found.items()))


def boundary(loads: Sequence[Load]) -> Load | None:
    """Of one size: the least load of those that are too far off and have none behind them that is not.

    None where the heaviest is near enough.
    """
    found = None
    for load in sorted(loads, key=lambda each: -each.cameras):
        if abs(load.off()) <= live_beside.POINTS:
            break
        found = load
    return found
