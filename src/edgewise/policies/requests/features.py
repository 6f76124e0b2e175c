"""What KaiS's networks read, from a `ReplicaView` only.

Times in seconds and counts x enter as log(1 + x), with their sign; resources as fractions of the
largest node's. So values stay between about -4 and 4, whatever the scenario, and networks need no running
statistics.

    local_state     (W, B, D)     of each site: the paper's state of a dispatch agent
    station_rows    (M, F)        of each station that a site may send its head to; any number of nodes
    node_state      (W, N, 5+2S)  of each node: the paper's state for orchestration
    pair_rows       (…, F)        of each (node, service): what adding or removing a replica would do

The row of a station is a kernel, and so is the linear score of it that decides inside the engine. Index b is
the site, k the station (0 the cloud).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.core.dispatch.request_rules import stays, way_s
from edgewise.core.keyed import Purpose, uniform_of
from edgewise.core.orchestrate import HOLD, ReplicaView
from edgewise.kernels.compiled import inner, kernel
from edgewise.model.orchestration import System

POLICY = int(Purpose.POLICY)

STATION_FEATURES = (
    "station is the cloud",
    "station belongs to the site",
    "replicas of the service",
    "of them, those that do not work",
    "waiting requests of the service",
    "waiting requests of all services",
    "wait for a replica: waiting time of the service over its replicas",
    "wait for cores: waiting core-seconds over the station's cores",
    "free cores",
    "free memory",
    "way from the site: delay and transfer",
    "time until the deadline",
    "service time",
    "room: deadline less way, wait and service time",
    "room is negative",
    "cores that the request needs",
    "requests that wait at the site",
    "fits now: a free replica, cores and memory",
    "cloud: way, as seconds",
    "cloud: service time",
    "cloud: share of nodes that host the service",
    "fits now, and belongs to the site",
)
OWN, ROOM, FITS = 1, 13, 17


@inner
def squashed(x: float) -> float:
    """sign(x) log(1 + |x|)."""
    return math.copysign(math.log1p(abs(x)), x)


@inner
def largest(values: Floats) -> float:
    """The largest of values >= 0."""
    found = 0.0
    for value in values:
        found = max(found, value)
    return found


@inner
def fill_row(system: System, view: ReplicaView, world: int, b: int, k: int, row: Floats) -> None:
    """(F,) features of station k for the head of site b; see STATION_FEATURES."""
    head, m, s = view.site[world, b], system.first_machine[k], view.site[world, b].head_service
    replicas, machine, cores = view.replicas[world, k, s], view.machine[world, m], 0.0
    for i in range(m, system.first_machine[k + 1]):
        cores += system.cpu_cores[i]
    waiting, core_s = 0, 0.0
    for other in range(view.replicas.shape[2]):
        waiting += view.replicas[world, k, other].waiting
        core_s += view.replicas[world, k, other].waiting_s * system.service_cpu_cores[other]
    cloud, own = k == 0, k > 0 and system.site_of[max(k - 1, 0)] == b
    there_s = way_s(system, view.world[world].cloud_delay_s, b, k, head.head_payload_bytes)
    idle = max(replicas.ready - replicas.busy, 0)
    replica_wait_s = 0.0 if cloud else replicas.waiting_s / max(replicas.ready, 1)
    left_s, took_s = head.head_deadline_s - view.world[world].clock_s, head.head_service_s
    room_s = left_s - there_s - took_s - max(core_s / cores, replica_wait_s)
    fits = machine.free_cpu_cores >= head.head_cpu_cores and idle > replicas.waiting
    fits = cloud or (fits and machine.free_memory_bytes >= head.head_memory_bytes)
    row[0], row[1] = cloud, own
    row[2], row[3] = (0.0, 0.0) if cloud else (squashed(replicas.ready), squashed(idle))
    row[4], row[5] = squashed(replicas.waiting), squashed(waiting)
    row[6], row[7] = squashed(replica_wait_s), squashed(core_s / cores)
    row[8] = machine.free_cpu_cores / largest(system.cpu_cores)
    row[9] = machine.free_memory_bytes / largest(system.memory_bytes)
    row[10], row[11], row[12] = squashed(10.0 * there_s), squashed(left_s), squashed(took_s)
    row[13], row[14], row[15] = squashed(room_s), room_s < 0.0, head.head_cpu_cores
    row[16], row[17] = squashed(head.site_queue), fits
    row[18], row[19] = (there_s, squashed(took_s)) if cloud else (0.0, 0.0)
    row[20] = _hosting(view, world, s) if cloud else 0.0
    row[21] = fits and own


@inner
def _hosting(view: ReplicaView, world: int, s: int) -> float:
    count = 0
    for k in range(1, view.replicas.shape[1]):
        count += stays(view, world, k, s)
    return float(count / (view.replicas.shape[1] - 1))


@inner
def draw_of(view: ReplicaView, world: int, b: int, k: int) -> float:
    """Uniform draw of site b for station k, new in every slot; live, the seed is the gateway's.

    Sites that see the same would else all choose the same station.
    """
    cell = b * view.replicas.shape[1] + k
    return float(uniform_of(view.world[world].seed, POLICY, cell, int(1e3 * view.world[world].clock_s + 0.5)))


@inner(allocates=True)
def by_weights(system: System, view: ReplicaView, world: int, b: int, weights: Any) -> int:
    """The station with most weights · features + width · Gumbel draw; the width's log is the last weight."""
    row, best, most = np.zeros(weights.size - 1), HOLD, -np.inf
    width = math.exp(weights[-1])
    for k in range(view.replicas.shape[1]):
        if not stays(view, world, k, view.site[world, b].head_service):
            continue
        fill_row(system, view, world, b, k, row)
        value = -width * math.log(-math.log(draw_of(view, world, b, k)))
        for i in range(row.size):
            value += weights[i] * row[i]
        if value > most:
            best, most = k, value
    return best


