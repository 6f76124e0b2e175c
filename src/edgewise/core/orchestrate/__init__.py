"""Requests and replicas: what policies see, what they may decide, and what a run is worth.

Everything is held for W worlds at once, all in the same slot; the live system is one world. In every slot
each site (the paper's eAP) sends the request at the head of its queue to a station: 0 is the cloud,
n + 1 is node n. In every frame, orchestration adds and removes replicas. Simulation and the live controller
fill the same `ReplicaView` and carry out the same two kinds of command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats, Ints, Records, records
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.orchestration import Pools, System, no_pools
from edgewise.model.topology import have_room

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

    count: Ints  # type: ignore[assignment]  # tuple.count is of no use here
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
        return self.work_core_s / self.cpu_cores


WORLD = np.dtype([("seed", "u8"), ("clock_s", "f8"), ("cloud_delay_s", "f8")])
SITE = np.dtype(
    [("head", "i8"), ("head_service", "i8"), ("site_queue", "i8")]
    + [(f"head_{what}", "f8") for what in ("deadline_s", "service_s", "cpu_cores")]
    + [(f"head_{what}", "f8") for what in ("memory_bytes", "payload_bytes")]
)
REPLICAS = np.dtype(
    [("waiting_s", "f8")]
    + [(count, "i8") for count in ("waiting", "busy", "ready", "starting", "removing")]
    + [("load", "f8"), ("may", "i8")]
)
MACHINE = np.dtype([("free_cpu_cores", "f8"), ("free_memory_bytes", "f8"), ("idle_cpu_cores", "f8")])
LAYER = np.dtype([("on_disk", "i8"), ("ready_s", "f8")])
REFUSED = ("down", "late", "full", "link", "starting")  # why streams are, as far as workers can change it
POOL = np.dtype(
    [("service", "i8"), ("least", "i8"), ("most", "i8"), ("capacity_qps", "f8"), ("start_s", "f8")]
    + [("streams", "i8")]
    + [(figure, "f8") for figure in ("load", "asked", "unserved", "in_time")]
    + [(f"refused_{why}", "i8") for why in REFUSED]
)


class ReplicaView(NamedTuple):
    """What dispatch and orchestration see; arrays are the driver's own and hold until the next step.

    Kernels read the records (`view.replicas[w, k, s].ready`), everybody else the arrays of their fields
    (`view.ready`), which are views of the same memory. Stations k are the cloud (0) and the nodes.

    Attributes:
        world: (W,) `WORLD`. seed: uint64, of policies' own draws. clock_s: start of the slot.
            cloud_delay_s: measured delay to the cloud in the last slot, propagation and wait for the WAN.
        site: (W, B) `SITE`. head: id (row in `Requests`) of the request that the site dispatches, -1 when
            its queue is empty. head_service: its service, else -1. head_deadline_s (absolute latest end),
            head_service_s (time on a replica), head_cpu_cores, head_memory_bytes, head_payload_bytes: else 0.
            site_queue: requests that wait at the site, the head included.
        replicas: (W, N + 1, S) `REPLICAS`. waiting: requests sent to the station and not yet begun.
            waiting_s: sum of their service times. busy: requests that are worked on. ready: replicas that can
            serve, busy ones too; the cloud's are as many as needed (busy). starting: replicas whose image is
            pulled or that start up. removing: replicas that go as soon as they are idle. load: of streams
            that are bound to workers there, in workers' worth. may: 1 where the node may have some, else 0.
        machine: (W, M) `MACHINE`, see `System.first_machine`. free_cpu_cores, free_memory_bytes: for
            replicas, with what gives way to them, as jobs do. idle_cpu_cores: that nobody has when a frame
            begins; all, where other work is not known.
        free_disk_bytes: (W, N + 1) of each station.
        layer: (W, N + 1, L) `LAYER`. on_disk: 1 for an image layer on disk or on its way; ready_s: when it
            was, or will be, there.
        arrived: (W, S) requests that arrived since the frame began, by service; at its start: in the last
            frame.
        pools: (W, P) `POOL` of streams' workers that come and go. service: their column of `replicas`, where
            so many are busy as the load of streams on a node fills, and so many wait in the cloud as what was
            not served would fill. least, most: workers that there may be. capacity_qps: C_v. start_s: of a
            new one, from its image to its first answer. streams: that are bound now, and load, of these, in
            workers' worth. Of those that workers of the pool could have served: asked, load of those that
            came in the last frame; unserved, load of those that were refused for good in it, or wait now;
            requests of a service that they serve are in load, asked and unserved, too;
            refused_…: how many these are, by reason. A stream that several pools could serve counts for each.
            in_time: share of the queries of streams bound there; 1 where none were sent.
    """

    world: Records
    site: Records
    replicas: Records
    machine: Records
    free_disk_bytes: Floats
    layer: Records
    arrived: Ints
    pools: Records

    @property
    def worlds(self) -> int:
        """W."""
        return int(self.world.size)

    def of_world(self, w: int) -> ReplicaView:
        """What a policy of one world sees: arrays without their first dimension."""
        return ReplicaView(*(part[w] for part in self))

    def __getattr__(self, field: str) -> NDArray[Any]:
        """A field of the records as an array of its own: `view.ready` is (W, N + 1, S)."""
        for rows in (self.world, self.site, self.replicas, self.machine):
            if field in (rows.dtype.names or ()):
                return rows[field]
        raise AttributeError(f"a ReplicaView has no {field!r}")

    @property
    def has_layer(self) -> Bools:
        """(W, N + 1, L) image layers on disk or on their way."""
        return np.asarray(self.layer["on_disk"] != 0)


def new_view(
    system: System, worlds: int, seeds: NDArray[np.uint64], pools: Pools | None = None
) -> ReplicaView:
    """A view before anything arrived: initial replicas stand ready, their images pulled.

    Args:
        seeds: (W,) of policies' own draws.
        pools: None: none.
    """
    pools = no_pools(system) if pools is None else pools
    stations, services, layers = system.stations, system.services, system.layer_bytes.size
    view = ReplicaView(
        records((worlds,), WORLD),
        records((worlds, system.sites), SITE),
        records((worlds, stations, services), REPLICAS),
        records((worlds, system.cpu_cores.size), MACHINE),
        np.zeros((worlds, stations)),
        records((worlds, stations, layers), LAYER),
        np.zeros((worlds, services), dtype=np.int64),
        records((worlds, pools.least.size), POOL),
    )
    view.machine["idle_cpu_cores"] = system.cpu_cores
    view.replicas["may"] = 1
    view.replicas["may"][:, 1:] = pools.may
    view.pools["service"] = pools.first + np.arange(pools.least.size)
    view.pools["in_time"] = 1.0
    for name in ("least", "most", "capacity_qps", "start_s"):
        view.pools[name] = getattr(pools, name)
    everything: Bools = system.needs_layer.max(axis=0, keepdims=True)
    on_disk = np.concatenate([everything, system.initial @ system.needs_layer > 0])
    view.seed[:] = seeds
    view.cloud_delay_s[:] = system.delay_s[:, 0].mean()
    view.head[:] = view.head_service[:] = -1
    view.ready[:, 1:] = system.initial
    view.layer["on_disk"] = on_disk
    view.free_disk_bytes[:] = np.maximum(system.disk_bytes - on_disk @ system.layer_bytes, 0.0)
    view.free_cpu_cores[:] = system.cpu_cores
    view.free_memory_bytes[:] = system.memory_bytes
    nodes = slice(system.first_machine[1], None)
    view.free_cpu_cores[:, nodes] -= system.initial @ system.replica_cpu_cores
    view.free_memory_bytes[:, nodes] -= system.initial @ system.service_memory_bytes
    return view


class AddReplica(NamedTuple):
    """One more replica of a service on a node, as far as memory and disk allow."""

    node: int
    service: int


class RemoveReplica(NamedTuple):
    """One replica of a service less on a node, where there is one."""

    node: int
    service: int


def commands_of(worlds: Sequence[Sequence[AddReplica | RemoveReplica]]) -> Ints:
    """(W, C, 2) commands as drivers and kernels take them, in order: a node, and s + 1, -(s + 1), or 0.

    Service s gets a replica more or less, or nothing changes: each world has the same number of commands.

    Raises:
        PolicyError: something else is among them.
    """
    numbers = np.zeros((len(worlds), max(map(len, worlds), default=0), 2), dtype=np.int64)
    for w, commands in enumerate(worlds):
        for i, command in enumerate(commands):
            if not isinstance(command, AddReplica | RemoveReplica):
                raise PolicyError(f"{command!r} is no command; give AddReplica or RemoveReplica")
            sign = 1 if isinstance(command, AddReplica) else -1
            numbers[w, i] = command.node, sign * (command.service + 1)
    return numbers


def broken(system: System, commands: Ints) -> str | None:
    """What is wrong with (…, C, 2) commands, or None; what is only not possible now is left out."""
    if commands.ndim < 2 or commands.shape[-1] != 2 or commands.dtype.kind not in "iu":
        return "gives no commands: (C, 2) whole numbers"
    node, change = commands[..., 0], commands[..., 1]
    there = (node >= 0) & (node < system.nodes) & (np.abs(change) <= system.services)
    return None if (there | (change == 0)).all() else "names a node or a service that there is not"


class RequestPolicy(Protocol):
    """Request at the head of each site's queue → station, in every slot.

    This is what drivers ask. A policy without `batched = True` sees one world: arrays without their first
    dimension, and gives (B,) stations; see `core.one_world`.
    """

    name: str

    def reset(self, world: System, key: Key) -> None:
        """Start anew on a system; all randomness comes from `key` and `view.seed`."""

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) station of each site's head; HOLD keeps it, and is what sites without a head give."""


