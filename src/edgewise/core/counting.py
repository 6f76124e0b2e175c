"""A `ReplicaView` from what is known of each replica: how gateways and the controller fill theirs (W = 1).

The rules are the simulation's: a replica serves one request at a time and holds its memory while it lives, a
request holds cores while it is worked on. Forbidden here: I/O and clocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgewise.core.orchestration import ReplicaView
from edgewise.model.orchestration import Floats, Ints, System

# What a replica is doing. One that is removed serves what it has; one that leaves only holds its memory.
STARTING, READY, REMOVING, LEAVING = range(4)


class Known(NamedTuple):
    """R replicas, those in the cloud included.

    Attributes:
        station: (R,) 0 is the cloud.
        service: (R,).
        held: (R,) requests that were sent to it and have not ended.
        state: (R,) STARTING, READY, REMOVING or LEAVING.
    """

    station: Ints
    service: Ints
    held: Ints
    state: Ints


class Head(NamedTuple):
    """The request that a site dispatches; `deadline_s` on the view's clock, the rest as in `SITE`."""

    service: int
    deadline_s: float
    service_s: float
    cpu_cores: float
    payload_bytes: float
    queue: int = 1


def count(system: System, view: ReplicaView, known: Known, service_s: Floats) -> None:
    """Write the counts of all stations, and what is free on their machines.

    Args:
        view: of one world.
        service_s: (S,) mean time of a request on a replica.
    """
    shape = view.replicas.shape[1:]
    serves = (known.state == READY) | (known.state == REMOVING)
    busy = np.minimum(known.held, 1) * serves

    def sums(values: Ints) -> Ints:
        cells = np.zeros(shape, dtype=np.int64)
        np.add.at(cells, (known.station, known.service), values)
        return cells

    view.busy[0] = sums(busy)
    view.waiting[0] = sums(known.held - busy)
    view.waiting_s[0] = view.waiting[0] * service_s
    view.ready[0] = sums(serves.astype(np.int64))
    view.ready[0, 0] = view.busy[0, 0]  # the cloud has as many as it needs
    view.starting[0] = sums((known.state == STARTING).astype(np.int64))
    view.removing[0] = sums((known.state == REMOVING).astype(np.int64))
    _count_free(system, view, sums(np.ones_like(known.state)))


def _count_free(system: System, view: ReplicaView, there: Ints) -> None:
    """Cores without a request, memory without a replica; the cloud's machines share its load evenly."""
    cores = view.busy[0] @ system.service_cpu_cores
    memory = there @ system.service_memory_bytes
    memory[0] = view.busy[0, 0] @ system.service_memory_bytes
    first = system.first_machine
    for what, used, total in (
        (view.free_cpu_cores[0], cores, system.cpu_cores),
        (view.free_memory_bytes[0], memory, system.memory_bytes),
    ):
        what[first[1] :] = np.maximum(total[first[1] :] - used[1:], 0.0)
        cloud = total[: first[1]]
        what[: first[1]] = cloud * max(1.0 - used[0] / cloud.sum(), 0.0)


def show_head(view: ReplicaView, site: int, head: Head | None) -> None:
    """Put the request that a site dispatches into its row; None empties it."""
    row = view.site[0, site]
    if head is None:
        row.head = row.head_service = -1
        row.site_queue = 0
        row.head_deadline_s = row.head_service_s = row.head_cpu_cores = row.head_payload_bytes = 0.0
        return
    row.head, row.head_service, row.site_queue = 0, head.service, head.queue
    row.head_deadline_s, row.head_service_s = head.deadline_s, head.service_s
    row.head_cpu_cores, row.head_payload_bytes = head.cpu_cores, head.payload_bytes