@kernel(allocates=False)
def fill_rows(system: System, view: ReplicaView, allowed: Bools, rows: Floats) -> None:
    """`fill_row` for every allowed (W, B, N + 1) station of a head, in their order."""
    at = 0
    for world in range(allowed.shape[0]):
        for b in range(allowed.shape[1]):
            for k in range(allowed.shape[2]):
                if allowed[world, b, k]:
                    fill_row(system, view, world, b, k, rows[at])
                    at += 1


@kernel(allocates=False)
def fill_draws(view: ReplicaView, first: int, found: Floats) -> None:
    """`draw_of` for every (W, R, N + 1), of rows first, first + 1, …; the first B rows are the sites'."""
    for world in range(found.shape[0]):
        for b in range(found.shape[1]):
            for k in range(found.shape[2]):
                found[world, b, k] = draw_of(view, world, first + b, k)


PAIR_FEATURES = (
    "replicas of the service on the node",
    "of them, those that do not work",
    "replicas that start",
    "waiting requests of the service on the node",
    "replicas of the service on all nodes",
    "waiting requests of the service on all nodes",
    "busy replicas of the service on all nodes",
    "busy requests of the service in the cloud",
    "arrivals of the service in the last frame",
    "waiting requests on the node",
    "free cores of the node",
    "free memory of the node",
    "free memory after one more replica",
    "share of the image's bytes that the node has",
    "memory of a replica",
    "cores of a request",
    "cores used on all nodes",
)


class StationRows(NamedTuple):
    """Features of some stations, and where they belong.

    Attributes:
        cell: (M,) index into a (W · B, N + 1) table, flattened.
        values: (M, F).
    """

    cell: Ints
    values: Floats32


def squash(x: NDArray[Any]) -> Floats:
    """sign(x) log(1 + |x|)."""
    return np.asarray(np.sign(x) * np.log1p(np.abs(x)))


def own_nodes(system: System) -> Ints:
    """(B, K) nodes of each site, -1 where it has fewer than the one with most."""
    lists = [np.flatnonzero(system.site_of == site) for site in range(system.sites)]
    table = np.full((system.sites, max(1, *(nodes.size for nodes in lists))), -1, dtype=np.int64)
    for site, nodes in enumerate(lists):
        table[site, : nodes.size] = nodes
    return table


def node_resources(system: System, view: ReplicaView) -> Floats:
    """(W, N, 3) free cores, memory and disk of nodes, as fractions of the largest node's."""
    n = system.nodes
    free = np.stack(
        [view.free_cpu_cores[:, -n:], view.free_memory_bytes[:, -n:], view.free_disk_bytes[:, 1:]], axis=2
    )
    largest = [system.cpu_cores[-n:].max(), system.memory_bytes[-n:].max(), system.disk_bytes[1:].max()]
    return np.asarray(free / np.array(largest))


def draws(view: ReplicaView, stations: int) -> Floats:
    """(W, B, N + 1) uniform draws of each site's own, new in every slot."""
    found = np.empty((*view.head.shape, stations))
    fill_draws(view, 0, found)
    return found