class ReplicaPolicy(Protocol):
    """Replicas → nodes, in every frame.

    This is what drivers ask. A policy without `batched = True` sees one world and gives a list of
    `AddReplica` and `RemoveReplica`; see `core.one_world`.
    """

    name: str

    def reset(self, world: System, key: Key) -> None:
        """Start anew on a system; all randomness comes from `key` and `view.seed`."""

    def decide(self, view: ReplicaView) -> Ints:
        """(W, C, 2) `commands_of`; what does not fit (memory, disk) or is not there is left out."""


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
    """(W, B, N + 1), or (B, N + 1) of one world: stations with a replica of the head's service that stays;
    the cloud always.
    """
    service = np.maximum(view.head_service, 0)
    stays = (view.ready > view.removing).swapaxes(-1, -2)  # (W, S, N + 1)
    found: Bools = np.take_along_axis(stays, service[..., None], axis=-2)
    found = found & (view.head >= 0)[..., None]
    found[..., 0] = True
    return found


def context_mask(view: ReplicaView) -> Bools:
    """As `hosts`, F of the paper: where cores and memory are free now, too; the cloud always."""
    nodes = view.waiting.shape[-2] - 1
    cpu, memory = view.free_cpu_cores[..., None, -nodes:], view.free_memory_bytes[..., None, -nodes:]
    mask = hosts(view)
    for free, need in ((cpu, view.head_cpu_cores), (memory, view.head_memory_bytes)):
        mask[..., 1:] &= have_room(need[..., None], free, free)
    return mask


