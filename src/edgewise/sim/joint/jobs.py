"""Jobs in a joint run: how long they run, stand still and begin anew; who does so is `DeferCore`'s to say.

A job runs where its node is up. When the node dies, one that pauses keeps what it has done, one that starts
anew loses it. Forbidden here: rules about who starts, where, and who gives way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.defer.core import DeferCore
from edgewise.core.defer.events import (
    DeferCommand,
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
from edgewise.model.work import DeferrableJob
from edgewise.sim.jobs import JobsOutcome
from edgewise.sim.joint.parts import Rank


class JobsPart:
    """Jobs that run on nodes.

    Args:
        jobs: ids are 0, 1, …; times are taken in slots, as `DeferrableJob.in_slots` says.
        core: decides; it is only read here.
        slots, slot_s: how many there are, and their length.
    Attributes:
        start_s: (J,) last start, nan where there was none, or it was ended to start anew.
        node: of the last start, "" where there was none.
        lost: (J,) whether the latest start passed without one.
        suspended_s: (J,) time in suspension.
        moves: (J,) how often it gave way, by suspension or to start anew.
        ended_s: (J,) when it was done, nan where it was not.
    """

    commands = (StartJob, SuspendJob, ResumeJob, EvictJob, LoseJob)

    def __init__(self, jobs: Sequence[DeferrableJob], core: DeferCore, slots: int, slot_s: float) -> None:
        self.jobs, self.core, self.slots, self.slot_s = tuple(jobs), core, slots, slot_s
        rows = np.array([job.in_slots(slot_s) for job in jobs], dtype=np.int64).reshape(-1, 4)
        self._submitted_s, _, _, self._length_s = rows.T * float(slot_s)
        self._told = np.zeros(len(self.jobs), dtype=np.bool_)
        self._slot = 0
        self._ends_s: dict[int, float] = {}  # of those that make progress
        self._left_s: dict[int, float] = {}  # of those that stand still: suspended, or on a dead node
        self._since_s: dict[int, float] = {}  # of those that are suspended
        self._down: set[str] = set()
        self.node = [""] * len(self.jobs)
        self.start_s, self.ended_s = np.full((2, len(self.jobs)), np.nan)
        self.lost, self.moves = np.zeros((2, len(self.jobs)), dtype=np.int64)
        self.suspended_s: Floats = np.zeros(len(self.jobs))

    def next_s(self) -> float:
        """The next slot, or the end of a job before it; nothing counts after the last slot."""
        if self._slot == self.slots:
            return math.inf
        return min(self._slot * self.slot_s, *self._ends_s.values(), math.inf)

    def advance(self, to_s: float) -> None:
        """Ends are known; nothing is done on the way."""

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Jobs of a dead node stand still; they go on when it is back, unless they were suspended."""
        (self._down.discard if up else self._down.add)(node)
        for number in [n for n in (self._left_s if up else self._ends_s) if self.node[n] == node]:
            if not up:
                self._stop(number, now_s)
                if self.jobs[number].when_evicted == "restart":
                    self._left_s[number] = float(self._length_s[number])
            elif number not in self._since_s:
                self._ends_s[number] = now_s + self._left_s.pop(number)

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Ends, and at the beginning of a slot its submissions and the slot."""
        for number in [number for number, ends_s in self._ends_s.items() if ends_s <= now_s]:
            self.ended_s[number] = self._ends_s.pop(number)
            yield Rank.ENDED, JobEnded(number)
        if self._slot < self.slots and self._slot * self.slot_s <= now_s:
            for number in self._new(now_s).tolist():
                yield Rank.OPENED, JobSubmitted(self.jobs[number])
            yield Rank.TICK, SlotBegan(now_s)
            self._slot += 1

    def take(self, command: DeferCommand, now_s: float) -> Iterator[Any]:
        """Carry a command out; a start or an end takes no time."""
        number = command.job
        match command:
            case StartJob():
                self.start_s[number], self.node[number] = now_s, command.node
                self._go_on(number, float(self._length_s[number]), now_s)
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
                del self._left_s[number]
                self.start_s[number] = np.nan
                self.moves[number] += 1
                attempt = self.core.jobs[number].attempt + 1
                yield JobStands(Standing(self.jobs[number], JobPhase.WAITING, attempt=attempt))
            case LoseJob():
                self.lost[number] = 1

    def finish(self) -> None:
        """Who is suspended has been so until the end of the last slot."""
        for number, since_s in self._since_s.items():
            self.suspended_s[number] += max(self.slots * self.slot_s - since_s, 0.0)

    def outcome(self) -> JobsOutcome:
        """What became of them, in slots."""
        start = np.where(np.isnan(self.start_s), -1, np.round(self.start_s / self.slot_s)).astype(np.int64)
        return JobsOutcome(
            self.jobs, start, tuple(self.node), self.lost, self.suspended_s / self.slot_s, self.moves
        )

    def _new(self, now_s: float) -> Ints:
        found = np.flatnonzero(~self._told & (self._submitted_s <= now_s))
        self._told[found] = True
        return found

    def _stop(self, number: int, now_s: float) -> None:
        if number in self._ends_s:
            self._left_s[number] = self._ends_s.pop(number) - now_s

    def _go_on(self, number: int, left_s: float, now_s: float) -> None:
        if self.node[number] in self._down:  # nobody has heard of it yet
            self._left_s[number] = left_s
        else:
            self._ends_s[number] = now_s + left_s
