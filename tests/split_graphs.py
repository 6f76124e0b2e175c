"""Small task graphs to split."""

import numpy as np

from edgewise.core.split import Ledger, SplitView, checked, give, work_of
from edgewise.model.work import Edge, Task, TaskGraph


def fan(works, size_bytes=1e6):
    """root → branches → sink."""
    tasks = [Task("root", 1e9), *(Task(f"b{i}", w) for i, w in enumerate(works)), Task("sink", 1e9)]
    inner = [t.name for t in tasks[1:-1]]
    edges = [Edge("root", n, size_bytes) for n in inner] + [Edge(n, "sink", size_bytes) for n in inner]
    return TaskGraph("fan", tuple(tasks), tuple(edges))


def ledger_of(power_ops, work_s=0.0, tasks=0):
    """What a scheduler has given to servers of these powers."""
    power = np.asarray(power_ops, dtype=float)
    return Ledger(np.full(power.size, work_s), np.full(power.size, tasks), power)


def placed(policy, work_ops, query, job, ledger):
    """(T,) servers of a query, which is booked."""
    view = SplitView(query, job, ledger, np.ones(ledger.tasks.size, dtype=bool))
    servers = checked(policy, view, work_ops.size)
    for server, ops in zip(servers, work_ops, strict=True):
        give(ledger, server, ops)
    return servers


def place_all(policy, program, jobs, ledger):
    """(Q, T) servers of queries of these classes, one after the other."""
    work = work_of(program.classes)
    return np.array([placed(policy, work[job], q, job, ledger) for q, job in enumerate(jobs)])
