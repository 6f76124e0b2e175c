"""What orchestration decides on: services' replicas, and pools of streams' workers that come and go.

A pool is a column behind the services', and its workers are its replicas. Forbidden here: I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.model.orchestration import Pools, System, no_pools
from edgewise.model.services import DISK_BYTES, Services, free_of, served_by_workers, site_of, ways_to
from edgewise.model.topology import Node, Resources, Topology, Variant
from edgewise.model.work import variant_holds

if TYPE_CHECKING:
    from edgewise.model.scenario import Scenario


class Orchestrated(NamedTuple):
    """Services and pools of a scenario.

    Attributes:
        system: of S services, the pools being the last.
        pools: which they are.
        nodes: (N,) names.
        names: (S,) of services and pools.
        holds: (S,) what a replica, or a worker, holds while it lives.
        workers: (P,) names of the workers of each pool, those that are there at first before others.
        node_of: of each of these workers.
        pool_of: (W,) pool of each worker of the world, -1 of one that is there for good.
        frame_s: every so often orchestration decides.
        most_nodes: that change in a frame; None: all.
    """

    system: System
    pools: Pools
    nodes: tuple[str, ...]
    names: tuple[str, ...]
    holds: tuple[Resources, ...]
    workers: tuple[tuple[str, ...], ...]
    node_of: Mapping[str, str]
    pool_of: Ints
    frame_s: float
    most_nodes: int | None


def of_services(services: Services) -> Orchestrated:
    """Services alone, none of which workers serve."""
    spec, system = services.spec, services.system
    none: Ints = np.zeros(0, dtype=np.int64)
    return Orchestrated(
        system, no_pools(system), services.nodes, services.names, services.holds, (), {}, none, spec.frame_s,
        spec.nodes_per_frame,
    )  # fmt: skip


def orchestrated(scenario: Scenario, services: Services | None) -> Orchestrated:
    """What there is to decide on; `services`: as they run, None: none do."""
    topology, catalog = scenario.topology, scenario.catalog
    system = bare_system(scenario) if services is None else _beside_workers(scenario, services)
    nodes = tuple(n.name for n in topology.nodes) if services is None else services.nodes
    used = {node for pool in topology.pools for node in pool.nodes}
    more = [node for node in topology.nodes if node.name in used - set(nodes)]  # of the cloud
    system, nodes = _with_nodes(system, scenario, more), (*nodes, *(node.name for node in more))
    names, holds = ((), ()) if services is None else (services.names, services.holds)
    variants = [catalog.variant(pool.variant) for pool in topology.pools]
    workers = tuple(tuple(w.name for w in topology.workers if w.pool == p.name) for p in topology.pools)
    number = {pool.name: p for p, pool in enumerate(topology.pools)}
    may = np.zeros((len(nodes), system.services + len(variants)), dtype=np.bool_)
    by_workers = frozenset() if services is None else served_by_workers(services.spec, topology)
    may[: len(nodes) - len(more), : system.services] = [name not in by_workers for name in names]
    for p, pool in enumerate(topology.pools):
        may[[nodes.index(node) for node in pool.nodes], system.services + p] = True
    most = [min(pool.most, len(mine)) for pool, mine in zip(topology.pools, workers, strict=True)]
    pools = Pools(
        first=system.services,
        least=np.array([pool.least for pool in topology.pools], dtype=np.int64),
        most=np.array(most, dtype=np.int64),
        capacity_qps=np.array([variant.capacity_qps for variant in variants]),
        start_s=np.array([variant.start_s for variant in variants]),
        serves=np.array([names.index(v.name) if v.name in names else -1 for v in variants], dtype=np.int64),
        may=may,
    )
    return Orchestrated(
        system=_with_pools(system, topology, nodes, variants),
        pools=pools,
        nodes=nodes,
        names=(*names, *number),
        holds=(*holds, *(variant_holds(variant).resources for variant in variants)),
        workers=workers,
        node_of={worker.name: worker.node for worker in topology.workers if worker.pool is not None},
        pool_of=pool_of(topology),
        frame_s=scenario.window_s if services is None else services.spec.frame_s,
        most_nodes=None if services is None else services.spec.nodes_per_frame,
    )


def decided_on(scenario: Scenario, services: Services | None) -> Orchestrated | None:
    """What a live system decides on; None: nothing."""
    there = services is not None or scenario.topology.pools
    return orchestrated(scenario, services) if there else None


def pool_of(topology: Topology) -> Ints:
    """(W,) pool of each worker, -1 of one that is there for good."""
    number = {pool.name: p for p, pool in enumerate(topology.pools)}
    return np.array([number.get(str(worker.pool), -1) for worker in topology.workers], dtype=np.int64)


def image_cluster(scenario: Scenario) -> str:
    """Where images come from: the cloud of services, else the first of the furthest clusters."""
    if scenario.services is not None:
        return scenario.services.cloud
    return max(scenario.topology.clusters, key=lambda cluster: cluster.tier).name


def bare_system(scenario: Scenario) -> System:
    """All nodes, without services; its cloud has no machine and is where images come from."""
    topology, nodes = scenario.topology, scenario.topology.nodes
    one_way, rate_bps, deviation_s = ways_to(
        topology, [image_cluster(scenario), *(node.cluster for node in nodes)]
    )
    free = free_of(nodes, scenario.catalog, topology)
    none, no_services = np.zeros(0), np.zeros((len(nodes), 0), dtype=np.int64)
    return System(
        slot_s=scenario.window_s,
        frame_slots=1,
        site_of=site_of(topology, nodes, one_way),
        first_machine=np.concatenate([[0], np.arange(len(nodes) + 1)]),
        cpu_cores=np.ascontiguousarray(free[:, 0]),
        memory_bytes=np.ascontiguousarray(free[:, 1]),
        disk_bytes=np.array([DISK_BYTES, *(node.resources.storage_bytes or DISK_BYTES for node in nodes)]),
        service_memory_bytes=none,
        service_cpu_cores=none,
        replica_cpu_cores=none,
        layer_bytes=none,
        needs_layer=np.zeros((0, 0), dtype=np.bool_),
        initial=no_services,
        delay_s=one_way,
        rate_bps=np.ascontiguousarray(rate_bps),
        deviation_s=np.ascontiguousarray(deviation_s),
        start_delay_s=0.0,
        service_deviation=0.0,
        returns_cpu=True,
        drops=False,
    )


def _beside_workers(scenario: Scenario, services: Services) -> System:
    """What workers that are there for good leave to replicas, also where they count as such for requests."""
    system, first = services.system, int(services.system.first_machine[1])
    nodes = [node for node in scenario.topology.nodes if node.name in services.nodes]
    free = free_of(nodes, scenario.catalog, scenario.topology)
    cores, memory_bytes = system.cpu_cores.copy(), system.memory_bytes.copy()
    cores[first:], memory_bytes[first:] = free[:, 0], free[:, 1]
    return system._replace(cpu_cores=cores, memory_bytes=memory_bytes)


def _with_nodes(system: System, scenario: Scenario, more: Sequence[Node]) -> System:
    """With nodes of the cloud, beside the station that is all of it: for pools alone."""
    if not more:
        return system
    ways = ways_to(scenario.topology, [node.cluster for node in more])
    free = free_of(more, scenario.catalog, scenario.topology)
    disks = np.array([node.resources.storage_bytes or DISK_BYTES for node in more])
    last = int(system.first_machine[-1])
    delay_s, rate_bps, deviation_s = (
        np.ascontiguousarray(np.concatenate([old, new], axis=1))
        for old, new in zip((system.delay_s, system.rate_bps, system.deviation_s), ways, strict=True)
    )
    return system._replace(
        site_of=np.concatenate([system.site_of, ways[0].argmin(axis=0)]),
        first_machine=np.concatenate([system.first_machine, last + 1 + np.arange(len(more))]),
        cpu_cores=np.concatenate([system.cpu_cores, free[:, 0]]),
        memory_bytes=np.concatenate([system.memory_bytes, free[:, 1]]),
        disk_bytes=np.concatenate([system.disk_bytes, disks]),
        initial=np.concatenate([system.initial, np.zeros((len(more), system.services), dtype=np.int64)]),
        delay_s=delay_s,
        rate_bps=rate_bps,
        deviation_s=deviation_s,
    )


def _with_pools(
    system: System, topology: Topology, nodes: tuple[str, ...], variants: list[Variant]
) -> System:
    """With a column for each pool; those of one variant share its image."""
    needs = np.array([(v.resources.memory_bytes, v.resources.cpu_cores) for v in variants]).reshape(-1, 2)
    images = {variant.name: variant.image_bytes for variant in variants}
    first = np.zeros((len(nodes), len(variants)), dtype=np.int64)
    number = {pool.name: p for p, pool in enumerate(topology.pools)}
    for worker in topology.at_first:
        if worker.pool is not None:
            first[nodes.index(worker.node), number[worker.pool]] += 1
    services, layers = system.needs_layer.shape
    needs_layer = np.zeros((services + len(variants), layers + len(images)), dtype=np.bool_)
    needs_layer[:services, :layers] = system.needs_layer
    for p, variant in enumerate(variants):
        needs_layer[services + p, layers + list(images).index(variant.name)] = True

    def joined(old: Floats, new: Floats) -> Floats:
        return np.concatenate([old, new])

    return system._replace(
        service_memory_bytes=joined(system.service_memory_bytes, needs[:, 0]),
        service_cpu_cores=joined(system.service_cpu_cores, needs[:, 1]),
        replica_cpu_cores=joined(system.replica_cpu_cores, needs[:, 1]),
        layer_bytes=joined(system.layer_bytes, np.array(list(images.values()), dtype=np.float64)),
        needs_layer=needs_layer,
        initial=np.concatenate([system.initial, first], axis=1),
    )
