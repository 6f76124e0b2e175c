"""Which waiting jobs start now, and on which node: a policy chooses, what waits for its node goes first.

A suspended job keeps its node: where it would fit were no other jobs there, none that comes after it starts
there before it goes on. A job that was ended to start anew has been chosen once, so it takes the first node
with room. Order is by falling priority, then by age.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from edgewise import policies
from edgewise.core.defer import CapacityView, DeferralPolicy, Slots, left_over_of, view_of
from edgewise.core.guard import Guard, begin
from edgewise.core.keyed import Key
from edgewise.core.ledger import TOLERANCE, NodeLedger
from edgewise.core.one_world import batched
from edgewise.errors import PolicyError
from edgewise.model.catalog import Resources
from edgewise.model.topology import Node
from edgewise.model.work import INFERENCE, DeferrableJob
from edgewise.runtime.controller.job_book import Job
from edgewise.runtime.guarded import Limited

log = logging.getLogger("edgewise.jobs")
POLICY, FALLBACK = "tetris", "fifo"
PAST_SLOTS = 96
WARM_S = 60.0  # most that a policy may take to compile before a system starts
Held = Mapping[str, Sequence[Job]]


def begun(name: str, slot_s: float) -> DeferralPolicy:
    """A policy that has begun.

    Args:
        slot_s: how often it is asked.

    Raises:
        PolicyError: there is none of that name, or it cannot begin.
    """
    policy: DeferralPolicy = batched(policies.load("defer", name))
    begin(policy, Slots(slot_s, 1), Key(0))
    return policy


def warm(name: str = POLICY) -> None:
    """Compile what a policy needs on a small view, so that forks of this process decide at once."""
    job = DeferrableJob(1, Resources(1.0), 1.0, 0.0, 0.0, 1.0)
    view = view_of([job], {}, np.ones((1, 1)), np.ones(1), 0.0, 1.0)
    start(begun(FALLBACK, 1.0), view)
    Guard(Limited(WARM_S)).ask(lambda: start(begun(name, 1.0), view), set)  # who decides says its faults


def start(policy: DeferralPolicy, view: CapacityView) -> set[int]:
    """Numbers of the jobs that a policy starts in the one world of a view.

    Raises:
        PolicyError: it starts what may not start now.
    """
    starts = policy.decide(view)
    if starts.shape != view.state.shape or (starts & ~view.startable).any():
        raise PolicyError(f"job policy {policy.name!r} starts what may not start now")
    return set(view.job[starts].tolist())


class Starts:
    """Chooses under a policy, and under `FALLBACK` where that fails.

    Args:
        name: of the policy.
        slot_s: how often it is asked.
    Attributes:
        policy: the one that was asked for.
        slot_s: as given.
    """

    def __init__(self, name: str, slot_s: float) -> None:
        self.slot_s = slot_s
        self._past: deque[np.ndarray] = deque(maxlen=PAST_SLOTS)
        self._fallback, self.guard = begun(FALLBACK, slot_s), Guard()
        try:
            self.use(begun(name, slot_s))
        except PolicyError as error:
            self.use(self._fallback)
            self.guard.blame("cannot begin", str(error))
        self.name = name

    def use(self, policy: DeferralPolicy) -> None:
        """Take a policy from now on."""
        self.policy, self.name, self.guard = policy, policy.name, Guard(Limited())

    @property
    def fault(self) -> str:
        """Why the fallback decides; "" when the policy does."""
        return self.guard.fault

    def begin_slot(self, ledger: NodeLedger) -> None:
        """Note what inference leaves."""
        self._past.append(left_over_of(ledger, priority=INFERENCE))

    def choose(
        self, ledger: NodeLedger, nodes: Sequence[Node], jobs: Callable[[], Sequence[Job]], slot_s: float
    ) -> Iterator[tuple[Job, str]]:
        """Jobs to start, each with its node; whoever starts one reserves for it before the next is asked for.

        Args:
            jobs: those that have not ended, as they are now.
            slot_s: when this slot began.
        """
        held = _held(ledger, nodes, jobs())
        total = np.array([sum(node.resources.cpu_cores for node in nodes)])
        for priority in sorted({j.wish.priority for j in jobs() if j.state == "waiting"}, reverse=True):
            now = [j for j in jobs() if j.state != "waiting" or j.wish.priority == priority]
            again = [j for j in now if j.state == "waiting" and j.attempt]
            seen = [j for j in now if j not in again]
            for job in again:
                if (node := _node(ledger, nodes, job, held)) is not None:
                    yield job, node
            chosen = self._ask(seen, total, slot_s)
            for job in seen:
                if job.id in chosen and (node := _node(ledger, nodes, job, held)) is not None:
                    yield job, node

    def _ask(self, jobs: Sequence[Job], total: np.ndarray, slot_s: float) -> set[int]:
        """What the policy chooses; suspended jobs hold no cores, so it does not see them."""
        known = [job.deferrable() for job in jobs if job.state not in ("suspended", "evicted")]
        since = {job.id: at for job in jobs if (at := job.since_s()) is not None}
        view = view_of(known, since, np.array(self._past), total, slot_s, self.slot_s)
        chosen = self.guard.ask(lambda: start(self.policy, view), lambda: start(self._fallback, view))
        if self.guard.new:
            more = {"policy": self.name, "why": self.fault}
            log.error(f"job policy failed, {FALLBACK} decides", extra=more)
        return chosen


def _held(ledger: NodeLedger, nodes: Sequence[Node], jobs: Sequence[Job]) -> Held:
    """Suspended jobs of each node that would fit there if no other jobs were."""
    left = {node.name: row for node, row in zip(nodes, ledger.left_over(INFERENCE), strict=True)}
    found: dict[str, list[Job]] = {}
    for job in jobs:
        needs = np.array(job.resources.as_tuple()) * (1 - TOLERANCE) - TOLERANCE
        if job.state == "suspended" and job.node in left and (left[job.node] >= needs).all():
            found.setdefault(job.node, []).append(job)
    return found


def _node(ledger: NodeLedger, nodes: Sequence[Node], job: Job, held: Held) -> str | None:
    """The node with the least cores left on which a job fits, and on which none waits that goes before it."""
    fitting = [
        (ledger.free(node.name).cpu_cores, node.name)
        for node in nodes
        if ledger.fits(node.name, job.resources)
        and all(_rank(job) < _rank(other) for other in held.get(node.name, ()))
    ]
    return min(fitting)[1] if fitting else None


def _rank(job: Job) -> tuple[int, int]:
    return -job.wish.priority, job.id
