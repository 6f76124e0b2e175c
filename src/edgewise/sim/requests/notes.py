"""What simulated sites were told and said: as events and commands of their cores."""

from __future__ import annotations

from edgewise.core.dispatch import request_flow as flow
from edgewise.core.dispatch.events import (
    Drop,
    ReplicaTold,
    RequestAgain,
    RequestArrived,
    RequestCommand,
    RequestEvent,
    RequestReturned,
    Send,
    Wait,
)
from edgewise.sim.requests.queues import ReplicaQueues
from edgewise.sim.requests.state import ARRIVED, RETURNED, TOLD_OF

Note = tuple[int, RequestEvent, list[RequestCommand]]
"""A site, what it was told, and what it said; of a `Drop` not why."""


def take_notes(queues: ReplicaQueues) -> list[Note]:
    """All since they were taken before."""
    run = queues.run
    taken = run.notes[: run.clock[0].notes].tolist()
    run.clock["notes"] = 0
    return [_note(queues, *each) for each in taken]


def _note(
    queues: ReplicaQueues,
    at_s: float,
    took_s: float,
    kind: int,
    d: int,
    i: int,
    row: int,
    value: int,
    said: int,
) -> Note:
    run = queues.run
    if kind == TOLD_OF:
        return d, ReplicaTold(at_s, queues.name(run.server_of[d, row]), value), []
    commands: list[RequestCommand] = []
    match said:
        case flow.SEND:
            commands = [Send(i, queues.name(run.server_of[d, row]))]
        case flow.WAIT:
            commands = [Wait(i, at_s + queues.system.slot_s)]
        case flow.GIVEN_UP | flow.NOBODY | flow.TOO_LATE:
            commands = [Drop(i, "", late=said == flow.TOO_LATE)]
    if kind == RETURNED:
        return d, RequestReturned(at_s, i, flow.HOW[value], took_s), commands
    if kind != ARRIVED:
        return d, RequestAgain(at_s, i), commands
    r = run.request[i]
    what = int(r.service), float(r.deadline_s), float(r.payload_bytes)
    return d, RequestArrived(at_s, i, *what), commands
