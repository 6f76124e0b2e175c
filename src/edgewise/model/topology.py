"""What can be run, and where: models and variants; sites, nodes, links, workers; what changes of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import overload

import numpy as np

from edgewise.arrays import Bools, Floats
from edgewise.model.served import ServedBy

CPU = "CPUExecutionProvider"  # of ONNX Runtime: there wherever it is
KINDS = ("cpu_cores", "memory_bytes", "accelerator_memory_bytes", "storage_bytes")
TOLERANCE = 1e-9  # relative; sums of floats may miss what a node or worker has by rounding


def have_room(need: Floats, free: Floats, total: Floats) -> Bools:
    """Whether so much is free of what there is in all, up to rounding: the ledger's rule, on arrays."""
    return np.asarray(free >= need - TOLERANCE * np.maximum(total, 1.0))


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of each resource kind, all >= 0.

    Attributes:
        cpu_cores: processor cores, fractions allowed.
        memory_bytes: main memory.
        accelerator_memory_bytes: memory of GPUs or TPUs.
        storage_bytes: disk.
    """

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0
    accelerator_memory_bytes: float = 0.0
    storage_bytes: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) >= 0:
                raise ValueError(f"{field.name} must be >= 0, got {getattr(self, field.name)!r}")

    def as_tuple(self) -> tuple[float, ...]:
        """Amounts in the order of `KINDS`."""
        return (self.cpu_cores, self.memory_bytes, self.accelerator_memory_bytes, self.storage_bytes)


@dataclass(frozen=True, slots=True)
class Profile:
    """Processing delay of a variant as measured, linear in payload and batch.

    D(size, batch) = (fixed_s + per_byte_s * size) * (1 + batch_slope * (batch - 1))

    Attributes:
        fixed_s: delay of an empty payload, batch of one.
        per_byte_s: growth with payload.
        batch_slope: growth per further item of a batch; 1 means batching gains nothing.
        deviation: standard deviation of the delay, as a fraction of its mean.
        distribution: law of the delay around its mean: "normal" (truncated at 0) with `deviation`,
            or "exponential", whose deviation is its mean.
        source: "measured on …" or the publication the figures are scaled from.
    """

    fixed_s: float
    per_byte_s: float = 0.0
    batch_slope: float = 1.0
    deviation: float = 0.0
    source: str = ""
    distribution: str = "normal"

    def delay_s(self, size_bytes: float, batch: int = 1) -> float:
        """Mean processing delay of a batch whose largest payload is `size_bytes`."""
        return (self.fixed_s + self.per_byte_s * size_bytes) * (1.0 + self.batch_slope * (batch - 1))


@dataclass(frozen=True, slots=True)
class Model:
    """A trained network for one task; accuracy in the task's own metric (mAP for detection)."""

    name: str
    task: str
    accuracy: float


@dataclass(frozen=True, slots=True)
class Variant:
    """A model made ready for a device (ASET's v): batch size, servers, resources, profile.

    Attributes:
        name: unique in the catalog.
        model: name of its model.
        resources: what one worker of it reserves on its node.
        profile: processing delay.
        capacity_qps: queries/s at its largest input (ASET's C_v).
        largest_bytes: the largest payload it takes; a query's cost relative to it is η.
        max_batch: most queries in one batch.
        batch_timeout_s: a free worker waits this long for a batch to fill; 0 starts at once.
        servers: batches processed at once.
        file: ONNX file of the network, for live workers.
        image_bytes: what a node fetches once before a worker of it starts there.
        start_s: from the last byte of the image to the first answer.
        providers: of ONNX Runtime, for live workers; the first that is there runs what it can.
    """

    name: str
    model: str
    resources: Resources
    profile: Profile
    capacity_qps: float
    largest_bytes: float
    max_batch: int = 1
    servers: int = 1
    file: str | None = None
    batch_timeout_s: float = 0.0
    image_bytes: float = 0.0
    start_s: float = 0.0
    providers: tuple[str, ...] = (CPU,)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All models and variants of a scenario."""

    models: tuple[Model, ...]
    variants: tuple[Variant, ...]

    def model(self, name: str) -> Model:
        """The model called `name`; KeyError when there is none."""
        return {model.name: model for model in self.models}[name]

    def variant(self, name: str) -> Variant:
        """The variant called `name`; KeyError when there is none."""
        return {variant.name: variant for variant in self.variants}[name]


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a cluster.

    Attributes:
        speed_ops: operations per second of a task or a split model's server that has the node to itself
            (ENTS's PS_j); 0 where no work is counted so.
        speed_cores: cores that it takes at that speed.
        cost: in any unit; None where none is said.
    """

    name: str
    cluster: str
    resources: Resources
    speed_ops: float = 0.0
    speed_cores: float = 1.0
    cost: float | None = None


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
    """A variant deployed on a node (ASET's w = (v, n)), or one that may be.

    Attributes:
        at_first: whether it is there at the beginning.
        pool: name of the `Pool` that it belongs to; None: it is there for good.
        served_by: somebody else's server; None: a live system runs one of its own.
    """

    name: str
    variant: str
    node: str
    at_first: bool = True
    pool: str | None = None
    served_by: ServedBy | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers of one variant over some nodes that come and go.

    Attributes:
        name: unique among the pools.
        nodes: names of those that may have some.
        least, most: so many there are always, as far as nodes are there; and at most.
    """

    name: str
    variant: str
    nodes: tuple[str, ...]
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Topology:
    """All places and what is deployed on them.

    Attributes:
        ways: one from every site to every cluster; a `WayTable` is the quick form.
        links: between nodes, and between clusters.
        cables: that ways run over. The figures of a way are those of its cables taken together.
        pools: of workers that come and go.
        unused: names of cables, as they are declared, that nothing runs over.
    """

    sites: tuple[Site, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    ways: Sequence[Way] = ()
    workers: tuple[Worker, ...] = ()
    links: tuple[Link, ...] = ()
    cables: tuple[Cable, ...] = ()
    pools: tuple[Pool, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node of every cluster, in order."""
        return tuple(node for cluster in self.clusters for node in cluster.nodes)

    @property
    def at_first(self) -> tuple[Worker, ...]:
        """Workers that are there at the beginning."""
        return tuple(worker for worker in self.workers if worker.at_first)

    @property
    def for_good(self) -> tuple[Worker, ...]:
        """Workers that never come nor go."""
        return tuple(worker for worker in self.workers if worker.pool is None)


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
