"""Requests and replicas: what policies see, what they may decide, and what a run is worth.

Everything is held for W worlds at once, all in the same slot; the live system is one world. In every slot
each site (the paper's eAP) sends the request at the head of its queue to a station: 0 is the cloud,
n + 1 is node n. In every frame, orchestration adds and removes replicas. Simulation and the live controller
fill the same `ReplicaView` and carry out the same two kinds of command.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgewise.core.keyed import Key
from edgewise.model.orchestration import Bools, Floats, Ints, System

HOLD = -1  # a dispatcher's action: keep the request for this slot


class Requests(NamedTuple):
    """W worlds with up to R requests each, sorted by arrival; rows beyond `count` are unused.

    Attributes:
        count: (W,) requests of each world.
        arrival_s: (W, R) when a request reaches its site; sorted in each world.
        site: (W, R) int64, the site it reaches.
        service: (W, R) int64.
        deadline_s: (W, R) latest time of its end, absolute (not relative to the arrival).
        work_core_s: (W, R) core-seconds; takes work_core_s / cpu_cores seconds.
        cpu_cores: (W, R) used on the node while it is worked on, > 0.
        memory_bytes: (W, R) used on the node while it is worked on, besides what the replica holds.
        payload_bytes: (W, R) sent from the site to the station.
    """

    count: Ints
    arrival_s: Floats
    site: Ints
    service: Ints
    deadline_s: Floats
    work_core_s: Floats
    cpu_cores: Floats
    memory_bytes: Floats
    payload_bytes: Floats

    @property
    def worlds(self) -> int:
        """W."""
        return int(self.count.size)

    def service_s(self) -> Floats:
        """(W, R) time a request takes on a replica."""
        took: Floats = self.work_core_s / self.cpu_cores
        return took


class ReplicaView(NamedTuple):
    """What dispatch and orchestration see; arrays are the driver's own and hold until the next step.

    Attributes:
        clock_s: (W,) start of the slot.
        head: (W, B) id (row in `Requests`) of the request to dispatch at each site, -1 when the queue is empty.
        head_service: (W, B) its service; -1 when there is none.
        head_deadline_s, head_service_s, head_cpu_cores, head_memory_bytes, head_payload_bytes: (W, B) of
            that request: latest end (absolute), time on a replica, demands, payload; 0 when there is none.
        site_queue: (W, B) requests that wait at each site, the head included.
        waiting: (W, N + 1, S) requests sent to each station and not yet begun, by service.
        waiting_s: (W, N + 1, S) sum of their service times.
        busy: (W, N + 1, S) requests that are worked on.
        ready: (W, N + 1, S) replicas that can serve, busy ones too; the cloud's are as many as needed (busy).
        starting: (W, N + 1, S) replicas whose image is pulled or that start up.
        removing: (W, N + 1, S) replicas that go as soon as they are idle.
        free_cpu_cores, free_memory_bytes: (W, M) of each machine (`System.first_machine`).
        free_disk_bytes: (W, N + 1) of each station.
        has_layer: (W, N + 1, L) image layers on disk or on their way.
        cloud_delay_s: (W,) measured delay to the cloud in the last slot: propagation and wait for the WAN.
        arrived: (W, S) requests that arrived in the frame so far, by service.
    """

    clock_s: Floats
    head: Ints
    head_service: Ints
    head_deadline_s: Floats
    head_service_s: Floats
    head_cpu_cores: Floats
    head_memory_bytes: Floats
    head_payload_bytes: Floats
    site_queue: Ints
    waiting: Ints
    waiting_s: Floats
    busy: Ints
    ready: Ints
    starting: Ints
    removing: Ints
    free_cpu_cores: Floats
    free_memory_bytes: Floats
    free_disk_bytes: Floats
    has_layer: Bools
    cloud_delay_s: Floats
    arrived: Ints

    @property
    def worlds(self) -> int:
        """W."""
        return int(self.clock_s.size)


class RequestPolicy(Protocol):
    """Request at the head of each site's queue → station, in every slot."""

    name: str

    def reset(self, system: System, key: Key) -> None:
        """Start anew on a system; all randomness comes from `key`."""

    def dispatch(self, view: ReplicaView) -> Ints:
        """(W, B) station of each site's head; HOLD keeps it, and is what sites without a head give."""


class ReplicaPolicy(Protocol):
    """Replicas → nodes, in every frame."""

    name: str

    def reset(self, system: System, key: Key) -> None:
        """Start anew on a system; all randomness comes from `key`."""

    def scale(self, view: ReplicaView) -> Ints:
        """(W, K, 2) commands, carried out in order: node n, and l in -S … S.

        l = s + 1 adds a replica of service s, l = -(s + 1) removes one, l = 0 does nothing. What does not
        fit (memory, disk) or is not there becomes l = 0.
        """


class SlotResult(NamedTuple):
    """What a slot brought, per world; the reward is left to the learner.

    Attributes:
        in_time: (W,) requests that ended within their deadline.
        violated: (W,) requests that ended late or were dropped.
        imbalance: (W,) ξ: standard deviation of all nodes' CPU and memory use as fractions, pooled.
    """

    in_time: Ints
    violated: Ints
    imbalance: Floats


def hosts(view: ReplicaView) -> Bools:
    """(W, B, N + 1) stations with a replica of the head's service that stays; the cloud always."""
    service = np.maximum(view.head_service, 0)
    stays = (view.ready > view.removing).transpose(0, 2, 1)  # (W, S, N + 1)
    found: Bools = np.take_along_axis(stays, service[:, :, None], axis=1)
    found = found & (view.head >= 0)[:, :, None]
    found[:, :, 0] = True
    return found


def context_mask(view: ReplicaView) -> Bools:
    """(W, B, N + 1) F of the paper: `hosts`, and the node has the cores and memory free now; cloud always 1."""
    nodes = view.waiting.shape[1] - 1
    cpu, memory = view.free_cpu_cores[:, None, -nodes:], view.free_memory_bytes[:, None, -nodes:]
    mask = hosts(view)
    mask[:, :, 1:] &= cpu >= view.head_cpu_cores[:, :, None] * (1 - 1e-9)
    mask[:, :, 1:] &= memory >= view.head_memory_bytes[:, :, None] * (1 - 1e-9)
    return mask
