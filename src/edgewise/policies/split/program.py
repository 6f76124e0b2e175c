"""Nona's optimisation problem in arrays: how long queries take when they are split by chance.

Job class j of rate β_j is cut into sub-graphs t; each draws a placement from θ_t. One link of capacity μ
carries every message between servers of power ν and is an M/G/1 queue (Nona eqs. 1-11):

    S = bits / μ                        service time of a message
    ρ = Σ λ S < 1                       load of the link
    φ = Σ λ S² / (2 (1 - ρ))            waiting time (Pollaczek-Khinchine)
    κ_t = Σ θ max_i χ_i(φ) + p_N(t)/ν   time of a sub-graph
    τ_j = p_first/ν + Σ_t κ_t           time of a query;  minimise Σ β_j τ_j

The page leaves out that messages of one task are sent at the same moment and that tasks wait for
servers. With `queues=True` both are in the program: a burst is one customer of the link (it waits once;
S is that of the burst), a query waits for its first server as in an M/G/c queue (`server_wait_s`), and
whoever moves to another server waits until older queries are done there (`servers_wait_s`) and finds a
task under way (`task_wait_s`). Costs still only rise with φ, so the same search certifies the optimum.

Sub-graphs of one kind in one class share their θ: the problem is symmetric in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.split import QueryClass, closed
from edgewise.errors import PolicyError
from edgewise.policies.split.subgraphs import LIMIT, Lines, placements, subgraphs


class ServerChoice(IntEnum):
    """Which of the servers that a query has not used in this sub-graph is taken."""

    UNIFORM = 0
    ROUND_ROBIN = 1
    LEAST_LOADED = 2
    SHORTEST_QUEUE = 3
    TWO_CHOICES = 4


class Group(NamedTuple):
    """Sub-graphs of one kind in one class.

    Attributes:
        job: index of the class.
        subgraphs: positions among the class's sub-graphs.
        lines: their placements.
    """

    job: int
    subgraphs: tuple[int, ...]
    lines: Lines


class Arrays(NamedTuple):
    """The problem as kernels read it. N placements of all groups in turn, P lines each, G groups.

    Attributes:
        base_s: (N, P) time of each part without waiting.
        slope: (N, P) messages of each part: each waits φ.
        load_s, load_s2: (N,) ΣS and ΣS² of the messages of one query, s and s².
        start: (G + 1,) first placement of each group.
        weight_qps: (G,) β_j times the number of sub-graphs.
    """

    base_s: Floats
    slope: Floats
    load_s: Floats
    load_s2: Floats
    start: Ints
    weight_qps: Floats


class Prediction(NamedTuple):
    """What the formula predicts for given probabilities.

    Attributes:
        times_s: (J,) mean completion time τ_j of each class; inf where the link is overloaded.
        wait_s: waiting time of a message, φ.
        load: of the link, ρ.
        total: Σ β_j τ_j, which by Little's law is also the mean number of queries in the system.
        mean_s: mean completion time over all queries.
    """

    times_s: Floats
    wait_s: float
    load: float
    total: float
    mean_s: float


@dataclass(frozen=True, slots=True)
class SplitProgram:
    """The optimisation problem of some job classes on some servers and a link.

    Attributes:
        classes: the job classes.
        servers: how many.
        power_ops: operations per second of a server, ν.
        link_bps: capacity of the link, μ.
        groups: sub-graphs with their placements, by class.
        arrays: the same for kernels.
        fixed_s: (J,) time that no placement changes: articulation points, p/ν.
        queues: whether waiting for servers and bursts are in the formula.
        server_wait_s: mean wait of a query for a server; 0 without `queues`.
        longest_s: waiting longer than this, no split pays: the largest interior work of a sub-graph / ν.
    """

    classes: tuple[QueryClass, ...]
    servers: int
    power_ops: float
    link_bps: float
    groups: tuple[Group, ...]
    arrays: Arrays
    fixed_s: Floats
    queues: bool
    server_wait_s: float
    longest_s: float

    @property
    def rates_qps(self) -> Floats:
        """(J,) β."""
        return np.array([job.rate_qps for job in self.classes])

    @property
    def server_ops(self) -> Floats:
        """(S,) operations per second of each server."""
        return np.full(self.servers, self.power_ops)

    @property
    def variables(self) -> int:
        """Number of probabilities."""
        return int(self.arrays.load_s.size)

    def forecast(self, theta: Floats) -> Prediction:
        """The formula's prediction (eqs. 1-11). `theta`: (N,) probabilities, 1 in each group."""
        a = self.arrays
        weight = np.repeat(a.weight_qps, np.diff(a.start))
        load = float(weight * theta @ a.load_s)
        wait = float(weight * theta @ a.load_s2) / (2.0 * (1.0 - load)) if load < 1.0 else np.inf
        times = self.fixed_s + self.server_wait_s
        spent = theta * self.costs_s(wait) if load < 1.0 else np.full(theta.shape, np.inf)
        for group, first, last in zip(self.groups, a.start, a.start[1:], strict=False):
            times[group.job] += len(group.subgraphs) * spent[first:last].sum()
        total = float(self.rates_qps @ times)
        return Prediction(times, wait, load, total, total / float(self.rates_qps.sum()))

    def costs_s(self, wait_s: float) -> Floats:
        """(N,) time between root and sink of each placement when a message waits `wait_s`."""
        return np.asarray((self.arrays.base_s + self.arrays.slope * wait_s).max(axis=1))

    def with_rates(self, rates_qps: Sequence[float]) -> "SplitProgram":
        """The same problem at other rates; placements are not enumerated again."""
        if len(rates_qps) != len(self.classes):
            raise PolicyError(f"{len(rates_qps)} rates for {len(self.classes)} job classes; give one each")
        classes = tuple(
            replace(job, rate_qps=float(r)) for job, r in zip(self.classes, rates_qps, strict=True)
        )
        if self.queues:  # how long these are follows from the rates
            given = self.servers, self.power_ops, self.link_bps, self.groups, self.fixed_s, self.queues
            return assemble(classes, *given)
        arrays = self.arrays._replace(weight_qps=_weights_qps(classes, self.groups))
        return replace(self, classes=classes, arrays=arrays)

    def with_link(self, link_bps: float) -> "SplitProgram":
        """The same problem on another link."""
        return assemble(
            self.classes, self.servers, self.power_ops, link_bps, self.groups, self.fixed_s, self.queues
        )

    def with_queues(self) -> "SplitProgram":
        """The same problem with bursts and waiting for servers in the formula; itself where they are."""
        if self.queues:
            return self
        limit = max(LIMIT, self.variables)
        return build_program(self.classes, self.servers, self.power_ops, self.link_bps, limit, queues=True)


