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

import math
from dataclasses import dataclass
from typing import NamedTuple

from edgewise.model.catalog import Resources, Variant


@dataclass(frozen=True, slots=True)
class Stream:
    """A client's sequence of queries (ASET's stream i).

    Attributes:
        id: unique in a run; also keys the stream's random draws.
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
        when_evicted: other work takes its node: "pause" keeps its memory, "restart" keeps nothing.
    """

    id: int
    resources: Resources
    duration_s: float
    submitted_s: float
    earliest_s: float
    latest_s: float
    priority: int = 0
    when_evicted: str = "pause"

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
    """A task of a pipeline, while it is placed: as published, its memory alone (ENTS eq. 3)."""
    return Hold(Resources(memory_bytes=task.memory_bytes))


def job_holds(job: DeferrableJob, suspended: bool = False) -> Hold:
    """A deferrable job that runs, or that is suspended."""
    resources = job.resources
    if suspended:
        kept = job.when_evicted == "pause"
        resources = Resources(memory_bytes=resources.memory_bytes if kept else 0.0)
    return Hold(resources, job.priority, preemptible=True)
