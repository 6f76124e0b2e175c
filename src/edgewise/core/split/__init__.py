"""Splitting: what a split policy sees, what it decides, and whether that can be done.

A query's tasks are those of `closed(graph)`; servers are numbered through all groups. Forbidden here: I/O.

What a scheduler keeps lies in arrays: its ledger, what it has heard, and rates of late. The rules are kernels
on these, so that a simulation which decides in compiled code follows the very same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from edgewise.arrays import Bools, Floats, Ints, Records, records
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError
from edgewise.kernels.compiled import inner
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
    """Tasks of a query → servers, when it arrives; one that plans for rates also `core.hooks.Renews`."""

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


NOTHING_S = 1e-9  # less outstanding work than this is rounding
MEMORY_S = 60.0  # over which rates are averaged
DRIFT = 0.2  # of a rate, relative to it or to the mean rate if larger: the plan no longer fits
UPDATE_S = 1.0  # between looks at the rates
LEAST_QPS = 1e-6  # a class that nobody asks for keeps a plan

LOOK = np.dtype([("seen_s", "f8"), ("next_s", "f8"), ("planning", "i8")], align=True)
"""When the last query arrived (nan: none), when rates are compared next, and whether a plan is being made."""


class Rates(NamedTuple):
    """Rates of late, and those that the plan is for.

        rate_j ← rate_j exp(-Δ/T) + 1/T at each arrival        T: MEMORY_S

    Attributes:
        qps: (J,) of late.
        planned_qps: (J,) of the plan; of size 0 where the plan stays as it is.
        look: (1,) LOOK.
    """

    qps: Floats
    planned_qps: Floats
    look: Records


class SplitState(NamedTuple):
    """All that a scheduler keeps between two events.

    Attributes:
        ledger: what is outstanding.
        worked_s, served: (S,) what it last heard of each server: what that had done of the tasks which this
            scheduler gave it.
        rates: of the classes.
        placed: (1,) queries that were placed since the beginning.
    """

    ledger: Ledger
    worked_s: Floats
    served: Ints
    rates: Rates
    placed: Ints


def new_state(power_ops: Floats, rates_qps: Floats, follows: bool) -> SplitState:
    """Of idle servers of these powers, with a plan for these rates that may follow them."""
    power, servers = np.array(power_ops, dtype=np.float64), len(power_ops)
    look = records((1,), LOOK)
    look.seen_s = np.nan
    rates = np.array(rates_qps, dtype=np.float64)
    return SplitState(
        Ledger(np.zeros(servers), np.zeros(servers, np.int64), power),
        np.zeros(servers),
        np.zeros(servers, np.int64),
        Rates(rates, rates.copy() if follows else np.zeros(0), look),
        np.zeros(1, np.int64),
    )


@inner
def give(ledger: Ledger, server: int, work_ops: float) -> None:
    """A task is placed."""
    ledger.tasks[server] += 1
    ledger.work_s[server] += work_ops / ledger.power_ops[server]


@inner
def book(state: SplitState, servers: Ints, work_ops: Floats) -> None:
    """The tasks of a query are placed; in simulation and live, by whomever its policy is asked."""
    state.placed[0] += 1
    for task in range(work_ops.size):
        give(state.ledger, servers[task], work_ops[task])


@inner
def hear(state: SplitState, worked_s: Floats, served: Ints) -> None:
    """Take off the ledger what each server has worked off since it was heard of last.

    Args:
        worked_s, served: (S,) as in `core.split.core.ServersTold`.
    """
    ledger = state.ledger
    for s in range(served.size):
        left = ledger.work_s[s] - (worked_s[s] - state.worked_s[s])
        ledger.work_s[s] = left if left > NOTHING_S else 0.0
        ledger.tasks[s] -= served[s] - state.served[s]
        state.worked_s[s], state.served[s] = worked_s[s], served[s]


@inner
def count_arrival(rates: Rates, job: int, now_s: float) -> bool:
    """Note that a query arrived; whether a new plan is to be begun, for rates have drifted."""
    if rates.planned_qps.size == 0:
        return False
    look, qps, planned_qps = rates.look[0], rates.qps, rates.planned_qps
    fade = 1.0 if math.isnan(look.seen_s) else math.exp((look.seen_s - now_s) / MEMORY_S)
    usual_qps = 0.0
    for j in range(qps.size):
        qps[j] *= fade
        usual_qps += planned_qps[j] / qps.size  # rare classes drift by chance
    qps[job] += 1.0 / MEMORY_S
    look.seen_s = now_s
    if look.planning != 0 or now_s < look.next_s:
        return False
    look.next_s = now_s + UPDATE_S
    for j in range(qps.size):
        changed = abs(max(qps[j], LEAST_QPS) - planned_qps[j])
        if changed > DRIFT * max(planned_qps[j], usual_qps):
            look.planning = 1
    return bool(look.planning != 0)
