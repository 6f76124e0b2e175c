"""Deferrable jobs and left-over capacity, drawn from a pattern.

`PAPER` is calibrated on FIFO's, SJF's and Tetris's figures in OSDEC's table 1, FIFO's first; it was
fixed, with its hash, before any policy was trained on it (docs/deferrable.md).
Every draw is a hash of (seed, purpose, entity): worlds of a seed are the same under every policy.

Azure Trace for Packing 2020 (Hadary et al., OSDI 2020): virtual machines as jobs and on-demand load.

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
from edgewise.config import load_scenario
from edgewise.core.defer import Trajectories
from edgewise.core.keyed import Purpose, uniform
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Resources
from edgewise.model.work import DeferrableJob, DeferralPattern, Jobs
from edgewise.workloads.batch_task import csv_rows, sensible
from edgewise.workloads.hours import weights

CORE_CASES = ((0.51, 0.37, 0.08, 0.04), (0.25, 0.25, 0.25, 0.25), (0.4, 0.3, 0.2, 0.1))
DURATION_CASES = (
    (1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6),
    (0.4, 0.25, 0.15, 0.1, 0.05, 0.05),
    (0.6, 0.25, 0.1, 0.05, 0.0, 0.0),
)
COUNTS, CORES, DURATIONS, LEADS, WINDOWS, MEMORY = range(6)  # counters of a job's draws


def jobs_of(scenario: Scenario | str) -> Jobs:
    """The jobs of a scenario.

    Raises:
        ScenarioError: it cannot be loaded, or holds no jobs.
    """
    loaded = load_scenario(scenario) if isinstance(scenario, str) else scenario
    if loaded.jobs is None:
        raise ScenarioError(f"scenario {loaded.name!r}: holds no jobs; add a section 'jobs'")
    return loaded.jobs


PAPER = jobs_of("deferrable").pattern


def cases() -> dict[str, DeferralPattern]:
    """The six distributions of the paper's table 4, as "core-1" … "duration-3".

    Capacity grows with the mean size of a job, its deviations in cores stay; the platform has 400 cores so
    that there is room for the largest. "core-1" and "duration-3" are both `PAPER`'s distributions.
    """
    by_cores = {f"core-{i + 1}": _case(core_shares=shares) for i, shares in enumerate(CORE_CASES)}
    by_duration = {
        f"duration-{i + 1}": _case(duration_shares=shares) for i, shares in enumerate(DURATION_CASES)
    }
    return by_cores | by_duration


def _case(**shares: tuple[float, ...]) -> DeferralPattern:
    pattern = replace(PAPER, **shares)  # type: ignore[arg-type]
    more = _job_size(pattern) / _job_size(PAPER)
    return replace(
        pattern,
        total_cores=400.0,
        load_mean=1.0 - (1.0 - PAPER.load_mean) * more / 4.0,
        load_swing=PAPER.load_swing / 4.0,
        load_noise=PAPER.load_noise / 4.0,
    )


def _job_size(pattern: DeferralPattern) -> float:
    """Mean core-slots of a job."""
    return float(
        np.dot(pattern.cores, pattern.core_shares) * np.dot(pattern.durations, pattern.duration_shares)
    )


def generate(
    pattern: DeferralPattern, seeds: Sequence[int], submitted: Sequence[DeferrableJob] = ()
) -> Trajectories:
    """One world for each seed.

    Args:
        submitted: jobs that every world has besides those that are drawn.

    No job is drawn that could not end inside the world, were it started last thing.

    Returns:
        Worlds with jobs sorted by submission.
    """
    cores = np.array([left_over_cores(pattern, seed) for seed in seeds])
    per_core = np.array([1.0, pattern.memory_per_core()][: _kinds(pattern)])
    listed = _listed(pattern, submitted)
    jobs = [_together(_jobs(pattern, seed), listed) for seed in seeds]
    return gather(pattern, jobs, cores[:, :, None] * per_core)


def jobs_apart(jobs: Jobs, seed: int) -> list[DeferrableJob]:
    """The jobs of `generate` one by one, in seconds: those that are drawn, then those that are listed."""
    pattern, slot_s = jobs.pattern, jobs.pattern.slot_s
    table, demand = _jobs(pattern, seed)
    found = []
    for i, (row, needs) in enumerate(zip(table.tolist(), demand.tolist(), strict=True)):
        submitted_s, earliest_s, latest_s, duration_s = (slot * slot_s for slot in row)
        found.append(
            DeferrableJob(
                i, Resources(*needs), duration_s, submitted_s, earliest_s, latest_s,
                checkpoint_s=jobs.checkpoint_s, checkpoint_bytes=jobs.checkpoint_bytes,
            )
        )  # fmt: skip
    return found + [replace(job, id=len(found) + i) for i, job in enumerate(jobs.submitted)]


def gather(pattern: DeferralPattern, jobs: Sequence[tuple[Ints, Floats]], left_over: Floats) -> Trajectories:
    """Worlds from their jobs, one pair of arrays each as `to_windows` gives them, and (W, T, R) capacity."""
    most, kinds = max(1, max(table.shape[0] for table, _ in jobs)), _kinds(pattern)
    whole = np.zeros((4, len(jobs), most), dtype=np.int64)
    demand = np.zeros((len(jobs), most, kinds))
    for world, (table, needs) in enumerate(jobs):
        whole[:, world, : table.shape[0]] = table.T
        demand[world, : table.shape[0]] = needs[:, :kinds]
    count = np.array([table.shape[0] for table, _ in jobs], dtype=np.int64)
    total = pattern.total_cores * np.array([1.0, pattern.memory_per_core()][:kinds])
    submitted, earliest, latest, duration = whole
    return Trajectories(
        count, submitted, earliest, latest, duration, demand, left_over, total, pattern.slot_s
    )


def to_windows(
    pattern: DeferralPattern, earliest: Ints, duration: Ints, leads: Floats, windows: Floats, demand: Floats
) -> tuple[Ints, Floats]:
    """Jobs with lead and window, sorted by submission; those that might not end in the world are left out.

    Args:
        leads, windows: (J,) draws in (0, 1).
        demand: (J, R).
    Returns:
        (J', 4) submitted, earliest, latest, duration, and (J', R) demand.
    """
    submitted = np.maximum(0, earliest - (leads * (pattern.lead_most + 1)).astype(np.int64))
    latest = earliest + (windows * (pattern.window_most + 1)).astype(np.int64)
    table = np.stack([submitted, earliest, latest, duration], axis=1)
    kept = np.flatnonzero(latest + duration <= pattern.slots)
    order = kept[np.argsort(submitted[kept], kind="stable")]
    return table[order], demand[order]


def _kinds(pattern: DeferralPattern) -> int:
    return 2 if pattern.memory_bytes_per_core else 1


def left_over_cores(pattern: DeferralPattern, seed: int) -> Floats:
    """(T,) whole cores that on-demand work leaves: a daily wave and first-order autoregressive noise."""
    from scipy.stats import norm  # slow to import, and most processes draw nothing

    slots = np.arange(pattern.slots)
    wave = pattern.load_swing * np.sin(2.0 * np.pi * slots / pattern.day)
    shocks = norm.ppf(uniform(seed, Purpose.ON_DEMAND, slots))
    noise = np.empty(pattern.slots)
    level = 0.0
    for slot, shock in enumerate(shocks):
        fresh = 1.0 if slot == 0 else np.sqrt(1.0 - pattern.load_memory**2)
        level = pattern.load_memory * level * (slot > 0) + fresh * shock
        noise[slot] = level
    load = np.clip(pattern.load_mean + wave + pattern.load_noise * noise, 0.0, 1.0)
    return np.floor(pattern.total_cores * (1.0 - load))


def _jobs(pattern: DeferralPattern, seed: int) -> tuple[Ints, Floats]:
    """(J, 4) submitted, earliest, latest, duration, and (J, 2) cores and memory; sorted by submission."""
    from scipy.stats import poisson  # slow to import

    slots = np.arange(pattern.slots)
    draws = uniform(seed, Purpose.DEFERRABLE, slots, COUNTS)
    mean: Floats = np.full(pattern.slots, pattern.jobs_per_slot)
    if pattern.by_hour:
        mean = mean * weights(
            pattern.begins_at_s + pattern.slot_s * slots.astype(np.float64), pattern.by_hour
        )
    earliest = np.repeat(slots, poisson.ppf(draws, mean).astype(np.int64))
    number = pattern.slots + np.arange(earliest.size)

    def draw(counter: int) -> Floats:
        return np.asarray(uniform(seed, Purpose.DEFERRABLE, number, counter))

    cores = np.array(pattern.cores)[_classes(pattern.core_shares, draw(CORES))]
    duration = np.array(pattern.durations)[_classes(pattern.duration_shares, draw(DURATIONS))]
    demand = np.stack([cores, cores * pattern.memory_bytes_per_core * (0.5 + draw(MEMORY))], axis=1)
    return to_windows(pattern, earliest, duration, draw(LEADS), draw(WINDOWS), demand)


def _listed(pattern: DeferralPattern, jobs: Sequence[DeferrableJob]) -> tuple[Ints, Floats]:
    """Jobs in seconds as rows of slots; no promise is broken."""
    table = np.array([job.in_slots(pattern.slot_s) for job in jobs], dtype=np.int64).reshape(-1, 4)
    demand = [(job.resources.cpu_cores, job.resources.memory_bytes) for job in jobs]
    return table, np.array(demand, dtype=np.float64).reshape(-1, 2)


def _together(one: tuple[Ints, Floats], other: tuple[Ints, Floats]) -> tuple[Ints, Floats]:
    if not other[0].size:
        return one
    table, demand = np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])
    order = np.argsort(table[:, 0], kind="stable")
    return table[order], demand[order]


def _classes(shares: Sequence[float], draws: Floats) -> Ints:
    return np.minimum(np.searchsorted(np.cumsum(shares), draws, side="right"), len(shares) - 1)


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
