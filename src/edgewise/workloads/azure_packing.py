"""Azure Trace for Packing 2020 (Hadary et al., OSDI 2020): virtual machines as jobs and on-demand load.

Reads the published sqlite file (tables vm and vmType) and CSV extracts of vm (vmId, tenantId, vmTypeId,
priority, starttime_s, endtime_s). Rows that make no sense are counted and left out.

Priority 0 is on-demand work, 1 is deferrable. Cores of a type: sqlite gives a fraction of a machine,
times `machine_cores`. An extract does not say; its types, from the most to the least frequent, then fill
the classes 1, 2, 4 and 8 cores up to the shares .51, .37, .08 and .04 of all virtual machines.

Machines that were alive before the trace began are missing, so load ramps up. `worlds_of` therefore does
not replay: it draws whole tenants with replacement and wraps their machines around the length of the
trace, which is the steady state of a day that repeats. The length of the trace is stretched over the
world: starts and lives, of load and of jobs alike, are in slots of length / slots seconds of the trace.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.defer import Trajectories
from edgewise.core.keyed import Purpose, uniform
from edgewise.errors import ScenarioError
from edgewise.model.work import DeferralPattern
from edgewise.workloads.batch_task import csv_rows, sensible
from edgewise.workloads.deferrable import LEADS, WINDOWS, gather, to_windows

CLASSES: Mapping[float, float] = {1.0: 0.51, 2.0: 0.37, 4.0: 0.08, 8.0: 0.04}
COLUMNS = ("vmId", "tenantId", "vmTypeId", "priority", "starttime_s", "endtime_s")
QUERY = """
SELECT vm.vmId, vm.tenantId, vm.vmTypeId, vm.priority, vm.starttime * 86400, vm.endtime * 86400,
       (SELECT MAX(core) FROM vmType WHERE vmType.vmTypeId = vm.vmTypeId) FROM vm
