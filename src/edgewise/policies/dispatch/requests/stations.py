"""What a site knows of a station, compiled: one row of features, and the linear score of it.

The same kernel fills the rows that networks read and the score inside the engine. Index b is the
site, k the station (0 the cloud). Times in seconds and counts x enter as log(1 + x), with their sign;
resources as fractions of the largest machine's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewise.arrays import Bools, Floats
from edgewise.core.compiled import inner, kernel
from edgewise.core.dispatch.request_rules import stays, way_s
from edgewise.core.keyed import Purpose, uniform_of
from edgewise.core.orchestrate import HOLD, ReplicaView
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
CLOUD, OWN, ROOM, FITS = 0, 1, 13, 17


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
