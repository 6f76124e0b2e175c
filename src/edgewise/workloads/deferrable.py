"""Deferrable jobs and left-over capacity, drawn from a pattern.

`PAPER` is calibrated on FIFO's, SJF's and Tetris's figures in OSDEC's table 1, FIFO's first; it was
fixed, with its hash, before any policy was trained on it (docs/deferrable.md).
Every draw is a hash of (seed, purpose, entity): worlds of a seed are the same under every policy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.stats import norm, poisson

from edgewise.arrays import Floats, Ints
from edgewise.core.deferral import Trajectories
from edgewise.core.keyed import Purpose, uniform

CORE_CASES = ((0.51, 0.37, 0.08, 0.04), (0.25, 0.25, 0.25, 0.25), (0.4, 0.3, 0.2, 0.1))
DURATION_CASES = (
    (1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6),
    (0.4, 0.25, 0.15, 0.1, 0.05, 0.05),
    (0.6, 0.25, 0.1, 0.05, 0.0, 0.0),
)
COUNTS, CORES, DURATIONS, LEADS, WINDOWS, MEMORY = range(6)  # counters of a job's draws


@dataclass(frozen=True, slots=True)
class DeferralPattern:
    """How worlds are drawn. Times are in slots.

    Attributes:
        slots: length of a world (T).
        slot_s: length of a slot.
        day: slots of a day; on-demand load repeats with it.
        jobs_per_slot: mean number of jobs whose earliest start falls in a slot (Poisson).
        cores, core_shares: classes of c_i and their probabilities (OSDEC table 4).
        durations, duration_shares: classes of d_i and their probabilities (OSDEC table 4).
        lead_most: e_i - g_i is uniform on 0 … lead_most.
        window_most: l_i - e_i is uniform on 0 … window_most.
        total_cores: of the platform.
        load_mean: share of it that on-demand work holds on average.
        load_swing: amplitude of the daily wave, as a share of the platform.
        load_noise, load_memory: deviation (share) and lag-one correlation of the noise around the wave.
        memory_bytes_per_core: 0 leaves memory out; otherwise jobs need 0.5 to 1.5 times it per core.
    """

    slots: int = 128
    slot_s: float = 900.0
    day: int = 96
    jobs_per_slot: float = 10.0
    cores: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    core_shares: tuple[float, ...] = CORE_CASES[0]
    durations: tuple[int, ...] = (1, 2, 4, 6, 8, 12)
    duration_shares: tuple[float, ...] = DURATION_CASES[2]
    lead_most: int = 4
    window_most: int = 1
    total_cores: float = 100.0
    load_mean: float = 0.657
    load_swing: float = 0.05
    load_noise: float = 0.02
    load_memory: float = 0.95
    memory_bytes_per_core: float = 0.0

    def __post_init__(self) -> None:
        for values, shares, what in (
            (self.cores, self.core_shares, "core"),
            (self.durations, self.duration_shares, "duration"),
        ):
            if len(values) != len(shares) or abs(sum(shares) - 1.0) > 1e-9 or min(shares) < 0:
                raise ValueError(
                    f"{what}_shares {shares}: needs {len(values)} shares >= 0 that add up to 1, one per class"
                )
        if min(self.durations) < 1 or self.slots < max(self.durations):
            raise ValueError(f"durations {self.durations}: need 1 … {self.slots} slots")

    def sha256(self) -> str:
        """Hash of every parameter, for freezing."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def real_time(self) -> DeferralPattern:
        """The same jobs without lead and window: each starts as it is submitted, or is lost."""
        return replace(self, lead_most=0, window_most=0)


PAPER = DeferralPattern()


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


def generate(pattern: DeferralPattern, seeds: Sequence[int]) -> Trajectories:
    """One world for each seed.

    Jobs that could not end inside the world, were they started last thing, are left out.

    Returns:
        Worlds with jobs sorted by submission.
    """
    cores = np.array([left_over_cores(pattern, seed) for seed in seeds])
    per_core = np.array([1.0, pattern.memory_bytes_per_core][: _kinds(pattern)])
    return gather(pattern, [_jobs(pattern, seed) for seed in seeds], cores[:, :, None] * per_core)


def gather(pattern: DeferralPattern, jobs: Sequence[tuple[Ints, Floats]], left_over: Floats) -> Trajectories:
    """Worlds from their jobs, one pair of arrays each as `to_windows` gives them, and (W, T, R) capacity."""
    most, kinds = max(1, max(table.shape[0] for table, _ in jobs)), _kinds(pattern)
    whole = np.zeros((4, len(jobs), most), dtype=np.int64)
    demand = np.zeros((len(jobs), most, kinds))
    for world, (table, needs) in enumerate(jobs):
        whole[:, world, : table.shape[0]] = table.T
        demand[world, : table.shape[0]] = needs[:, :kinds]
    count = np.array([table.shape[0] for table, _ in jobs], dtype=np.int64)
    total = pattern.total_cores * np.array([1.0, pattern.memory_bytes_per_core][:kinds])
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
    whole: Floats = np.floor(pattern.total_cores * (1.0 - load))
    return whole


def _jobs(pattern: DeferralPattern, seed: int) -> tuple[Ints, Floats]:
    """(J, 4) submitted, earliest, latest, duration, and (J, 2) cores and memory; sorted by submission."""
    slots = np.arange(pattern.slots)
    draws = uniform(seed, Purpose.DEFERRABLE, slots, COUNTS)
    earliest = np.repeat(slots, poisson.ppf(draws, pattern.jobs_per_slot).astype(np.int64))
    number = pattern.slots + np.arange(earliest.size)

    def draw(counter: int) -> Floats:
        return np.asarray(uniform(seed, Purpose.DEFERRABLE, number, counter))

    cores = np.array(pattern.cores)[_classes(pattern.core_shares, draw(CORES))]
    duration = np.array(pattern.durations)[_classes(pattern.duration_shares, draw(DURATIONS))]
    demand = np.stack([cores, cores * pattern.memory_bytes_per_core * (0.5 + draw(MEMORY))], axis=1)
    return to_windows(pattern, earliest, duration, draw(LEADS), draw(WINDOWS), demand)


def _classes(shares: Sequence[float], draws: Floats) -> Ints:
    found: Ints = np.minimum(np.searchsorted(np.cumsum(shares), draws, side="right"), len(shares) - 1)
    return found
