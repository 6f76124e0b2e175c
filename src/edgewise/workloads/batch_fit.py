"""How well the model of a trace fits it: quantiles of both, side by side (docs/orchestration-learning.md)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgewise.arrays import Floats
from edgewise.workloads.batch_task import BatchModel, BatchTasks
from edgewise.workloads.requests import RequestPattern, generate

SHOWN = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def comparison(
    trace: BatchTasks, model: BatchModel, seed: int = 0, shown: tuple[float, ...] = SHOWN
) -> Mapping[str, tuple[Floats, Floats]]:
    """Quantity → its quantiles in the trace and in as long a generated sequence, in the trace's units."""
    span_s = float(trace.start_s[-1] - trace.start_s[0])
    what = RequestPattern(
        horizon_s=span_s,
        rate_qps=trace.start_s.size / span_s,
        delay_scale=1.0,
        delay_least_s=1e-9,
        delay_most_s=1e9,
        most_cores=1e9,
        memory_bytes_per_share=1.0,
        memory_in_work=1.0,
    )
    drawn = generate(what, [seed], model)
    pairs = {
        "duration, s": (trace.duration_s, (drawn.deadline_s - drawn.arrival_s)[0]),
        "cores": (trace.cpu_cores, drawn.cpu_cores[0]),
        "memory share": (trace.memory_share, drawn.memory_bytes[0]),
        "time between arrivals, s": (np.diff(trace.start_s), np.diff(drawn.arrival_s[0])),
    }
    return {name: (np.quantile(a, shown), np.quantile(b, shown)) for name, (a, b) in pairs.items()}
