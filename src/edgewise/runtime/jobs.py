"""Deferrable jobs, live: started in the capacity that inference leaves in the node ledger.

In every pass the ledger is built anew from what is stored: first the workers that are wanted or still
run, then running jobs, then suspended ones. A job that finds no room is suspended, and goes on when there
is room again. At the beginning of each slot the deferral policy is asked which waiting jobs start.

Every step is written down before it is taken, so that the death of the controller at any moment loses no
job; `job_runner` sees to it that none is started twice.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgewise.config import load_scenario
from edgewise.core.deferral import CapacityView, DeferralPolicy, left_over_of, view_of
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.errors import EdgewiseError, RunError
from edgewise.model.resources import Resources
from edgewise.model.scenario import Scenario
from edgewise.model.work import DeferrableJob
from edgewise.policies import defer
from edgewise.runtime.job_book import ACTIVE, Job, JobBook
from edgewise.runtime.job_processes import JobProcesses, Stage
from edgewise.runtime.plan import SCENARIO
from edgewise.runtime.room import INFERENCE, ledger_of
from edgewise.runtime.store import Store

log = logging.getLogger("edgewise.jobs")
SLOT_S = 1.0
POLICY = "tetris"
PAST_SLOTS = 96
GRACE_S = 5.0  # from SIGTERM to SIGKILL


def warm(name: str = POLICY) -> None:
    """Compile what a policy needs on a small view, so that forks of this process decide at once."""
    policy: DeferralPolicy = defer.load(name)
    policy.reset(Key(0))
    job = DeferrableJob(1, Resources(1.0), 1.0, 0.0, 0.0, 1.0)
    policy.start(view_of([job], {}, np.ones((1, 1)), np.ones(1), 0.0, 1.0))


class Jobs:
    """Keeps the deferrable jobs of a live system.

    Args:
        store: says which workers are wanted; its folder holds the scenario.
        slot_s: how often the policy is asked.
    """

    def __init__(self, store: Store, slot_s: float = SLOT_S) -> None:
        self.store, self.slot_s = store, slot_s
        self.book, self.processes = JobBook(store.file), JobProcesses(store.file.parent)
        self._scenario: Scenario | None = None
        self._past: deque[np.ndarray] = deque(maxlen=PAST_SLOTS)
        self._slot = -1
        self._failed = ""  # what the last pass failed by
        self._told_s: dict[int, float] = {}  # when a job was told to end
        self.use(store.get("job_policy", POLICY))

    def use(self, name: str) -> None:
        """Take a deferral policy, now and after restarts.

        Raises:
            PolicyError: there is none of that name.
        """
        policy: DeferralPolicy = defer.load(name)
        policy.reset(Key(0))
        self.store.put("job_policy", name)
        self.policy = policy

    @property
    def scenario(self) -> Scenario:
        """Nodes and workers of the live system.

        Raises:
            RunError: its file is missing.
        """
        if self._scenario is None:
            file: Path = self.store.file.parent / SCENARIO
            if not file.is_file():
                raise RunError(f"jobs: no {file}; they need the nodes that `edgewise up` writes there")
            self._scenario = load_scenario(file)
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

    def step(self, now_s: float, start: bool = True) -> None:
        """One pass: notice what ended, end what must, make room, and in a new slot start what may."""
        try:
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
                self._start(ledger, jobs, slot * self.slot_s, now_s)
            self._failed = ""
        except (EdgewiseError, OSError, sqlite3.Error) as error:  # the next pass may do better
            if str(error) != self._failed:
                log.error("jobs", extra={"why": str(error)})
            self._failed = str(error)

    # what became of jobs

    def _notice(self, job: Job, now_s: float) -> None:
        if job.state == "waiting":
            self._notice_waiting(job, now_s)
            return
        seen = self.processes.look(job.id)
        match seen.stage:
            case Stage.ENDED if seen.code is not None:
                self._ended(job, seen.code, now_s)
            case Stage.VANISHED:
                self._close(job, "failed", "its processes were killed", now_s)
            case Stage.FORBIDDEN:
                self._close(job, "cancelled", "before it started", now_s)
            case Stage.ABSENT if job.state == "starting":
                self._begin(job, now_s)
            case Stage.ABSENT:
                self._close(job, "failed", "its files were removed while it ran", now_s)
            case Stage.RUNNING:
                self.book.running(job.id)
                self._end_what_must(job, now_s)

    def _notice_waiting(self, job: Job, now_s: float) -> None:
        if job.cancel:
            self.book.end(job.id, "cancelled", "before it started", now_s)
        elif int(now_s / self.slot_s) > int(job.wish.latest_s / self.slot_s):
            self.book.end(job.id, "lost", "its latest start passed without room for it", now_s)

    def _begin(self, job: Job, now_s: float) -> None:
        """Claimed, and not started as far as can be seen: by this pass, or when a controller died."""
        if job.cancel:
            self.processes.forbid(job.id)
            return
        try:
            self.processes.start(job)
        except RunError as error:
            if self.processes.forbid(job.id):
                self._close(job, "failed", str(error), now_s)

    def _ended(self, job: Job, code: int, now_s: float) -> None:
        if job.cancel:
            self._close(job, "cancelled", "while it ran", now_s)
        elif job.id in self._told_s:
            self._close(job, "failed", f"ran for longer than its {job.wish.duration_s:g} s", now_s)
        elif code == 0:
            self._close(job, "done", "exit status 0", now_s)
        else:
            why = f"exit status {code}" if code > 0 else f"ended by signal {-code}"
            self._close(job, "failed", why, now_s)

    def _close(self, job: Job, state: str, why: str, now_s: float) -> None:
        self.processes.clear(job.id)  # first, for nobody looks at a job that has ended
        self.book.end(job.id, state, why, now_s)
        self._told_s.pop(job.id, None)
        log.info("job ended", extra={"job": job.id, "state": state, "why": why})

    def _end_what_must(self, job: Job, now_s: float) -> None:
        """Cancelled, or over its time: told to end, and killed when it does not."""
        ran_s = now_s - (job.since_s() or now_s)
        over = job.state == "running" and ran_s > job.wish.duration_s + self.slot_s
        if job.id in self._told_s:
            if now_s - self._told_s[job.id] > GRACE_S:
                self.processes.kill(job.id)
        elif job.cancel or over:
            self._told_s[job.id] = now_s
            self.processes.tell(job.id, signal.SIGTERM)
            self.processes.resume(job.id)

    # room

    def _make_room(self, ledger: NodeLedger, active: Sequence[Job], now_s: float) -> None:
        """Suspend jobs that find no room on their node, let others go on."""
        nodes = {node.name for node in self.scenario.topology.nodes}
        for job in sorted(active, key=lambda job: (job.state == "suspended", -job.wish.priority, job.id)):
            node = job.node if job.node in nodes else None  # another scenario may be up by now
            room = node is not None and ledger.fits(node, job.resources)
            if node is not None and room:
                ledger.reserve(_reservation(job, node))
            if job.id in self._told_s:
                continue
            if room and job.state == "suspended":
                self.processes.resume(job.id)
                self.book.resume(job.id, now_s)
            elif not room and job.state == "running":
                self.book.suspend(job.id, now_s)
            if not room:
                self.processes.suspend(job.id)  # again, should a controller have died before it

    def _start(self, ledger: NodeLedger, jobs: Sequence[Job], slot_s: float, now_s: float) -> None:
        """Ask the policy, by falling priority, and start what finds a node."""
        self._past.append(left_over_of(ledger, priority=INFERENCE))
        for priority in sorted({job.wish.priority for job in jobs if job.state == "waiting"}, reverse=True):
            seen = [
                job for job in self.book.open() if job.state != "waiting" or job.wish.priority == priority
            ]
            view = self._view(seen, slot_s)
            chosen = view.job[0][self.policy.start(view)[0]]
            for job in seen:
                node = self._node(ledger, job) if job.id in chosen else None
                if node is not None and self.book.claim(job.id, node, max(slot_s, job.submitted_s)):
                    ledger.reserve(_reservation(job, node))
                    found = self.book.get(job.id)
                    assert found is not None
                    self._begin(found, now_s)
                    log.info("job started", extra={"job": job.id, "node": node})

    def _view(self, jobs: Sequence[Job], slot_s: float) -> CapacityView:
        """What the policy sees; suspended jobs hold nothing, but count as running."""
        total = np.array([sum(node.resources.cpu_cores for node in self.scenario.topology.nodes)])
        known = [job.deferrable() for job in jobs if job.state != "suspended"]
        since = {job.id: at for job in jobs if (at := job.since_s()) is not None}
        return view_of(known, since, np.array(self._past), total, slot_s, self.slot_s)

    def _node(self, ledger: NodeLedger, job: Job) -> str | None:
        """The node with the least cores left on which a job fits."""
        fitting = [
            (ledger.free(node.name).cpu_cores, node.name)
            for node in self.scenario.topology.nodes
            if ledger.fits(node.name, job.resources)
        ]
        return min(fitting)[1] if fitting else None


def _reservation(job: Job, node: str) -> Reservation:
    return Reservation(f"job {job.id}", node, job.resources, job.wish.priority, preemptible=True)
