"""Deferrable jobs, live: started in the capacity that inference leaves in the node ledger.

In every pass the ledger is built anew from what is stored: first the workers that are wanted or still
run, then running jobs, then suspended ones. A job that finds no room is suspended, and goes on when there
is room again; one that restarts is ended and waits again, while it may still start. At the beginning of each
slot the deferral policy is asked which waiting jobs start (`job_starts`).

Every step is written down before it is taken, so that the death of the controller at any moment loses no
job; `job_runner` sees to it that none is started twice.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from edgewise.config import load_scenario
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.errors import RunError
from edgewise.model.catalog import Resources
from edgewise.model.scenario import Scenario
from edgewise.model.work import job_holds
from edgewise.runtime.controller.job_book import ACTIVE, RESTART, Job, JobBook
from edgewise.runtime.controller.job_processes import JobProcesses, JobStage
from edgewise.runtime.controller.job_starts import POLICY, Starts, begun
from edgewise.runtime.controller.plan import SCENARIO
from edgewise.runtime.controller.room import ledger_of
from edgewise.runtime.logs import SaidOnce
from edgewise.runtime.store import Store

log = logging.getLogger("edgewise.jobs")
SLOT_S = 1.0
GRACE_S = 5.0  # from SIGTERM to SIGKILL
BEGIN_S = 5.0  # most that a runner takes to begin a command; then its job may be lost
MOST_DEATHS = 3  # runners that may die before a command begins


class LiveJobs:
    """Keeps the deferrable jobs of a live system.

    Args:
        store: says which workers are wanted; its folder holds the scenario.
        slot_s: how often the policy is asked.
    """

    def __init__(self, store: Store, slot_s: float = SLOT_S) -> None:
        self.store, self.slot_s = store, slot_s
        self.book, self.processes = JobBook(store.file), JobProcesses(store.file.parent)
        self._scenario: Scenario | None = None
        self._content = b""
        self.starts = Starts(store.policy("defer") or POLICY, slot_s)
        self._slot = -1
        self._going_on = SaidOnce(log, "jobs")
        self._told_s: dict[str, float] = {}  # when a run was told to end

    def use(self, name: str) -> None:
        """Take a deferral policy.

        Raises:
            PolicyError: there is none of that name, or it cannot begin.
        """
        self.starts.use(begun(name, self.starts.slot_s))

    @property
    def scenario(self) -> Scenario:
        """Nodes and workers of the live system, as its file says now.

        Raises:
            RunError: the file is missing.
        """
        file: Path = self.store.file.parent / SCENARIO
        if not file.is_file():
            raise RunError(f"jobs: no {file}; they need the nodes that `edgewise up` writes there")
        content = file.read_bytes()
        if self._scenario is None or content != self._content:
            self._scenario, self._content = load_scenario(file), content
        return self._scenario

    async def keep(self, period_s: float = 0.05) -> None:
        """Go on for ever."""
        while True:
            self.step(time.time())
            await asyncio.sleep(period_s)

    async def end(self) -> None:
        """End what runs; waiting jobs are kept for the next controller of this folder."""
        while active := [job for job in self.book.open() if job.state in ACTIVE]:
            for job in active:
                self.book.cancel(job.id)
            self.step(time.time(), start=False)
            await asyncio.sleep(0.02)

    def forget(self, most: int, before_s: float) -> None:
        """Forget jobs that are over, and remove their files; see `JobBook.over`."""
        numbers = self.book.over(most, before_s)
        for number in numbers:
            self.processes.remove(number)
        self.book.forget(numbers)

    def step(self, now_s: float, start: bool = True) -> None:
        """One pass: notice what ended, end what must, make room, and in a new slot start what may."""
        with self._going_on():
            for job in self.book.open():
                self._notice(job, now_s)
            jobs = self.book.open()
            if not jobs:
                return
            ledger = ledger_of(self.scenario, self.store.processes())
            self._make_room(ledger, [job for job in jobs if job.state in ACTIVE], now_s)
            slot = int(now_s / self.slot_s)
            if start and slot != self._slot:
                self._slot = slot
                self._start(ledger, slot * self.slot_s, now_s)

    # what became of jobs

    def _notice(self, job: Job, now_s: float) -> None:
        if job.state == "waiting":
            self._notice_waiting(job, now_s)
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

    def _notice_waiting(self, job: Job, now_s: float) -> None:
        if job.cancel:
            self.book.end(job.id, "cancelled", "before it started", now_s)
        elif self._is_late(job, now_s):
            again = "ended for inference, and " if job.attempt else ""
            self.book.end(job.id, "lost", f"{again}its latest start passed without room for it", now_s)

    def _is_late(self, job: Job, now_s: float) -> bool:
        return int(now_s / self.slot_s) > int(job.wish.latest_s / self.slot_s)

    def _begin(self, job: Job, now_s: float) -> None:
        """Claimed, and not started as far as can be seen: by this pass, or when a controller died."""
        over = job.deaths >= MOST_DEATHS or self._is_late(job, now_s - (0.0 if job.deaths else BEGIN_S))
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
            self._close(job, "failed", f"ran for longer than its {job.wish.duration_s:g} s", now_s)
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
        over = job.state == "running" and ran_s > job.wish.duration_s + self.slot_s
        if job.run in self._told_s:
            if now_s - self._told_s[job.run] > GRACE_S:
                self.processes.kill(job.run)
        elif job.cancel or over or job.state == "evicted":
            self._told_s[job.run] = now_s
            self.processes.tell(job.run, signal.SIGTERM)
            self.processes.resume(job.run)

    # room

    def _make_room(self, ledger: NodeLedger, active: Sequence[Job], now_s: float) -> None:
        """Evict jobs that find no room on their node, let others go on."""
        nodes = {node.name for node in self.scenario.topology.nodes}
        active = [job for job in active if job.state != "evicted"]
        placed = [job for job in active if job.node in nodes]
        for job in placed:
            if job.state == "suspended":
                ledger.reserve(_kept(ledger, job))
        for job in active:
            if job not in placed:  # another scenario is up by now
                self._evict(job, now_s)
        for job in sorted(placed, key=lambda job: (job.state == "suspended", -job.wish.priority, job.id)):
            if job.state == "suspended":
                ledger.release(_owner(job))
            room = ledger.fits(str(job.node), job.resources)
            ledger.reserve(_reservation(job, str(job.node)) if room else _kept(ledger, job))
            if not room:
                self._evict(job, now_s)
            elif job.state == "suspended" and job.run not in self._told_s:
                self.processes.resume(job.run)
                self.book.resume(job.id, now_s)

    def _evict(self, job: Job, now_s: float) -> None:
        """Inference needs the node: a job is suspended, or ended where it may still start anew."""
        if job.run in self._told_s:
            return
        if job.state == "running" and job.wish.when_evicted == RESTART and not self._is_late(job, now_s):
            self.book.evict(job.id, now_s)  # the next pass tells it to end
            return
        if job.state == "running":
            self.book.suspend(job.id, now_s)
        self.processes.suspend(job.run)  # again, should a controller have died before it

    def _start(self, ledger: NodeLedger, slot_s: float, now_s: float) -> None:
        """Start what is chosen and finds a node."""
        self.starts.begin_slot(ledger)
        for job, node in self.starts.choose(ledger, self.scenario.topology.nodes, self.book.open, slot_s):
            if self.book.claim(job.id, node, max(slot_s, job.submitted_s)):
                ledger.reserve(_reservation(job, node))
                found = self.book.get(job.id)
                assert found is not None
                self._begin(found, now_s)
                log.info("job started", extra={"job": job.id, "node": node})


def _owner(job: Job) -> str:
    return f"job {job.id}"


def _reservation(job: Job, node: str) -> Reservation:
    return Reservation(_owner(job), node, *job_holds(job.deferrable()))


def _kept(ledger: NodeLedger, job: Job) -> Reservation:
    """What a job still holds while it is suspended, as far as inference leaves it."""
    hold = job_holds(job.deferrable(), suspended=True)
    kept_bytes = min(hold.resources.memory_bytes, ledger.free(str(job.node)).memory_bytes)
    return Reservation(
        _owner(job), str(job.node), *hold._replace(resources=Resources(memory_bytes=kept_bytes))
    )
