"""The static world as arrays: what policies, kernels and networks share.

Forbidden here: anything that changes while a run goes on (that is the ledger's and the
measurements' place), and I/O.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.errors import ScenarioError
from edgewise.model.topology import Catalog, Topology, WayTable
from edgewise.model.ways import routes_of

LAWS = ("normal", "exponential")  # of processing delays
CAPACITY, ACCURACY, FIXED, PER_BYTE, LARGEST = range(5)  # rows of `World.real`
TASK, CLUSTER, NODE = range(3)  # of `World.whole`


class Links(NamedTuple):
    """The ways from S sites to C clusters, (S, C) each: one-way delay, its deviation, bandwidth.

    A way that is down has an infinite delay.
    """

    delay_s: Floats
    deviation_s: Floats
    bandwidth_bps: Floats


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """W workers in C clusters, reached from S sites, for K tasks. Arrays are read-only.

    Attributes:
        task: (W,) index into `task_names`.
        accuracy: (W,) accuracy of the worker's model.
        capacity_qps: (W,) C_v.
        largest_bytes: (W,) payload at which capacity is stated.
        fixed_s, per_byte_s, batch_slope, deviation: (W,) the variant's profile.
        max_batch, servers: (W,).
        cluster, node: (W,) indices.
        delay_s, deviation_s, bandwidth_bps: (S, C) one-way delay, its deviation, bandwidth.
        access_delay_s, uplink_bps: (S,).
        distribution: (W,) law of the delay, index into `LAWS`.
        batch_timeout_s: (W,) how long a free worker waits for a batch to fill.
        at_first: (W,) whether the worker is there at the beginning; others may be started.
        start_s: (W,) from its image, or from a node that is back, to a worker's first answer.
        link_bps: (L,) capacities of the links that messages share; none where they do not.
        path: (S, C, K) links of each way there, in order; -1 where it has fewer.
        real, whole: (5, W) and (3, W) the same figures for kernels; LARGEST is D_v at the largest payload.
    """

    worker_names: tuple[str, ...]
    variant_names: tuple[str, ...]
    cluster_names: tuple[str, ...]
    node_names: tuple[str, ...]
    site_names: tuple[str, ...]
    task_names: tuple[str, ...]
    task: Ints
    accuracy: Floats
    capacity_qps: Floats
    largest_bytes: Floats
    fixed_s: Floats
    per_byte_s: Floats
    batch_slope: Floats
    deviation: Floats
    max_batch: Ints
    servers: Ints
    cluster: Ints
    node: Ints
    delay_s: Floats
    deviation_s: Floats
    bandwidth_bps: Floats
    access_delay_s: Floats
    uplink_bps: Floats
    distribution: Ints
    batch_timeout_s: Floats
    link_bps: Floats = field(default_factory=lambda: _floats(()))
    path: Ints = field(default=None)  # type: ignore[arg-type]
    at_first: Bools = field(default=None)  # type: ignore[arg-type]
    start_s: Floats = field(default=None)  # type: ignore[arg-type]
    real: Floats = field(init=False)
    whole: Ints = field(init=False)

    def __post_init__(self) -> None:
        largest_s = self.fixed_s + self.per_byte_s * self.largest_bytes
        real = (self.capacity_qps, self.accuracy, self.fixed_s, self.per_byte_s, largest_s)
        object.__setattr__(self, "real", _floats(real))
        if self.path is None:
            object.__setattr__(self, "path", _ints(np.zeros((*self.delay_s.shape, 0))))
        if self.at_first is None:
            object.__setattr__(self, "at_first", _flags([True] * self.workers))
        if self.start_s is None:
            object.__setattr__(self, "start_s", _floats(np.zeros(self.workers)))
        object.__setattr__(self, "whole", _ints((self.task, self.cluster, self.node)))

    @property
    def links(self) -> Links:
        """The ways as the scenario describes them; read-only."""
        return Links(self.delay_s, self.deviation_s, self.bandwidth_bps)

    @property
    def workers(self) -> int:
        """W, the number of workers."""
        return len(self.worker_names)

    def task_index(self, task: str) -> int:
        """Index of `task`, -1 when no worker implements it."""
        return self.task_names.index(task) if task in self.task_names else -1

    @classmethod
    def build(cls, catalog: Catalog, topology: Topology, sharing: str = "none") -> "World":
        """Lay out a catalog and a topology as arrays.

        Args:
            sharing: whether messages share links: "none", "fifo" or "ps".
        Raises:
            ScenarioError: a worker names something that does not exist, or a link is missing.
        """
        known = {variant.name: variant for variant in catalog.variants}
        known_models = {model.name: model for model in catalog.models}
        nodes = {node.name: i for i, node in enumerate(topology.nodes)}
        try:
            variants = [known[worker.variant] for worker in topology.workers]
            models = [known_models[variant.model] for variant in variants]
            node_index = [nodes[worker.node] for worker in topology.workers]
        except KeyError as error:
            raise ScenarioError(f"topology.workers: unknown variant, model or node: {error}") from error
        clusters = tuple(cluster.name for cluster in topology.clusters)
        tasks = tuple(sorted({model.task for model in catalog.models}))
        cluster_index = [i for i, cluster in enumerate(topology.clusters) for _ in cluster.nodes]
        delay, deviation, bandwidth = link_arrays(topology, clusters)
        profiles = [variant.profile for variant in variants]
        routes = routes_of(topology) if sharing != "none" else None
        return cls(
            worker_names=tuple(worker.name for worker in topology.workers),
            variant_names=tuple(variant.name for variant in variants),
            cluster_names=clusters,
            node_names=tuple(nodes),
            site_names=tuple(site.name for site in topology.sites),
            task_names=tasks,
            task=_ints([tasks.index(model.task) for model in models]),
            accuracy=_floats([model.accuracy for model in models]),
            capacity_qps=_floats([variant.capacity_qps for variant in variants]),
            largest_bytes=_floats([variant.largest_bytes for variant in variants]),
            fixed_s=_floats([profile.fixed_s for profile in profiles]),
            per_byte_s=_floats([profile.per_byte_s for profile in profiles]),
            batch_slope=_floats([profile.batch_slope for profile in profiles]),
            deviation=_floats([profile.deviation for profile in profiles]),
            max_batch=_ints([variant.max_batch for variant in variants]),
            servers=_ints([variant.servers for variant in variants]),
            cluster=_ints([cluster_index[i] for i in node_index]),
            node=_ints(node_index),
            delay_s=delay,
            deviation_s=deviation,
            bandwidth_bps=bandwidth,
            access_delay_s=_floats([site.access_delay_s for site in topology.sites]),
            uplink_bps=_floats([site.uplink_bps for site in topology.sites]),
            distribution=_ints([LAWS.index(profile.distribution) for profile in profiles]),
            batch_timeout_s=_floats([variant.batch_timeout_s for variant in variants]),
            at_first=_flags([worker.at_first for worker in topology.workers]),
            start_s=_floats([variant.start_s for variant in variants]),
            link_bps=_floats(() if routes is None else routes.rate_bps),
            path=_ints(
                np.zeros((*delay.shape, 0))
                if routes is None
                else routes.link[: delay.size].reshape(*delay.shape, -1)
            ),
        )


def link_arrays(topology: Topology, clusters: tuple[str, ...]) -> tuple[Floats, Floats, Floats]:
    """(S, C) delays, deviations and bandwidths; rows in the order of the sites.

    Raises:
        ScenarioError: a link is missing.
    """
    if isinstance(topology.ways, WayTable):
        if (topology.ways.sites, topology.ways.clusters) != (
            tuple(s.name for s in topology.sites),
            clusters,
        ):
            raise ScenarioError("links: their table is of other sites or clusters; build it from these")
        return topology.ways.arrays
    ways = {(way.site, way.cluster): way for way in topology.ways}
    rows = []
    for site in topology.sites:
        for cluster in clusters:
            link = ways.get((site.name, cluster))
            if link is None:
                raise ScenarioError(f"links: no link from site {site.name!r} to cluster {cluster!r}; add one")
            rows.append((link.delay_s, link.deviation_s, link.bandwidth_bps))
    table = np.array(rows, dtype=np.float64).reshape(len(topology.sites), len(clusters), 3)
    return tuple(_floats(table[:, :, i]) for i in range(3))  # type: ignore[return-value]


def _floats(values: object) -> Floats:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def _flags(values: object) -> Bools:
    array = np.array(values, dtype=np.bool_)
    array.setflags(write=False)
    return array


def _ints(values: object) -> Ints:
    array = np.array(values, dtype=np.int64)
    array.setflags(write=False)
    return array
