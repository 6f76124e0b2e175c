"""The links of a hub on namespaces, from a topology: those of messages, and those between nodes alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from edgewise.model.topology import Topology
from edgewise.model.ways import Routes, routes_of


@dataclass(frozen=True, slots=True)
class HubLinks:
    """The links of a hub.

    Attributes:
        routes: of messages, over the first of them.
        rate_bps, buffer_bytes: of all.
        between: those that lead from one node to another that it has a link to, in their order.
    """

    routes: Routes
    rate_bps: tuple[float, ...]
    buffer_bytes: tuple[float, ...]
    between: Mapping[tuple[str, str], tuple[int, ...]]


def hub_links(topology: Topology) -> HubLinks:
    """The directed links of cables and ways, then one for each link between nodes that runs over none."""
    routes = routes_of(topology)
    rate_bps, buffer_bytes = routes.rate_bps.tolist(), routes.buffer_bytes.tolist()
    between: dict[tuple[str, str], tuple[int, ...]] = {}
    nodes = {node.name for node in topology.nodes}
    for each in topology.links:
        if each.ends[0] not in nodes:  # between clusters: of messages alone
            continue
        for ends in (each.ends, each.ends[::-1]):
            laid = routes.link[routes.between[ends]].tolist() if each.over else [len(rate_bps)]
            between[ends] = tuple(link for link in laid if link >= 0)
        if not each.over:
            rate_bps.append(each.bandwidth_bps)
            buffer_bytes.append(math.inf)
    return HubLinks(routes, tuple(rate_bps), tuple(buffer_bytes), between)
