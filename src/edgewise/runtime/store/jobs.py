"""Deferrable jobs as they are kept.

    waiting ─▶ starting ─▶ running ⇄ suspended ─▶ done, failed, cancelled
       └──────────┴─▶ lost, cancelled, failed
    running ─▶ evicted ─▶ waiting              a job that starts anew, while it may

What a method has written when it returns survives the death of any process.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgewise.core.defer import JobPhase, Standing
from edgewise.model.topology import Resources
from edgewise.model.work import DeferrableJob
from edgewise.runtime import clock
from edgewise.runtime.store.submitted import JobSchema

ACTIVE = ("starting", "running", "suspended", "evicted")
HIDDEN = ("key", "stopped_s", "retry_s")
PAUSE, RESTART = "pause", "restart"
MOST_JOBS = 10_000  # that a record has
HIGHEST_PRIORITY = 100  # and its negative is the lowest


@dataclass(frozen=True, slots=True)
class Wish:
    """A job as it is submitted; times in seconds since 1970.

    Attributes:
        key: the submitter's own, so that a repeated submission is the same job.
        command: program and arguments.
        folder: it runs in.
        cores, memory_bytes: it holds while it runs.
        duration_s: it is ended when it has run so long, time in suspension left out.
        earliest_s, latest_s: it starts in between or not at all.
        priority: -100 … 100; higher first, whatever the policy.
        when_evicted: what becomes of it when inference needs its node: "pause" keeps its memory and goes
            on there, "restart" ends it, and it starts anew, maybe elsewhere.
        checkpoint_s: it writes a checkpoint each time that it has run so long; None: never.
        checkpoint_bytes: size of a checkpoint, which it writes itself.
    """

    key: str
    command: tuple[str, ...]
    folder: str
    cores: float
    memory_bytes: float
    duration_s: float
    earliest_s: float
    latest_s: float
    priority: int
    when_evicted: str = PAUSE
    checkpoint_s: float | None = None
    checkpoint_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Wish):
    """A job as it stands.

    Attributes:
        node, started_s, ended_s, why: None before there is one; `why` says how it ended.
        suspended_s: time in suspension that is over; `stopped_s`: since when it is suspended now.
        cancel: somebody asked for its end.
        attempt: how often it was ended to start anew; `redone_s`: how long it had run in vain then;
            `saved_s`: what it had done by its last checkpoint.
        deaths, retry_s: runners that died before this attempt began, and when the next one may be tried.
    """

    id: int
    submitted_s: float
    state: str
    node: str | None
    started_s: float | None
    ended_s: float | None
    suspended_s: float
    stopped_s: float | None
    cancel: bool
    why: str | None
    attempt: int
    deaths: int
    retry_s: float
    redone_s: float
    saved_s: float

    @property
    def run(self) -> str:
        """Its processes' folder: one for each attempt, so that what is left of another starts nothing."""
        return f"{self.id}.{self.attempt}" if self.attempt else str(self.id)

    def deferrable(self) -> DeferrableJob:
        """As deferral policies know it."""
        earliest_s = max(self.earliest_s, self.submitted_s)
        return DeferrableJob(
            self.id, Resources(self.cores, self.memory_bytes), self.duration_s, self.submitted_s, earliest_s,
            max(self.latest_s, earliest_s), self.priority, self.when_evicted, self.checkpoint_s,
            self.checkpoint_bytes,
        )  # fmt: skip

    def standing(self, settled: bool) -> Standing:
        """As the core of deferral knows it; `settled`: it has begun, and is not told to end."""
        phase = JobPhase.RUNNING if self.state == "starting" else JobPhase(self.state)
        return Standing(
            self.deferrable(), phase, self.node, self.started_s, self.suspended_s, self.stopped_s,
            self.attempt, settled, self.saved_s,
        )  # fmt: skip

    def since_s(self) -> float | None:
        """When it would have started, had it never been suspended; None before its start."""
        return None if self.started_s is None else self.started_s + self.suspended_s

    def ran_s(self, now_s: float) -> float | None:
        """How long it has run, or ran, time in suspension left out; None before its start."""
        until_s = self.stopped_s or self.ended_s or now_s
        since_s = self.since_s()
        return None if since_s is None else max(until_s - since_s, 0.0)

    def row(self) -> dict[str, Any]:
        """For an answer."""
        shown = {name: value for name, value in asdict(self).items() if name not in HIDDEN}
        return shown | {"ran_s": self.ran_s(clock.unix_s())}


