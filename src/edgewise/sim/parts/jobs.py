"""Jobs on nodes: how long they run, stand still and begin anew; who does so is `DeferCore`'s to say.

They are a part of a joint run; alone, other work is a number of cores that it leaves in
each slot. A job runs where its node is up. When the node dies all that ran or stood there ends, and has what
its last checkpoint has, once it starts anew. Nothing runs beyond what other work leaves, so there are no
violations. Jobs that go on when the last slot is over have not ended.

Forbidden here: rules about who starts, where, and who gives way; they are the core's.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.capacity import CapacityChanged
from edgewise.core.defer import (
    ROUNDING,
    DeferCommand,
    EvictJob,
    JobEnded,
    JobStands,
    JobSubmitted,
    LoseJob,
    ResumeJob,
    SlotBegan,
    Standing,
    StartJob,
    SuspendJob,
)
from edgewise.core.defer.core import DeferCore
from edgewise.core.ledger import Reservation
from edgewise.core.plane import HoldsChanged
from edgewise.model.topology import Node, Resources
from edgewise.model.work import INFERENCE, DeferrableJob
from edgewise.sim.parts.checkpoints import Checkpoints
from edgewise.sim.parts.part import Bystander, Rank


class JobsOutcome(NamedTuple):
    """What became of jobs, (J,) each, in the order of `jobs`.

    Attributes:
        jobs: which they are.
        start: slot of the first start, -1: none.
        node: of the last start, "" where there was none.
        lost: whether the latest start passed without one.
        suspended: slots in suspension.
        moves: how often it gave way to other work, by suspension or to start anew.
        ended_s: when it was done, nan where it was not by the end of the last slot.
        redone_s: time that it had run in vain when it began anew.
    """

    jobs: tuple[DeferrableJob, ...]
    start: Ints
    node: tuple[str, ...]
    lost: Ints
    suspended: Floats
    moves: Ints
    ended_s: Floats
    redone_s: Floats


class JobsPart(Bystander):
    """Jobs that run on nodes.

    Args:
        jobs: ids are 0, 1, …; times are taken in slots, as `DeferrableJob.in_slots` says.
        core: decides; it is only read here.
        slots, slot_s: how many there are, and their length.
        checkpoints: those that weigh something; left out, none does.
    Attributes:
        start_s: (J,) first start, nan where there was none.
        node: of the last start, "" where there was none.
        lost: (J,) whether the latest start passed without one.
        suspended_s: (J,) time in suspension.
        moves: (J,) how often it gave way, by suspension or to start anew.
        ended_s: (J,) when it was done, nan where it was not by the end of the last slot.
        redone_s: (J,) time that it had run in vain when it began anew.
    """

    commands = (StartJob, SuspendJob, ResumeJob, EvictJob, LoseJob)

    def __init__(
        self,
        jobs: Sequence[DeferrableJob],
        core: DeferCore,
        slots: int,
        slot_s: float,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.jobs, self.core, self.slots, self.slot_s = tuple(jobs), core, slots, slot_s
        self._checkpoints = checkpoints or Checkpoints(self.jobs)
        self._fetching = set[int]()  # who begins with a checkpoint that is not there yet
        self._now_s = 0.0
        rows = np.array([job.in_slots(slot_s) for job in jobs], dtype=np.int64).reshape(-1, 4)
        self._submitted_s, _, _, self._length_s = rows.T * float(slot_s)
        self._told = np.zeros(len(self.jobs), dtype=np.bool_)
        self._slot = 0
        self._ends_s: dict[int, float] = {}  # of those that make progress
        self._left_s: dict[int, float] = {}  # of those that stand still: suspended, or on a dead node
        self._since_s: dict[int, float] = {}  # of those that are suspended
        self._ended = set[int]()  # with their nodes, and nobody has told them to start anew yet
        self._down: set[str] = set()
        self.node = [""] * len(self.jobs)
        self.start_s, self.ended_s = np.full((2, len(self.jobs)), np.nan)
        self.lost, self.moves = np.zeros((2, len(self.jobs)), dtype=np.int64)
        self.suspended_s, self.redone_s, self._saved_s = np.zeros((3, len(self.jobs)))
        self.end_s = slots * slot_s

    def next_s(self) -> float:
        """The next slot, or the end of a job, while the last slot is not over."""
        slot_s = self._slot * self.slot_s if self._slot < self.slots else math.inf
        next_s = min(slot_s, *self._ends_s.values(), self._checkpoints.next_s())
        return math.inf if self._over(next_s) else max(next_s, self._now_s)

    def advance(self, to_s: float) -> None:
        """Nothing is done on the way."""
        self._now_s = to_s

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Jobs of a dead node end; what is started there before anybody knows begins when it is back."""
        if self._over(now_s):
            return
        (self._down.discard if up else self._down.add)(node)
        for number in [n for n in (*self._left_s, *self._ends_s) if self.node[n] == node]:
            if not up and self._ends_s.get(number, math.inf) > now_s * (
                1 + ROUNDING
            ):  # else it has just ended
                self._stop(number, now_s)
                self._redo(number)
                self._ended.add(number)
            elif up and number not in self._since_s and number not in self._ended:
                self._go_on(number, self._left_s.pop(number), now_s)

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Ends, and at the beginning of a slot its submissions and the slot."""
        if self._over(now_s):
            return
        ended = [number for number, ends_s in self._ends_s.items() if ends_s <= now_s * (1 + ROUNDING)]
        for number in ended:
            self.ended_s[number] = self._ends_s.pop(number)
            self._checkpoints.ends(number, now_s)
            yield Rank.ENDED, JobEnded(number)
        self._checkpoints.write(now_s, self.node, self._length_s)
        if ended and self._since_s:
            yield Rank.ROOM, CapacityChanged(now_s)
        if self._slot < self.slots and self._slot * self.slot_s <= now_s:
            for number in self._new(now_s).tolist():
                yield Rank.OPENED, JobSubmitted(self.jobs[number])
            yield Rank.TICK, SlotBegan(now_s)
            self._slot += 1

    def take(self, command: DeferCommand, now_s: float) -> Iterator[Any]:
        """Carry a command out; a start or an end takes no time. What has ended, and was not told yet, has."""
        number = command.job
        if not math.isnan(self.ended_s[number]) or self._over(now_s):
            return
        match command:
            case StartJob():
                self.node[number] = command.node
                if math.isnan(self.start_s[number]):
                    self.start_s[number] = now_s
                (self._fetching.add if self._fetches(number) else self._fetching.discard)(number)
                self._go_on(number, float(self._length_s[number] - self._saved_s[number]), now_s)
                yield JobStands(self.core.jobs[number]._replace(settled=True))
            case SuspendJob():
                self._stop(number, now_s)
                self._since_s[number] = now_s
                self.moves[number] += 1
            case ResumeJob():
                self.suspended_s[number] += now_s - self._since_s.pop(number)
                self._go_on(number, self._left_s.pop(number), now_s)
            case EvictJob():
                self._stop(number, now_s)
                if number not in self._ended:
                    self._redo(number)
                self._ended.discard(number)
                if number in self._since_s:
                    self.suspended_s[number] += now_s - self._since_s.pop(number)
                del self._left_s[number]
                self.moves[number] += 1
                attempt, saved_s = self.core.jobs[number].attempt + 1, float(self._saved_s[number])
                yield JobStands(Standing(self.jobs[number], attempt=attempt, saved_s=saved_s))
            case LoseJob():
                self.lost[number] = 1

    def finish(self) -> None:
        """Who is suspended has been so until the end of the last slot."""
        for number, since_s in self._since_s.items():
            self.suspended_s[number] += max(self.end_s - since_s, 0.0)

    def outcome(self) -> JobsOutcome:
        """What became of them, in slots."""
        start = np.where(np.isnan(self.start_s), -1, np.round(self.start_s / self.slot_s)).astype(np.int64)
        suspended = self.suspended_s / self.slot_s
        whole = np.round(suspended)
        suspended = np.where(np.abs(suspended - whole) < ROUNDING * (1 + whole), whole, suspended)
        return JobsOutcome(
            self.jobs, start, tuple(self.node), self.lost, suspended, self.moves, self.ended_s, self.redone_s
        )

    def _over(self, now_s: float) -> bool:
        """Whether the last slot is."""
        return now_s > self.end_s * (1 + ROUNDING)

    def _new(self, now_s: float) -> Ints:
        found = np.flatnonzero(~self._told & (self._submitted_s <= now_s))
        self._told[found] = True
        return found

    def _fetches(self, number: int) -> bool:
        """Whether it begins with a checkpoint that has a size."""
        return self._saved_s[number] > 0.0 and self._checkpoints.weigh(number)

    def _stop(self, number: int, now_s: float) -> None:
        self._checkpoints.stops(number, now_s)
        if number in self._ends_s:
            self._left_s[number] = self._ends_s.pop(number) - now_s

    def _redo(self, number: int) -> None:
        """What it has done is lost, but for what its last checkpoint has."""
        done_s = float(self._length_s[number] - self._left_s[number])
        self._checkpoints.ends(number, self._now_s)
        weighs = self._checkpoints.weigh(number)
        saved_s = float(self._checkpoints.saved_s[number]) if weighs else self.jobs[number].saved_s(done_s)
        self._saved_s[number] = saved_s
        self.redone_s[number] += done_s - saved_s
        self._left_s[number] = float(self._length_s[number]) - saved_s

    def _go_on(self, number: int, left_s: float, now_s: float) -> None:
        if self.node[number] in self._down:  # nobody has heard of it yet
            self._left_s[number] = left_s
        elif number in self._fetching:
            self._left_s[number] = left_s
            self._checkpoints.fetch(number, self.node[number], now_s, lambda: self._fetched(number))
        else:
            self._ends_s[number] = now_s + left_s
            if self._checkpoints.weigh(number):
                length_s = float(self._length_s[number])
                self._checkpoints.runs(number, self.node[number], now_s, length_s - left_s, length_s)

    def _fetched(self, number: int) -> None:
        """Its last checkpoint is on its node."""
        self._fetching.discard(number)
        self._go_on(number, self._left_s.pop(number), self._now_s)


class OtherWork(Bystander):
    """Work that is not simulated, and takes its share of the nodes in each slot.

    Args:
        nodes: it fills one after the other, the last one as far as it must; memory as it does cores.
        left_over: (T,) cores that it leaves on all nodes together.
    """

    def __init__(self, nodes: Sequence[Node], left_over: Floats, slot_s: float) -> None:
        self._nodes, self._left_over, self._slot_s = tuple(nodes), left_over, slot_s
        self._slot = 0

    def next_s(self) -> float:
        """The next slot."""
        return self._slot * self._slot_s if self._slot < self._left_over.size else math.inf

    def due(self, now_s: float) -> Iterator[tuple[Rank, Any]]:
        """What it holds from now on."""
        if self.next_s() <= now_s:
            yield Rank.TICK, HoldsChanged(self._holds(float(self._left_over[self._slot])))
            self._slot += 1

    def _holds(self, left_cores: float) -> tuple[Reservation, ...]:
        rest, held = sum(node.resources.cpu_cores for node in self._nodes) - left_cores, []
        for node in self._nodes:
            cores, memory_bytes = node.resources.cpu_cores, node.resources.memory_bytes
            taken = min(max(rest, 0.0), cores)
            rest -= taken
            needs = Resources(taken, memory_bytes * taken / cores if cores else 0.0)
            held.append(Reservation(f"other work on {node.name}", node.name, needs, INFERENCE))
        return tuple(held)
