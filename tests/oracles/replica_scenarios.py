"""Small systems of requests and replicas, drawn at random, under pressure on every resource."""

from __future__ import annotations

import numpy as np

from edgewise.core.orchestrate import Requests
from edgewise.model.orchestration import System
from edgewise.model.services import spread


def a_system(
    rng: np.random.Generator, returns_cpu: bool = True, drops: bool = True, for_life: bool = False
) -> System:
    """1-3 sites, 1-4 nodes, 1-4 services; disks that hold about half of the images.

    Args:
        for_life: replicas hold their cores as long as they live, else requests hold them.
    """
    b, n, s, machines = (int(rng.integers(1, high)) for high in (4, 5, 5, 3))
    memory = np.concatenate([rng.uniform(4.0, 6.0, machines), rng.uniform(2.0, 5.0, n)])
    service_memory = rng.uniform(0.4, 1.2, s)
    layers = rng.uniform(0.5, 2.0, s + 1)
    initial = spread(memory[machines:] * 0.5, service_memory)
    needs = np.concatenate([np.eye(s, dtype=bool), rng.uniform(size=(s, 1)) < 0.5], axis=1)
    first_images = (initial @ needs > 0) @ layers
    system = System(
        slot_s=0.25,
        frame_slots=5,
        site_of=np.sort(rng.integers(0, b, n)),
        first_machine=np.concatenate([[0], machines + np.arange(n + 1)]),
        cpu_cores=np.concatenate([rng.uniform(1.0, 2.0, machines), rng.uniform(1.0, 2.0, n)]),
        memory_bytes=memory,
        disk_bytes=np.concatenate([[layers.sum()], first_images + rng.uniform(0.0, 2.0, n)]),
        service_memory_bytes=service_memory,
        service_cpu_cores=rng.uniform(0.2, 0.9, s),
        replica_cpu_cores=np.zeros(s),
        layer_bytes=layers,
        needs_layer=needs,
        initial=initial,
        delay_s=np.concatenate([rng.uniform(0.1, 0.3, (b, 1)), rng.uniform(0.0, 0.05, (b, n))], axis=1),
        rate_bps=np.concatenate([np.full((b, 1), 40.0), np.full((b, n), 100.0)], axis=1),
        deviation_s=np.full((b, n + 1), [rng.choice([0.0, 0.05]), *[0.0] * n]),
        start_delay_s=float(rng.uniform(0.0, 0.6)),
        service_deviation=float(rng.choice([0.0, 0.3])),
        returns_cpu=returns_cpu,
        drops=drops,
    )
    if not for_life:
        return system
    room = np.stack([memory[machines:], system.cpu_cores[machines:]], axis=1) * 0.5
    cores = system.service_cpu_cores
    first = np.minimum(initial, spread(room, np.stack([service_memory, cores], axis=1)))
    return system._replace(replica_cpu_cores=cores, initial=first)


def some_requests(rng: np.random.Generator, system: System, worlds: int, slots: int, most: int) -> Requests:
    """Worlds of up to `most` requests with tight and loose deadlines."""
    shape, horizon_s = (worlds, most), slots * system.slot_s
    arrival = np.sort(rng.uniform(0.0, horizon_s, shape), axis=1)
    service = rng.integers(0, system.services, shape)
    cores = system.service_cpu_cores[service]
    took = rng.uniform(0.05, 1.5, shape)
    return Requests(
        count=rng.integers(0, most + 1, worlds),
        arrival_s=arrival,
        site=rng.integers(0, system.sites, shape),
        service=service,
        deadline_s=arrival + took * rng.uniform(1.0, 4.0, shape),
        work_core_s=took * cores,
        cpu_cores=cores,
        memory_bytes=rng.uniform(0.0, 0.4, shape),
        payload_bytes=rng.uniform(0.0, 1.0, shape),
    )


def some_commands(rng: np.random.Generator, system: System, worlds: int, count: int = 4) -> np.ndarray:
    """(worlds, count, 2) random changes, possible and not."""
    nodes = rng.integers(0, system.nodes, (worlds, count))
    changes = rng.integers(-system.services, system.services + 1, (worlds, count))
    return np.stack([nodes, changes], axis=2)


def some_stations(rng: np.random.Generator, allowed: np.ndarray, head: np.ndarray) -> np.ndarray:
    """(W, B) a random allowed station for each head; sometimes none."""
    draw = np.where(allowed, rng.uniform(size=allowed.shape), -1.0)
    chosen = draw.argmax(axis=2)
    return np.where((head >= 0) & (rng.uniform(size=head.shape) < 0.9), chosen, -1)
