"""What each kind of work holds of a node, said once for simulation and live.

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

from __future__ import annotations

from typing import NamedTuple

from edgewise.model.catalog import Variant
from edgewise.model.resources import Resources
from edgewise.model.work import DeferrableJob, Task

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
