"""Places in YAML: clusters of nodes, sites, links, workers. Forbidden here: I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from edgewise.model.values import (
    BitsPerSecond,
    Count,
    CountOrFill,
    Index,
    Name,
    NotNegative,
    ResourcesSpec,
    SecondsOrZero,
    Spec,
)

OWN = "own"  # in a link: each site's own cluster
SiteOrAll = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]*)$")]


class NodeSpec(Spec):
    """One machine, or `count` equal ones."""

    name: Name = Field(description="Unique among all nodes; with `count` the nodes are name-0, name-1, …")
    count: Count | None = Field(
        default=None, description="Number of equal nodes; left out: one, called `name`."
    )
    resources: ResourcesSpec = Field(default=ResourcesSpec(), description="What each node has.")
    speed_ops: NotNegative = Field(
        default=0.0,
        description="Operations/s of the whole node, for pipelines and graphs, whose work is in operations.",
    )


class ClusterSpec(Spec):
    """Nodes in one place, or `count` such places."""

    name: Name = Field(
        description="Unique among the clusters; with `count` the clusters are name-0, name-1, …, "
        "and their nodes begin with the cluster's name and a dot."
    )
    count: Count | None = Field(
        default=None, description="Number of equal clusters; left out: one, called `name`."
    )
    tier: Index = Field(description="0 is the access; higher tiers lie further from the clients.")
    nodes: tuple[NodeSpec, ...] = Field(min_length=1, description="Its machines.")


class SiteSpec(Spec):
    """An access site, or `count` equal ones."""

    name: Name = Field(description="Unique among the sites; with `count` the sites are name-0, name-1, …")
    count: Count | None = Field(
        default=None, description="Number of equal sites; left out: one, called `name`."
    )
    cluster: Name | None = Field(
        default=None,
        description="Its own cluster, for links to `own`; site number k of `count` has cluster number k.",
    )
    access_delay_s: SecondsOrZero = Field(
        default=0.0, description="One-way delay from the clients to the site in s."
    )
    uplink_bps: BitsPerSecond = Field(default=100e6, description="Rate of a client's uplink in bits/s.")


def _pair(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("is not a pair; write [one, other]")
    return value


class LinkSpec(Spec):
    """A link, there and back, of equal figures: from a site to a cluster, or between two nodes or clusters.

    For one site and cluster a link of one site goes before one of `*`, and one of a named cluster or of
    `own` before one of `*`.
    """

    site: SiteOrAll | None = Field(
        default=None, description="Name of a site, or '*' for every site; or give `between`."
    )
    cluster: SiteOrAll | None = Field(
        default=None, description="Name of a cluster, 'own' for the site's own one, or '*' for every cluster."
    )
    between: Annotated[tuple[Name, Name], BeforeValidator(_pair)] | None = Field(
        default=None,
        description="Instead: names of two nodes or of two clusters; a cluster twice joins its own nodes.",
    )
    delay_s: SecondsOrZero = Field(default=0.0, description="Mean one-way delay in s.")
    deviation_s: SecondsOrZero = Field(
        default=0.0, description="Standard deviation of the one-way delay in s."
    )
    bandwidth_bps: BitsPerSecond = Field(default=1e9, description="Bandwidth in bits/s of each direction.")
    shared: Literal["each", "both"] = Field(
        default="each", description="'each' direction has the bandwidth; or 'both' share it."
    )
    over: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the cable it runs over: links over one cable share its bandwidth. "
        "'{site}' stands for the site's name.",
    )

    @model_validator(mode="after")
    def _two_ends(self) -> LinkSpec:
        if (self.between is None) == (self.site is None and self.cluster is None):
            raise ValueError("needs either 'site' and 'cluster', or 'between'; give exactly one of them")
        if self.between is not None and self.over is not None:
            raise ValueError("over: links between nodes or clusters share no cable; remove it")
        if self.between is None and (self.site is None or self.cluster is None):
            missing = "site" if self.site is None else "cluster"
            raise ValueError(f"{missing}: is missing; add it, or give 'between' instead")
        return self


class WorkerSpec(Spec):
    """Workers of one variant, on a node or spread over a cluster (first fit)."""

    variant: Name = Field(description="Name of the variant.")
    node: Name | None = Field(default=None, description="Name of the node; or give `cluster`.")
    cluster: Name | None = Field(
        default=None, description="Name of the cluster whose nodes take the workers."
    )
    count: CountOrFill = Field(
        default=1, description="How many, or 'fill' for as many as the resources allow."
    )

    @model_validator(mode="after")
    def _one_place(self) -> WorkerSpec:
        if (self.node is None) == (self.cluster is None):
            raise ValueError("needs either 'node' or 'cluster'; give exactly one of them")
        return self
