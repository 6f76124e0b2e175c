"""Small task graphs to split."""

import numpy as np

from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import SplitView, closed, decided


def fan(works, size_bytes=1e6):
    """root → branches → sink."""
    tasks = [Task("root", 1e9), *(Task(f"b{i}", w) for i, w in enumerate(works)), Task("sink", 1e9)]
    inner = [t.name for t in tasks[1:-1]]
    edges = [Edge("root", n, size_bytes) for n in inner] + [Edge(n, "sink", size_bytes) for n in inner]
    return TaskGraph("fan", tuple(tasks), tuple(edges))


def place_all(policy, program, jobs, ledger):
    """(Q, T) servers of queries of these classes, one after the other."""
    work = [np.array([task.work_ops for task in closed(job.graph).tasks]) for job in program.classes]
    rows = [decided(policy, SplitView(q, job, ledger), work[job]) for q, job in enumerate(jobs)]
    return np.array(rows)
