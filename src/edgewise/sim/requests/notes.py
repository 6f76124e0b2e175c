"""What simulated sites were told and said: as events and commands of their cores."""

from __future__ import annotations

from edgewise.core.dispatch import desks
from edgewise.core.dispatch.events import (
    Drop,
    Needs,
    ReplicaTold,
    RequestAgain,
    RequestArrived,
    RequestCommand,
    RequestEnded,
    RequestEvent,
    RequestReturned,
    Send,
    Wait,
)
from edgewise.core.orchestrate import HOLD
from edgewise.sim.requests.queues import ReplicaQueues
from edgewise.sim.requests.state import ARRIVED, DONE, ENDED, LOST, RETURNED, TOLD_OF

Note = tuple[int, RequestEvent, list[RequestCommand]]
"""A site, what it was told, and what it said; of a `Drop` not why."""


def take_notes(queues: ReplicaQueues) -> list[Note]:
    """All since they were taken before."""
    run = queues.run
    taken = run.notes[: run.clock[0].notes].tolist()
    run.clock["notes"] = 0
    return [_note(queues, *each) for each in taken]


def _note(
    queues: ReplicaQueues, at_s: float, took_s: float, kind: int, d: int, i: int, row: int, value: int
) -> Note:
    run = queues.run
    if kind == TOLD_OF:
        return d, ReplicaTold(at_s, queues.name(run.server_of[d, row]), value), []
    if kind == RETURNED:
        return d, RequestReturned(at_s, i, value == DONE, took_s, value == LOST), []
    if kind == ENDED:
        return d, RequestEnded(at_s, i, None if value == desks.JUDGED else desks.OUTCOMES[value]), []
    said: RequestCommand = Wait(i)
    if value != desks.ASK:
        said = Drop(i, "", late=value == desks.TOO_LATE)
    elif row != HOLD:
        said = Send(i, queues.name(run.server_of[d, row]))
    if kind != ARRIVED:
        return d, RequestAgain(at_s, i), [said]
    r = run.request[i]
    needs = Needs(float(r.service_s), float(r.cpu_cores), float(r.memory_bytes))
    what = int(r.service), float(r.deadline_s), float(r.payload_bytes), needs
    return d, RequestArrived(at_s, i, *what), [said]
