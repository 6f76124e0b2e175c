"""Deferrable jobs, live: started in the capacity that inference leaves in the node ledger.

What is decided is decided by `core.defer.core.DeferCore`; here are the clock, the store and the processes.
In every pass the core is told what became of jobs, and the plane what workers and replicas hold; at the
beginning of each slot it is told that, too. Its commands are carried out at once.

Every step is written down before it is taken, so that the death of the controller at any moment loses no
job; `job_runner` sees to it that none is started twice. The store is right: where the core knows something
else of a job (another controller had it, or a command failed), it is told what the store says. What is wrong
with the files or processes of one job holds up no other, nor the end of the system.

Without its runner nobody would know how a job ends, nor that it does: what is left of it is ended, too. A job
that is to be ended where others need its node may begin anew, and waits again; any other one has failed.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import get_args

from edgewise import policies
from edgewise.core.capacity import CapacityChanged
from edgewise.core.defer import (
    DeferCommand,
    DeferEvent,
    DeferralPolicy,
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
from edgewise.policies.defer import FALLBACK
from edgewise.runtime import clock
from edgewise.runtime.backends.jobs import JobBackend, JobStage, SeenStage
from edgewise.runtime.controller.job_processes import JobProcesses
from edgewise.runtime.controller.live_plane import LiveDecision, LivePlane
from edgewise.runtime.process.lifecycle import Lifecycle, pause_s
from edgewise.runtime.store.database import StoreError
from edgewise.runtime.store.jobs import ACTIVE, RESTART, Job
from edgewise.runtime.watch.faults import Limited
from edgewise.runtime.watch.logs import SaidOnce

log = logging.getLogger("edgewise.jobs")
WARM_S = 60.0  # most that a policy may take to compile before a system starts
SLOT_S = 1.0
GRACE_S = 5.0  # from SIGTERM to SIGKILL
BEGIN_S = 5.0  # most that a runner takes to begin a command; then its job may be lost
END_S = 3 * GRACE_S  # most that the end of the system waits for jobs, and then without looking at the store
KILLED = "its processes were killed"
MOST_DEATHS = 3  # runners that may die before a command begins


def warm(name: str = policies.USUAL["defer"]) -> None:
    """Compile what a policy needs for one job, so that forks of this process decide at once."""
    rehearse(policies.load("defer", FALLBACK))
    if policies.ships("defer", name):
        Guard(Limited(WARM_S)).ask(lambda: rehearse(policies.load("defer", name)), list)


def rehearse(policy: DeferralPolicy, _: Slots | None = None) -> list[DeferCommand]:
    """What a policy does about one job on one node: whatever is wrong with it is raised."""
    ledger = NodeLedger([Node("node", "cluster", Resources(1.0))])
    core = DeferCore(Slots(1.0), ledger, policy)
    core.handle(JobSubmitted(DeferrableJob(1, Resources(1.0), 1.0, 0.0, 0.0, 1.0)))
    return core.handle(SlotBegan(0.0))


class LiveJobs(LiveDecision):
    """Keeps the deferrable jobs of a live system.

    Args:
        plane: knows what other work leaves.
        slot_s: how often the policy is asked.
        processes: of jobs; None: those of this machine.
    """

    def __init__(self, plane: LivePlane, slot_s: float = SLOT_S, processes: JobBackend | None = None) -> None:
        super().__init__(plane, "defer")
        self.slot_s, folder = slot_s, self.store.file.parent
        self.book, self.processes = self.store.jobs, processes or JobProcesses(folder)
        self.runs = Lifecycle(self.processes, GRACE_S)
        fallback = policies.load("defer", FALLBACK)
        self.core = DeferCore(Slots(slot_s), plane.ledger, fallback, fallback)
        plane.cores["defer"] = self.core
        plane.carry_out |= dict.fromkeys(get_args(DeferCommand), self._obey)
        self.begin_with(self.store.policy("defer") or policies.USUAL["defer"])
        self._slot, self._whole, self._failed = -1, True, False
        self._going_on_with = defaultdict[int, SaidOnce](partial(SaidOnce, log, "job"))

    def look_now(self) -> None:
        """One pass."""
        self.look(clock.unix_s(), start=not self.loading())

    async def end(self) -> None:
        """End what runs; waiting jobs are kept for the next controller of this folder.

        Where the store or a job's files cannot be used, what runs is ended all the same.
        """
        with suppress(StoreError):
            until_s = clock.monotonic_s() + END_S
            while active := [job for job in self.book.open() if job.state in ACTIVE]:
                for job in active:
                    self.book.cancel(job.id)
                self.look(clock.unix_s(), start=False)
                if clock.monotonic_s() > until_s:
                    log.error("jobs did not end", extra={"jobs": [job.id for job in active]})
                    break
                await clock.sleep(0.02)
        until_s = clock.monotonic_s() + 2 * GRACE_S
        while (left := self.processes.running()) and clock.monotonic_s() < until_s:
            for run in left:
                with suppress(OSError):
                    self.runs.end(run)
            await clock.sleep(0.02)

    def forget(self, most: int, before_s: float) -> None:
        """Forget jobs that are over, and remove their files; see `JobTable.over`."""
        numbers = self.book.over(most, before_s)
        for number in numbers:
            self.processes.remove(number)
        self.book.forget(numbers)

    def look(self, now_s: float, start: bool = True) -> None:
        """One pass: notice what ended, end what must, do what the core says; a new slot may start jobs."""
        with self.going_on():
            self.processes.take_in()
            known, self._whole, self._failed = dict(self.core.jobs) if self._whole else {}, False, False
            for job in self.book.open():
                with self._this_alone(job.id):
                    self._notice(job, now_s)
            for event in self._changes(known):
                self.plane.tell(event, now_s)
            if self.core.jobs:
                self._decide(now_s, start)
            self._whole = not self._failed

    @contextmanager
    def _this_alone(self, number: int) -> Iterator[None]:
        """What fails with one job, unless it is the store, is said once, and tried again in the next pass."""
        store: StoreError | None = None
        with self._going_on_with[number]():
            try:
                yield
            except StoreError as error:
                store = error
        if store is not None:
            raise store

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
            standing = job.standing(settled=job.state != "starting" and not self.runs.told(job.run))
            if known.get(job.id) != standing:
                fresh = job.id not in self.core.jobs and standing == Standing(standing.job)
                yield JobSubmitted(standing.job) if fresh else JobStands(standing)

    def _obey(self, command: DeferCommand, now_s: float) -> None:
        """Carry a command out; where that breaks off the store says what was done, in the next pass."""
        whole, self._whole, failed, self._failed = self._whole, False, self._failed, True
        with self._this_alone(command.job):
            self._carry_out(command, now_s)
            self._whole, self._failed = whole, failed

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
                self.runs.forget_one(job.run)
                self.book.restart(job.id)
            case JobStage.ENDED if seen.code is not None:
                self._ended(job, seen, seen.code, now_s)
            case JobStage.VANISHED:
                self._vanished(job, now_s)
            case JobStage.ALONE:
                self.runs.kill(job.run)  # the next pass says what becomes of it
            case JobStage.FORBIDDEN:
                self._forbidden(job, now_s)
            case JobStage.DIED if job.state == "starting":
                self.book.died(job.id, now_s + pause_s(job.deaths + 1, at_once=0))
            case JobStage.ABSENT if job.state == "starting":
                self._begin(job, now_s)
            case JobStage.ABSENT | JobStage.DIED:
                self._close(job, "failed", "its files were removed while it ran", now_s)
            case JobStage.RUNNING:
                self.book.running(job.id)
                self._end_what_must(job, now_s)

    def _begin(self, job: Job, now_s: float) -> None:
        """Claimed, and not started as far as can be seen: by this pass, or when a controller died."""
        waited_s = 0.0 if job.deaths else BEGIN_S
        late = not job.attempt and self.core.late(job.deferrable(), now_s - waited_s)
        over = late or job.deaths >= MOST_DEATHS
        if job.cancel or over:
            if self._forbid(job, now_s):  # where a runner was quicker, it runs
                self._forbidden(job, now_s)
        elif now_s >= job.retry_s:
            try:
                self.runs.start(job)
            except RunError as error:
                if self._forbid(job, now_s):
                    self._close(job, "failed", str(error), now_s, began=False)

    def _forbid(self, job: Job, now_s: float) -> bool:
        """Whether no runner can begin it any more."""
        try:
            return self.processes.forbid(job.run)
        except OSError:  # where nothing can be written down; a runner that another controller started
            return now_s - (job.started_s or now_s) > BEGIN_S  # has failed there or begun by then

    def _vanished(self, job: Job, now_s: float) -> None:
        """Nobody knows how it ended."""
        may_restart = job.when_evicted == RESTART
        if job.cancel:
            self._close(job, "cancelled", "while it ran", now_s)
        elif may_restart and not self.runs.told(job.run) and job.state in ("starting", "running"):
            log.warning("job starts anew", extra={"job": job.id, "why": KILLED})
            self.processes.clear(job.run)
            self.book.running(job.id)
            self.book.evict(job.id, now_s)
            self.book.restart(job.id)
        else:
            self._close(job, "failed", KILLED, now_s)

    def _forbidden(self, job: Job, now_s: float) -> None:
        """It must not start any more: it was cancelled, its runners died, or they took too long."""
        if job.cancel:
            self._close(job, "cancelled", "before it started", now_s, began=False)
        elif job.deaths >= MOST_DEATHS:
            why = f"its runner died {job.deaths} times before it could start"
            self._close(job, "failed", f"{why}: {self.processes.last_line(job.id)}", now_s, began=False)
        else:
            self._close(job, "lost", "its latest start passed before its runner began", now_s, began=False)

    def _ended(self, job: Job, seen: SeenStage, code: int, now_s: float) -> None:
        if job.cancel:
            self._close(job, "cancelled", "while it ran", now_s)
        elif self.runs.told(job.run):
            self._close(job, "failed", f"ran for longer than its {job.duration_s:g} s", now_s)
        elif code == 0:
            self._close(job, "done", "exit status 0", now_s)
        else:
            why = f"exit status {code}" if code > 0 else f"ended by signal {-code}"
            self._close(job, "failed", seen.why or why, now_s)

    def _close(self, job: Job, state: str, why: str, now_s: float, began: bool = True) -> None:
        self.processes.clear(job.run)  # first, for nobody looks at a job that has ended
        self.book.end(job.id, state, why, now_s, began)
        self.runs.forget_one(job.run)
        self._going_on_with.pop(job.id, None)
        log.info("job ended", extra={"job": job.id, "state": state, "why": why})

    def _end_what_must(self, job: Job, now_s: float) -> None:
        """Cancelled, over its time, or to start anew: told to end, and killed when it does not."""
        ran_s = now_s - (job.since_s() or now_s)
        over = job.state == "running" and ran_s > job.duration_s - job.saved_s + self.slot_s
        if self.runs.told(job.run) or job.cancel or over or job.state == "evicted":
            self.runs.end(job.run)
