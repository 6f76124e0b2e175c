"""The rules of requests and replicas, compiled.

Index k is the station, b the site, r the request, m the machine. A station works through a slot
event by event: requests end, replicas become ready, requests reach it; after each event it drops what cannot
end in time and begins, by deadline, whatever has an idle replica and the cores and memory it needs. A request
that lacks one of these does not stop those behind it.
"""

import math
from typing import Any

import numpy as np

from edgewise.core.dispatch.request_rules import in_time, least_way_s, too_late
from edgewise.core.keyed import Purpose, normal_of
from edgewise.core.ledger import book, has_room
from edgewise.kernels.compiled import inner
from edgewise.model.orchestration import System
from edgewise.sim.slots.replica_state import (
    ARRIVED,
    AT_SITE,
    DONE_IN_TIME,
    DONE_LATE,
    DROPPED,
    FORWARDED_BYTES,
    IN_TIME,
    LATE,
    LOCAL_BYTES,
    LOST,
    SENT,
    WORKED_ON,
    ReplicaBatch,
)

NETWORK, SERVICE = int(Purpose.NETWORK), int(Purpose.SERVICE)
ANYWHERE = True  # as KaiS was frozen, see `least_way_s`


@inner
def drop(x: ReplicaBatch, world: int, request: Any, now_s: float, frame: int) -> None:
    """A request ends without being served."""
    request.state = DROPPED
    request.end_s = now_s
    x.truth.tally[world, frame, LOST] += 1
    x.truth.ended[world, 1] += 1


@inner
def arrive(system: System, x: ReplicaBatch, world: int, now_s: float, frame: int) -> None:
    """Requests that arrived until now join their site; those that cannot end in time leave it."""
    requests = x.truth.request
    for b in range(x.truth.waiting.shape[1]):
        site = x.truth.waiting[world, b]
        while site.end < site.last:
            request = requests[world, requests[world, site.end].order]
            if request.arrival_s > now_s:
                break
            site.end += 1
            request.state = AT_SITE
            x.truth.tally[world, frame, ARRIVED] += 1
            x.seen.arrived[world, request.service] += 1
        kept = site.end
        for i in range(site.end - 1, site.begin - 1, -1):
            r = requests[world, i].order
            request = requests[world, r]
            way_s = least_way_s(system, x.seen, world, b, request.service, request.payload_bytes, ANYWHERE)
            if too_late(system.drops, now_s + way_s, request.service_s, request.deadline_s):
                drop(x, world, request, now_s, frame)
            else:
                kept -= 1
                requests[world, kept].order = r
        site.begin = kept
        show_head(x, world, b)


@inner
def show_head(x: ReplicaBatch, world: int, b: int) -> None:
    """Put the head of site b into the view."""
    seen, site = x.seen.site[world, b], x.truth.waiting[world, b]
    seen.site_queue = site.end - site.begin
    if seen.site_queue == 0:
        seen.head = -1
        seen.head_service = -1
        seen.head_deadline_s = 0.0
        seen.head_service_s = 0.0
        seen.head_cpu_cores = 0.0
        seen.head_memory_bytes = 0.0
        seen.head_payload_bytes = 0.0
        return
    seen.head = x.truth.request[world, site.begin].order
    request = x.truth.request[world, seen.head]
    seen.head_service = request.service
    seen.head_deadline_s = request.deadline_s
    seen.head_service_s = request.service_s
    seen.head_cpu_cores = request.cpu_cores
    seen.head_memory_bytes = request.memory_bytes
    seen.head_payload_bytes = request.payload_bytes


@inner
def noise_s(deviation_s: float, seed: Any, number: int, slot: int) -> float:
    """What this slot's delay of a way differs from its mean; `number` is the way's, 0 those to the cloud."""
    if deviation_s == 0.0:
        return 0.0
    return deviation_s * normal_of(seed, NETWORK, number, slot)


@inner
def varied_s(deviation: float, seed: Any, r: int, service_s: float) -> float:
    """How long request r really takes on a replica."""
    if deviation == 0.0:
        return service_s
    variance = math.log(1.0 + deviation**2)
    return service_s * math.exp(math.sqrt(variance) * normal_of(seed, SERVICE, r, 0) - variance / 2.0)