class JobTable(JobSchema):
    """Jobs of one live system."""

    def submit(self, wish: Wish) -> Job:
        """Keep a job; one with the same key is returned as it is."""
        values = {**asdict(wish), "command": json.dumps(wish.command), "submitted_s": clock.unix_s()}
        self.db.run(
            f"INSERT OR IGNORE INTO job ({', '.join(values)}) VALUES ({','.join('?' * len(values))})",
            tuple(values.values()),
        )
        job = self.of_key(wish.key)
        assert job is not None  # it was there, or is now
        return job

    def get(self, number: int) -> Job | None:
        """A job."""
        return next(iter(self._select("WHERE id = ?", (number,))), None)

    def of_key(self, key: str) -> Job | None:
        """The job that was submitted with a key."""
        return next(iter(self._select("WHERE key = ?", (key,))), None)

    def listed(self, most: int = 1000) -> list[Job]:
        """The last jobs, oldest first."""
        return self._select("ORDER BY id DESC LIMIT ?", (most,))[::-1]

    def open(self) -> list[Job]:
        """Jobs that have not ended, oldest first."""
        return self._select("WHERE ended_s IS NULL ORDER BY id")

    def claim(self, number: int, node: str, now_s: float) -> bool:
        """From waiting to starting, unless it was cancelled meanwhile; only after this it may be started."""
        changed = self.db.run(
            "UPDATE job SET state = 'starting', node = ?, started_s = ?"
            " WHERE id = ? AND state = 'waiting' AND NOT cancel",
            (node, now_s, number),
        )
        return changed.rowcount == 1

    def died(self, number: int, retry_s: float) -> None:
        """A runner died before the command began; the next one may be tried at `retry_s`."""
        self.db.run(
            "UPDATE job SET deaths = deaths + 1, retry_s = ? WHERE id = ? AND state = 'starting'",
            (retry_s, number),
        )

    def running(self, number: int) -> None:
        """It was seen to run."""
        self.db.run("UPDATE job SET state = 'running' WHERE id = ? AND state = 'starting'", (number,))

    def suspend(self, number: int, now_s: float) -> None:
        """It is about to be stopped."""
        self.db.run(
            "UPDATE job SET state = 'suspended', stopped_s = ? WHERE id = ? AND state = 'running'",
            (now_s, number),
        )

    def evict(self, number: int, now_s: float) -> None:
        """It is about to be ended, to start anew."""
        self.db.run(
            "UPDATE job SET state = 'evicted', stopped_s = coalesce(stopped_s, ?)"
            " WHERE id = ? AND state IN ('running', 'suspended')",
            (now_s, number),
        )

    def resume(self, number: int, now_s: float) -> None:
        """It goes on."""
        self.db.run(
            "UPDATE job SET state = 'running', suspended_s = suspended_s + ? - stopped_s, stopped_s = NULL"
            " WHERE id = ? AND state = 'suspended'",
            (now_s, number),
        )

    def restart(self, number: int) -> None:
        """It has ended to start anew, from its last checkpoint: it waits again, as old as it is."""
        job = self.get(number)
        assert job is not None  # who calls has just seen it
        done_s = job.saved_s + (job.ran_s(clock.unix_s()) or 0.0)
        saved_s = job.deferrable().saved_s(done_s)
        self.db.run(
            "UPDATE job SET redone_s = redone_s + ?, saved_s = ?, state = 'waiting', node = NULL,"
            " started_s = NULL, suspended_s = 0, stopped_s = NULL, attempt = attempt + 1, deaths = 0,"
            " retry_s = 0"
            " WHERE id = ? AND state = 'evicted'",
            (done_s - saved_s, saved_s, number),
        )

    def end(self, number: int, state: str, why: str, now_s: float, began: bool = True) -> None:
        """It is done, failed, cancelled or lost, the first to say so is right; `began`: its command did."""
        self.db.run(
            "UPDATE job SET state = ?, why = ?, ended_s = ?, started_s = CASE WHEN ? THEN started_s END,"
            " suspended_s = suspended_s + CASE WHEN stopped_s IS NULL THEN 0 ELSE ? - stopped_s END,"
            " stopped_s = NULL WHERE id = ? AND ended_s IS NULL",
            (state, why, now_s, began, now_s, number),
        )

    def over(self, most: int, before_s: float, at_once: int = 500) -> list[int]:
        """Jobs that have ended, but for the latest `most` and those that ended since `before_s`."""
        found = self.db.rows(
            "SELECT id FROM job WHERE ended_s IS NOT NULL AND"
            " (id <= (SELECT MAX(id) FROM job) - ? OR ended_s < ?) ORDER BY id LIMIT ?",
            (most, before_s, at_once),
        )
        return [number for (number,) in found]

    def forget(self, numbers: Sequence[int]) -> None:
        """Forget jobs that have ended; their keys may be used again."""
        self.db.run_for_each(
            "DELETE FROM job WHERE id = ? AND ended_s IS NOT NULL", [(number,) for number in numbers]
        )

    def cancel(self, number: int) -> None:
        """Ask for its end."""
        self.db.run("UPDATE job SET cancel = 1 WHERE id = ? AND ended_s IS NULL", (number,))

    def _select(self, rest: str, values: Sequence[Any] = ()) -> list[Job]:
        return self.db.kept(Job, f"job {rest}", values, as_json=("command",))
