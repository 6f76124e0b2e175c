"""The split policies that ship, all with the same rule for choosing servers.

Beside what `core.split.SplitPolicy` asks for they have `compiled`, themselves as arrays: simulation then
decides without Python.
"""

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.split import SplitView
from edgewise.errors import PolicyError
from edgewise.policies.registry import load, policy
from edgewise.policies.split.layout import LayoutProgram
from edgewise.policies.split.optimum import (
    GAP,
    HALF_DONE,
    SHARE,
    SplitPlan,
    blind,
    by_free,
    fixed_plan,
    levels,
    mean_work_s,
    optimise,
)
from edgewise.policies.split.program import ServerChoice, SplitProgram
from edgewise.policies.split.schedule import Choice, SplitRule, place_query
from edgewise.policies.split.tables import make_graphs, make_table

if TYPE_CHECKING:
    from edgewise.policies.split.layout_optimum import LayoutPlan

LAYOUT_GAP = 0.05


class SplitWay(NamedTuple):
    """How a policy that ships splits.

    Attributes:
        words: what it does.
        planned: program, gap and share → the plan that it draws from.
        draws: whether it draws from the plan.
        estimates: whether it places tasks where they would finish first.
        rule: which server a part gets; None: as asked for.
        keep: whether its queries keep to as few servers as their plan needs.
        renewed: whether its plan follows the rates.
    """

    words: str
    planned: Callable[[SplitProgram, float, float], SplitPlan]
    draws: bool = True
    estimates: bool = False
    rule: ServerChoice | None = None
    keep: bool = False
    renewed: bool = False


class ShippedSplit:
    """A policy that ships, as arrays.

    Attributes:
        compiled: it, as kernels read it.
    """

    decision = "split"
    name: str
    compiled: SplitRule

    def decide(self, view: SplitView) -> Ints:
        """(T,) server of each task."""
        out = np.empty(self.compiled.graphs.tasks[view.job], dtype=np.int64)
        place_query(self.compiled, view.ledger, view.job, view.query, out)
        return out


class CompiledSplit(ShippedSplit):
    """One on equal servers.

    Args:
        rule: which server a part gets; a whole-… policy has its own.
        plan: for the nonas: one that is known already.
        gap: for the nonas: relative gap of the plan.
        share: for nona-free: of the free servers that a query may take.
    Attributes:
        plan: what it draws from, and what the formula predicts; None: it draws from none.
    """

    way: ClassVar[SplitWay]
    plan: SplitPlan | None

    def __init__(
        self,
        rule: ServerChoice = ServerChoice.LEAST_LOADED,
        plan: SplitPlan | None = None,
        gap: float = GAP,
        share: float = SHARE,
    ) -> None:
        self.rule = rule if self.way.rule is None else self.way.rule
        self.given, self.gap, self.share = plan, gap, share
        self._program: SplitProgram | None = None

    def reset(self, program: SplitProgram | LayoutProgram, key: Key) -> None:
        """Plan, unless there is a plan for this very program; draws and turns begin anew.

        Raises:
            PolicyError: the servers are not equal, or cannot do the work.
        """
        if isinstance(program, LayoutProgram):
            raise PolicyError(f"{self.name} splits over equal servers; for groups of servers: nona-layout")
        choice = Choice(int(self.rule), np.uint64(key.seed), np.zeros(1, np.int64))
        if program is self._program:
            self.compiled = self.compiled._replace(choice=choice)
            return
        self._program, plan = program, self.given or self.way.planned(program, self.gap, self.share)
        self.plan = plan if self.way.draws else None
        graphs = make_graphs([job.graph for job in program.classes], program.power_ops, program.link_bps)
        table = None
        if self.way.draws:
            several = len(plan.program.classes) > len(program.classes)  # one for each number of free servers
            level, unit_s = levels(program, self.share) if several else None, HALF_DONE * mean_work_s(program)
            table, _ = make_table(plan.program, plan.theta, level, unit_s, self.way.keep)
        link_bps = program.link_bps if self.way.estimates else None
        self.compiled = SplitRule(graphs, choice, table, link_bps=link_bps)


class RenewedSplit(CompiledSplit):
    """One whose plan can be made for other rates while it decides."""

    def renewed(self, rates_qps: Floats) -> Self | None:
        """See `SplitPolicy`; the placements are not enumerated again."""
        assert self.plan is not None
        try:
            program = self.plan.program.with_rates(rates_qps.tolist())
        except PolicyError:  # more than the servers can do: no plan is better than another
            return None
        other = copy(self)
        other.plan = optimise(program, self.gap)
        table, _ = make_table(other.plan.program, other.plan.theta, keep=self.way.keep)
        other.compiled = self.compiled._replace(table=table)
        return other


