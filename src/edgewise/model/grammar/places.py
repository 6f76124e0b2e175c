"""Places in YAML, and what runs there: the catalog, clusters of nodes, sites, links, workers.

Forbidden here: I/O.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from edgewise.model.topology import CPU
from edgewise.model.values import (
    BitsPerSecond,
    Bytes,
    BytesOrZero,
    Cores,
    Cost,
    Count,
    CountOrFill,
    CountOrZero,
    Index,
    Name,
    NotNegative,
    OperationsOrZero,
    QueriesPerSecond,
    ResourcesSpec,
    Seconds,
    SecondsOrZero,
    Spec,
    integer,
)

# Execution providers that need an accelerator: a variant with no other one must reserve memory of one.
ON_ACCELERATORS = {
    f"{name}ExecutionProvider"
    for name in ("CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX", "CANN", "Dml", "QNN", "Rknpu")
}
Provider = Annotated[str, Field(pattern=r"^[A-Za-z]+ExecutionProvider$")]


class ProfileSpec(Spec):
    """Processing delay: (fixed_s + per_byte_s * size) * (1 + batch_slope * (batch - 1))."""

    fixed_s: Seconds = Field(description="Delay of an empty payload, batch of one, in s.")
    per_byte_s: SecondsOrZero = Field(
        default=0.0, description="Growth of the delay with the payload in s/byte."
    )
    batch_slope: NotNegative = Field(
        default=1.0,
        description="Growth per further item of a batch, as a fraction; 1 means batching gains nothing.",
    )
    deviation: NotNegative = Field(
        default=0.0, description="Standard deviation of the delay as a fraction of its mean."
    )
    distribution: Literal["normal", "exponential"] = Field(
        default="normal",
        description="Law of the delay: 'normal' (cut off at 0) or 'exponential' (its deviation is its mean).",
    )
    source: str = Field(
        default="", description="'measured on …', or the publication the figures are scaled from."
    )

    @model_validator(mode="after")
    def _one_deviation(self) -> "ProfileSpec":
        if self.distribution == "exponential" and self.deviation not in (0.0, 1.0):
            raise ValueError(
                f"deviation {self.deviation:g} contradicts distribution 'exponential', whose deviation is 1; "
                "remove deviation or use 'normal'"
            )
        return self


class ModelSpec(Spec):
    """A trained network for one task."""

    name: Name = Field(description="Unique among the models.")
    task: Name = Field(description="What it does; applications ask for a task.")
    accuracy: NotNegative = Field(description="Accuracy in the task's metric (mAP in % for detection).")


class VariantSpec(Spec):
    """A model made ready for a device."""

    name: Name = Field(description="Unique among the variants.")
    model: Name = Field(description="Name of its model.")
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What one worker reserves on its node."
    )
    profile: ProfileSpec = Field(description="Processing delay.")
    capacity_qps: QueriesPerSecond | None = Field(
        default=None,
        description="Queries/s at its largest payload; when left out, what full batches give.",
    )
    largest_bytes: Bytes = Field(description="Largest payload in bytes, at which capacity is stated.")
    max_batch: Count = Field(default=1, description="Most queries in one batch.")
    batch_timeout_s: SecondsOrZero = Field(
        default=0.0,
        description="How long a free worker waits for a batch to fill, in s; 0 starts at once.",
    )
    servers: Count = Field(default=1, description="Batches processed at once.")
    file: str | None = Field(
        default=None,
        description="ONNX file of the network, for live workers; relative to the folder of this file.",
    )
    image_bytes: BytesOrZero = Field(
        default=0.0,
        description="What a node fetches once before the first worker of it starts there, in bytes.",
    )
    start_s: SecondsOrZero = Field(
        default=0.0, description="From the last byte of the image to the first answer of a new worker, in s."
    )
    providers: tuple[Provider, ...] | None = Field(
        default=None,
        min_length=1,
        description="Execution providers of ONNX Runtime for live workers: the first that is there runs what "
        "it can, those that are not there are left out; when left out, the CPU's.",
    )

    @model_validator(mode="after")
    def _has_what_it_runs_on(self) -> "VariantSpec":
        providers = self.providers or (CPU,)
        if set(providers) <= ON_ACCELERATORS and self.resources.accelerator_memory_bytes == 0.0:
            raise ValueError(
                f"providers: {', '.join(providers)} run on accelerators, and none is reserved, so any "
                f"node would do; write resources: {{accelerator_memory_bytes: …}}, or add {CPU}"
            )
        return self


class CatalogSpec(Spec):
    """All models and variants."""

    models: tuple[ModelSpec, ...] = Field(min_length=1, description="Trained networks.")
    variants: tuple[VariantSpec, ...] = Field(min_length=1, description="Models made ready for devices.")


class CatalogUseSpec(Spec):
    """A catalog from a file, with models and variants of the same name replaced and others added."""

    use: str = Field(
        min_length=1, description="Name of a shipped catalog, or a file, relative to the scenario's folder."
    )
    models: tuple[ModelSpec, ...] = Field(default=(), description="Added, or in place of the same name.")
    variants: tuple[VariantSpec, ...] = Field(default=(), description="Added, or in place of the same name.")


OWN = "own"  # in a link: each site's own cluster
SITE = "{site}"  # in the name of a cable: the site's name
SiteOrAll = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]*)$")]


class NodeSpec(Spec):
    """One machine, or `count` equal ones."""

    name: Name = Field(description="Unique among all nodes; with `count` the nodes are name-0, name-1, …")
    count: Count | None = Field(
        default=None, description="Number of equal nodes; left out: one, called `name`."
    )
    resources: ResourcesSpec = Field(default=ResourcesSpec(), description="What each node has.")
    speed_ops: OperationsOrZero = Field(
        default=0.0,
        description="Operations/s of a task of a pipeline, or of a split model's server, alone on the node; "
        "their work is in operations.",
    )
    speed_cores: Cores = Field(default=1.0, description="Cores that one takes at that speed.")
    cost: Cost | None = Field(
        default=None, description="What each node costs, in any unit; `edgewise size` adds it up."
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
        description="Its own cluster, for links to `own`; of a kind of cluster, site number k of `count` has "
        "number k.",
    )
    access_delay_s: SecondsOrZero = Field(
        default=0.0, description="One-way delay from the clients to the site in s."
    )
    uplink_bps: BitsPerSecond = Field(default=100e6, description="Rate of a client's uplink in bits/s.")


def _pair(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("is not a pair; write [one, other]")
    return value


def _cables(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Cable = Annotated[str, Field(pattern=r"^[A-Za-z0-9{][A-Za-z0-9._{}-]*$")]
AGAINST = "-"  # before the name of a cable that is taken from its far end
Laid = Annotated[str, Field(pattern=r"^-?[A-Za-z0-9{][A-Za-z0-9._{}-]*$")]


Cables = Annotated[
    tuple[Laid, ...],
    Field(min_length=1),
    BeforeValidator(_cables),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
    ),
]


class LinkSpec(Spec):
    """A link, there and back, of equal figures: from a site to a cluster, or between two nodes or clusters.

    Or a cable that such links run over. For one site and cluster the link that names them most closely
    counts: a site goes before a kind of them, and that before `*`; a cluster before `own`, that before a kind
    of them, and that before `*`.
    """

    site: SiteOrAll | None = Field(
        default=None,
        description="Name of a site or of a kind of them, or '*' for every one; or give `between` or `name`.",
    )
    cluster: SiteOrAll | None = Field(
        default=None,
        description="Name of a cluster or of a kind of them, 'own' for the site's own one, or '*' for all.",
    )
    between: Annotated[tuple[Name, Name], BeforeValidator(_pair)] | None = Field(
        default=None,
        description="Instead: names of two nodes, or of two clusters or kinds of them; a cluster twice, or a "
        "kind twice, joins the nodes of each.",
    )
    name: Cable | None = Field(
        default=None,
        description="Instead: name of a cable that other links run `over`. With '{site}' in it, which stands "
        "for the site's name, every site has one of its own.",
    )
    delay_s: SecondsOrZero = Field(
        default=0.0, description="Mean one-way delay in s, beside that of the cables it runs over."
    )
    deviation_s: SecondsOrZero = Field(
        default=0.0, description="Standard deviation of the one-way delay in s."
    )
    bandwidth_bps: BitsPerSecond = Field(
        default=1e9,
        description="Bandwidth in bits/s of each direction; over cables, it is the least of theirs.",
    )
    shared: Literal["each", "both"] = Field(
        default="each", description="'each' direction has the bandwidth; or 'both' share it."
    )
    over: Cables | None = Field(
        default=None,
        description="Names of the cables it runs over, from the site, or from the first of two ends, on: "
        "links over one cable share its bandwidth. '{site}' stands for the site's name. Each is the `name` "
        "of a link; with '-' before it, the cable is taken from its far end, as the other way round a ring.",
    )
    buffer_bytes: Bytes | None = Field(
        default=None,
        description="With `sharing`, what a direction may still have to send when a message comes; above it "
        "the message is dropped. Left out: no bound.",
    )

    @model_validator(mode="after")
    def _two_ends(self) -> "LinkSpec":
        given = [self.between is not None, self.name is not None, (self.site or self.cluster) is not None]
        if sum(given) != 1:
            raise ValueError(
                "needs either 'site' and 'cluster', or 'between', or 'name'; give exactly one of them"
            )
        if self.name is not None and self.over is not None:
            raise ValueError("over: a cable runs over no other cables; remove it")
        if given[2] and (self.site is None or self.cluster is None):
            missing = "site" if self.site is None else "cluster"
            raise ValueError(f"{missing}: is missing; add it, or give 'between' instead")
        return self


LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


class ServedBySpec(Spec):
    """Servers of the Open Inference Protocol that somebody else runs, and that a live system uses as workers.

    Each pod is one worker. Simulation has workers as any; what they do and take, the variant says.
    """

    ONE_OF = ("selector", "url")
    selector: (
        dict[
            Annotated[str, Field(pattern=rf"^({LABEL}/)?{LABEL}$")],
            Annotated[str, Field(pattern=rf"^({LABEL})?$", max_length=63)],
        ]
        | None
    ) = Field(
        default=None,
        description="Labels of their pods on Kubernetes: names and values. Pods on nodes of the worker's "
        "cluster count.",
    )
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] | None = Field(
        default=None, description="Namespace of these pods. Left out: that of the live system."
    )
    port: Annotated[int, *integer(1, most=65535)] = Field(
        default=8080, description="Port at which these pods answer."
    )
    url: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+(/[^?#@\s]*)?$")] | None = Field(
        default=None, description="Instead: address of one server, as http://10.0.0.7:8080."
    )
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Name of the model there. Left out: that of the variant."
    )

    @model_validator(mode="after")
    def _of_one(self) -> "ServedBySpec":
        if self.selector == {}:
            raise ValueError("selector: {} are all pods there are; name a label")
        if self.url is not None and self.namespace is not None:
            raise ValueError("namespace: is of pods, which have a selector; leave it or url out")
        return self


class WorkerSpec(Spec):
    """Workers of one variant, on a node, over those of a cluster (first fit), or on each of a kind of it.

    With `least` or `most` they come and go, as the decision `orchestrate` says.
    """

    ONE_OF = ("node", "cluster")
    variant: Name = Field(description="Name of the variant.")
    node: Name | None = Field(default=None, description="Name of the node; or give `cluster`.")
    cluster: Name | None = Field(
        default=None,
        description="Name of the cluster whose nodes take the workers, or of a kind of it, whose every node "
        "takes as many.",
    )
    count: CountOrFill = Field(
        default=1, description="How many, or 'fill' for as many as the resources allow."
    )
    least: CountOrZero | None = Field(
        default=None,
        description="Workers come and go, and there are never fewer on the node, or in the cluster (each of "
        "a kind). Left out beside `most`: 1.",
    )
    most: Count | None = Field(
        default=None,
        description="Workers come and go, and there are never more. Left out beside `least`: as many as fit.",
    )

    served_by: ServedBySpec | None = Field(
        default=None, description="Servers that somebody else runs. Left out: a live system runs its own."
    )

    @property
    def scales(self) -> bool:
        """Whether they come and go."""
        return self.least is not None or self.most is not None

    @model_validator(mode="after")
    def _between(self) -> "WorkerSpec":
        if self.served_by is not None and self.scales:
            raise ValueError("served_by: whoever runs them says how many there are; leave least and most out")
        if self.served_by is not None and self.served_by.url is not None and self.count != 1:
            raise ValueError("served_by: one address is one worker; leave count out, or give a selector")
        if not self.scales:
            return self
        if self.count == "fill":
            raise ValueError("count: 'fill' workers are there for good; give a number beside least and most")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(f"least: {self.least} is more than most, {self.most}; give less")
        return self