def frame_draws(view: ReplicaView, count: int) -> Floats:
    """(W, count) uniform draws for what is decided once for all sites, new in every slot."""
    (worlds, sites), stations = view.head.shape, view.replicas.shape[1]
    found = np.empty((worlds, -(-count // stations), stations))
    fill_draws(view, sites, found)
    return found.reshape(worlds, -1)[:, :count]


def gumbel(uniform: Floats) -> Floats:
    """With these added to log-probabilities, the greatest is one drawn from them."""
    return np.asarray(-np.log(-np.log(uniform)))


def local_state(system: System, view: ReplicaView) -> Floats32:
    """(W, B, S + 5 + 5K): KaiS's local state (section III-A1), K nodes of the site with most.

    Service (one-hot), time until the deadline and service time of the head; queue of the site; per own node
    queue length and time, and free resources; number of nodes; measured delay to the cloud.
    """
    worlds, b, table = view.worlds, system.sites, own_nodes(system)
    service = np.zeros((worlds, b, system.services))
    cells = np.nonzero(view.head >= 0)
    service[(*cells, view.head_service[cells])] = 1.0
    left = np.where(view.head >= 0, view.head_deadline_s - view.clock_s[:, None], 0.0)
    nodes = np.concatenate(
        [
            squash(view.waiting[:, 1:].sum(axis=2))[:, :, None],
            squash(view.waiting_s[:, 1:].sum(axis=2))[:, :, None],
            node_resources(system, view),
        ],
        axis=2,
    )
    mine = np.where((table >= 0)[None, :, :, None], nodes[:, np.maximum(table, 0)], 0.0)
    own = np.stack(
        [
            squash(left),
            squash(view.head_service_s),
            squash(view.site_queue),
            np.broadcast_to(np.log1p((table >= 0).sum(axis=1)), (worlds, b)),
            np.broadcast_to(squash(10.0 * view.cloud_delay_s)[:, None], (worlds, b)),
        ],
        axis=2,
    )
    return np.concatenate([service, own, mine.reshape(worlds, b, -1)], axis=2).astype(np.float32)


def station_rows(system: System, view: ReplicaView, allowed: Bools) -> StationRows:
    """Features of every allowed (world, site, station); see STATION_FEATURES.

    Args:
        allowed: (W, B, N + 1).
    """
    here = allowed & (view.head >= 0)[:, :, None]
    cell = np.flatnonzero(here)
    values = np.empty((cell.size, len(STATION_FEATURES)))
    fill_rows(system, view, here, values)
    return StationRows(cell, values.astype(np.float32))


def node_state(system: System, view: ReplicaView) -> Floats32:
    """(W, N, 5 + 2S): KaiS's node features (section III-B1).

    Free cores, memory and disk; delay to the site and to the cloud; queue and replicas by service.
    """
    n = system.nodes
    to_site = np.broadcast_to(system.delay_s[system.site_of, np.arange(1, n + 1)], (view.worlds, n))
    to_cloud = np.broadcast_to(view.cloud_delay_s[:, None], (view.worlds, n))
    return np.concatenate(
        [
            node_resources(system, view),
            squash(10.0 * to_site)[:, :, None],
            squash(10.0 * to_cloud)[:, :, None],
            squash(view.waiting[:, 1:]),
            squash(view.ready[:, 1:] + view.starting[:, 1:]),
        ],
        axis=2,
    ).astype(np.float32)


def changes_possible(system: System, view: ReplicaView) -> Bools:
    """(W, N, 2S + 1) which l = -S … S would change something: a replica to remove, or room to add one."""
    alive = view.ready[:, 1:] + view.starting[:, 1:] > view.removing[:, 1:]
    cores = np.maximum(view.free_cpu_cores[:, -system.nodes :, None], 0.0)
    fits = view.free_memory_bytes[:, -system.nodes :, None] >= system.service_memory_bytes
    fits &= (cores >= system.replica_cpu_cores) & (view.replicas["may"][:, 1:] > 0)
    none = np.ones((*alive.shape[:2], 1), dtype=bool)
    return np.concatenate([alive[:, :, ::-1], none, fits], axis=2)


def pair_rows(system: System, view: ReplicaView) -> Floats32:
    """(W, N, S, F) features of every (node, service); see PAIR_FEATURES."""
    n = system.nodes
    ready, starting, waiting, busy = (
        x[:, 1:].astype(np.float64) for x in (view.ready, view.starting, view.waiting, view.busy)
    )
    free = node_resources(system, view)
    memory = system.service_memory_bytes / system.memory_bytes[-n:].max()
    image = np.maximum(system.needs_layer @ system.layer_bytes, 1.0)
    has = (view.has_layer[:, 1:] * system.layer_bytes) @ system.needs_layer.T / image
    used = 1.0 - view.free_cpu_cores[:, -n:].sum(axis=1) / system.cpu_cores[-n:].sum()
    columns = (
        squash(ready),
        squash(np.maximum(ready - busy, 0.0)),
        squash(starting),
        squash(waiting),
        squash((ready + starting).sum(axis=1, keepdims=True)),
        squash(waiting.sum(axis=1, keepdims=True)),
        squash(busy.sum(axis=1, keepdims=True)),
        squash((view.busy[:, :1] + view.waiting[:, :1]).astype(np.float64)),
        squash(view.arrived[:, None].astype(np.float64)),
        squash(waiting.sum(axis=2, keepdims=True)),
        free[:, :, :1],
        free[:, :, 1:2],
        free[:, :, 1:2] - memory,
        has,
        memory,
        system.service_cpu_cores,
        used[:, None, None],
    )
    shape = (view.worlds, n, system.services)
    return np.stack([np.broadcast_to(c, shape) for c in columns], axis=3).astype(np.float32)
