"""Deferrable jobs and left-over capacity, drawn from a pattern.

`PAPER` is calibrated on FIFO's, SJF's and Tetris's figures in OSDEC's table 1, FIFO's first; it was
fixed, with its hash, before any policy was trained on it (docs/deferrable.md).
Every draw is a hash of (seed, purpose, entity): worlds of a seed are the same under every policy.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.config import load_scenario
from edgewise.core.defer import Trajectories
from edgewise.core.keyed import Purpose, uniform
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Resources
from edgewise.model.work import DeferrableJob, DeferralPattern, Jobs
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