@inner
def send(system: System, x: ReplicaBatch, world: int, b: int, k: int, slot: int) -> None:
    """Site b sends its head to station k: link queue (bandwidth), then delay, then the station's queue."""
    site, links, now_s = x.truth.waiting[world, b], x.truth.links[world], slot * system.slot_s
    r = x.truth.request[world, site.begin].order
    request = x.truth.request[world, r]
    site.begin += 1
    delay_s, took_s = system.delay_s[b, k], 8.0 * request.payload_bytes / system.rate_bps[b, k]
    if k == 0:
        sent_s = max(now_s, links.up_free_s) + took_s
        links.up_free_s = sent_s
        delay_s = max(0.0, delay_s + noise_s(system.deviation_s[b, k], links.seed, 0, slot))
    else:
        sent_s = max(now_s, site.lan_free_s) + took_s
        site.lan_free_s = sent_s
    own = k > 0 and system.site_of[k - 1] == b
    column = LOCAL_BYTES if own else FORWARDED_BYTES
    x.truth.tally[world, slot // system.frame_slots, column] += request.payload_bytes
    request.state = SENT
    request.station = k
    request.ready_s = sent_s + delay_s
    enqueue(x, world, k, r)


@inner
def enqueue(x: ReplicaBatch, world: int, k: int, r: int) -> None:
    """Insert request r by deadline; the lower id first among equal deadlines."""
    request, places, station = x.truth.request[world, r], x.truth.place[world, k], x.truth.station[world, k]
    at = station.queued
    while at > 0:
        other = places[at - 1].queue
        other_s = x.truth.request[world, other].deadline_s
        if other_s < request.deadline_s or (other_s == request.deadline_s and other < r):
            break
        places[at].queue = other
        at -= 1
    places[at].queue = r
    station.queued += 1
    replicas = x.seen.replicas[world, k, request.service]
    replicas.waiting += 1
    replicas.waiting_s += request.service_s


@inner
def leave_queue(replicas: Any, request: Any) -> None:
    """Count a request out of its station's queue."""
    replicas.waiting -= 1
    replicas.waiting_s -= request.service_s
    if replicas.waiting == 0:
        replicas.waiting_s = 0.0  # not the rounding errors of what was there


@inner
def machine_for(system: System, x: ReplicaBatch, world: int, k: int, request: Any) -> int:
    """The first machine of station k on which a request can begin now, or -1."""
    cpu_cores, memory_bytes = request.cpu_cores, request.memory_bytes
    replicas = x.seen.replicas[world, k, request.service]
    if k == 0:
        cpu_cores += system.replica_cpu_cores[request.service]  # a replica of its own meanwhile
        memory_bytes += system.service_memory_bytes[request.service]
    elif replicas.ready <= replicas.busy:
        return -1
    for m in range(system.first_machine[k], system.first_machine[k + 1]):
        machine = x.seen.machine[world, m]
        has_cores = has_room(cpu_cores, machine.free_cpu_cores, system.cpu_cores[m])
        if has_cores and has_room(memory_bytes, machine.free_memory_bytes, system.memory_bytes[m]):
            return m
    return -1


@inner
def begin(system: System, x: ReplicaBatch, world: int, k: int, r: int, m: int, now_s: float) -> None:
    """Work on request r on machine m from now on."""
    request, station, machine = x.truth.request[world, r], x.truth.station[world, k], x.seen.machine[world, m]
    replicas = x.seen.replicas[world, k, request.service]
    replicas.busy += 1
    book(machine, request.cpu_cores, request.memory_bytes)
    if k == 0:
        replicas.ready += 1
        holds = system.replica_cpu_cores[request.service], system.service_memory_bytes[request.service]
        book(machine, holds[0], holds[1])
    place = x.truth.place[world, k, station.running]
    place.run = r
    place.end_s = now_s + varied_s(system.service_deviation, x.truth.links[world].seed, r, request.service_s)
    place.machine = m
    station.running += 1
    request.state = WORKED_ON


@inner
def begin_all(system: System, x: ReplicaBatch, world: int, k: int, now_s: float, frame: int) -> None:
    """Drop what cannot end in time; begin what can begin, by deadline."""
    places, station, kept = x.truth.place[world, k], x.truth.station[world, k], 0
    for i in range(station.queued):
        r = places[i].queue
        request = x.truth.request[world, r]
        if request.ready_s <= now_s:
            late = too_late(system.drops, now_s, request.service_s, request.deadline_s)
            m = -1 if late else machine_for(system, x, world, k, request)
            if late or m >= 0:
                leave_queue(x.seen.replicas[world, k, request.service], request)
                if late:
                    drop(x, world, request, now_s, frame)
                else:
                    begin(system, x, world, k, r, m, now_s)
                continue
        places[kept].queue = r
        kept += 1
    station.queued = kept


@inner
def finish(system: System, x: ReplicaBatch, world: int, k: int, at: int, frame: int) -> None:
    """The request in a place ends; its replica is idle, or goes if it was to be removed."""
    place, station = x.truth.place[world, k, at], x.truth.station[world, k]
    request, machine = x.truth.request[world, place.run], x.seen.machine[world, place.machine]
    replicas = x.seen.replicas[world, k, request.service]
    replicas.busy -= 1
    book(machine, -request.cpu_cores if system.returns_cpu or k == 0 else 0.0, -request.memory_bytes)
    if k == 0 or replicas.removing > 0:
        replicas.ready -= 1
        book(
            machine,
            -system.replica_cpu_cores[request.service],
            -system.service_memory_bytes[request.service],
        )
        if k > 0:
            replicas.removing -= 1
    kept = in_time(place.end_s, request.deadline_s)
    request.state = IN_TIME if kept else LATE
    request.end_s = place.end_s
    x.truth.tally[world, frame, DONE_IN_TIME if kept else DONE_LATE] += 1
    x.truth.ended[world, 0 if kept else 1] += 1
    station.running -= 1
    last = x.truth.place[world, k, station.running]
    place.run = last.run
    place.end_s = last.end_s
    place.machine = last.machine


@inner
def wake(system: System, x: ReplicaBatch, world: int, k: int, at: int) -> None:
    """A starting replica is ready, or goes at once if it was to be removed."""
    start, station = x.truth.start[world, k, at], x.truth.station[world, k]
    replicas = x.seen.replicas[world, k, start.service]
    replicas.starting -= 1
    if replicas.removing > 0:
        replicas.removing -= 1
        machine = x.seen.machine[world, system.first_machine[k]]
        book(machine, -system.replica_cpu_cores[start.service], -system.service_memory_bytes[start.service])
    else:
        replicas.ready += 1
    station.starts -= 1
    last = x.truth.start[world, k, station.starts]
    start.service = last.service
    start.ready_s = last.ready_s


@inner
def next_event_s(x: ReplicaBatch, world: int, k: int, now_s: float) -> float:
    """When something happens next at station k by itself; inf for never."""
    station, soonest_s = x.truth.station[world, k], np.inf
    for i in range(station.running):
        soonest_s = min(soonest_s, x.truth.place[world, k, i].end_s)
    for i in range(station.starts):
        soonest_s = min(soonest_s, x.truth.start[world, k, i].ready_s)
    for i in range(station.queued):
        ready_s = x.truth.request[world, x.truth.place[world, k, i].queue].ready_s
        if now_s < ready_s < soonest_s:
            soonest_s = ready_s
    return soonest_s


@inner
def work(
    system: System, x: ReplicaBatch, world: int, k: int, begin_s: float, end_s: float, frame: int
) -> None:
    """Station k works through [begin_s, end_s)."""
    now_s, station = begin_s, x.truth.station[world, k]
    while now_s < end_s:
        for at in range(station.running - 1, -1, -1):
            if x.truth.place[world, k, at].end_s <= now_s:
                finish(system, x, world, k, at, frame)
        for at in range(station.starts - 1, -1, -1):
            if x.truth.start[world, k, at].ready_s <= now_s:
                wake(system, x, world, k, at)
        begin_all(system, x, world, k, now_s, frame)
        now_s = next_event_s(x, world, k, now_s)


@inner
def imbalance(system: System, x: ReplicaBatch, world: int) -> float:
    """ξ: standard deviation of CPU and memory use of all nodes, as fractions, pooled."""
    begin_m, total, squares = system.first_machine[1], 0.0, 0.0
    for m in range(begin_m, system.cpu_cores.size):
        cpu = 1.0 - x.seen.machine[world, m].free_cpu_cores / system.cpu_cores[m]
        memory = 1.0 - x.seen.machine[world, m].free_memory_bytes / system.memory_bytes[m]
        total += cpu + memory
        squares += cpu * cpu + memory * memory
    count = 2.0 * (system.cpu_cores.size - begin_m)
    mean = total / count
    return math.sqrt(max(0.0, squares / count - mean * mean))
