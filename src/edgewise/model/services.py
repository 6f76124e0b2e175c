"""Services of a scenario as the `System` that policies of requests and replicas know, simulated and live.

Station 0 is the cloud: the nodes of one cluster. Station n + 1 is node n of the other clusters.
Forbidden here: I/O.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.errors import ScenarioError
from edgewise.model.build import expand
from edgewise.model.grammar.services import (
    PlainServiceSpec,
    ServiceSpec,
    ServicesSpec,
    TracedRequestsSpec,
)
from edgewise.model.orchestration import System
from edgewise.model.topology import Catalog, Node, Profile, Resources, Topology, Worker, have_room
from edgewise.model.work import variant_holds

if TYPE_CHECKING:
    from edgewise.model.scenario import Scenario

DISK_BYTES = 1e12  # of nodes that state none
LAYER_BYTES = 1.0  # a variant's image that has no size: its file is on every machine, nothing is pulled


class ServingWorker(NamedTuple):
    """A worker that serves requests of a service, and streams as well: its variant is what is offered.

    Attributes:
        service: index.
        station: where it is.
        pooled: it comes and goes with its pool; else it is there for good.
        at_first: it is there at the beginning.
    """

    name: str
    service: int
    station: int
    pooled: bool
    at_first: bool

    @property
    def of_cloud(self) -> bool:
        """Whether orchestration of services knows it: it is in the cloud, for good."""
        return self.station == 0 and not self.pooled


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """Services of a scenario that run live, and the stations that may run them.

    Attributes:
        spec: the scenario's `services`.
        system: of S services and N + 1 stations.
        names: (S,) services, called like their variants.
        nodes: (N,) names.
        clusters: (N + 1,) index of each station's cluster in the topology.
        workers: that serve requests, by service; a service without any in the cloud has a pool there.
        holds: (S,) what a replica holds while it lives.
        service_s: (S,) mean time on a replica, by the variant's profile at its largest payload.
        least_s: (S,) time that nine of ten requests take at least, of those with the least payload.
        deadline_s: (S,) of requests that state none.
        answer_bytes: (S,) of an answer.
    """

    spec: ServicesSpec
    system: System
    names: tuple[str, ...]
    nodes: tuple[str, ...]
    clusters: tuple[int, ...]
    workers: tuple[ServingWorker, ...]
    holds: tuple[Resources, ...]
    service_s: Floats
    least_s: Floats
    deadline_s: Floats
    answer_bytes: Floats

    @property
    def simulated_answer_bytes(self) -> Floats:
        """(S,) of an answer, as far as answers of a size are simulated."""
        return self.answer_bytes if have_answers(self.spec) else np.zeros_like(self.answer_bytes)

    def place(self, settings: Mapping[str, Any]) -> tuple[int, int] | None:
        """Node and service of a replica, by the names in its settings; None when there are none such."""
        service, node = settings["service"], settings["node"]
        if service not in self.names or node not in self.nodes:
            return None
        return self.nodes.index(node), self.names.index(service)


def services_of(scenario: "Scenario") -> Services | None:
    """The services of a scenario, to be run live; None when it has none.

    Raises:
        ScenarioError: one is no variant of the catalog, so that nothing can serve it, or the cloud is a pool.
    """
    spec, topology = scenario.services, scenario.topology
    if spec is None:
        return None
    if spec.cloud_has == "pool":
        raise ScenarioError(
            f"{scenario.name}: services.cloud_has: 'pool' is simulated only; to run it live, write 'workers' "
            f"and a worker of each service in {spec.cloud!r}"
        )
    offered = [service for service in spec.offered if isinstance(service, ServiceSpec)]
    for i, service in enumerate(spec.offered):
        if isinstance(service, PlainServiceSpec):
            raise ScenarioError(
                f"{scenario.name}: services.offered[{i}]: {service.name!r} is simulated only (edgewise "
                "orchestrate); to run it live, name a `variant` of the catalog in its place"
            )
    variants = [scenario.catalog.variant(service.variant) for service in offered]
    names = [cluster.name for cluster in topology.clusters]
    nodes = [node for node in topology.nodes if node.cluster != spec.cloud]
    system = system_of(spec, scenario.catalog, topology)
    return Services(
        spec=spec,
        system=system,
        names=tuple(variant.name for variant in variants),
        nodes=tuple(node.name for node in nodes),
        clusters=tuple(names.index(cluster) for cluster in [spec.cloud, *(node.cluster for node in nodes)]),
        workers=serving(spec, topology, [variant.name for variant in variants]),
        holds=tuple(variant_holds(variant).resources for variant in variants),
        service_s=np.array([variant.profile.delay_s(variant.largest_bytes) for variant in variants]),
        least_s=np.array([_nine_of_ten_s(variant.profile) for variant in variants]),
        deadline_s=np.array([service.deadline_s for service in offered]),
        answer_bytes=answers_of(spec, scenario.catalog),
    )


def _nine_of_ten_s(profile: Profile) -> float:
    """What nine of ten runs take at least, without payload: a normal draw, 1.2816 σ below its mean."""
    return profile.delay_s(0.0) * max(1.0 - 1.2816 * profile.deviation, 0.0)


def serving(spec: ServicesSpec, topology: Topology, variants: Sequence[str]) -> tuple[ServingWorker, ...]:
    """Workers of these variants, by variant, that requests meet: none in a cloud that is a pool."""
    stations, nodes = {}, [node for node in topology.nodes if node.cluster != spec.cloud]
    if spec.cloud_has != "pool":
        stations = {node.name: 0 for node in topology.nodes if node.cluster == spec.cloud}
    if spec.gateways == "per_site":
        stations |= {node.name: n + 1 for n, node in enumerate(nodes)}
    return tuple(
        ServingWorker(w.name, s, stations[w.node], w.pool is not None, w.at_first)
        for s, variant in enumerate(variants)
        for w in topology.workers
        if w.variant == variant and w.node in stations
    )


def served_by_workers(spec: ServicesSpec, topology: Topology) -> frozenset[str]:
    """Variants whose services have no replicas: workers outside the cloud, or in pools, stand for them."""
    outside = {node.name for node in topology.nodes if node.cluster != spec.cloud}
    offered = {each.variant for each in spec.offered if isinstance(each, ServiceSpec)}
    mine = (w for w in topology.workers if w.node in outside or w.pool is not None)
    return frozenset(w.variant for w in mine if spec.gateways == "per_site") & offered


def workers_used(spec: ServicesSpec | None, topology: Topology) -> tuple[Worker, ...]:
    """Workers that requests of services use; where nothing streams, nobody else uses any."""
    if spec is None:
        return ()
    offered = [each.variant for each in spec.offered if isinstance(each, ServiceSpec)]
    named = {each.name for each in serving(spec, topology, offered)}
    return tuple(worker for worker in topology.workers if worker.name in named)


def system_of(spec: ServicesSpec, catalog: Catalog, topology: Topology) -> System:
    """The arrays of services whose names `check_services` has found."""
    machines = [node for node in topology.nodes if node.cluster == spec.cloud]
    nodes = [node for node in topology.nodes if node.cluster != spec.cloud]
    has = np.array([(n.resources.cpu_cores, n.resources.memory_bytes) for n in machines])
    if spec.cloud_has == "pool":  # beside workers of streams
        has = free_of(machines, catalog, topology)
    serve = served_by_workers(spec, topology)
    free = free_of(nodes, catalog, topology, without=serve)
    first_free = free_of(nodes, catalog, topology, at_first=True)
    one_way, rate_bps, deviation_s = ways_to(topology, [spec.cloud, *(node.cluster for node in nodes)])
    offered = plain(spec, catalog)
    layer_bytes, needs_layer = _layers(offered)
    needs, cores = _column(offered, "memory_bytes"), _column(offered, "cpu_cores")
    always = [spec.cores_held == "life" or name in serve for name in service_names(spec, catalog)]
    for_life = np.where(always, cores, 0.0)
    held = np.stack([needs, for_life], axis=1)
    disks = [min(node.resources.storage_bytes or DISK_BYTES for node in machines)]
    disks += [node.resources.storage_bytes or DISK_BYTES for node in nodes]
    if spec.initial_share is None:
        counts = [service.initial for service in offered for _ in range(service.count or 1)]
        initial = first_replicas(counts, held, first_free[:, ::-1])
    else:
        initial = spread(first_free[:, ::-1] * spec.initial_share, held)
    ways = 2.0 if spec.answers else 1.0
    return System(
        slot_s=spec.slot_s,
        frame_slots=max(round(spec.frame_s / spec.slot_s), 1),
        site_of=site_of(topology, nodes, one_way),
        first_machine=np.concatenate([[0], len(machines) + np.arange(len(nodes) + 1)]),
        cpu_cores=np.concatenate([has[:, 0], free[:, 0]]),
        memory_bytes=np.concatenate([has[:, 1], free[:, 1]]),
        disk_bytes=np.array(disks),
        service_memory_bytes=needs,
        service_cpu_cores=cores,
        replica_cpu_cores=for_life,
        layer_bytes=layer_bytes,
        needs_layer=needs_layer,
        initial=initial,
        delay_s=ways * one_way,
        rate_bps=np.ascontiguousarray(rate_bps),
        deviation_s=np.ascontiguousarray(np.sqrt(ways) * deviation_s),
        start_delay_s=spec.start_delay_s,
        service_deviation=_deviation(spec, catalog),
        returns_cpu=spec.returns_cores,
        drops=spec.drops,
    )


def first_replicas(counts: Sequence[int], needs: Floats, free: Floats) -> Ints:
    """(N, S) replicas, service by service, each where most memory is left; what does not fit is left out.

    Args:
        counts: (S,) wanted.
        needs: (S, 2) memory and cores of a replica; or (S,) memory.
        free: (N, 2) of each node; or (N,) memory.
    """
    needs, total = needs.reshape(len(needs), -1), free.reshape(len(free), -1)
    left = total.copy()
    placed = np.zeros((len(left), len(needs)), dtype=np.int64)
    for s, count in enumerate(counts):
        for _ in range(count):
            fits = have_room(needs[s], left, total).all(axis=1)
            if fits.any():
                n = int(np.where(fits, left[:, 0], -1.0).argmax())
                placed[n, s] += 1
                left[n] -= needs[s]
    return placed


def spread(room: Floats, needs: Floats) -> Ints:
    """(N, S) replicas: services in turn, node by node, as long as the next one fits.

    Args:
        room: (N, 2) memory and cores to fill on each node; or (N,) memory.
        needs: (S, 2) of a replica; or (S,) memory.
    """
    placed = np.zeros((len(room), len(needs)), dtype=np.int64)
    following = 0
    for n, left in enumerate(room):
        while have_room(needs[following], left, room[n]).all():
            placed[n, following] += 1
            left = left - needs[following]
            following = (following + 1) % len(needs)
    return placed


def free_of(
    nodes: Sequence[Node],
    catalog: Catalog,
    topology: Topology,
    at_first: bool = False,
    without: Container[str] = (),
) -> Floats:
    """(N, 2) cores and memory of nodes that their workers leave to replicas.

    Args:
        at_first: beside all workers that are there then; else beside those that are there for good.
        without: variants whose workers count as replicas.
    """
    rows, workers = [], topology.at_first if at_first else topology.for_good
    for node in nodes:
        mine = (w for w in workers if w.node == node.name and w.variant not in without)
        held = [catalog.variant(w.variant).resources for w in mine]
        cores = node.resources.cpu_cores - sum(r.cpu_cores for r in held)
        rows.append((max(cores, 0.0), node.resources.memory_bytes - sum(r.memory_bytes for r in held)))
    return np.maximum(np.array(rows, dtype=np.float64).reshape(len(nodes), 2), 0.0)


def plain(spec: ServicesSpec, catalog: Catalog) -> list[PlainServiceSpec]:
    """What is offered, variants as plain services: what a replica holds is the variant's resources."""
    found = []
    for service in spec.offered:
        if isinstance(service, ServiceSpec):
            needs = catalog.variant(service.variant).resources
            image_bytes = service.image_bytes or LAYER_BYTES
            service = PlainServiceSpec(
                name=service.variant,
                memory_bytes=(needs.memory_bytes, needs.memory_bytes),
                cpu_cores=(needs.cpu_cores, needs.cpu_cores),
                image_bytes=(image_bytes, image_bytes),
                answer_bytes=service.answer_bytes,
                initial=service.initial,
            )
        found.append(service)
    return found


