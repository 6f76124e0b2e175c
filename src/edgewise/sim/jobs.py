"""Jobs on nodes: `DeferCore`, as it runs live, driven by a clock of slots.

In each slot: jobs that are done end; other work takes its share of each node, and jobs that find no room
there any more are suspended, or end to start anew; jobs are submitted; the policy starts some. Nothing runs
beyond what other work leaves, so there are no violations.

Forbidden here: rules about who starts, where, and who gives way; they are the core's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.defer import DeferralPolicy, Slots
from edgewise.core.defer.core import DeferCore
from edgewise.core.defer.events import (
    EvictJob,
    JobEnded,
    JobPhase,
    JobStands,
    JobSubmitted,
    LoseJob,
    ResumeJob,
    SlotBegan,
    Standing,
    StartJob,
    SuspendJob,
)
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.plane import HoldsChanged, Plane, PlaneCommand
from edgewise.model.catalog import Resources
from edgewise.model.topology import Node
from edgewise.model.work import INFERENCE, DeferrableJob


class JobsOutcome(NamedTuple):
    """What became of jobs, (J,) each, in the order of `jobs`.

    Attributes:
        start: slot of the last start, -1: none, or lost after it was ended to start anew.
        node: of the last start, "" where there was none.
        lost: whether the latest start passed without one.
        suspended: slots in suspension.
        moves: how often it gave way to other work, by suspension or to start anew.
    """

    jobs: tuple[DeferrableJob, ...]
    start: Ints
    node: tuple[str, ...]
    lost: Ints
    suspended: Ints | Floats
    moves: Ints


class JobsOnNodes:
    """A run of jobs on nodes.

    Args:
        jobs: ids are 0, 1, …, in any order of submission.
        left_over: (T,) cores that other work leaves on all nodes together.
        slot_s: length of a slot.
        core: decides, on the nodes of its ledger.
    """

    def __init__(
        self, jobs: Sequence[DeferrableJob], left_over: Floats, slot_s: float, core: DeferCore
    ) -> None:
        self.jobs, self.core, self.plane = tuple(jobs), core, Plane(core.ledger, {"defer": core})
        self._left_over, self._slot_s = left_over, slot_s
        self._submitted, _, _, self._duration = (
            np.array([job.in_slots(slot_s) for job in jobs]).reshape(-1, 4).T
        )
        self._until: dict[int, int] = {}  # slot in which a running job has ended
        self._rest: dict[int, int] = {}  # slots that a suspended one has still to run
        self._node = [""] * len(self.jobs)
        self._start = np.full(len(self.jobs), -1, dtype=np.int64)
        self._lost, self._suspended, self._moves = (np.zeros_like(self._start) for _ in range(3))

    def run(self) -> JobsOutcome:
        """Go through all slots."""
        for slot in range(self._left_over.size):
            now_s = slot * self._slot_s
            for number in [number for number, until in self._until.items() if until <= slot]:
                del self._until[number]
                self.core.handle(JobEnded(number))
            for number in np.flatnonzero(self._submitted == slot).tolist():
                self.core.handle(JobSubmitted(self.jobs[number]))
            held = held_by_others(self.core.ledger.there, float(self._left_over[slot]))
            for event in (HoldsChanged(held), SlotBegan(now_s)):
                for command in self.plane.handle(event, now_s):
                    self._carry_out(command, slot)
            self._suspended[list(self._rest)] += 1
        return JobsOutcome(
            self.jobs, self._start, tuple(self._node), self._lost, self._suspended, self._moves
        )

    def _carry_out(self, command: PlaneCommand, slot: int) -> None:
        match command:
            case StartJob(number, node, _):
                self._until[number] = slot + int(self._duration[number])
                self._start[number], self._node[number] = slot, node
                self.core.handle(JobStands(self.core.jobs[number]._replace(settled=True)))
            case SuspendJob(number):
                self._rest[number] = self._until.pop(number) - slot
                self._moves[number] += 1
            case ResumeJob(number):
                self._until[number] = slot + self._rest.pop(number)
            case EvictJob(number):
                del self._until[number]
                self._start[number] = -1
                self._moves[number] += 1
                attempt = self.core.jobs[number].attempt + 1
                self.core.handle(JobStands(Standing(self.jobs[number], JobPhase.WAITING, attempt=attempt)))
            case LoseJob(number):
                self._lost[number] = 1


def simulate_on_nodes(
    jobs: Sequence[DeferrableJob],
    nodes: Sequence[Node],
    left_over: Floats,
    slot_s: float,
    policy: DeferralPolicy,
    seed: int = 0,
) -> JobsOutcome:
    """Run jobs on nodes under a policy; see `JobsOnNodes`.

    Args:
        seed: keys the policy's own draws.
    Raises:
        PolicyError: the policy raises, or starts what may not start.
    """
    kinds = 2 if any(job.resources.memory_bytes for job in jobs) else 1
    core = DeferCore(Slots(slot_s, kinds), NodeLedger(nodes), policy, key=Key(seed))
    return JobsOnNodes(jobs, left_over, slot_s, core).run()


def held_by_others(nodes: Sequence[Node], left_cores: float) -> tuple[Reservation, ...]:
    """Other work fills one node after the other, the last one as far as it must; memory as it does cores."""
    rest, held = sum(node.resources.cpu_cores for node in nodes) - left_cores, []
    for node in nodes:
        cores, memory_bytes = node.resources.cpu_cores, node.resources.memory_bytes
        taken = min(max(rest, 0.0), cores)
        rest -= taken
        needs = Resources(taken, memory_bytes * taken / cores if cores else 0.0)
        held.append(Reservation(f"other work on {node.name}", node.name, needs, INFERENCE))
    return tuple(held)
