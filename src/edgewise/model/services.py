"""Services of a live scenario as the `System` that policies of requests and replicas know.

Station 0 is the cloud: the workers of one cluster. Station n + 1 is node n of the other clusters. An answer
has to come back, so delays are of both ways together. Forbidden here: I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.model.catalog import Catalog, Variant
from edgewise.model.grammar.services import ServicesSpec
from edgewise.model.orchestration import System
from edgewise.model.problems import nearest
from edgewise.model.topology import Node, Topology

if TYPE_CHECKING:
    from edgewise.model.scenario import Scenario

ROOM = 1 + 1e-9  # sums of floats may miss a full node by rounding
DISK_BYTES = 1e12  # of nodes that state none
START_S = 0.5  # about what a worker takes from its start to its first query


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """Services of a scenario, and the stations that may run them.

    Attributes:
        spec: the scenario's `services`.
        system: of S services and N + 1 stations.
        names: (S,) services, called like their variants.
        nodes: (N,) names.
        clusters: (N + 1,) index of each station's cluster in the topology.
        cloud: (S,) workers of each service in the cloud.
        service_s: (S,) mean time on a replica, by the variant's profile at its largest payload.
        deadline_s: (S,) of requests that state none.
    """

    spec: ServicesSpec
    system: System
    names: tuple[str, ...]
    nodes: tuple[str, ...]
    clusters: tuple[int, ...]
    cloud: tuple[tuple[str, ...], ...]
    service_s: Floats
    deadline_s: Floats

    def place(self, settings: Mapping[str, Any]) -> tuple[int, int] | None:
        """Node and service of a replica, by the names in its settings; None when there are none such."""
        service, node = settings["service"], settings["node"]
        if service not in self.names or node not in self.nodes:
            return None
        return self.nodes.index(node), self.names.index(service)


def services_of(scenario: Scenario) -> Services | None:
    """The services of a scenario; None when it has no `services`."""
    spec, topology = scenario.spec.services, scenario.topology
    if spec is None:
        return None
    variants = [scenario.catalog.variant(service.variant) for service in spec.offered]
    names = [cluster.name for cluster in topology.clusters]
    nodes = [node for node in topology.nodes if node.cluster != spec.cloud]
    in_cloud = {node.name for node in topology.nodes if node.cluster == spec.cloud}
    return Services(
        spec=spec,
        system=_system(scenario, spec, variants, nodes),
        names=tuple(variant.name for variant in variants),
        nodes=tuple(node.name for node in nodes),
        clusters=tuple(names.index(cluster) for cluster in [spec.cloud, *(node.cluster for node in nodes)]),
        cloud=tuple(
            tuple(w.name for w in topology.workers if w.variant == v.name and w.node in in_cloud)
            for v in variants
        ),
        service_s=np.array([variant.profile.delay_s(variant.largest_bytes) for variant in variants]),
        deadline_s=np.array([service.deadline_s for service in spec.offered]),
    )


def check_services(spec: ServicesSpec, catalog: Catalog, topology: Topology, problems: list[str]) -> None:
    """Names exist, services reserve something, the cloud serves all, first replicas fit: else problems."""
    clusters = [cluster.name for cluster in topology.clusters]
    if spec.cloud not in clusters:
        problems.append(f"services.cloud: unknown cluster {spec.cloud!r}; {nearest(spec.cloud, clusters)}")
        return
    if len(clusters) == 1:
        problems.append("services: there is only the cloud; add a cluster whose nodes take replicas")
    before, seen = len(problems), set[str]()
    for i, service in enumerate(spec.offered):
        if service.variant in seen:
            problems.append(f"services.offered[{i}].variant: {service.variant!r} is given twice")
        seen.add(service.variant)
        _check_service(f"services.offered[{i}].variant", service.variant, spec, catalog, topology, problems)
    if len(problems) == before and len(clusters) > 1:
        _check_room(spec, catalog, topology, problems)


def _check_service(
    where: str,
    name: str,
    spec: ServicesSpec,
    catalog: Catalog,
    topology: Topology,
    problems: list[str],
) -> None:
    known = [variant.name for variant in catalog.variants]
    if name not in known:
        problems.append(f"{where}: unknown variant {name!r}; {nearest(name, known)}")
        return
    needs = catalog.variant(name).resources
    if not (needs.cpu_cores > 0 and needs.memory_bytes > 0):
        problems.append(f"{where}: {name!r} needs cpu_cores and memory_bytes above 0 in its resources")
    if name in {model.task for model in catalog.models}:
        problems.append(f"{where}: {name!r} is also a task; rename one, for clients name either in a URL")
    places = {node.name: node.cluster for node in topology.nodes}
    mine = [places[worker.node] for worker in topology.workers if worker.variant == name]
    if spec.cloud not in mine:
        problems.append(
            f"{where}: no worker of {name!r} in the cloud; add {{variant: {name}, cluster: {spec.cloud}}}"
        )
    if any(cluster != spec.cloud for cluster in mine):
        problems.append(
            f"{where}: workers outside the cloud; remove them, replicas of {name!r} take their place"
        )


def _check_room(spec: ServicesSpec, catalog: Catalog, topology: Topology, problems: list[str]) -> None:
    free = free_of([node for node in topology.nodes if node.cluster != spec.cloud], catalog, topology)
    needs = np.array([catalog.variant(service.variant).resources.memory_bytes for service in spec.offered])
    placed = first_replicas([service.initial for service in spec.offered], needs, free[:, 1])
    for i, service in enumerate(spec.offered):
        if placed[:, i].sum() < service.initial:
            problems.append(
                f"services.offered[{i}].initial: {placed[:, i].sum()} of {service.initial} replicas of "
                f"{service.variant!r} fit the nodes; lower it or give nodes more memory_bytes"
            )


def first_replicas(counts: Sequence[int], needs_bytes: Floats, free_bytes: Floats) -> Ints:
    """(N, S) replicas, service by service, each where most memory is left; what does not fit is left out.

    Args:
        counts: (S,) wanted.
        needs_bytes: (S,) memory of a replica.
        free_bytes: (N,) memory of each node.
    """
    placed, left = np.zeros((free_bytes.size, needs_bytes.size), dtype=np.int64), free_bytes.copy()
    for s, count in enumerate(counts):
        for _ in range(count):
            n = int(left.argmax())
            if needs_bytes[s] <= left[n] * ROOM:
                placed[n, s] += 1
                left[n] -= needs_bytes[s]
    return placed


def free_of(nodes: Sequence[Node], catalog: Catalog, topology: Topology) -> Floats:
    """(N, 2) cores and memory of nodes that their workers leave to replicas."""
    rows = []
    for node in nodes:
        held = [catalog.variant(w.variant).resources for w in topology.workers if w.node == node.name]
        cores = node.resources.cpu_cores - sum(r.cpu_cores for r in held)
        rows.append((max(cores, 0.0), node.resources.memory_bytes - sum(r.memory_bytes for r in held)))
    return np.maximum(np.array(rows, dtype=np.float64).reshape(len(nodes), 2), 0.0)


def _system(
    scenario: Scenario, spec: ServicesSpec, variants: Sequence[Variant], nodes: Sequence[Node]
) -> System:
    topology = scenario.topology
    machines = [node for node in topology.nodes if node.cluster == spec.cloud]
    has = np.array([(n.resources.cpu_cores, n.resources.memory_bytes) for n in machines])
    free = free_of(nodes, scenario.catalog, topology)
    one_way, rate_bps = _ways(topology, [spec.cloud, *(node.cluster for node in nodes)])
    needs = np.array([(v.resources.cpu_cores, v.resources.memory_bytes) for v in variants])
    disks = [sum(node.resources.storage_bytes for node in machines)]
    disks += [node.resources.storage_bytes for node in nodes]
    initial = first_replicas([service.initial for service in spec.offered], needs[:, 1], free[:, 1])
    return System(
        slot_s=spec.hold_s,
        frame_slots=max(round(spec.frame_s / spec.hold_s), 1),
        site_of=one_way[:, 1:].argmin(axis=0).astype(np.int64),
        first_machine=np.concatenate([[0], len(machines) + np.arange(len(nodes) + 1)]),
        cpu_cores=np.concatenate([has[:, 0], free[:, 0]]),
        memory_bytes=np.concatenate([has[:, 1], free[:, 1]]),
        disk_bytes=np.array([each or DISK_BYTES for each in disks]),
        service_memory_bytes=needs[:, 1].copy(),  # contiguous: kernels are compiled for no other
        service_cpu_cores=needs[:, 0].copy(),
        layer_bytes=np.ones(len(variants)),  # the local backend pulls no images: one layer each, always there
        needs_layer=np.eye(len(variants), dtype=np.bool_),
        initial=initial,
        delay_s=2.0 * one_way,
        lan_bps=float(rate_bps[:, 1:].min()),
        wan_bps=float(rate_bps[:, 0].min()),
        wan_deviation_s=0.0,
        start_delay_s=START_S,
        service_deviation=max(variant.profile.deviation for variant in variants),
        returns_cpu=True,
        drops=True,
    )


def _ways(topology: Topology, clusters: Sequence[str]) -> tuple[Floats, Floats]:
    """(B, N + 1) one-way delay from clients to each station by their site, and the least rate on that way."""
    ways = {(way.site, way.cluster): way for way in topology.ways}
    delay = [
        [site.access_delay_s + ways[site.name, cluster].delay_s for cluster in clusters]
        for site in topology.sites
    ]
    rate = [
        [min(site.uplink_bps, ways[site.name, cluster].bandwidth_bps) for cluster in clusters]
        for site in topology.sites
    ]
    return np.array(delay, dtype=np.float64), np.array(rate, dtype=np.float64)
