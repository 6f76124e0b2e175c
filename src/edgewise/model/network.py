"""The network that pipelines run on: nodes that compute and forward, undirected links (G of ENTS).

It is a lens on a scenario: its nodes that have a speed, and the links between two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.errors import ScenarioError
from edgewise.model.catalog import Catalog
from edgewise.model.problems import nearest
from edgewise.model.services import free_of
from edgewise.model.topology import Topology

if TYPE_CHECKING:
    from edgewise.model.scenario import Scenario


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes and undirected links; the capacity of a link is shared by both directions.

    Attributes:
        names: N node names, unique.
        speed_ops: (N,) operations per second (PS_j), > 0.
        memory_bytes: (N,) memory (R_max), >= 0.
        ends: (L, 2) node indices of each link.
        bandwidth_bps: (L,) bits per second (B_l), >= 0.

    Raises:
        ScenarioError: shapes differ, a name occurs twice, a link has an unknown end or the ends are equal.
    """

    names: tuple[str, ...]
    speed_ops: Floats
    memory_bytes: Floats
    ends: Ints
    bandwidth_bps: Floats

    def __post_init__(self) -> None:
        count = len(self.names)
        if len(set(self.names)) < count:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ScenarioError(f"network.names: {twice!r} occurs twice; give every node its own name")
        for field in ("speed_ops", "memory_bytes"):
            values = getattr(self, field)
            if values.shape != (count,):
                raise ScenarioError(
                    f"network.{field}: shape {values.shape}; give one value per node ({count})"
                )
        if self.ends.shape != (len(self.bandwidth_bps), 2):
            raise ScenarioError(f"network.ends: shape {self.ends.shape}; give two nodes for every bandwidth")
        if not ((self.ends >= 0) & (self.ends < count)).all() or (self.ends[:, 0] == self.ends[:, 1]).any():
            raise ScenarioError("network.ends: a link must join two different nodes of the network")
        if not (self.speed_ops > 0).all():
            raise ScenarioError(f"network.speed_ops: {self.speed_ops.min():g} is not positive")
        if not (self.bandwidth_bps >= 0).all() or not (self.memory_bytes >= 0).all():
            raise ScenarioError("network: bandwidth_bps and memory_bytes must be >= 0")

    def node(self, name: str) -> int:
        """Index of the node `name`.

        Raises:
            ScenarioError: no node has that name.
        """
        if name not in self.names:
            raise ScenarioError(f"node {name!r} is not in the network; {nearest(name, self.names)}")
        return self.names.index(name)

    def link(self, one: str, other: str) -> int:
        """Index of the link between two nodes, in either order.

        Raises:
            ScenarioError: they are not neighbours.
        """
        wanted = {self.node(one), self.node(other)}
        for i, ends in enumerate(self.ends):
            if {int(ends[0]), int(ends[1])} == wanted:
                return i
        raise ScenarioError(f"no link between {one!r} and {other!r}; add it to network.ends")


def network_of(scenario: Scenario) -> Network:
    """The network that a scenario's pipelines run on, as `network_on` says."""
    return network_on(scenario.topology, scenario.catalog)


def network_on(topology: Topology, catalog: Catalog) -> Network:
    """Nodes that have a speed, with the memory that workers leave, and links between two nodes.

    Links between clusters are for requests, delays of links do not matter to the rate of a stream of frames.

    Raises:
        ScenarioError: no node has a speed, one of them has no memory, or a link cannot be in the network.
    """
    nodes = [node for node in topology.nodes if node.speed_ops > 0]
    if not nodes:
        raise ScenarioError("clusters: no node has speed_ops, in which work of pipelines is counted; add it")
    for node in nodes:
        if not node.resources.memory_bytes > 0:
            raise ScenarioError(
                f"clusters: node {node.name!r} has speed_ops and no memory for tasks; "
                "add resources: {memory_bytes: …}"
            )
    names, known = [node.name for node in nodes], {node.name for node in topology.nodes}
    links = [link for link in topology.links if link.ends[0] in known]
    for link in links:
        where = f"links: between [{', '.join(link.ends)}]"
        if slow := [end for end in link.ends if end not in names]:
            raise ScenarioError(
                f"{where}: node {slow[0]!r} has no speed_ops; add it, flows pass through nodes"
            )
        if not link.shared:
            raise ScenarioError(
                f"{where}: shared is 'each', flows of pipelines take one bandwidth for both directions; "
                "write shared: both"
            )
    over = [name for link in links for name in link.over]
    if twice := next((name for name in over if over.count(name) > 1), None):
        raise ScenarioError(
            f"links: cable {twice!r} carries two links between nodes, whose flows together might exceed it; "
            "lay each over cables of its own"
        )
    return Network(
        tuple(names),
        np.array([node.speed_ops for node in nodes]),
        free_of(nodes, catalog, topology)[:, 1].copy(),
        np.array([[names.index(end) for end in link.ends] for link in links], dtype=np.int64).reshape(-1, 2),
        np.array([link.bandwidth_bps for link in links], dtype=np.float64),
    )
