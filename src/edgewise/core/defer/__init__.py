"""Deferrable jobs: what happens, what a policy sees, what it may decide, and what a schedule is worth.

Everything is held for W worlds at once, all in the same slot; the live system is one world. A slot is
the unit of time: job i takes duration d_i slots, was submitted in slot g_i and may start in any slot
e_i … l_i. Left-over capacity C_t is what other work leaves in slot t, known only up to now.
"""

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.model.work import DeferrableJob, job_holds

ROUNDING = 1e-9  # relative; sums of floats may miss a slot, or a mark of a checkpoint


class JobState(IntEnum):
    """Where a job of the pool stands; EMPTY fills up the row of a world with fewer jobs."""

    EMPTY = 0
    FUTURE = 1  # submitted, before its earliest start
    STARTABLE = 2
    RUNNING = 3


class Objective(NamedTuple):
    """Weights of Σ X (r - ω1 p) - ω2 Σ v                                            (OSDEC eq. 1)."""

    delay: float = 2.0
    violation: float = 10.0


class Trajectories(NamedTuple):
    """W worlds of T slots with up to J jobs each, sorted by submission.

    Attributes:
        jobs: (W,) number of jobs of each world; rows beyond are unused.
        submitted, earliest, latest, duration: (W, J) in slots.
        demand: (W, J, R) of each resource; the first one is cores.
        left_over: (W, T, R) capacity that other work leaves.
        total: (R,) capacity of the platform.
        slot_s: length of a slot.
    """

    jobs: Ints
    submitted: Ints
    earliest: Ints
    latest: Ints
    duration: Ints
    demand: Floats
    left_over: Floats
    total: Floats
    slot_s: float

    @property
    def worlds(self) -> int:
        """W."""
        return int(self.jobs.size)

    @property
    def slots(self) -> int:
        """T."""
        return int(self.left_over.shape[1])


def check(worlds: Trajectories) -> None:
    """Refuse worlds that break g <= e <= l, d >= 1, the order of submission, or hold negative amounts.

    Raises:
        ValueError: names the first rule that is broken.
    """
    real: Bools = np.arange(worlds.submitted.shape[1]) < worlds.jobs[:, None]
    both: Bools = real[:, 1:]
    rules: dict[str, Bools] = {
        "needs submitted <= earliest <= latest": (worlds.submitted <= worlds.earliest)
        & (worlds.earliest <= worlds.latest),
        "needs duration >= 1 slot": worlds.duration >= 1,
        "needs demand >= 0": np.all(worlds.demand >= 0, axis=2),
    }
    for rule, kept in rules.items():
        if not kept[real].all():
            world, job = np.argwhere(real & ~kept)[0]
            raise ValueError(f"world {world}, job {job}: {rule}")
    if (np.diff(worlds.submitted, axis=1)[both] < 0).any():
        raise ValueError("jobs must be sorted by submission")
    if not (worlds.left_over >= 0).all():
        raise ValueError("left_over must be >= 0 in every slot")


class CapacityView(NamedTuple):
    """What deferral sees; arrays are the driver's and hold until the next slot. Compiled code takes it whole.

    Attributes:
        now: the slot that begins.
        past: (W, now + 1, R) left-over capacity of every slot so far, the present one last.
        total: (R,) capacity of the platform.
        job: (W, P) id of each job in the pool, in order of submission; -1 where there is none.
        state: (W, P) a `JobState`.
        demand: (W, P, R) resources of each job.
        duration, submitted, earliest, latest: (W, P) in slots.
        ends: (W, P) first slot in which a running job no longer runs; -1 when it does not run.
        slot_s: length of a slot.
    """

    now: int
    past: Floats
    total: Floats
    job: Ints
    state: NDArray[np.int8]
    demand: Floats
    duration: Ints
    submitted: Ints
    earliest: Ints
    latest: Ints
    ends: Ints
    slot_s: float = 1.0

    @property
    def startable(self) -> Bools:
        """(W, P) jobs that may start now."""
        return np.asarray(self.state == JobState.STARTABLE)

    @property
    def left_over(self) -> Floats:
        """(W, R) capacity C_t of this slot, of which running deferrable jobs hold a part."""
        return self.past[..., -1, :]

    def used(self, ahead: int = 1) -> Floats:
        """(W, ahead, R) what the jobs that run now hold in this slot and the next ones."""
        runs = self.ends[..., None, :] > self.now + np.arange(ahead)[:, None]
        return np.asarray(np.matmul(runs.astype(np.float64), self.demand))

    @property
    def free(self) -> Floats:
        """(W, R) capacity not held by running jobs; negative while capacity is violated."""
        return self.left_over - self.used()[..., 0, :]

    def of_world(self, w: int) -> "CapacityView":
        """What a policy of one world sees: arrays without their first dimension."""
        shared = ("now", "total", "slot_s")
        own = {name: part[w] for name, part in self._asdict().items() if name not in shared}
        return self._replace(**own)