def build_program(
    classes: Sequence[QueryClass],
    servers: int,
    power_ops: float,
    link_bps: float,
    limit: int = LIMIT,
    queues: bool = False,
) -> SplitProgram:
    """Enumerate the placements of all classes.

    Args:
        classes: contract their graphs first.
        servers: >= 1.
        power_ops: operations per second of each server, > 0.
        link_bps: capacity of the one link between them, > 0.
        limit: placements of a sub-graph.
        queues: add bursts and waiting for servers to the page's formula.
    Raises:
        PolicyError: a number is out of range, or a sub-graph has more than `limit` placements.
    """
    if servers < 1:
        raise PolicyError(f"servers must be at least 1, got {servers}")
    groups: list[Group] = []
    fixed = np.zeros(len(classes))
    _check_positive("power_ops", power_ops)
    for job, item in enumerate(classes):
        tasks = closed(item.graph).tasks
        pieces = subgraphs(item.graph)
        interior = {task for piece in pieces for branch in piece.branches for task in branch.tasks}
        fixed[job] = sum(t.work_ops for i, t in enumerate(tasks) if i not in interior) / power_ops
        for kind in dict.fromkeys(piece.kind for piece in pieces):
            same = tuple(i for i, piece in enumerate(pieces) if piece.kind == kind)
            first = pieces[same[0]]
            where = f"{item.graph.name!r} between {tasks[first.root].name!r} and {tasks[first.sink].name!r}"
            groups.append(Group(job, same, placements(first, servers, limit, where, queues)))
    return assemble(tuple(classes), servers, power_ops, link_bps, tuple(groups), fixed, queues)


def _check_positive(name: str, value: float) -> None:
    if not (value > 0 and np.isfinite(value)):
        raise PolicyError(f"{name} must be a number above 0, got {value}")


