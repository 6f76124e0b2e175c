"""Where things run: sites, nodes, clusters in tiers, links, workers; and what changes of them in a run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from edgewise.arrays import Floats
from edgewise.model.catalog import Resources


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a cluster.

    Attributes:
        speed_ops: operations per second of the whole node (ENTS's PS_j); 0 where no work is counted so.
    """

    name: str
    cluster: str
    resources: Resources
    speed_ops: float = 0.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes in one place. Tier 0 is the access; higher tiers lie further from the clients."""

    name: str
    tier: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """An access site: where streams enter and a scheduler sits (ASET's s).

    Attributes:
        access_delay_s: one-way delay from the clients to the site (ASET's δ).
        uplink_bps: rate of a client's uplink in bits per second (8 u).
        cluster: name of its own cluster; empty where it has none.
    """

    name: str
    access_delay_s: float = 0.0
    uplink_bps: float = 100e6
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """From a site to a cluster and back: one-way delay mean d and deviation σ, bandwidth of each direction.

    Attributes:
        over: the cables it runs over, from the site on, whose bandwidth it shares with other ways; none: its
            own.
        shared: one bandwidth for both directions together.
        buffer_bytes: what may wait at each end where it runs over no cable.
    """

    site: str
    cluster: str
    delay_s: float
    deviation_s: float = 0.0
    bandwidth_bps: float = 1e9
    over: tuple[str, ...] = ()
    shared: bool = False
    buffer_bytes: float = math.inf


@dataclass(frozen=True, slots=True)
class Cable:
    """What ways run over and share: one link each way, of equal figures.

    Attributes:
        shared: one link for both directions together.
    """

    name: str
    bandwidth_bps: float
    delay_s: float = 0.0
    deviation_s: float = 0.0
    buffer_bytes: float = math.inf
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """Between two nodes, or two clusters, there and back; a cluster twice joins its own nodes.

    Attributes:
        over: the cables it runs over, from the first end on.
    """

    ends: tuple[str, str]
    delay_s: float = 0.0
    deviation_s: float = 0.0
    bandwidth_bps: float = 1e9
    shared: bool = False
    over: tuple[str, ...] = ()


class WayTable(Sequence[Way]):
    """Ways from every site to every cluster as arrays: a million of them cost no million objects.

    Reads as a sequence of `Way`, sites first. Tables are equal when names and figures are.

    Args:
        sites, clusters: names, in the order of rows and columns.
        delay_s, deviation_s, bandwidth_bps: (S, C), kept and made read-only.
    """

    __slots__ = ("bandwidth_bps", "clusters", "delay_s", "deviation_s", "sites")

    def __init__(
        self,
        sites: Sequence[str],
        clusters: Sequence[str],
        delay_s: Floats,
        deviation_s: Floats,
        bandwidth_bps: Floats,
    ) -> None:
        self.sites, self.clusters = tuple(sites), tuple(clusters)
        self.delay_s, self.deviation_s, self.bandwidth_bps = delay_s, deviation_s, bandwidth_bps
        for array in self.arrays:
            if array.shape != (len(self.sites), len(self.clusters)):
                raise ValueError(
                    f"ways need shape {(len(self.sites), len(self.clusters))}, got {array.shape}"
                )
            array.setflags(write=False)

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats]:
        """(S, C) delays, deviations and bandwidths."""
        return self.delay_s, self.deviation_s, self.bandwidth_bps

    def __len__(self) -> int:
        return len(self.sites) * len(self.clusters)

    @overload
    def __getitem__(self, index: int) -> Way: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Way, ...]: ...
    def __getitem__(self, index: int | slice) -> Way | tuple[Way, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        site, cluster = divmod(range(len(self))[index], len(self.clusters))
        delay_s, deviation_s, bandwidth_bps = (float(array[site, cluster]) for array in self.arrays)
        return Way(self.sites[site], self.clusters[cluster], delay_s, deviation_s, bandwidth_bps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WayTable):
            return NotImplemented
        return (self.sites, self.clusters) == (other.sites, other.clusters) and all(
            np.array_equal(mine, theirs) for mine, theirs in zip(self.arrays, other.arrays, strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.sites, self.clusters))

    def __repr__(self) -> str:
        return f"WayTable({len(self.sites)} sites x {len(self.clusters)} clusters)"


@dataclass(frozen=True, slots=True)
class Worker:
    """A variant deployed on a node (ASET's w = (v, n))."""

    name: str
    variant: str
    node: str


@dataclass(frozen=True, slots=True)
class Topology:
    """All places and what is deployed on them.

    Attributes:
        ways: one from every site to every cluster; a `WayTable` is the quick form.
        links: between nodes, and between clusters.
        cables: that ways run over. The figures of a way are those of its cables taken together.
    """

    sites: tuple[Site, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    ways: Sequence[Way] = ()
    workers: tuple[Worker, ...] = ()
    links: tuple[Link, ...] = ()
    cables: tuple[Cable, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node of every cluster, in order."""
        return tuple(node for cluster in self.clusters for node in cluster.nodes)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node, with all its workers, goes down or comes up."""

    at_s: float
    node: str
    up: bool


@dataclass(frozen=True, slots=True)
class LinkChange:
    """The way from a site to a cluster goes down, comes up, or changes; None leaves as it is."""

    at_s: float
    site: str
    cluster: str
    up: bool | None = None
    delay_s: float | None = None
    deviation_s: float | None = None
    bandwidth_bps: float | None = None


Change = NodeChange | LinkChange