class Slots(NamedTuple):
    """The world of deferral: what holds for a whole run.

    Attributes:
        slot_s: length of a slot.
        resources: R, kinds of resources that count; the first one is cores. On nodes memory counts as well.
    """

    slot_s: float
    resources: int = 2


class DeferralPolicy(Protocol):
    """Deferrable jobs → start slots in left-over capacity, in minutes to hours.

    This is what drivers ask. A policy without `batched = True` sees one world: arrays without their first
    dimension, and gives (P,) jobs; see `core.one_world`.
    """

    name: str

    def reset(self, world: Slots, key: Key) -> None:
        """Start anew; all randomness comes from `key`."""

    def decide(self, view: CapacityView) -> Bools | Ints:
        """(W, P) jobs to start now, only startable ones: True in order of submission, or whose turn it is.

        Numbers are turns: 1 gets a node first, then 2 …; 0 does not start.
        """


def left_over_of(ledger: NodeLedger, resources: int = 1, priority: int = 1) -> Floats:
    """(R,) what work of at least `priority` leaves free on all nodes together: OSDEC's C_t.

    Deferrable jobs reserve below `priority` and preemptible, so they do not count here. Kinds are those
    of `model.resources.KINDS`, cores first.
    """
    return np.asarray(ledger.left_over(priority).sum(axis=0)[:resources])


def view_of(
    jobs: Sequence[DeferrableJob],
    running_since_s: Mapping[int, float],
    past: Floats,
    total: Floats,
    now_s: float,
    slot_s: float,
) -> CapacityView:
    """The view of one world from jobs in seconds, as the live system has them.

    Times become slots so that no promise is broken: earliest is rounded up, latest down, duration up.

    Args:
        jobs: submitted, neither done nor lost.
        running_since_s: id of each job that runs → when it started.
        past: (t + 1, R) left-over capacity of every slot up to now.
        total: (R,) capacity of the platform; R also says how many resource kinds count.
        now_s: start of the slot that begins.
    """
    kinds = total.size
    now = round(now_s / slot_s)
    order = sorted(jobs, key=lambda job: (job.submitted_s, job.id))
    rows = [_row(job, running_since_s.get(job.id), now, slot_s) for job in order]
    table = np.array(rows, dtype=np.int64).reshape(1, len(rows), 7)
    demand = np.array([job.resources.as_tuple()[:kinds] for job in order]).reshape(1, len(rows), kinds)
    columns = [table[:, :, column] for column in range(7)]
    ident, state, duration, submitted, earliest, latest, ends = columns
    return CapacityView(
        now,
        past[None],
        total,
        ident,
        state.astype(np.int8),
        demand,
        duration,
        submitted,
        earliest,
        latest,
        ends,
        slot_s,
    )


def _row(job: DeferrableJob, since_s: float | None, now: int, slot_s: float) -> tuple[int, ...]:
    submitted, earliest, latest, duration = job.in_slots(slot_s)
    state = JobState.STARTABLE if earliest <= now <= latest else JobState.FUTURE
    if now > latest:
        state = JobState.EMPTY
    ends = -1
    if since_s is not None:
        state, ends = JobState.RUNNING, math.floor(since_s / slot_s + 1e-9) + duration
    return (job.id, int(state), duration, submitted, earliest, latest, ends)


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
        job: as it was submitted.
        phase: what it does.
        node, started_s: None while it waits.
        suspended_s: time in suspension that is over.
        stopped_s: since when it is suspended or evicted; None where it is not.
        attempt: how often it was ended to start anew.
        settled: False while it is neither to be suspended nor resumed: it has not begun, or is to end.
        saved_s: work that is done already when it starts, by its last checkpoint.
    """

    job: DeferrableJob
    phase: JobPhase = JobPhase.WAITING
    node: str | None = None
    started_s: float | None = None
    suspended_s: float = 0.0
    stopped_s: float | None = None
    attempt: int = 0
    settled: bool = True
    saved_s: float = 0.0

    @property
    def since_s(self) -> float | None:
        """When it would have started, had it done all its work at once; None before its start."""
        return None if self.started_s is None else self.started_s + self.suspended_s - self.saved_s

    @property
    def rank(self) -> tuple[int, float, int]:
        """Smaller goes first."""
        return -self.job.priority, self.job.submitted_s, self.job.id


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
    """Its node is gone, other work needs it, or there is room elsewhere: a job ends, to start anew.

    It goes on from its last checkpoint, on any node.
    """

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