"""


@dataclass(frozen=True, slots=True)
class AzureTrace:
    """Virtual machines in order of start.

    Attributes:
        tenant: (V,) owner.
        on_demand: (V,) high priority.
        start_s, end_s: (V,) seconds since the trace began; infinite end: still alive when it ended.
        cores: (V,) of each machine.
        bad: reason → rows left out.
    """

    tenant: Ints
    on_demand: Bools
    start_s: Floats
    end_s: Floats
    cores: Floats
    bad: Mapping[str, int]


def read_azure_packing(path: str | Path, machine_cores: float = 64.0) -> AzureTrace:
    """Read an extract (.csv, .csv.gz) or the published file (.sqlite, .sqlite3, .db).

    Args:
        machine_cores: cores of a machine, for files that give fractions of it.
    Raises:
        ScenarioError: the file cannot be read, lacks a column, or has no usable row.
    """
    path, bad = Path(path), Counter[str]()
    raw = _sqlite_rows(path) if path.suffix in {".sqlite", ".sqlite3", ".db"} else _csv_rows(path)
    seen: set[str] = set()
    rows = sorted(sensible(raw, lambda row: _read(row, seen), bad), key=lambda row: row[3])
    if not rows:
        raise ScenarioError(f"{path}: no usable row; left out: {dict(bad) or 'nothing, the file is empty'}")
    tenant, kind, priority, start, end, share = (np.array(column) for column in zip(*rows, strict=True))
    cores = _cores_by_frequency(kind) if np.isnan(share).any() else np.maximum(share * machine_cores, 1.0)
    return AzureTrace(tenant, priority == 0, start, end, cores, dict(bad))


def _csv_rows(path: Path) -> Iterator[Sequence[object]]:
    rows = csv_rows(path)
    names = next(rows, [])
    if missing := [name for name in COLUMNS if name not in names]:
        raise ScenarioError(f"{path}: column {missing[0]!r} is missing; need {', '.join(COLUMNS)}")
    taken, short = itemgetter(*map(names.index, COLUMNS)), [""] * len(names)
    yield from (taken(row + short) for row in rows)


def _sqlite_rows(path: Path) -> Iterator[Sequence[object]]:
    import sqlite3  # nobody else here needs it

    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            yield from database.execute(QUERY)
    except sqlite3.Error as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None


def _read(row: Sequence[object], seen: set[str]) -> tuple[int, int, int, float, float, float] | str:
    """Tenant, type, priority, start, end and share of a machine, or what is wrong with a row."""
    ident, *numbers, start, end = map(str, row[:6])
    tenant, kind, priority = map(int, numbers)
    began, ended = float(start), np.inf if end in ("None", "") else float(end)
    share = float(str(row[6])) if len(row) > 6 else np.nan
    reasons = {
        "vmId seen before": ident in seen,
        "priority is neither 0 nor 1": priority not in (0, 1),
        "no start": not np.isfinite(began),
        "ends before it starts": not ended > began,
        "cores are not positive": share <= 0,
    }
    seen.add(ident)
    return next((why for why, so in reasons.items() if so), (tenant, kind, priority, began, ended, share))


def _cores_by_frequency(kind: Ints) -> Floats:
    """Cores of each machine, by how frequent its type is; see the module."""
    kinds, inverse, count = np.unique(kind, return_inverse=True, return_counts=True)
    order = np.argsort(-count, kind="stable")
    middle = (np.cumsum(count[order]) - count[order] / 2) / kind.size  # of each type's block of shares
    edges = np.cumsum(list(CLASSES.values()))
    cores = np.empty(kinds.size)
    cores[order] = np.array(list(CLASSES))[np.minimum(np.searchsorted(edges, middle), len(CLASSES) - 1)]
    return cores[inverse]


def worlds_of(
    trace: AzureTrace, pattern: DeferralPattern, seeds: Sequence[int], jobs_per_slot: float | None = None
) -> Trajectories:
    """Worlds from resampled tenants: on-demand load from high, deferrable jobs from low priority.

    On-demand load is scaled to the pattern's mean; jobs are drawn until there are `jobs_per_slot` of them
    per slot. Lead and window come from the pattern; jobs too long for the world are left out.
    """
    rate = pattern.jobs_per_slot if jobs_per_slot is None else jobs_per_slot
    slot_s = max(float(trace.start_s.max()), pattern.slot_s) / pattern.slots  # of the trace
    drawn, left = [], []
    for seed in seeds:
        high = _resample(trace, trace.on_demand, seed, 0, int(trace.on_demand.sum()))
        left.append(_left_over(trace, high, pattern, slot_s))
        low = _resample(trace, ~trace.on_demand, seed, 1, int(rate * pattern.slots))
        first, duration = _in_slots(trace, low, pattern, slot_s)
        fits = np.flatnonzero(duration <= pattern.slots)
        leads, windows = (
            np.asarray(uniform(seed, Purpose.DEFERRABLE, np.arange(fits.size), counter))
            for counter in (LEADS, WINDOWS)
        )
        demand = trace.cores[low[fits], None]
        lasts = duration[fits].astype(np.int64)
        drawn.append(to_windows(pattern, first[fits], lasts, leads, windows, demand))
    return gather(replace(pattern, memory_bytes_per_core=0.0), drawn, np.array(left)[:, :, None])


def _resample(trace: AzureTrace, chosen: Bools, seed: int, block: int, most: int) -> Ints:
    """Rows of tenants drawn with replacement until there are `most` of them."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(trace.tenant[rows], kind="stable")]
    _, first, count = np.unique(trace.tenant[rows], return_index=True, return_counts=True)
    draws = uniform(seed, Purpose.ON_DEMAND, np.arange(max(most, 1)), 100 + block)
    picks = (draws * first.size).astype(np.int64)
    picks = picks[: int(np.searchsorted(np.cumsum(count[picks]), most)) + 1]
    offsets = np.arange(count[picks].sum()) - np.repeat(np.cumsum(count[picks]) - count[picks], count[picks])
    found: Ints = rows[np.repeat(first[picks], count[picks]) + offsets][:most]
    return found


def _in_slots(trace: AzureTrace, rows: Ints, pattern: DeferralPattern, slot_s: float) -> tuple[Ints, Floats]:
    """First slot of each machine, wrapped around the trace, and how many slots it lives (inf: to the end)."""
    start_s = trace.start_s[rows]
    first = np.floor(start_s / slot_s).astype(np.int64) % pattern.slots  # starts before the trace wrap too
    return first, np.maximum(1.0, np.ceil((trace.end_s[rows] - start_s) / slot_s))


def _left_over(trace: AzureTrace, rows: Ints, pattern: DeferralPattern, slot_s: float) -> Floats:
    """(T,) cores that on-demand machines leave, wrapped around and scaled to the pattern's mean load."""
    first, lives = _in_slots(trace, rows, pattern, slot_s)
    slots = np.minimum(lives, pattern.slots).astype(np.int64)  # a day at most: then it is always on
    change = np.zeros(2 * pattern.slots + 1)
    np.add.at(change, first, trace.cores[rows])
    np.add.at(change, first + slots, -trace.cores[rows])
    twice = np.cumsum(change)[: 2 * pattern.slots]
    load = twice[: pattern.slots] + twice[pattern.slots :]
    load *= pattern.load_mean * pattern.total_cores / max(float(load.mean()), 1e-12)
    return np.floor(np.clip(pattern.total_cores - load, 0.0, pattern.total_cores))
