"""The network that streaming jobs run on: nodes that compute and forward, undirected links (G of ENTS)."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.arrays import Floats, Ints
from edgewise.errors import ScenarioError
from edgewise.model.problems import nearest


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
