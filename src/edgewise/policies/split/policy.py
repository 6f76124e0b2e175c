"""Split policies: Nona and what it is compared with, all with the same rule for choosing servers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError
from edgewise.policies.registry import policy
from edgewise.policies.split.free import HALF_DONE, SHARE, by_free, levels, mean_work_s
from edgewise.policies.split.optimum import GAP, SplitPlan, blind, fixed_plan, optimise
from edgewise.policies.split.program import SplitProgram
from edgewise.policies.split.schedule import Ledger, Method, ServerChoice, place_queries
from edgewise.policies.split.tables import Graphs, Table, make_graphs, make_table

WHOLE = {
    "whole-random": ServerChoice.UNIFORM,
    "whole-round-robin": ServerChoice.ROUND_ROBIN,
    "whole-shortest-queue": ServerChoice.SHORTEST_QUEUE,
    "whole-least-loaded": ServerChoice.LEAST_LOADED,
    "whole-two-choices": ServerChoice.TWO_CHOICES,
}
KEEP = ("nona-queues", "nona-free")  # their queries keep to as few servers as their plan needs
NAMES = ("nona", "nona-queues", "nona-free", "blind", "equal", *WHOLE, "scatter", "earliest-finish")


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """Places every task of a query when the query arrives.

    Attributes:
        name: one of NAMES.
        method, rule: how; see `schedule`.
        table, graphs: the job classes as arrays.
        link_bps: capacity of the link, for methods that estimate transfers.
        plan: the probabilities it draws from and what the formula predicts; None: it draws from none.
    """

    name: str
    method: Method
    rule: ServerChoice
    table: Table
    graphs: Graphs
    link_bps: float
    plan: SplitPlan | None

    def place(self, jobs: Ints, ledger: Ledger, key: Key, first: int = 0) -> Ints:
        """Server of every task of some queries, placed one after the other.

        Args:
            jobs: (Q,) class of each query.
            ledger: outstanding work; what is placed is added to it.
            key: of the random draws.
            first: number of the first query; draws belong to numbers.
        Returns:
            (Q, T) servers; columns are the tasks of `closed(graph)`, -1 where a class has fewer.
        """
        out = np.full((len(jobs), self.graphs.work_ops.shape[1]), -1, dtype=np.int64)
        place_queries(
            self.table,
            self.graphs,
            ledger,
            np.asarray(jobs, dtype=np.int64),
            first,
            int(self.method),
            int(self.rule),
            self.link_bps,
            np.uint64(key.seed),
            out,
        )
        return out


def split_policy(
    name: str,
    program: SplitProgram,
    rule: ServerChoice = ServerChoice.LEAST_LOADED,
    plan: SplitPlan | None = None,
    gap: float = GAP,
    share: float = SHARE,
) -> SplitPolicy:
    """A policy by name.

    Args:
        name: one of NAMES; a whole-… policy has its own rule.
        program: job classes, servers and link.
        rule: which server a part gets.
        plan: for the nonas: a plan that is known already.
        gap: for the nonas: relative gap of its plan.
        share: for nona-free: of the free servers that a query may take.
    Raises:
        PolicyError: no such policy.
    """
    if name not in NAMES:
        raise PolicyError(f"no split policy {name!r}; known: {', '.join(NAMES)}")
    method = {"scatter": Method.SCATTER, "earliest-finish": Method.EARLIEST_FINISH}.get(name, Method.DRAW)
    level = None
    if name == "nona":
        plan = plan or optimise(program, gap)
    elif name == "nona-queues":
        plan = plan or optimise(program.with_queues(), gap)
    elif name == "nona-free":
        level = levels(program, share)
        plan = plan or optimise(by_free(program.with_queues(), share), gap)
    elif name == "blind":
        plan = blind(program)
    elif name == "equal":
        plan = equal(program)
    else:
        plan = local(program)
    return SplitPolicy(
        name,
        method,
        WHOLE.get(name, rule),
        make_table(plan.program, plan.theta, level, HALF_DONE * mean_work_s(program), name in KEEP),
        make_graphs([job.graph for job in program.classes], program.power_ops, program.link_bps),
        program.link_bps,
        plan if method is Method.DRAW else None,
    )


def local(program: SplitProgram) -> SplitPlan:
    """Every query whole on one server."""
    theta = np.zeros(program.variables)
    theta[program.arrays.start[:-1]] = 1.0
    return fixed_plan(program, theta)


def equal(program: SplitProgram) -> SplitPlan:
    """As many servers as possible in each sub-graph, as evenly loaded as possible; sink at the root's.

    Among the placements that keep the sink with the root, the one with the least largest part, then the
    most parts.
    """
    theta = np.zeros(program.variables)
    for group, first in zip(program.groups, program.arrays.start, strict=False):
        lines = group.lines
        apart = lines.part[:, -1] != 0
        keys = (-lines.part.max(axis=1), lines.work_ops.max(axis=1), apart)  # the last one counts most
        theta[first + np.lexsort(keys)[0]] = 1.0
    return fixed_plan(program, theta)


class _Planned:
    """Plans for a program when it begins, then places queries as the `SplitPolicy` of its name."""

    decision = "split"
    name = ""

    def reset(self, program: SplitProgram, key: Key) -> None:
        """Plan."""
        self._made, self._key, self._first = split_policy(self.name, program), key, 0

    def place(self, jobs: Ints, ledger: Ledger) -> Ints:
        """(Q, T) server of every task of some queries; see `SplitPolicy.place`."""
        self._first += len(jobs)
        return self._made.place(jobs, ledger, self._key, self._first - len(jobs))


for _name in NAMES:
    policy(_name)(type(f"Split_{_name}", (_Planned,), {"__doc__": _Planned.__doc__}))
