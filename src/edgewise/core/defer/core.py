"""`DeferCore`: what becomes of jobs and of other work goes in, what is to be done with jobs comes out.

    waiting ─StartJob─▶ running ⇄ suspended            SuspendJob, ResumeJob
       │                   └────┬────┘
       └─LoseJob                └─EvictJob─▶ evicted ─▶ waiting      from its last checkpoint

Simulation and live system drive the same core: they tell it what happened and carry out its commands. At the
beginning of each slot the policy chooses among waiting jobs, those of the highest priority first; in its
order each goes to the node with the most cores left on which it fits, where other work pushes it out last;
but the only node that has room for the largest job that waits comes last, if that would then have none. A
suspended job keeps its node: where it would fit were no other jobs there, none that comes after it starts
there before it goes on, as soon as there is room. Once it has stood as long as it would lose by beginning
anew from its last checkpoint, and there is room elsewhere, it does so. With a node all jobs there end,
suspended ones too, and begin anew. A job that was ended has been chosen once, so it takes the first node with
room, also after its latest start, which it has kept. Who goes on or gives way first is by falling priority,
then by submission. Forbidden here: clocks, I/O, threads.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.defer import (
    DECISION,
    CapacityView,
    DeferCommand,
    DeferEvent,
    DeferralPolicy,
    EvictJob,
    JobEnded,
    JobPhase,
    JobStands,
    JobSubmitted,
    LoseJob,
    ResumeJob,
    SlotBegan,
    Slots,
    Standing,
    StartJob,
    SuspendJob,
    left_over_of,
    owner,
    reservation,
    view_of,
)
from edgewise.core.guard import Guard, Shadow, begin
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.one_world import batched
from edgewise.errors import PolicyError
from edgewise.model.topology import Resources
from edgewise.model.work import INFERENCE, DeferrableJob, job_holds

PAST_SLOTS = 96  # that a view goes back at most


class DeferCore:
    """Decides when and where jobs start, by a policy, and which of them give way to other work.

    Args:
        world: how long slots are, and how many kinds of resources the policy sees.
        ledger: of all work.
        policy: begins anew.
        fallback: chooses where the policy does not answer, or starts what may not start.
        key: of the policies' own draws.
        guard: asks the policy; without one, or without a fallback, what is wrong with it is raised.
    Raises:
        PolicyError: the policy cannot begin.
    Attributes:
        jobs: that wait or hold something, by id.
        shadow: a second policy that only watches.
    """

    def __init__(
        self,
        world: Slots,
        ledger: NodeLedger,
        policy: DeferralPolicy,
        fallback: DeferralPolicy | None = None,
        key: Key = Key(0),  # noqa: B008
        guard: Guard | None = None,
    ) -> None:
        self.world, self.ledger, self._key = world, ledger, key
        self.shadow: Shadow[list[int]] | None = None
        self.jobs: dict[int, Standing] = {}
        self._made_room = -1  # for so many changes of the ledger
        self._past: deque[Floats] = deque(maxlen=PAST_SLOTS)
        self._unsure = set[int]()  # told to be suspended: whether they stand still, nobody knows
        self._fallback = None if fallback is None else self._begun(fallback)
        self.use(policy, guard)

    def use(self, policy: DeferralPolicy, guard: Guard | None = None) -> None:
        """Ask another policy from now on.

        Raises:
            PolicyError: it cannot begin; all is as before then.
        """
        self.policy, self.guard = self._begun(policy), guard

    def watch_with(self, policy: DeferralPolicy | None, guard: Guard | None = None) -> None:
        """Ask a second policy the same from now on, and compare; None: no longer.

        Raises:
            PolicyError: it cannot begin; all is as before then.
        """
        self.shadow = (
            None
            if policy is None
            else Shadow(self._begun(policy), guard or Guard(), lambda chosen: dict.fromkeys(chosen, "starts"))
        )

    @property
    def given(self) -> tuple[Slots, Key]:
        """What policies begin with."""
        return self.world, self._key

    def late(self, job: DeferrableJob, now_s: float) -> bool:
        """Whether a job's latest start is over: it may start in the slot of that time, not in a later one."""
        slot, latest = (math.floor(x / self.world.slot_s + 1e-9) for x in (now_s, job.latest_s))
        return slot > latest

    def view(self, now_s: float, among: Sequence[Standing] | None = None) -> CapacityView:
        """What the policy sees of jobs, of all if not said; suspended ones hold no cores and are left out.

        Args:
            now_s: when this slot began.
        """
        out = (JobPhase.SUSPENDED, JobPhase.EVICTED)
        shown = [s for s in (self.jobs.values() if among is None else among) if s.phase not in out]
        since_s = {s.job.id: at for s in shown if (at := s.since_s) is not None}
        kinds = self.world.resources
        total = self.ledger.nodes.total[0, :, :kinds].sum(axis=0)
        total[total == 0.0] = 1.0  # of a kind that nodes do not have; none of it is free
        past = np.array(self._past or [left_over_of(self.ledger, kinds, INFERENCE)])
        return view_of([s.job for s in shown], since_s, past, total, now_s, self.world.slot_s)

    def handle(self, event: DeferEvent) -> list[DeferCommand]:
        """Take note of an event; commands follow changed capacity and the beginning of a slot.

        Raises:
            PolicyError: without a guard: the policy raises, or starts what may not start.
        """
        match event:
            case JobSubmitted(job):
                self.jobs[job.id] = Standing(job)
            case JobStands(standing):
                self.jobs[standing.job.id] = standing
                if standing.phase is JobPhase.SUSPENDED:
                    self._unsure.add(standing.job.id)
                elif standing.phase is not JobPhase.RUNNING:
                    self._release(standing.job.id)
            case JobEnded(number):
                self.jobs.pop(number, None)
                self._release(number)
            case CapacityChanged(now_s) | Evicted(now_s):
                return list(self._make_room(now_s))
            case SlotBegan(now_s):
                changed = self.ledger.changes != self._made_room
                commands = list(self._make_room(now_s)) if changed else []
                self._past.append(left_over_of(self.ledger, self.world.resources, INFERENCE))
                return [*commands, *self._move(now_s), *self._lose(now_s), *self._start(now_s)]
        return []

    def validate(self) -> None:
        """Check that the ledger holds for jobs what they hold, and for no others.

        Raises:
            AssertionError: it does not.
        """
        self.ledger.validate()
        holders = {owner(number): s for number, s in self.jobs.items()}
        for held in self.ledger.reservations:
            if held.decision == DECISION:
                standing = holders.get(held.owner)
                assert standing is not None and standing.node == held.node, f"{held} is of no job"
                assert standing.phase in (JobPhase.RUNNING, JobPhase.SUSPENDED), f"{standing} holds {held}"
        for standing in self.jobs.values():
            waits = standing.phase is JobPhase.WAITING
            assert waits == (standing.node is None) == (standing.started_s is None), standing
            stopped = standing.phase in (JobPhase.SUSPENDED, JobPhase.EVICTED)
            assert stopped == (standing.stopped_s is not None), standing

    def _begun(self, policy: DeferralPolicy) -> Any:
        return begin(batched(policy), *self.given)

    def _release(self, number: int) -> None:
        self.ledger.release(owner(number))

    # room

    def _make_room(self, now_s: float) -> Iterator[DeferCommand]:
        """Evict jobs that find no room on their node, let others go on.

        Whom the ledger pushed out is its arithmetic; who of the jobs there gives way for it is decided here.
        """
        names = {node.name for node in self.ledger.there}
        active = [s for s in self.jobs.values() if s.phase in (JobPhase.RUNNING, JobPhase.SUSPENDED)]
        for standing in active:
            self._release(standing.job.id)
        for standing in active:
            if standing.node not in names:  # it is gone, with all memory
                yield from self._end(standing, now_s) if standing.settled else ()
            elif standing.phase is JobPhase.SUSPENDED:
                self._keep(standing)
        placed = [s for s in active if s.node in names]
        for standing in sorted(placed, key=lambda s: (s.phase is JobPhase.SUSPENDED, s.rank)):
            number = standing.job.id
            self._release(number)
            if not self.ledger.fits(str(standing.node), standing.job.resources):
                self._keep(standing)
                yield from self._give_way(standing, now_s)
                continue
            self.ledger.reserve(reservation(standing))
            if standing.phase is JobPhase.SUSPENDED and standing.settled:
                assert standing.stopped_s is not None
                over_s = standing.suspended_s + now_s - standing.stopped_s
                self._becomes(standing, phase=JobPhase.RUNNING, suspended_s=over_s, stopped_s=None)
                yield ResumeJob(number)
        self._made_room = self.ledger.changes

    def _keep(self, standing: Standing) -> None:
        """Reserve what a job holds while it is suspended, as far as other work leaves it."""
        hold, node = job_holds(standing.job, suspended=True), str(standing.node)
        kept_bytes = min(hold.resources.memory_bytes, self.ledger.free(node).memory_bytes)
        kept = hold._replace(resources=Resources(memory_bytes=kept_bytes))
        self.ledger.reserve(Reservation(owner(standing.job.id), node, *kept, DECISION))

    def _give_way(self, standing: Standing, now_s: float) -> Iterator[DeferCommand]:
        """A job is suspended, or ended to start anew."""
        number, job = standing.job.id, standing.job
        if not standing.settled:
            return  # soon it has begun, or ended
        if standing.phase is JobPhase.SUSPENDED:
            if number in self._unsure:
                yield SuspendJob(number)
        elif job.when_evicted == "restart":
            yield from self._end(standing, now_s)
        else:
            self._becomes(standing, phase=JobPhase.SUSPENDED, stopped_s=now_s)
            yield SuspendJob(number)

    def _end(self, standing: Standing, now_s: float) -> Iterator[DeferCommand]:
        """A job ends, and waits again."""
        self._release(standing.job.id)
        stopped_s = now_s if standing.stopped_s is None else standing.stopped_s
        self._becomes(standing, phase=JobPhase.EVICTED, stopped_s=stopped_s)
        yield EvictJob(standing.job.id)

    def _move(self, now_s: float) -> Iterator[DeferCommand]:
        """End suspended jobs that have stood long enough and find room elsewhere."""
        awaited = self._awaited()
        still = [s for s in self.jobs.values() if s.phase is JobPhase.SUSPENDED and s.settled]
        for standing in sorted(still, key=lambda s: s.rank):
            assert standing.stopped_s is not None and standing.since_s is not None
            done_s = standing.stopped_s - standing.since_s
            stood_s, lost_s = now_s - standing.stopped_s, done_s - standing.job.saved_s(done_s)
            if stood_s >= lost_s and stood_s > 0.0 and self._node(standing, awaited) is not None:
                yield from self._end(standing, now_s)

    def _becomes(self, standing: Standing, **changes: object) -> None:
        self.jobs[standing.job.id] = standing._replace(**changes)  # type: ignore[arg-type]
        self._unsure.discard(standing.job.id)

    # starts

    def _lose(self, now_s: float) -> Iterator[DeferCommand]:
        for standing in [s for s in self.jobs.values() if s.phase is JobPhase.WAITING]:
            if not standing.attempt and self.late(standing.job, now_s):
                del self.jobs[standing.job.id]
                yield LoseJob(standing.job.id)

    def _start(self, now_s: float) -> Iterator[DeferCommand]:
        """Start what is chosen and finds a node."""
        awaited = self._awaited()
        waiting = sorted((s for s in self.jobs.values() if s.phase is JobPhase.WAITING), key=lambda s: s.rank)
        for priority in sorted({s.job.priority for s in waiting}, reverse=True):
            among = [s for s in waiting if s.job.priority == priority]
            yield from self._start_on_nodes([s for s in among if s.attempt], awaited, now_s)
            others = [s for s in among if not s.attempt]
            holding = [s for s in self.jobs.values() if s.phase is not JobPhase.WAITING]
            chosen, by_id = self._ask(self.view(now_s, holding + others)), {s.job.id: s for s in others}
            yield from self._start_on_nodes([by_id[number] for number in chosen], awaited, now_s)

    def _start_on_nodes(
        self, chosen: Sequence[Standing], awaited: Mapping[str, Sequence[Standing]], now_s: float
    ) -> Iterator[DeferCommand]:
        for standing in chosen:
            if (node := self._node(standing, awaited)) is not None:
                began_s = max(now_s, standing.job.submitted_s)
                started = standing._replace(
                    phase=JobPhase.RUNNING, node=node, started_s=began_s, settled=False
                )
                self.jobs[standing.job.id] = started
                self.ledger.reserve(reservation(started))
                yield StartJob(standing.job.id, node, began_s)

    def _ask(self, view: CapacityView) -> list[int]:
        """What the policy chooses, or its fallback, in its order."""
        policy, fallback = self.policy, self._fallback
        if self.guard is None or fallback is None:
            chosen = starts_of(policy, view)
        else:
            chosen = self.guard.ask(lambda: starts_of(policy, view), lambda: starts_of(fallback, view))
        if (shadow := self.shadow) is not None:
            shadow.watch(lambda: starts_of(shadow.policy, view), chosen, view.now * view.slot_s)
        return chosen

    def _awaited(self) -> Mapping[str, Sequence[Standing]]:
        """Suspended jobs of each node that would fit there if no other jobs were."""
        freed, names = self.ledger.gives_way(INFERENCE), {node.name for node in self.ledger.there}
        found: dict[str, list[Standing]] = {}
        for standing in self.jobs.values():
            node, stands_still = str(standing.node), standing.phase is JobPhase.SUSPENDED
            if stands_still and node in names and self.ledger.fits(node, standing.job.resources, freed):
                found.setdefault(node, []).append(standing)
        return found

    def _node(self, standing: Standing, awaited: Mapping[str, Sequence[Standing]]) -> str | None:
        """Where a job starts: it fits there, and nothing waits there that goes before it, see the module."""
        free = {node.name: self.ledger.free(node.name).cpu_cores for node in self.ledger.there}
        fitting = [
            name
            for name in free
            if self.ledger.fits(name, standing.job.resources)
            and all(standing.rank < other.rank for other in awaited.get(name, ()))
        ]
        if not fitting:
            return None
        others = (s.job for s in self.jobs.values() if s.phase is JobPhase.WAITING and s is not standing)
        largest = max((job.resources.cpu_cores for job in others), default=0.0)
        has_room = {name for name, left in free.items() if left >= largest}

        def takes_room(name: str) -> bool:
            left = free[name] - standing.job.resources.cpu_cores
            return has_room == {name} and left < largest

        return min(fitting, key=lambda name: (takes_room(name), -free[name], name))


def broken(view: CapacityView, turn: Any) -> str | None:
    """What is wrong with (…, P) jobs to start, or None."""
    if turn.shape != view.state.shape or turn.dtype.kind not in "biuf":
        return f"gives {turn.dtype} of shape {turn.shape}, needs whole numbers of {view.state.shape}"
    if turn.dtype.kind == "f" and not (np.isfinite(turn) & (turn == np.floor(turn))).all():
        return "gives turns that are no whole numbers"
    if (turn[~view.startable] != 0).any():
        return "starts what may not start now"
    return "gives a turn below 0" if (turn < 0).any() else None


def starts_of(policy: DeferralPolicy, view: CapacityView) -> list[int]:
    """Numbers of the jobs that a policy starts in the one world of a view, in its order.

    Raises:
        PolicyError: it starts what may not start now.
    """
    turn = np.asarray(policy.decide(view))
    if why := broken(view, turn):
        raise PolicyError(f"job policy {policy.name!r} {why}")
    chosen = np.flatnonzero(turn[0])  # by submission, as the view has them
    found: list[int] = view.job[0, chosen[np.argsort(turn[0, chosen], kind="stable")]].tolist()
    return found
