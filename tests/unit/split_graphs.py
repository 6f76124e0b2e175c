"""Small task graphs to split."""

from edgewise.model.work import Edge, Task, TaskGraph


def fan(works, size_bytes=1e6):
    """root → branches → sink."""
    tasks = [Task("root", 1e9), *(Task(f"b{i}", w) for i, w in enumerate(works)), Task("sink", 1e9)]
    inner = [t.name for t in tasks[1:-1]]
    edges = [Edge("root", n, size_bytes) for n in inner] + [Edge(n, "sink", size_bytes) for n in inner]
    return TaskGraph("fan", tuple(tasks), tuple(edges))
