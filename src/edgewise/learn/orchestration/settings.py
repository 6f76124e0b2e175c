"""Systems and worlds that KaiS is trained and measured on (KaiS, section IV-A), calibrated once.

    kais-default   5 sites × 8 nodes (1-2 cores, 2-4 GB), cloud 15 × (4 cores, 16 GB), 30 services
    kais-complex   10 sites with 3 to 15 nodes each, 100 in all
    kais-small     2 sites × 3 nodes, 12 services: minutes on one core, for trying things

Calibration: sizes, slot and frame are the paper's; the rate is such that greedy dispatch on replicas
placed by popularity answers about 70 % in time, so that both halves have something to decide. Replicas
begin where popularity and chance put them, up to 80 % of each node's memory. Every service's image has
a layer of its own (50 to 450 MB) and one that all share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from edgewise.core.keyed import Purpose, uniform
from edgewise.core.orchestration import Requests
from edgewise.errors import ScenarioError
from edgewise.learn.orchestration.train import Setting
from edgewise.model.orchestration import Floats, Ints, System
from edgewise.workloads.batch_task import BatchModel
from edgewise.workloads.requests import RequestPattern, alibaba_2018, generate, pattern, service_needs

COMPLEX = (3, 15, 8, 12, 5, 14, 7, 13, 11, 12)  # nodes of each site; 100 in all
NODES = {"kais-default": (8,) * 5, "kais-complex": COMPLEX, "kais-small": (3, 3)}
RATES_QPS = {"kais-default": 12.0, "kais-complex": 28.0, "kais-small": 2.0}
SERVICES = {"kais-default": 30, "kais-complex": 30, "kais-small": 12}
SLOT_S, FRAME_SLOTS, FRAMES = 0.25, 100, 10
FULL = 0.8  # of a node's memory, at the start
CORES, MEMORY, ORDER, LAYER, DELAY = range(60, 65)  # counters of draws


def setting(
    name: str, kind: str = "P4", frames: int = FRAMES, slot_s: float = SLOT_S, frame_slots: int = FRAME_SLOTS
) -> Setting:
    """A setting with a pattern of arrivals.

    Args:
        name: see the module.
        kind: of `workloads.requests.pattern`.
        frames: length of a world.
    Raises:
        ScenarioError: no such setting or pattern.
    """
    if name not in NODES:
        raise ScenarioError(f"scenario {name!r}: learned orchestration knows {', '.join(NODES)}")
    what = request_pattern(name, kind, frames * frame_slots * slot_s)
    model = first_services(alibaba_2018(), SERVICES[name])
    system = build(NODES[name], what, model)._replace(slot_s=slot_s, frame_slots=frame_slots)

    def draw(seeds: Sequence[int]) -> Requests:
        return generate(what, seeds, model)

    return Setting(name, system, draw, frames * frame_slots)


def request_pattern(name: str, kind: str, horizon_s: float) -> RequestPattern:
    """Arrivals of a setting."""
    base = RequestPattern(horizon_s=horizon_s, rate_qps=RATES_QPS[name], sites=len(NODES[name]))
    return pattern(kind, base)


def description(name: str) -> str:
    """JSON of everything that defines a setting, for freezing."""
    what = request_pattern(name, "P4", FRAMES * FRAME_SLOTS * SLOT_S)
    system = setting(name).system
    arrays = [np.asarray(part, dtype=np.float64).round(9).tolist() for part in system]
    digest = hashlib.sha256(json.dumps(arrays).encode()).hexdigest()
    return json.dumps({"pattern": asdict(what), "system_sha256": digest}, sort_keys=True)


def first_services(model: BatchModel, services: int) -> BatchModel:
    """The model with only its most frequent services."""
    arrays = {key: getattr(model, key)[:services] for key in ("kind", "cpu_cores", "memory_share", "duration_s")}
    share = model.share[:services]
    return replace(model, share=share / share.sum(), **arrays)


def build(nodes: Sequence[int], what: RequestPattern, model: BatchModel) -> System:
    """A system whose sites have so many nodes each; its draws are always the same."""
    count, sites = sum(nodes), len(nodes)
    cores, memory_bytes = service_needs(what, model)
    services, node = cores.size, np.arange(count)
    site_of = np.repeat(np.arange(sites), nodes)
    node_cores = 1.0 + (_draw(node, CORES) < 0.5)
    node_memory = (2.0 + 2.0 * _draw(node, MEMORY)) * 1e9
    return System(
        slot_s=SLOT_S,
        frame_slots=FRAME_SLOTS,
        site_of=site_of,
        first_machine=np.concatenate([[0], 15 + np.arange(count + 1)]),
        cpu_cores=np.concatenate([np.full(15, 4.0), node_cores]),
        memory_bytes=np.concatenate([np.full(15, 16e9), node_memory]),
        disk_bytes=np.concatenate([[1e12], np.full(count, 0.3e12)]),
        service_memory_bytes=memory_bytes,
        service_cpu_cores=cores,
        layer_bytes=np.concatenate([(50.0 + 400.0 * _draw(np.arange(services), LAYER)) * 1e6, [80e6]]),
        needs_layer=np.concatenate([np.eye(services, dtype=bool), np.ones((services, 1), dtype=bool)], axis=1),
        initial=_initial(model, memory_bytes, node_memory),
        delay_s=_delays(site_of, sites),
        lan_bps=1e9,
        wan_bps=20e6,
        wan_deviation_s=0.02,
        start_delay_s=2.0,
        service_deviation=0.1,
        returns_cpu=True,
        drops=True,
    )


def _delays(site_of: Ints, sites: int) -> Floats:
    """(B, N + 1): 0.2 s to the cloud, 2 ms to own nodes, 5 to 15 ms to those of other sites."""
    pair = np.arange(sites)[:, None] * 1000 + site_of[None]
    other = 0.005 + 0.01 * _draw(pair, DELAY)
    nodes = np.where(site_of[None] == np.arange(sites)[:, None], 0.002, other)
    return np.concatenate([np.full((sites, 1), 0.2), nodes], axis=1)


def _initial(model: BatchModel, memory_bytes: Floats, node_memory: Floats) -> Ints:
    """(N, S): services in a random order by popularity (exponential race), while there is room."""
    services, nodes = memory_bytes.size, node_memory.size
    number = np.arange(nodes)[:, None] * 1000 + np.arange(services)[None]
    race = -np.log(_draw(number, ORDER)) / model.share[None]
    found = np.zeros((nodes, services), dtype=np.int64)
    for node, order in enumerate(np.argsort(race, axis=1)):
        room = FULL * node_memory[node]
        for service in order:
            if memory_bytes[service] <= room:
                found[node, service] = 1
                room -= memory_bytes[service]
    return found


def _draw(entity: Ints, counter: int) -> Floats:
    return np.asarray(uniform(0, Purpose.REQUEST, entity, counter))
