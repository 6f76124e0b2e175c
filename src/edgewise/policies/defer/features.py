"""What learned deferral policies read: one row per job of the pool, and one summary of the slot.

The same function serves training and use. Figures are in units of `Scale`, so that they are near one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats32
from edgewise.core.defer import CapacityView, JobState

JOB_FEATURES = (
    "cores",
    "duration",
    "time since the earliest start",
    "time until the latest start",
    "time until it ends, if it runs",
    "is submitted for later",
    "is startable",
    "runs",
    "free cores",
    "left-over cores",
    "fits now",
)
SUMMARY_FEATURES = (
    "left-over cores",
    "mean cores of startable jobs",
    "mean duration of startable jobs",
    "violation",
    "cores in use",
    "startable jobs",
)
TARGETS = (
    4  # the first so many features of the next slot's summary are the auxiliary tasks (OSDEC section 4.2.2)
)


class Scale(NamedTuple):
    """Units: what counts as one. Times are not in slots, so that a policy may be asked more often than the
    quarters of an hour it was trained with.
    """

    cores: float = 8.0
    time_s: float = 7200.0
    capacity: float = 40.0
    jobs: float = 20.0


def job_features(view: CapacityView, scale: Scale = Scale()) -> Floats32:  # noqa: B008
    """(W, P, 11) features of each job, in the order of `JOB_FEATURES`; 0 where there is no job."""
    cores, free = view.demand[:, :, 0], view.free[:, :1]
    shape, slots = cores.shape, scale.time_s / view.slot_s
    columns = (
        cores / scale.cores,
        view.duration / slots,
        (view.now - view.earliest) / slots,
        (view.latest - view.now) / slots,
        np.maximum(view.ends - view.now, 0) / slots,
        view.state == JobState.FUTURE,
        view.state == JobState.STARTABLE,
        view.state == JobState.RUNNING,
        np.broadcast_to(free / scale.cores, shape),
        np.broadcast_to(view.left_over[:, :1] / scale.capacity, shape),
        cores <= free,
    )
    out = np.stack(columns, axis=2).astype(np.float32)
    out[view.state == JobState.EMPTY] = 0.0
    return out


def summary_features(view: CapacityView, scale: Scale = Scale()) -> Floats32:  # noqa: B008
    """(W, 6) features of the slot, in the order of `SUMMARY_FEATURES`."""
    startable = view.startable
    count = startable.sum(axis=1)
    some = np.maximum(count, 1)
    left, used = view.left_over[:, 0], view.used()[:, 0, 0]
    columns = (
        left / scale.capacity,
        (view.demand[:, :, 0] * startable).sum(axis=1) / some / scale.cores,
        (view.duration * startable).sum(axis=1) / some / (scale.time_s / view.slot_s),
        np.maximum(used - left, 0.0) / scale.cores,
        used / scale.capacity,
        count / scale.jobs,
    )
    return np.stack(columns, axis=1).astype(np.float32)
