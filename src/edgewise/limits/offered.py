"""What there is to share out beforehand, and who asks for it: links, workers, nodes' cores for replicas."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.arrays import Floats
from edgewise.limits.balance import Options
from edgewise.limits.load import by_need, drawn
from edgewise.limits.reach import Reach
from edgewise.limits.requests import AskedRequests, requests_of
from edgewise.limits.rooms import NodeRoom
from edgewise.model.scenario import Scenario
from edgewise.model.services import served_by_workers, serving
from edgewise.model.ways import Routes, routes_of

MOST_OPTIONS = 60_000  # beyond them the least load is not sought


@dataclass
class Offer:
    """Resources and options, as they are added.

    Attributes:
        kinds, names, capacity: of each resource: "link" in bits/s, "worker" in queries/s, "node" in cores.
        demand: (J, STEPS) queries per second of each need.
        labels: of each need: its kind of work, its site, and its application or service.
    """

    kinds: list[str]
    names: list[str]
    capacity: list[float]
    demand: list[Floats]
    labels: list[tuple[str, str, str]]
    need: list[int]
    uses: list[tuple[int, int, float]]

    def resource(self, kind: str, name: str, capacity: float) -> int:
        """A new one."""
        self.kinds.append(kind)
        self.names.append(name)
        self.capacity.append(capacity)
        return len(self.names) - 1

    def asks(self, label: tuple[str, str, str], demand: Floats) -> int:
        """A new need."""
        self.labels.append(label)
        self.demand.append(demand)
        return len(self.labels) - 1

    def option(self, need: int, uses: list[tuple[int, float]]) -> None:
        """A new option of a need; what takes nothing of a resource is left out."""
        self.need.append(need)
        self.uses += [(resource, len(self.need) - 1, amount) for resource, amount in uses if amount > 0.0]

    def options(self) -> Options:
        """As arrays."""
        rows = np.array(self.uses, dtype=np.float64).reshape(-1, 3).T
        resource, option = (rows[k].astype(np.int64) for k in (0, 1))
        need = np.array(self.need, dtype=np.int64)
        return Options(need, resource, option, rows[2], np.array(self.capacity))


def offered(scenario: Scenario, reach: Reach | None, rooms: dict[str, NodeRoom]) -> Offer | None:
    """Of streams and of requests; None where there are none, or too many options."""
    found = Offer([], [], [], [], [], [], [])
    if not scenario.topology.sites:
        return None
    routes = routes_of(scenario.topology)
    for name, bps in zip(routes.names, routes.rate_bps.tolist(), strict=True):
        found.resource("link", name, bps)
    if reach is not None:
        if reach.able.size > MOST_OPTIONS:
            return None
        _streams(found, reach, routes)
    asked = requests_of(scenario)
    if asked is not None:
        nodes = sum(len(cluster.nodes) for cluster in scenario.topology.clusters)
        if len(asked.names) * len(scenario.topology.sites) * nodes > MOST_OPTIONS:
            return None
        _services(found, scenario, asked, rooms, routes)
    return found if found.need else None


def _way(
    scenario: Scenario, routes: Routes, site: int, cluster: int, size: float, answer: float
) -> list[tuple[int, float]]:
    """Bits of a query and its answer on each link."""
    clusters = len(scenario.topology.clusters)
    there, count = site * clusters + cluster, len(scenario.topology.sites) * clusters
    rows = ((routes.link[there], size), (routes.link[count + there], answer))
    return [(link, 8.0 * size_bytes) for row, size_bytes in rows for link in row[row >= 0].tolist()]


def _streams(found: Offer, reach: Reach, routes: Routes) -> None:
    start = [found.resource("worker", group.name, group.capacity_qps) for group in reach.groups]
    clusters = {name: c for c, name in enumerate(reach.world.cluster_names)}
    served, demand = reach.served(), by_need(reach, drawn(reach))
    for k, need in enumerate(reach.needs):
        number = found.asks(("streams", reach.world.site_names[need.site], need.of), demand[k])
        for g in np.flatnonzero(served[k]).tolist():
            cluster = clusters[reach.groups[g].cluster]
            way = _way(reach.scenario, routes, need.site, cluster, need.size_bytes, need.answer_bytes)
            found.option(number, [(start[g], float(reach.share[k, g])), *way])


def _services(
    found: Offer, scenario: Scenario, asked: AskedRequests, rooms: dict[str, NodeRoom], routes: Routes
) -> None:
    """Requests take cores for as long as they are served, on any node or in the cloud; or its workers."""
    spec, topology = scenario.served, scenario.topology
    places: dict[str, Any] = {}
    for number, cluster in enumerate(topology.clusters):
        for node in cluster.nodes if cluster.name != spec.cloud else ():
            free = rooms[node.name].free[0]
            if free > 0.0:
                places[node.name] = (number, found.resource("node", node.name, free))
    cloud = [c.name for c in topology.clusters].index(spec.cloud)
    where, by_workers = (
        {node.name: node.cluster for node in topology.nodes},
        served_by_workers(spec, topology),
    )
    nodes = {each.name: each.node for each in topology.workers}
    workers = Counter(
        (each.service, where[nodes[each.name]]) for each in serving(spec, topology, asked.names)
    )
    for s, name in enumerate(asked.names):
        service_s, size, answer = asked.service_s[s], asked.payload_bytes[s], asked.answer_bytes[s]
        options: list[tuple[int, list[tuple[int, float]]]] = []
        if name not in by_workers:
            options = [(cluster, [(resource, asked.core_s[s])]) for cluster, resource in places.values()]
        for number, cluster in enumerate(topology.clusters):
            if count := workers[s, cluster.name]:
                known = _group(found, f"{name} at {cluster.name}", count / service_s)
                options.append((number, [(known, service_s * found.capacity[known] / count)]))
            elif number == cloud:
                options.append((number, []))
        for site in range(len(topology.sites)):
            need = found.asks(("services", topology.sites[site].name, name), asked.demand[site, s])
            for number, takes in options:
                found.option(need, [*takes, *_way(scenario, routes, site, number, size, answer)])


def _group(found: Offer, name: str, capacity_qps: float) -> int:
    """Workers of a variant in a cluster, which streams may have named already."""
    return found.names.index(name) if name in found.names else found.resource("worker", name, capacity_qps)
