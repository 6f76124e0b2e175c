"""What is to be done: streams, task graphs, deferrable jobs; and what each kind of work holds of a node.

That is said once, for simulation and live:

| work                              | holds                                   | pushed out by other work |
|-----------------------------------|-----------------------------------------|--------------------------|
| worker, replica, split server     | its variant's resources, for life       | no                       |
| task of a pipeline                | memory while it is placed               | no                       |
| deferrable job that runs          | cores and memory                        | yes                      |
| … suspended (`pause`)             | memory                                  | yes                      |
| … ended to start anew (`restart`) | nothing                                 |                          |

A task also holds bits/s on the paths of its flows (`core.place`). In simulation cores may be held by each
request in place of a replica's life, as in KaiS's frozen settings (`services.cores_held`). Forbidden: I/O.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from edgewise.model.grammar.pipelines import DrawnJobsSpec, JobsSpec
from edgewise.model.topology import Node, Resources, Variant


@dataclass(frozen=True, slots=True)
class Stream:
    """A client's sequence of queries (ASET's stream i).

    Attributes:
        id: unique in a run.
        site: index of its access site.
        application: name of the application that opened it.
        task: task it needs.
        open_s, close_s: when it starts and ends; queries fall in [open_s, close_s).
        rate_qps: queries per second (ρ).
        size_bytes: payload of a query (ζ).
        deadline_s: tolerated end-to-end delay (D).
        min_accuracy: least accuracy of the model (A).
        priority: larger is more important.
        arrivals: "periodic" frames or "poisson" queries.
        answer_bytes: size of an answer.
        source: which of its site's sources it is of, as cameras-3, which stays: while it is refused it asks
            again; empty: a client's.
        draws_as: keys its random draws; None: its id.
    """

    id: int
    site: int
    application: str
    task: str
    open_s: float
    close_s: float
    rate_qps: float
    size_bytes: float
    deadline_s: float
    min_accuracy: float
    priority: int = 0
    arrivals: str = "periodic"
    answer_bytes: float = 0.0
    source: str = ""
    draws_as: int | None = None

    @property
    def key(self) -> int:
        """What keys its random draws."""
        return self.id if self.draws_as is None else self.draws_as


@dataclass(frozen=True, slots=True)
class Task:
    """A vertex of a task graph: compute per query or frame, memory while placed."""

    name: str
    work_ops: float
    memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Edge:
    """Data from one task to another, per query or frame.

    Attributes:
        source, target: names of the tasks.
        size_bytes: size of the data.
        tensor: names the data; edges out of one task with the same name carry the same data, which a
            server needs only once. Empty: not known to be shared.
    """

    source: str
    target: str
    size_bytes: float
    tensor: str = ""


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """A directed acyclic graph of tasks (a DAG query of Nona, a pipeline of ENTS).

    Raises:
        ValueError: an edge names an unknown task, or the graph has a cycle.
    """

    name: str
    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        self.order()

    def order(self) -> tuple[str, ...]:
        """Task names in topological order, ties by position in `tasks`."""
        waiting = {task.name: 0 for task in self.tasks}
        after: dict[str, list[str]] = {name: [] for name in waiting}
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in waiting:
                    raise ValueError(f"task graph {self.name!r}: edge names unknown task {end!r}")
            waiting[edge.target] += 1
            after[edge.source].append(edge.target)
        done = [name for name, count in waiting.items() if count == 0]
        for name in done:  # grows while it is read: a queue
            for target in after[name]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    done.append(target)
        if len(done) < len(self.tasks):
            stuck = sorted(set(waiting) - set(done))
            raise ValueError(f"task graph {self.name!r} has a cycle through {', '.join(stuck)}")
        return tuple(done)


@dataclass(frozen=True, slots=True)
class DeferrableJob:
    """A job that may start anywhere in a window (OSDEC's job i).

    Attributes:
        submitted_s, earliest_s, latest_s: g_i <= e_i <= l_i.
        duration_s: runs this long, uninterrupted.
        when_evicted: other work takes its node: "pause" keeps its memory, "restart" ends it.
        checkpoint_s: it writes a checkpoint each time that it has run so long, and goes on from the last one
            where it was ended; None: never, it begins anew.
        checkpoint_bytes: size of a checkpoint.
    """

    id: int
    resources: Resources
    duration_s: float
    submitted_s: float
    earliest_s: float
    latest_s: float
    priority: int = 0
    when_evicted: str = "pause"
    checkpoint_s: float | None = None
    checkpoint_bytes: float = 0.0

    def saved_s(self, done_s: float) -> float:
        """What is left of so much work when it is ended: what its last checkpoint has."""
        every_s = self.checkpoint_s
        return 0.0 if every_s is None else math.floor(done_s / every_s + 1e-9) * every_s

    def __post_init__(self) -> None:
        if not self.submitted_s <= self.earliest_s <= self.latest_s:
            raise ValueError(f"job {self.id}: needs submitted_s <= earliest_s <= latest_s")

    def in_slots(self, slot_s: float) -> tuple[int, int, int, int]:
        """Submitted, earliest, latest and duration in slots; no promise is broken.

        Submission and latest start are rounded down, earliest start and duration up.
        """
        submitted, latest = (math.floor(x / slot_s + 1e-9) for x in (self.submitted_s, self.latest_s))
        earliest, duration = (math.ceil(x / slot_s - 1e-9) for x in (self.earliest_s, self.duration_s))
        return submitted, earliest, latest, max(1, duration)


INFERENCE = 1_000  # priority of workers, replicas and tasks, above that of every job


class Hold(NamedTuple):
    """What an owner holds, its priority, and whether work of higher priority pushes it out."""

    resources: Resources
    priority: int = INFERENCE
    preemptible: bool = False


def variant_holds(variant: Variant) -> Hold:
    """A worker, replica or split server of a variant, as long as it lives."""
    return Hold(variant.resources)


def task_holds(task: Task) -> Hold:
    """A task of a pipeline, while it is placed: its memory (ENTS eq. 3)."""
    return Hold(Resources(memory_bytes=task.memory_bytes))


def computing_holds(cores: float) -> Hold:
    """Tasks of a pipeline that use so many cores of a node: workers and the like go before, jobs after."""
    return Hold(Resources(cpu_cores=cores), INFERENCE - 1, preemptible=True)


def job_holds(job: DeferrableJob, suspended: bool = False) -> Hold:
    """A deferrable job that runs, or that is suspended."""
    resources = job.resources
    if suspended:
        kept = job.when_evicted == "pause"
        resources = Resources(memory_bytes=resources.memory_bytes if kept else 0.0)
    return Hold(resources, job.priority, preemptible=True)


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
        by_hour: how many jobs come in each hour of the day, in proportion; none: all hours alike.
        begins_at_s: time of the day at which a world begins.
        memory_bytes: of the platform; 0: memory_bytes_per_core for each of its cores.
    """

    slots: int
    slot_s: float
    day: int
    jobs_per_slot: float
    cores: tuple[float, ...]
    core_shares: tuple[float, ...]
    durations: tuple[int, ...]
    duration_shares: tuple[float, ...]
    lead_most: int
    window_most: int
    total_cores: float
    load_mean: float
    load_swing: float
    load_noise: float
    load_memory: float
    memory_bytes_per_core: float
    by_hour: tuple[float, ...] = ()
    begins_at_s: float = 0.0
    memory_bytes: float = 0.0

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
        """Hash of every parameter, for freezing; hours and other memory count where they are said."""
        said = asdict(self)
        if not self.by_hour:
            del said["by_hour"], said["begins_at_s"]
        if not self.memory_bytes:
            del said["memory_bytes"]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def memory_per_core(self) -> float:
        """Memory of the platform for each of its cores; 0: left out."""
        if self.memory_bytes_per_core and self.memory_bytes:
            return self.memory_bytes / self.total_cores
        return self.memory_bytes_per_core

    def real_time(self) -> "DeferralPattern":
        """The same jobs without lead and window: each starts as it is submitted, or is lost."""
        return replace(self, lead_most=0, window_most=0)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs on a platform of slots.

    Attributes:
        pattern: of the platform, of what other work holds, and of jobs that are drawn.
        submitted: jobs by name, beside them.
        delay_weight, violation_weight: of a schedule's worth (OSDEC's ω1, ω2).
        room: "nodes": each job is on one, as in a running system; "pooled": all nodes are one.
        checkpoint_s, checkpoint_bytes: of jobs that are drawn, see `DeferrableJob`.
    """

    pattern: DeferralPattern
    submitted: tuple[DeferrableJob, ...] = ()
    delay_weight: float = 2.0
    violation_weight: float = 10.0
    room: str = "nodes"
    checkpoint_s: float | None = None
    checkpoint_bytes: float = 0.0


NONE_DRAWN = DrawnJobsSpec(
    per_slot=0.0, cores=(1.0,), core_shares=(1.0,), durations=(1,), duration_shares=(1.0,)
)


def build_jobs(
    spec: JobsSpec, duration_s: float, nodes: Sequence[Node], problems: list[str], begins_at_s: float = 0.0
) -> Jobs | None:
    """The jobs of a checked form, on all nodes of a scenario; None where something is wrong.

    `begins_at_s` is the time of the day at which a run begins.
    Problems: shares that do not fit their classes, less than one slot, jobs larger than every node, memory
    that the nodes do not have.
    """
    before = len(problems)
    slots = math.floor(duration_s / spec.slot_s + 1e-9)
    if slots < 1:
        problems.append(f"jobs.slot_s: {spec.slot_s:g} is longer than duration_s; lower it")
    per_core = _memory_per_core(spec, nodes, problems)
    for i, job in enumerate(spec.submitted):
        needs = Resources(job.cores, job.memory_bytes).as_tuple()
        if not any(all(n <= h for n, h in zip(needs, x.resources.as_tuple(), strict=True)) for x in nodes):
            problems.append(
                f"jobs.submitted[{i}]: no node has {job.cores:g} cores and {job.memory_bytes:g} bytes "
                "of memory; lower them or give a node more"
            )
    if len(problems) > before:
        return None
    load, drawn = spec.on_demand, spec.drawn or NONE_DRAWN
    try:
        pattern = DeferralPattern(
            slots, spec.slot_s, round(load.day_s / spec.slot_s), drawn.per_slot,
            drawn.cores, drawn.core_shares, drawn.durations, drawn.duration_shares,
            drawn.lead_most, drawn.window_most, sum(node.resources.cpu_cores for node in nodes),
            load.mean, load.swing, load.noise, load.memory, per_core,
            drawn.by_hour or (), begins_at_s,
            sum(node.resources.memory_bytes for node in nodes) if per_core else 0.0,
        )  # fmt: skip
    except ValueError as error:
        problems.append(f"jobs.drawn: {error}")
        return None
    submitted = tuple(
        DeferrableJob(
            number, Resources(job.cores, job.memory_bytes), job.duration_s, job.submitted_s,
            job.earliest_s, job.latest_s, job.priority, job.when_evicted, job.checkpoint_s,
            job.checkpoint_bytes or 0.0,
        )
        for number, job in enumerate(spec.submitted)
    )  # fmt: skip
    weights = spec.delay_weight, spec.violation_weight
    checkpoints = drawn.checkpoint_s, drawn.checkpoint_bytes or 0.0
    return Jobs(pattern, submitted, *weights, spec.room, *checkpoints)


def _memory_per_core(spec: JobsSpec, nodes: Sequence[Node], problems: list[str]) -> float:
    """Memory that jobs need for each core, or that the platform has; 0 where no job needs memory."""
    cores = sum(node.resources.cpu_cores for node in nodes)
    memory = sum(node.resources.memory_bytes for node in nodes)
    listed = any(job.memory_bytes for job in spec.submitted)
    if not cores > 0:
        problems.append("jobs: no node has cpu_cores; give some node cores")
        return 0.0
    if spec.drawn is None:
        return memory / cores if listed else 0.0
    per_core = spec.drawn.memory_bytes_per_core
    if listed and not per_core:
        problems.append(
            "jobs.drawn.memory_bytes_per_core: is 0, and jobs of 'submitted' need memory; give it a value"
        )
    if per_core and not memory > 0.0:
        problems.append("jobs.drawn.memory_bytes_per_core: no node has memory; give them memory_bytes")
    return per_core