def answers_of(spec: ServicesSpec, catalog: Catalog) -> Floats:
    """(S,) bytes of an answer of each service."""
    return np.array([each.answer_bytes for each in plain(spec, catalog) for _ in range(each.count or 1)])


def have_answers(spec: ServicesSpec) -> bool:
    """Whether answers of a size are simulated; slots and services of a trace have none."""
    return spec.gateways == "per_site" and not isinstance(spec.requests, TracedRequestsSpec)


def answers_left_out(scenario: "Scenario") -> bool:
    """Whether answers have sizes that are not simulated."""
    spec = scenario.services
    return spec is not None and not have_answers(spec) and bool(answers_of(spec, scenario.catalog).any())


def service_names(spec: ServicesSpec, catalog: Catalog) -> list[str]:
    """(S,) names, counts expanded."""
    return [name for service in plain(spec, catalog) for name in expand(service.name, service.count)]


def ways_to(topology: Topology, clusters: Sequence[str]) -> tuple[Floats, Floats, Floats]:
    """(B, N + 1) one-way delay from clients to each station by their site; least rate on it; deviation."""
    ways = {(way.site, way.cluster): way for way in topology.ways}
    rows = [
        [
            (site.access_delay_s + way.delay_s, min(site.uplink_bps, way.bandwidth_bps), way.deviation_s)
            for way in (ways[site.name, cluster] for cluster in clusters)
        ]
        for site in topology.sites
    ]
    delay, rate, deviation = np.moveaxis(np.array(rows, dtype=np.float64), 2, 0)
    return np.ascontiguousarray(delay), rate, deviation


