"""What a `DeferCore` is told of jobs and of other work, and what it says is to be done with jobs."""

from enum import StrEnum
from typing import NamedTuple

from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.ledger import Reservation
from edgewise.model.work import DeferrableJob, job_holds

DECISION = "defer"


class JobPhase(StrEnum):
    """What a job does."""

    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    EVICTED = "evicted"  # it is being ended, to start anew


class Standing(NamedTuple):
    """Where a job stands.

    Attributes:
        node, started_s: None while it waits.
        suspended_s: time in suspension that is over; `stopped_s`: since when it is suspended or evicted.
        attempt: how often it was ended to start anew.
        settled: False while it is neither to be suspended nor resumed: it has not begun, or is to end.
    """

    job: DeferrableJob
    phase: JobPhase = JobPhase.WAITING
    node: str | None = None
    started_s: float | None = None
    suspended_s: float = 0.0
    stopped_s: float | None = None
    attempt: int = 0
    settled: bool = True

    @property
    def since_s(self) -> float | None:
        """When it would have started, had it never been suspended; None before its start."""
        return None if self.started_s is None else self.started_s + self.suspended_s

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller goes first."""
        return -self.job.priority, self.job.id


class JobSubmitted(NamedTuple):
    """A job waits from now on."""

    job: DeferrableJob


class JobStands(NamedTuple):
    """What its driver knows of a job: it has begun, is to end, ended to start anew, or was here before."""

    standing: Standing


class JobEnded(NamedTuple):
    """A job, by its id, neither waits nor holds anything any more."""

    job: int


class SlotBegan(NamedTuple):
    """A slot begins; all that happened up to now was told."""

    now_s: float


class StartJob(NamedTuple):
    """A job that waited starts on a node."""

    job: int
    node: str
    started_s: float


class SuspendJob(NamedTuple):
    """Other work needs the node: a job stops where it is, and keeps its memory."""

    job: int


class ResumeJob(NamedTuple):
    """A suspended job goes on."""

    job: int


class EvictJob(NamedTuple):
    """Other work needs the node: a job ends, to start anew."""

    job: int


class LoseJob(NamedTuple):
    """A job waited past its latest start; it is gone."""

    job: int


DeferEvent = JobSubmitted | JobStands | JobEnded | SlotBegan | Evicted | CapacityChanged
DeferCommand = StartJob | SuspendJob | ResumeJob | EvictJob | LoseJob


def owner(number: int) -> str:
    """Of what a job holds, in the ledger."""
    return f"job {number}"


def reservation(standing: Standing) -> Reservation:
    """What a running job holds."""
    return Reservation(owner(standing.job.id), str(standing.node), *job_holds(standing.job), DECISION)