def local(program: SplitProgram, *_: float) -> SplitPlan:
    """Every query whole on one server."""
    theta = np.zeros(program.variables)
    theta[program.arrays.start[:-1]] = 1.0
    return fixed_plan(program, theta)


def equal(program: SplitProgram, *_: float) -> SplitPlan:
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


def _free(program: SplitProgram, gap: float, share: float) -> SplitPlan:
    return optimise(by_free(program.with_queues(), share), gap)


WAYS = {
    "nona": SplitWay(
        "The certified optimum of the paper's formula.", lambda p, gap, _: optimise(p, gap), renewed=True
    ),
    "nona-queues": SplitWay(
        "The certified optimum with bursts and waiting for servers in the formula.",
        lambda p, gap, _: optimise(p.with_queues(), gap),
        keep=True,
        renewed=True,
    ),
    "nona-free": SplitWay("A plan for each number of free servers.", _free, keep=True),
    "blind": SplitWay("The plan that ignores waiting at the link.", lambda p, *_: blind(p)),
    "equal": SplitWay("As many servers as there are branches, evenly loaded.", equal),
    "whole-random": SplitWay("The whole query on a random server.", local, rule=ServerChoice.UNIFORM),
    "whole-round-robin": SplitWay("Whole queries on servers in turn.", local, rule=ServerChoice.ROUND_ROBIN),
    "whole-shortest-queue": SplitWay(
        "The whole query where the fewest tasks are.", local, rule=ServerChoice.SHORTEST_QUEUE
    ),
    "whole-least-loaded": SplitWay(
        "The whole query where least work is.", local, rule=ServerChoice.LEAST_LOADED
    ),
    "whole-two-choices": SplitWay(
        "The whole query on the less loaded of two servers.", local, rule=ServerChoice.TWO_CHOICES
    ),
    "scatter": SplitWay("Every task on a server of its own choice.", local, draws=False),
    "earliest-finish": SplitWay(
        "Each task where it would finish first, in the order of HEFT.", local, draws=False, estimates=True
    ),
}
NAMES = tuple(WAYS)  # for equal servers


@policy("nona-layout")
class LayoutSplit(ShippedSplit):
    """Nona over groups of servers of different power, joined by several links.

    Args:
        plan: one that is known already.
        gap: relative gap of the plan.
    """

    plan: "LayoutPlan"

    def __init__(self, plan: "LayoutPlan | None" = None, gap: float = LAYOUT_GAP) -> None:
        self.given, self.gap = plan, gap
        self._program: LayoutProgram | None = None

    def reset(self, program: SplitProgram | LayoutProgram, key: Key) -> None:
        """Plan, unless there is a plan for this very program; draws and turns begin anew.

        Raises:
            PolicyError: there is one group, or the servers cannot do the work.
        """
        if not isinstance(program, LayoutProgram):
            raise PolicyError(
                f"{self.name} splits over groups of servers; for equal ones: {', '.join(NAMES)}"
            )
        if program is not self._program:
            from edgewise.policies.split.layout_optimum import optimise_layout  # its solver is slow to import

            self._program, self.plan = program, self.given or optimise_layout(program, self.gap)
        self.compiled = SplitRule(
            make_graphs([job.graph for job in program.classes], 1.0, 1.0),  # ranks are not asked for
            Choice(int(program.layout.rule), np.uint64(key.seed), np.zeros(1, np.int64)),
            *make_table(program, self.plan.theta),
        )

    def renewed(self, rates_qps: Floats) -> Self | None:
        """See `SplitPolicy`; a few steps from the plan that there is."""
        from edgewise.policies.split.layout_optimum import renew_layout

        other = copy(self)
        try:
            other.plan = renew_layout(self.plan, rates_qps.tolist())
        except PolicyError:  # more than the servers can do
            return None
        table, groups = make_table(other.plan.program, other.plan.theta)
        other.compiled = self.compiled._replace(table=table, groups=groups)
        return other


POLICIES: Mapping[str, type] = {
    name: policy(name)(
        type(name, (RenewedSplit if way.renewed else CompiledSplit,), {"way": way, "__doc__": way.words})
    )
    for name, way in WAYS.items()
} | {"nona-layout": LayoutSplit}


def split_policy(
    name: str, program: SplitProgram | LayoutProgram, *args: Any, seed: int = 0, **options: Any
) -> Any:
    """A policy by name, reset; arguments and options as for its class, where it ships.

    Raises:
        PolicyError: no such policy, see `edgewise.policies.load`.
    """
    made = POLICIES[name](*args, **options) if name in POLICIES else load("split", name)
    made.reset(program, Key(seed))
    return made