def site_of(topology: Topology, nodes: Sequence[Node], delay_s: Floats) -> Ints:
    """(N,) the site whose own cluster a node is in, else the nearest one."""
    own = {site.cluster: b for b, site in reversed(list(enumerate(topology.sites)))}
    nearest = delay_s[:, 1:].argmin(axis=0).tolist()
    return np.array(
        [own.get(node.cluster, near) for node, near in zip(nodes, nearest, strict=True)], dtype=np.int64
    )


def _column(offered: Sequence[PlainServiceSpec], name: str) -> Floats:
    """(S,) values, spread evenly over their ranges."""
    parts: list[Floats] = []
    for service in offered:
        low, high = getattr(service, name)
        parts.append(np.linspace(float(low), float(high), service.count or 1))
    return np.concatenate(parts)


def _layers(offered: Sequence[PlainServiceSpec]) -> tuple[Floats, Bools]:
    """(L,) layers: each service's own, then bases; (S, L) who needs which."""
    bases = {service.base: service.base_bytes for service in offered if service.base_bytes > 0}
    own = _column(offered, "image_bytes")
    base_of = [service.base for service in offered for _ in range(service.count or 1)]
    shares = np.array([[base == name for name in bases] for base in base_of]).reshape(own.size, len(bases))
    needs = np.concatenate([np.eye(own.size, dtype=bool), shares.astype(bool)], axis=1)
    return np.concatenate([own, np.array(list(bases.values()))]), needs


def _deviation(spec: ServicesSpec, catalog: Catalog) -> float:
    if spec.service_deviation is not None:
        return spec.service_deviation
    variants = [service.variant for service in spec.offered if isinstance(service, ServiceSpec)]
    return max((catalog.variant(name).profile.deviation for name in variants), default=0.0)
