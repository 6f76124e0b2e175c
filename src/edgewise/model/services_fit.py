"""Whether services fit what their scenario has: names, workers, rooms and images. Forbidden here: I/O."""

import numpy as np

from edgewise.model.grammar.services import PlainServiceSpec, ServiceSpec, ServicesSpec
from edgewise.model.kinds import meant, places_named
from edgewise.model.orchestration import System
from edgewise.model.problems import known, unique
from edgewise.model.services import answers_of, plain, served_by_workers, service_names, system_of
from edgewise.model.topology import Catalog, Topology, have_room


def one_cloud(spec: ServicesSpec, topology: Topology) -> ServicesSpec:
    """The same with the name of the cloud's cluster, where a kind is named that has one alone."""
    found = meant(spec.cloud, topology.clusters)
    return spec.model_copy(update={"cloud": found[0].name}) if len(found) == 1 else spec


def of_workers(spec: ServicesSpec, topology: Topology, problems: list[str]) -> ServicesSpec:
    """The same where services whose requests workers serve have no replicas, not at first either."""
    offered, by_workers = list(spec.offered), served_by_workers(spec, topology)
    for i, service in enumerate(offered):
        if isinstance(service, ServiceSpec) and service.variant in by_workers:
            if "initial" in service.model_fields_set and service.initial:
                problems.append(
                    f"services.offered[{i}].initial: {service.initial}, and workers of {service.variant!r} "
                    "serve its requests, so it has no replicas; remove it"
                )
            offered[i] = service.model_copy(update={"initial": 0})
    if by_workers and spec.initial_share is not None:
        problems.append(
            f"services.initial_share: workers serve requests of {min(by_workers)!r}; write `initial` instead"
        )
    return spec.model_copy(update={"offered": tuple(offered)}) if by_workers else spec


def check_services(spec: ServicesSpec, catalog: Catalog, topology: Topology, problems: list[str]) -> None:
    """Names exist, services reserve something, the cloud serves all, first replicas fit: else problems."""
    before = len(problems)
    if len(found := places_named("services.cloud", "cluster", spec.cloud, topology.clusters, problems)) > 1:
        names = ", ".join(cluster.name for cluster in found[:3])
        problems.append(f"services.cloud: {spec.cloud!r} stands for {len(found)} clusters; name one: {names}")
    if len(problems) > before:
        return
    if len(topology.clusters) == 1:
        problems.append("services: there is only the cloud; add a cluster whose nodes take replicas")
    _check_cloud(spec, problems)
    for i, service in enumerate(spec.offered):
        if isinstance(service, ServiceSpec):
            where = f"services.offered[{i}].variant"
            _check_variant(where, service.variant, spec, catalog, topology, problems)
    if len(problems) > before:
        return
    unique("services.offered", service_names(spec, catalog), problems)
    if not spec.answers and answers_of(spec, catalog).any():
        problems.append("services.answers: is false, so answers have no answer_bytes; remove one of the two")
    system = system_of(spec, catalog, topology)
    _check_room(spec, catalog, topology, system, problems)
    _check_images(topology, spec.cloud, system, problems)


def _check_cloud(spec: ServicesSpec, problems: list[str]) -> None:
    """What the cloud has is there, and known to whoever simulates it."""
    where = f"services.cloud_has: {spec.cloud_has!r}"
    plain_ones = [each.name for each in spec.offered if isinstance(each, PlainServiceSpec)]
    if spec.cloud_has == "workers" and spec.gateways == "one":
        problems.append(
            f"{where}, and with `gateways: one` it has a pool; write 'pool', or `gateways: per_site`"
        )
    elif spec.cloud_has == "workers" and plain_ones:
        problems.append(f"{where}, and plain services as {plain_ones[0]!r} have none; write 'pool'")


def _check_variant(
    where: str,
    name: str,
    spec: ServicesSpec,
    catalog: Catalog,
    topology: Topology,
    problems: list[str],
) -> None:
    before = len(problems)
    known(where, "variant", name, [variant.name for variant in catalog.variants], problems)
    if len(problems) > before:
        return
    needs = catalog.variant(name).resources
    if not (needs.cpu_cores > 0 and needs.memory_bytes > 0):
        problems.append(f"{where}: {name!r} needs cpu_cores and memory_bytes above 0 in its resources")
    if name in {model.task for model in catalog.models}:
        problems.append(f"{where}: {name!r} is also a task; rename one, for clients name either in a URL")
    places = {node.name: node.cluster for node in topology.nodes}
    mine = [places[worker.node] for worker in topology.workers if worker.variant == name]
    if spec.gateways == "one" and (mine != [spec.cloud] * len(mine) or name in pooled(topology)):
        problems.append(
            f"{where}: `gateways: one` knows replicas alone, and workers of {name!r} are outside the cloud "
            "or come and go; write `gateways: per_site`"
        )
    if spec.cloud not in mine and spec.cloud_has != "pool":
        problems.append(
            f"{where}: no worker of {name!r} in the cloud; add {{variant: {name}, cluster: {spec.cloud}}}, "
            "or write services.cloud_has: pool, which is simulated only"
        )


def pooled(topology: Topology) -> frozenset[str]:
    """Variants with workers that come and go."""
    return frozenset(pool.variant for pool in topology.pools)


def _check_room(
    spec: ServicesSpec, catalog: Catalog, topology: Topology, system: System, problems: list[str]
) -> None:
    """A replica fits some node and a machine of the cloud, and so do the first ones that are asked for."""
    first = int(system.first_machine[1])
    held = (
        ("bytes", system.service_memory_bytes, system.memory_bytes),
        ("cores", system.replica_cpu_cores, system.cpu_cores),
    )
    k, by_workers = 0, served_by_workers(spec, topology)
    for i, service in enumerate(plain(spec, catalog)):
        mine = slice(k, k + (service.count or 1))
        k = mine.stop
        if service.name in by_workers:
            continue
        for what, needs, has in held:
            most = has[first:].max(), has[:first].max()
            if not have_room(needs[mine].max(), min(most), min(most)):
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
