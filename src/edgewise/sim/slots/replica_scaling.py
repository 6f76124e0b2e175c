"""Adding and removing replicas, compiled: memory, cores, disk, image layers, start delay, deletion."""

from __future__ import annotations

from edgewise.core.compiled import inner
from edgewise.core.ledger import has_room
from edgewise.core.orchestrate.counting import AT_ONCE, NOTHING, keeps, removal
from edgewise.model.orchestration import System
from edgewise.sim.slots.replica_kernels import hold_replica
from edgewise.sim.slots.replica_state import IMAGE_BYTES, ReplicaBatch


@inner
def scale_one(system: System, x: ReplicaBatch, world: int, node: int, change: int, slot: int) -> bool:
    """Carry out one command, see `ReplicaPolicy.decide`; False if it was not possible."""
    service = abs(change) - 1
    if change == 0 or node < 0 or node >= system.site_of.size or service >= system.service_memory_bytes.size:
        return False
    if change < 0:
        return remove(system, x, world, node + 1, service)
    return add(system, x, world, node + 1, service, slot)


@inner
def remove(system: System, x: ReplicaBatch, world: int, k: int, service: int) -> bool:
    """Delete an idle replica, or mark that one goes when it is idle."""
    replicas = x.seen.replicas[world, k, service]
    what = removal(replicas.ready, replicas.busy, replicas.starting, replicas.removing)
    if what == NOTHING:
        return False
    if what == AT_ONCE:
        replicas.ready -= 1
        hold_replica(system, x.seen.machine[world, system.first_machine[k]], service, -1.0)
    else:
        replicas.removing += 1
    return True


@inner
def add(system: System, x: ReplicaBatch, world: int, k: int, service: int, slot: int) -> bool:
    """Keep a replica that was to go, or start one: pull the layers that lack, then the start delay."""
    m, station, replicas = (
        system.first_machine[k],
        x.truth.station[world, k],
        x.seen.replicas[world, k, service],
    )
    if keeps(replicas.removing):
        replicas.removing -= 1
        return True
    machine, cores = x.seen.machine[world, m], system.replica_cpu_cores[service]
    if not has_room(system.service_memory_bytes[service], machine.free_memory_bytes, system.memory_bytes[m]):
        return False
    if cores > 0.0 and not has_room(cores, machine.free_cpu_cores, system.cpu_cores[m]):
        return False
    if station.starts == x.truth.start.shape[2] or not make_room(system, x, world, k, service):
        return False
    hold_replica(system, machine, service, 1.0)
    start = x.truth.start[world, k, station.starts]
    start.service = service
    start.ready_s = pull(system, x, world, k, service, slot) + system.start_delay_s
    station.starts += 1
    replicas.starting += 1
    return True


@inner
def pull(system: System, x: ReplicaBatch, world: int, k: int, service: int, slot: int) -> float:
    """Pull the layers that station k lacks over the shared way from the cloud; when the image is there."""
    links, now_s = x.truth.links[world], slot * system.slot_s
    there_s, delay_s = now_s, system.delay_s[system.site_of[k - 1], 0]
    for i in range(system.layer_bytes.size):
        if not system.needs_layer[service, i]:
            continue
        layer = x.seen.layer[world, k, i]
        if layer.on_disk == 0:
            size_bytes = system.layer_bytes[i]
            layer.on_disk = 1
            x.seen.free_disk_bytes[world, k] -= size_bytes
            x.truth.tally[world, slot // system.frame_slots, IMAGE_BYTES] += size_bytes
            links.down_free_s = max(now_s, links.down_free_s) + 8.0 * size_bytes / system.wan_bps
            layer.ready_s = links.down_free_s + delay_s
        there_s = max(there_s, layer.ready_s)
    return there_s


@inner
def make_room(system: System, x: ReplicaBatch, world: int, k: int, service: int) -> bool:
    """Delete layers that no replica on station k needs, lowest first, until the image fits on its disk."""
    lack_bytes, idle_bytes, disk_bytes = -x.seen.free_disk_bytes[world, k], 0.0, system.disk_bytes[k]
    for i in range(system.layer_bytes.size):
        if system.needs_layer[service, i] and x.seen.layer[world, k, i].on_disk == 0:
            lack_bytes += system.layer_bytes[i]
        elif deletable(system, x, world, k, service, i):
            idle_bytes += system.layer_bytes[i]
    if not has_room(lack_bytes, idle_bytes, disk_bytes):
        return False
    for i in range(system.layer_bytes.size):
        if has_room(lack_bytes, 0.0, disk_bytes):
            break
        if deletable(system, x, world, k, service, i):
            x.seen.layer[world, k, i].on_disk = 0
            x.seen.free_disk_bytes[world, k] += system.layer_bytes[i]
            lack_bytes -= system.layer_bytes[i]
    return True


@inner
def deletable(system: System, x: ReplicaBatch, world: int, k: int, service: int, layer: int) -> bool:
    """Whether a layer is on station k, and neither `service` nor any replica there needs it."""
    if x.seen.layer[world, k, layer].on_disk == 0 or system.needs_layer[service, layer]:
        return False
    for other in range(system.service_memory_bytes.size):
        replicas = x.seen.replicas[world, k, other]
        if system.needs_layer[other, layer] and replicas.ready + replicas.starting > 0:
            return False
    return True
