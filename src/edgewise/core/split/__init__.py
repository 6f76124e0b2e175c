"""Splitting: what a split policy sees, what it decides, and whether that can be done.

A query's tasks are those of `closed(graph)`; servers are numbered through all groups. Forbidden here: I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError
from edgewise.model.work import Edge, Task, TaskGraph

SOURCE, SINK = "(source)", "(sink)"


@dataclass(frozen=True, slots=True)
class QueryClass:
    """Queries of one kind.

    Attributes:
        graph: what each query does; contract it first.
        rate_qps: Poisson rate β_j, > 0.
    """

    graph: TaskGraph
    rate_qps: float


class SplitWork(Protocol):
    """What is split over what: the part of a program that decisions and their drivers need."""

    @property
    def classes(self) -> tuple[QueryClass, ...]:
        """Kinds of queries."""

    @property
    def server_ops(self) -> Floats:
        """(S,) operations per second of each server."""


class Ledger(NamedTuple):
    """What this scheduler has given to each server and is not finished yet, as far as it has heard.

    Attributes:
        work_s: (S,) outstanding work over the server's power.
        tasks: (S,) outstanding tasks.
        power_ops: (S,) operations per second.
    """

    work_s: Floats
    tasks: Ints
    power_ops: Floats


class SplitView(NamedTuple):
    """What a split policy may know when a query arrives.

    Attributes:
        query: its number, from 0; random draws belong to numbers.
        job: its class.
        ledger: what the scheduler gave to each server and is not finished yet.
        up: (S,) servers that are thought to answer; a query placed on another goes whole to one of these.
    """

    query: int
    job: int
    ledger: Ledger
    up: Bools


class SplitPolicy(Protocol):
    """Tasks of a query → servers, when it arrives.

    One that plans for rates may have `renewed(rates_qps)` besides: itself with a plan for these (J,) rates,
    or None where no plan can be made for them. It is called beside decisions, which go on with the old one.
    """

    name: str

    def reset(self, program: SplitWork, key: Key) -> None:
        """Start anew with these classes, servers and links; all randomness comes from `key`."""

    def decide(self, view: SplitView) -> Ints:
        """(T,) server of each task of `closed(program.classes[view.job].graph)`; the view stays as it is."""


def closed(graph: TaskGraph) -> TaskGraph:
    """The graph with one source and one sink: virtual ones, without work or data, where there are several."""
    sources = {task.name for task in graph.tasks} - {edge.target for edge in graph.edges}
    sinks = {task.name for task in graph.tasks} - {edge.source for edge in graph.edges}
    tasks, edges = list(graph.tasks), list(graph.edges)
    if len(sources) > 1:
        edges += [Edge(SOURCE, task.name, 0.0) for task in graph.tasks if task.name in sources]
        tasks.append(Task(SOURCE, 0.0))
    if len(sinks) > 1:
        edges += [Edge(task.name, SINK, 0.0) for task in graph.tasks if task.name in sinks]
        tasks.append(Task(SINK, 0.0))
    return graph if len(tasks) == len(graph.tasks) else TaskGraph(graph.name, tuple(tasks), tuple(edges))


def work_of(classes: Sequence[QueryClass]) -> list[Floats]:
    """Of each class, (T,) work of its tasks."""
    return [np.array([task.work_ops for task in closed(each.graph).tasks]) for each in classes]


def checked(policy: SplitPolicy, view: SplitView, tasks: int) -> Ints:
    """(T,) servers of a query's tasks as a policy says.

    Raises:
        PolicyError: there is no such server, or not one for each task.
    """
    servers, count = np.asarray(policy.decide(view)), view.up.size
    if servers.shape != (tasks,) or servers.dtype.kind not in "iu" or not _within(servers, count):
        raise PolicyError(
            f"split policy {policy.name!r} placed {servers.tolist()}; give each of {tasks} tasks "
            f"a server from 0 to {count - 1}"
        )
    return servers.astype(np.int64)


def _within(servers: Ints, count: int) -> bool:
    return bool(0 <= servers.min() <= servers.max() < count)
