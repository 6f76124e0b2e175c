"""Jobs: from a scenario, in one pool or on nodes, or from what lived, to their tables.

Forbidden here: printing and files.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from edgewise import policies
from edgewise.arrays import Ints
from edgewise.core.defer import ROUNDING, Objective, Slots, Trajectories
from edgewise.core.defer.core import DeferCore
from edgewise.core.guard import Guard
from edgewise.core.holders import OTHER, TOTAL, Held, hold_records
from edgewise.core.keyed import Key
from edgewise.model.scenario import Scenario
from edgewise.model.work import DeferrableJob, Jobs
from edgewise.policies.defer import FALLBACK
from edgewise.run.shared import Joined, RunContext
from edgewise.run.tables import Columns, Make, SeedRun, Tables, window
from edgewise.sim.parts.checkpoints import Checkpoints, ways_of
from edgewise.sim.parts.jobs import JobsOutcome, JobsPart, OtherWork
from edgewise.sim.slots.defer import simulate
from edgewise.sim.slots.guarded import GuardedJobs
from edgewise.workloads.deferrable import generate, jobs_apart, jobs_of, left_over_cores

if TYPE_CHECKING:
    from edgewise.runtime.clients.lived import Lived

POOL = "all nodes"  # what they are called where nobody tells them apart


def in_a_pool(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    """Jobs on what other work leaves of all nodes together; the seeds are one batch."""
    jobs = jobs_of(scenario)
    worlds = generate(jobs.pattern, seeds, jobs.submitted)
    objective = Objective(jobs.delay_weight, jobs.violation_weight)
    asked = GuardedJobs(chosen["defer"](), Guard(), policies.load("defer", FALLBACK))
    outcome = simulate(worlds, asked, objective, seeds[0])
    figures = [name for name in outcome._fields if name != "start"]
    for world in range(worlds.worlds):
        job = np.arange(int(worlds.jobs[world]))
        start, nothing = outcome.start[world, job], np.zeros(job.size)
        end = start + worlds.duration[world, job]
        ended = (start >= 0) & (end <= worlds.slots)
        cores = worlds.demand[world, job, 0].astype(float)
        items: dict[str, Any] = {
            "job": job,
            "cores": cores,
            "started_s": pa.array(start * worlds.slot_s, pa.float64(), mask=start < 0),
            "ended_s": pa.array(end * worlds.slot_s, pa.float64(), mask=~ended),
            "node": [None] * job.size,
            "suspended_s": nothing,
            "redone_s": nothing,
        }
        for name in ("submitted", "earliest", "latest", "duration"):
            items[f"{name}_s"] = getattr(worlds, name)[world, job] * worlds.slot_s
        totals = {name: getattr(outcome, name)[world] for name in figures}
        totals |= {"ended": ended.sum(), "finished_core_s": float((cores * items["duration_s"])[ended].sum())}
        windows = window(scenario, worlds.slots * worlds.slot_s, **totals, moves=0, redone_core_s=0.0)
        decided = {} if world else {"defer": asked.guard.decided(asked.policy)}
        yield SeedRun(items, windows, decided, use={"holds": pool_held(worlds, world, start)})


def joined(run: RunContext) -> Joined:
    """Jobs on nodes, beside other work or work that is not simulated."""
    scenario, jobs, policy = run.scenario, jobs_of(run.scenario), run.chosen["defer"]()
    pattern, made = jobs.pattern, jobs_apart(jobs, run.seed)
    guard, instead = Guard(), policies.load("defer", FALLBACK)
    core = DeferCore(Slots(pattern.slot_s), run.plane.ledger, policy, instead, Key(run.seed), guard)
    run.plane.cores["defer"] = core
    part = JobsPart(made, core, pattern.slots, pattern.slot_s, _checkpoints(run, made))
    return Joined(
        part, lambda: job_tables(scenario, jobs, part.outcome()), {"defer": lambda: guard.decided(policy)}
    )


def other_work(scenario: Scenario, seed: int) -> OtherWork:
    """Work that is not simulated, and leaves nodes what is left over there."""
    pattern = jobs_of(scenario).pattern
    return OtherWork(scenario.topology.nodes, left_over_cores(pattern, seed), pattern.slot_s)


def _checkpoints(run: RunContext, jobs: Sequence[DeferrableJob]) -> Checkpoints:
    """They are kept where images come from, and go over the links that all share, if there are both."""
    if run.reserved is None or run.wires is None or "services" not in run.parts:
        return Checkpoints(jobs)
    services = run.parts["services"].sites.services
    ways = ways_of(run.wires, services.clusters[0], services.nodes, services.system.site_of)
    return Checkpoints(jobs, run.reserved.pulls, ways)


def job_tables(scenario: Scenario, jobs: Jobs, run: JobsOutcome) -> Tables:
    """Columns of jobs on nodes."""
    slot_s = jobs.pattern.slot_s
    cores = np.array([job.resources.cpu_cores for job in run.jobs])
    _, earliest, latest, duration = np.array([job.in_slots(slot_s) for job in run.jobs]).reshape(-1, 4).T
    began, ended = run.start >= 0, ~np.isnan(run.ended_s)
    in_time = ended & (run.ended_s <= (latest + duration) * slot_s * (1 + ROUNDING))
    core_s = cores * [job.duration_s for job in run.jobs]
    names = ("submitted_s", "earliest_s", "latest_s", "duration_s")
    items: dict[str, Any] = {name: [getattr(job, name) for job in run.jobs] for name in names}
    items |= {
        "job": np.arange(cores.size),
        "cores": cores,
        "started_s": [slot * slot_s if slot >= 0 else None for slot in run.start.tolist()],
        "node": [node or None for node in run.node],
        "ended_s": pa.array(run.ended_s, mask=~ended),
        "suspended_s": run.suspended * slot_s,
        "redone_s": run.redone_s,
    }
    totals = {
        "jobs": cores.size,
        "started": began.sum(),
        "ended": ended.sum(),
        "lost": run.lost.sum(),
        "finished_core_s": float(core_s[in_time].sum()),
        "redone_core_s": float(cores @ run.redone_s),
        "delay": float((run.start - earliest)[began].sum()),
        "moves": run.moves.sum(),
    }
    published = dict.fromkeys(("reward", "revenue", "violation"))
    return Tables(items, window(scenario, jobs.pattern.slots * slot_s, **totals, **published))


def pool_held(worlds: Trajectories, world: int, start: Ints) -> Columns:
    """Who holds what where jobs and work that is not simulated have one pool.

    Args:
        start: (J,) slot in which each job of the world started, -1 where it did not.
    """
    slot_s, total, left = worlds.slot_s, worlds.total, worlds.left_over[world]
    edges = [0, *(np.flatnonzero(np.diff(left, axis=0).any(axis=1)) + 1).tolist(), len(left)]
    spans = [(0.0, len(left) * slot_s, Held(POOL, "", TOTAL, *total.tolist()))]
    spans += [
        (first * slot_s, last * slot_s, Held(POOL, "other work", OTHER, *(total - left[first]).tolist()))
        for first, last in pairwise(edges)
    ]
    for job in np.flatnonzero(start >= 0).tolist():
        ends = min(start[job] + worlds.duration[world, job], len(left))
        what = Held(POOL, f"job {job}", "jobs", *worlds.demand[world, job].tolist())
        spans.append((float(start[job] * slot_s), float(ends * slot_s), what))
    return hold_records(spans)


def lived_jobs(scenario: Scenario, seen: "Lived") -> Tables | None:
    """Of a live system; None: it had none."""
    if not seen.jobs or scenario.jobs is None:
        return None
    slot_s, jobs = scenario.jobs.pattern.slot_s, seen.jobs

    def seconds(values: Sequence[float | None]) -> Any:
        return np.array([math.nan if value is None else value - seen.since_s for value in values])

    moved = [job.deferrable() for job in jobs]
    here = tuple(
        replace(
            job,
            submitted_s=job.submitted_s - seen.since_s,
            earliest_s=job.earliest_s - seen.since_s,
            latest_s=job.latest_s - seen.since_s,
        )
        for job in moved
    )
    started_s = seconds([job.started_s for job in jobs])
    done = [job.ended_s if job.state == "done" else None for job in jobs]
    run = JobsOutcome(
        here,
        np.where(np.isnan(started_s), -1.0, started_s / slot_s),
        tuple(job.node or "" for job in jobs),
        np.array([job.state == "lost" for job in jobs]).astype(np.int64),
        np.array([job.suspended_s for job in jobs]) / slot_s,
        np.array([job.attempt + (job.suspended_s > 0.0) for job in jobs]),
        seconds(done),
        np.array([job.redone_s for job in jobs]),
    )
    return job_tables(scenario, scenario.jobs, run)
