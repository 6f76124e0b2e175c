"""Where things run: sites, nodes, clusters in tiers, links, workers."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a cluster."""

    name: str
    cluster: str
    resources: Resources


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
    """

    name: str
    access_delay_s: float = 0.0
    uplink_bps: float = 100e6


@dataclass(frozen=True, slots=True)
class Link:
    """The way from a site to a cluster: one-way delay mean d and deviation σ, bandwidth."""

    site: str
    cluster: str
    delay_s: float
    deviation_s: float = 0.0
    bandwidth_bps: float = 1e9


@dataclass(frozen=True, slots=True)
class Worker:
    """A variant deployed on a node (ASET's w = (v, n))."""

    name: str
    variant: str
    node: str


@dataclass(frozen=True, slots=True)
class Topology:
    """All places and what is deployed on them."""

    sites: tuple[Site, ...]
    clusters: tuple[Cluster, ...]
    links: tuple[Link, ...]
    workers: tuple[Worker, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node of every cluster, in order."""
        return tuple(node for cluster in self.clusters for node in cluster.nodes)