def check_requests(system: System, requests: Requests) -> None:
    """Refuse requests that break the order of arrival, a range or a sign.

    Raises:
        ScenarioError: names the first rule that is broken, the world and the request.
    """
    real: Bools = np.arange(requests.arrival_s.shape[1]) < requests.count[:, None]
    ordered = np.ones_like(real)
    ordered[:, 1:] = np.diff(requests.arrival_s, axis=1) >= 0
    most_cores = float(system.cpu_cores.max())
    rules: dict[str, Bools] = {
        "arrival_s must be >= 0 and not fall": ordered & (requests.arrival_s >= 0),
        f"site must be 0 … {system.sites - 1}": (requests.site >= 0) & (requests.site < system.sites),
        f"service must be 0 … {system.services - 1}": (requests.service >= 0)
        & (requests.service < system.services),
        "deadline_s must be a number": ~np.isnan(requests.deadline_s),
        "work_core_s must be >= 0 and finite": np.isfinite(requests.work_core_s)
        & (requests.work_core_s >= 0),
        f"cpu_cores must be > 0, and at most the {most_cores:g} of the largest machine": (
            requests.cpu_cores > 0
        )
        & (requests.cpu_cores <= most_cores),
        "memory_bytes must be >= 0": requests.memory_bytes >= 0,
        "payload_bytes must be >= 0": requests.payload_bytes >= 0,
    }
    for rule, kept in rules.items():
        if not kept[real].all():
            world, request = np.argwhere(real & ~kept)[0]
            raise ScenarioError(f"world {world}, request {request}: {rule}")
