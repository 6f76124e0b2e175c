"""Deferrable jobs, live: started in the capacity that inference leaves in the node ledger.

What is decided is decided by `core.defer.core.DeferCore`; here are the clock, the store and the processes.
In every pass the core is told what became of jobs, and the plane what workers and replicas hold; at the
beginning of each slot it is told that, too. Its commands are carried out at once.

Every step is written down before it is taken, so that the death of the controller at any moment loses no
job; `job_runner` sees to it that none is started twice. The store is right: where the core knows something
else of a job (another controller had it, or a command failed), it is told what the store says.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Iterator, Mapping
from typing import get_args

from edgewise import policies
from edgewise.core.capacity import CapacityChanged
from edgewise.core.defer import (
    DeferCommand,
    DeferEvent,
    EvictJob,
    JobEnded,
    JobStands,
    JobSubmitted,
    LoseJob,
    ResumeJob,
    SlotBegan,
    Slots,
    Standing,
    StartJob,
    SuspendJob,
)
from edgewise.core.defer.core import DeferCore
from edgewise.core.guard import Guard
from edgewise.core.ledger import NodeLedger
from edgewise.errors import RunError
from edgewise.model.topology import Node, Resources
from edgewise.model.work import DeferrableJob
from edgewise.runtime.controller.books import ACTIVE, Job, JobBook
from edgewise.runtime.controller.job_processes import JobProcesses, JobStage
from edgewise.runtime.controller.live_plane import LiveDecision, LivePlane
from edgewise.runtime.faults import Limited

log = logging.getLogger("edgewise.jobs")
POLICY, FALLBACK = "tetris", "fifo"
WARM_S = 60.0  # most that a policy may take to compile before a system starts
SLOT_S = 1.0
GRACE_S = 5.0  # from SIGTERM to SIGKILL
BEGIN_S = 5.0  # most that a runner takes to begin a command; then its job may be lost
MOST_DEATHS = 3  # runners that may die before a command begins


def warm(name: str = POLICY) -> None:
    """Compile what a policy needs for one job, so that forks of this process decide at once."""
    start_one(FALLBACK)
    Guard(Limited(WARM_S)).ask(lambda: start_one(name), list)  # who decides says its faults


def start_one(name: str) -> list[DeferCommand]:
    """What a policy does about one job on one node: whatever is wrong with it is raised."""
    ledger = NodeLedger([Node("node", "cluster", Resources(1.0))])
    core = DeferCore(Slots(1.0), ledger, policies.load("defer", name))
    core.handle(JobSubmitted(DeferrableJob(1, Resources(1.0), 1.0, 0.0, 0.0, 1.0)))
    return core.handle(SlotBegan(0.0))


class LiveJobs(LiveDecision):
    """Keeps the deferrable jobs of a live system.

    Args:
        plane: knows what other work leaves.
        slot_s: how often the policy is asked.
    """

    def __init__(self, plane: LivePlane, slot_s: float = SLOT_S) -> None:
        super().__init__(plane, "defer")
        self.slot_s, folder = slot_s, self.store.file.parent
        self.book, self.processes = JobBook(self.store.file), JobProcesses(folder)
        fallback = policies.load("defer", FALLBACK)
        self.core = DeferCore(Slots(slot_s), plane.ledger, fallback, fallback)
        plane.cores["defer"] = self.core
        plane.carry_out |= dict.fromkeys(get_args(DeferCommand), self._obey)
        self.begin_with(self.store.policy("defer") or POLICY)
        self._slot, self._whole = -1, True
        self._told_s: dict[str, float] = {}  # when a run was told to end

    async def keep(self, period_s: float = 0.05) -> None:
        """Go on for ever."""
        while True:
            self.look(time.time())
            await asyncio.sleep(period_s)

    async def end(self) -> None:
        """End what runs; waiting jobs are kept for the next controller of this folder."""
        while active := [job for job in self.book.open() if job.state in ACTIVE]:
            for job in active:
                self.book.cancel(job.id)
            self.look(time.time(), start=False)
            await asyncio.sleep(0.02)

    def forget(self, most: int, before_s: float) -> None:
        """Forget jobs that are over, and remove their files; see `JobBook.over`."""
        numbers = self.book.over(most, before_s)
        for number in numbers:
            self.processes.remove(number)
        self.book.forget(numbers)

    def look(self, now_s: float, start: bool = True) -> None:
        """One pass: notice what ended, end what must, do what the core says; a new slot may start jobs."""
        with self.going_on():
            known, self._whole = dict(self.core.jobs) if self._whole else {}, False
            for job in self.book.open():
                self._notice(job, now_s)
            for event in self._changes(known):
                self.plane.tell(event, now_s)
            if self.core.jobs:
                self._decide(now_s, start)
            self._whole = True

    def _decide(self, now_s: float, start: bool) -> None:
        self.plane.listen(now_s)
        self.plane.tell(CapacityChanged(now_s), now_s)
        slot = int(now_s / self.slot_s)
        if start and slot != self._slot:
            self._slot = slot
            self.watch()
            self.plane.tell(SlotBegan(slot * self.slot_s), now_s)

    def _changes(self, known: Mapping[int, Standing]) -> Iterator[DeferEvent]:
        """What the store says of jobs that the core does not know, or may know wrongly."""
        jobs = self.book.open()
        for number in self.core.jobs.keys() - {job.id for job in jobs}:
            yield JobEnded(number)
        for job in jobs:
            standing = job.standing(settled=job.state != "starting" and job.run not in self._told_s)
            if known.get(job.id) != standing:
                fresh = job.id not in self.core.jobs and standing == Standing(standing.job)
                yield JobSubmitted(standing.job) if fresh else JobStands(standing)

    def _obey(self, command: DeferCommand, now_s: float) -> None:
        """Carry a command out; where that breaks off the store says what was done, in the next pass."""
        whole, self._whole = self._whole, False
        self._carry_out(command, now_s)
        self._whole = whole

    def _carry_out(self, command: DeferCommand, now_s: float) -> None:
        job = self.book.get(command.job)
        assert job is not None  # forgotten are only those that have ended
        match command:
            case StartJob(number, node, started_s):
                if self.book.claim(number, node, started_s):  # else it was cancelled meanwhile
                    self._begin(self.book.get(number) or job, now_s)
                    log.info("job started", extra={"job": number, "node": node})
            case SuspendJob(number):
                self.book.suspend(number, now_s)
                self.processes.suspend(job.run)
            case ResumeJob(number):
                self.processes.resume(job.run)
                self.book.resume(number, now_s)
            case EvictJob(number):
                self.book.evict(number, now_s)  # the next pass tells it to end
            case LoseJob(number):
                again = "ended for inference, and " if job.attempt else ""
                self.book.end(number, "lost", f"{again}its latest start passed without room for it", now_s)

    # what became of jobs

    def _notice(self, job: Job, now_s: float) -> None:
        if job.state == "waiting":
            if job.cancel:
                self.book.end(job.id, "cancelled", "before it started", now_s)
            return
        seen = self.processes.look(job.run)
        match seen.stage:
            case JobStage.ENDED | JobStage.VANISHED if job.state == "evicted" and not job.cancel:
                self.processes.clear(job.run)
                self.book.restart(job.id)
            case JobStage.ENDED if seen.code is not None:
                self._ended(job, seen.code, now_s)
            case JobStage.VANISHED:
                self._close(job, "failed", "its processes were killed", now_s)
            case JobStage.FORBIDDEN:
                self._forbidden(job, now_s)
            case JobStage.DIED if job.state == "starting":
                self.book.died(job.id, now_s + 0.1 * 2**job.deaths)
            case JobStage.ABSENT if job.state == "starting":
                self._begin(job, now_s)
            case JobStage.ABSENT | JobStage.DIED:
                self._close(job, "failed", "its files were removed while it ran", now_s)
            case JobStage.RUNNING:
                self.book.running(job.id)
                self._end_what_must(job, now_s)

    def _begin(self, job: Job, now_s: float) -> None:
        """Claimed, and not started as far as can be seen: by this pass, or when a controller died."""
        over = job.deaths >= MOST_DEATHS or self.core.late(
            job.deferrable(), now_s - (0.0 if job.deaths else BEGIN_S)
        )
        if job.cancel or over:
            self.processes.forbid(job.run)  # the next pass says why; where a runner was quicker, it runs
        elif now_s >= job.retry_s:
            try:
                self.processes.start(job)
            except RunError as error:
                if self.processes.forbid(job.run):
                    self._close(job, "failed", str(error), now_s, began=False)

    def _forbidden(self, job: Job, now_s: float) -> None:
        """It must not start any more: it was cancelled, its runners died, or they took too long."""
        if job.cancel:
            self._close(job, "cancelled", "before it started", now_s, began=False)
        elif job.deaths >= MOST_DEATHS:
            why = f"its runner died {job.deaths} times before it could start"
            self._close(job, "failed", f"{why}: {self.processes.last_line(job.id)}", now_s, began=False)
        else:
            self._close(job, "lost", "its latest start passed before its runner began", now_s, began=False)

    def _ended(self, job: Job, code: int, now_s: float) -> None:
        if job.cancel:
            self._close(job, "cancelled", "while it ran", now_s)
        elif job.run in self._told_s:
            self._close(job, "failed", f"ran for longer than its {job.duration_s:g} s", now_s)
        elif code == 0:
            self._close(job, "done", "exit status 0", now_s)
        else:
            why = f"exit status {code}" if code > 0 else f"ended by signal {-code}"
            self._close(job, "failed", why, now_s)

    def _close(self, job: Job, state: str, why: str, now_s: float, began: bool = True) -> None:
        self.processes.clear(job.run)  # first, for nobody looks at a job that has ended
        self.book.end(job.id, state, why, now_s, began)
        self._told_s.pop(job.run, None)
        log.info("job ended", extra={"job": job.id, "state": state, "why": why})

    def _end_what_must(self, job: Job, now_s: float) -> None:
        """Cancelled, over its time, or to start anew: told to end, and killed when it does not."""
        ran_s = now_s - (job.since_s() or now_s)
        over = job.state == "running" and ran_s > job.duration_s + self.slot_s
        if job.run in self._told_s:
            if now_s - self._told_s[job.run] > GRACE_S:
                self.processes.kill(job.run)
        elif job.cancel or over or job.state == "evicted":
            self._told_s[job.run] = now_s
            self.processes.tell(job.run, signal.SIGTERM)
            self.processes.resume(job.run)