def assemble(
    classes: tuple[QueryClass, ...],
    servers: int,
    power_ops: float,
    link_bps: float,
    groups: tuple[Group, ...],
    fixed_s: Floats,
    queues: bool,
) -> SplitProgram:
    """The program of groups whose placements are known; arguments as in `SplitProgram`."""
    _check_positive("link_bps", link_bps)
    weight_qps = _weights_qps(classes, groups)
    width = max([1, *(group.lines.bits.shape[1] for group in groups)])

    def stacked(rows: list[Floats]) -> Floats:
        wide, at = np.zeros((sum(len(row) for row in rows), width)), 0
        for row in rows:
            wide[at : at + len(row), : row.shape[1]] = row
            at += len(row)
        return wide

    work = stacked([group.lines.work_ops for group in groups])
    bits = stacked([group.lines.bits for group in groups])
    wait = server_wait_s(classes, servers, power_ops) if queues else 0.0
    wait_s = np.zeros(servers + 1)
    if queues:
        wait_s = servers_wait_s(classes, servers, power_ops) + task_wait_s(classes, servers, power_ops)
    visits = stacked([g.lines.visits * wait_s[g.lines.part.max(axis=1) + 1][:, None] for g in groups])
    arrays = Arrays(
        base_s=work / power_ops + bits / link_bps + visits,
        slope=stacked([group.lines.messages for group in groups]),
        load_s=np.concatenate([np.zeros(0), *(group.lines.sent_bits for group in groups)]) / link_bps,
        load_s2=np.concatenate([np.zeros(0), *(group.lines.sent_bits2 for group in groups)]) / link_bps**2,
        start=np.cumsum([0, *(len(group.lines.part) for group in groups)]),
        weight_qps=weight_qps,
    )
    longest = float(work.sum(axis=1).max(initial=0.0)) / power_ops
    return SplitProgram(classes, servers, power_ops, link_bps, groups, arrays, fixed_s, queues, wait, longest)


def _weights_qps(classes: Sequence[QueryClass], groups: Sequence[Group]) -> Floats:
    """(G,) how often sub-graphs of each group are split."""
    for job in classes:
        _check_positive(f"rate_qps of {job.graph.name!r}", job.rate_qps)
    return np.array([classes[group.job].rate_qps * len(group.subgraphs) for group in groups])


def task_wait_s(classes: Sequence[QueryClass], servers: int, power_ops: float) -> float:
    """Mean wait of a task for a server that was chosen long before: one M/G/1 queue of tasks.

    W = ρ E[s²] / (2 E[s] (1 - ρ)) over the tasks s (Pollaczek-Khinchine). What the scheduler knew of the
    server when the query arrived is out of date, so the task finds it as any other would.

    Raises:
        PolicyError: more work arrives than the servers can do.
    """
    busy = squares = 0.0
    for job in classes:
        work_s = np.array([task.work_ops for task in job.graph.tasks]) / power_ops
        busy += job.rate_qps * float(work_s.sum())
        squares += job.rate_qps * float((work_s**2).sum())
    return squares / (2.0 * (servers - busy))


def free_chances(busy: float, servers: int) -> Floats:
    """(servers + 1,) chance that a query finds 0, 1, … servers free; `busy`: erlangs offered (M/M/c).

    Raises:
        PolicyError: more work arrives than the servers can do.
    """
    if busy >= servers:
        raise PolicyError(f"queries need {busy:.4g} servers and there are {servers}; lower the rates")
    chance = np.ones(servers + 1)  # of 0, 1, … queries in the system, not yet normalised
    for n in range(1, servers + 1):
        chance[n] = chance[n - 1] * busy / n
    chance[servers] /= 1.0 - busy / servers  # and all who find more
    return np.asarray((chance / chance.sum())[::-1])


def _offered(classes: Sequence[QueryClass], servers: int, power_ops: float) -> tuple[float, float, Floats]:
    """Servers that whole queries keep busy; E[s²] / E[s] of their service times; `free_chances`."""
    rates = np.array([job.rate_qps for job in classes])
    work_s = np.array([sum(task.work_ops for task in job.graph.tasks) for job in classes]) / power_ops
    busy = float(rates @ work_s)
    return busy, float(rates @ work_s**2) / busy if busy else 0.0, free_chances(busy, servers)


def servers_wait_s(classes: Sequence[QueryClass], servers: int, power_ops: float) -> Floats:
    """(servers + 1,) mean wait of a query until 0, 1, … servers are rid of older queries, beyond the first's.

    A server takes the oldest query first, so whoever uses k servers waits on each until those who came
    before are done there. Where f of c are free, m = k - f of the other n must become so. Their residual
    times lie evenly between 0 and E[s²] / E[s], exactly so for equal queries; the m-th ends after m / (n + 1)
    of that.

    Raises:
        PolicyError: more work arrives than the servers can do.
    """
    _, longest_s, chance = _offered(classes, servers, power_ops)
    free = np.arange(servers + 1)
    missing = np.maximum(free[:, None] - free, 0) - np.maximum(1 - free, 0)
    return np.asarray(longest_s * (np.maximum(missing, 0) / (servers - free + 1)) @ chance)


def server_wait_s(classes: Sequence[QueryClass], servers: int, power_ops: float) -> float:
    """Mean wait of whole queries for the first of `servers` servers to be free (Allen and Cunneen).

    W = C(c, a) E[s²] / (2 E[s] (c - a)) with a = Σ β E[s] and Erlang's C, the chance that none is free.

    Raises:
        PolicyError: more work arrives than the servers can do.
    """
    busy, longest_s, chance = _offered(classes, servers, power_ops)
    return float(chance[0] * longest_s / (2.0 * (servers - busy)))
