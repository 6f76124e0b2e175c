"""What can be wrong with the services of a scenario: all of it is said. Forbidden here: I/O."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgewise.model.catalog import Catalog
from edgewise.model.grammar.services import ServiceSpec, ServicesSpec
from edgewise.model.orchestration import System
from edgewise.model.problems import nearest
from edgewise.model.services import ROOM, plain, service_names, system_of
from edgewise.model.topology import Topology


def check_services(spec: ServicesSpec, catalog: Catalog, topology: Topology, problems: list[str]) -> None:
    """Names exist, services reserve something, the cloud serves all, first replicas fit: else problems."""
    clusters = [cluster.name for cluster in topology.clusters]
    if spec.cloud not in clusters:
        problems.append(f"services.cloud: unknown cluster {spec.cloud!r}; {nearest(spec.cloud, clusters)}")
        return
    before = len(problems)
    if len(clusters) == 1:
        problems.append("services: there is only the cloud; add a cluster whose nodes take replicas")
    for i, service in enumerate(spec.offered):
        if isinstance(service, ServiceSpec):
            where = f"services.offered[{i}].variant"
            _check_variant(where, service.variant, spec, catalog, topology, problems)
    if len(problems) > before:
        return
    for name, count in Counter(service_names(spec, catalog)).items():
        if count > 1:
            problems.append(f"services.offered: {name!r} is given twice; remove or rename one")
    system = system_of(spec, catalog, topology)
    _check_room(spec, catalog, system, problems)
    _check_images(topology, spec.cloud, system, problems)


def _check_variant(
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


def _check_room(spec: ServicesSpec, catalog: Catalog, system: System, problems: list[str]) -> None:
    """A replica fits some node and a machine of the cloud, and so do the first ones that are asked for."""
    first = int(system.first_machine[1])
    held = (
        ("bytes", system.service_memory_bytes, system.memory_bytes),
        ("cores", system.replica_cpu_cores, system.cpu_cores),
    )
    k = 0
    for i, service in enumerate(plain(spec, catalog)):
        mine = slice(k, k + (service.count or 1))
        k = mine.stop
        for what, needs, has in held:
            most = has[first:].max(), has[:first].max()
            if needs[mine].max() > min(most) * ROOM:
                problems.append(
                    f"services.offered[{i}]: a replica of {service.name!r} holds {needs[mine].max():g} "
                    f"{what}, nodes have up to {most[0]:g}, machines of the cloud {most[1]:g}; "
                    "give both as much"
                )
        placed, wanted = system.initial[:, mine].sum(axis=0), service.initial
        if spec.initial_share is None and (placed < wanted).any():
            problems.append(
                f"services.offered[{i}].initial: {placed.min()} of {wanted} replicas of "
                f"{service.name!r} fit the nodes; lower it or give nodes more of what they hold"
            )


def _check_images(topology: Topology, cloud: str, system: System, problems: list[str]) -> None:
    """All images fit the disks of the cloud, those of the first replicas the disks of their nodes."""
    images = float(system.layer_bytes.sum())
    if images > system.disk_bytes[0]:
        problems.append(
            f"clusters.{cloud}: all images are {images:g} bytes; give its nodes as much storage_bytes"
        )
    node_images = (system.initial @ system.needs_layer > 0) @ system.layer_bytes
    nodes = [node.name for node in topology.nodes if node.cluster != cloud]
    for n in np.flatnonzero(node_images > system.disk_bytes[1:]):
        problems.append(
            f"clusters.nodes: images of the first replicas on {nodes[n]!r} are {node_images[n]:g} bytes; "
            "give it more storage_bytes"
        )
