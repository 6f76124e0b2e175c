"""The YAML form of a scenario: every key, its unit, its limits.

These pydantic models are what `edgewise schema` prints. They check one value at a time;
references between parts (a worker's variant, a link's cluster) are checked in
`edgewise.model.build`. Forbidden here: I/O.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from edgewise.model.spec_services import LiveOrchestrationSpec, LiveStreamsSpec
from edgewise.model.spec_topology import TopologySpec
from edgewise.model.values import (
    PLAIN,
    SECONDS,
    BitsPerSecond,
    Bytes,
    Count,
    CountOrFill,
    Index,
    Name,
    NotNegative,
    Positive,
    RateRange,
    ResourcesSpec,
    Seconds,
    SecondsOrZero,
    SecondsRange,
    Spec,
    amount_schema,
    integer,
)


def _plain_to_steps(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [{"at_s": 0.0, "rate": value}]


def _form(value: Any) -> str:
    """Whether a part is written out here or taken from a file."""
    used = "use" in value if isinstance(value, dict) else hasattr(value, "use")
    return "(use)" if used else "(own)"


SiteOrAll = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]*)$")]


class ProfileSpec(Spec):
    """Processing delay: (fixed_s + per_byte_s * size) * (1 + batch_slope * (batch - 1))."""

    fixed_s: Seconds = Field(description="Delay of an empty payload, batch of one, in s.")
    per_byte_s: NotNegative = Field(
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
    def _one_deviation(self) -> ProfileSpec:
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
    capacity_qps: Positive | None = Field(
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
    file: str | None = Field(default=None, description="ONNX file of the network, for live workers.")


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


class NodeSpec(Spec):
    """One machine, or `count` equal ones."""

    name: Name = Field(description="Unique among all nodes; with `count` the nodes are name-0, name-1, …")
    count: Count | None = Field(
        default=None, description="Number of equal nodes; left out: one, called `name`."
    )
    resources: ResourcesSpec = Field(description="What each node has.")


class ClusterSpec(Spec):
    """Nodes in one place."""

    name: Name = Field(description="Unique among the clusters.")
    tier: Index = Field(description="0 is the access; higher tiers lie further from the clients.")
    nodes: tuple[NodeSpec, ...] = Field(min_length=1, description="Its machines.")


class SiteSpec(Spec):
    """An access site, or `count` equal ones."""

    name: Name = Field(description="Unique among the sites; with `count` the sites are name-0, name-1, …")
    count: Count | None = Field(
        default=None, description="Number of equal sites; left out: one, called `name`."
    )
    access_delay_s: SecondsOrZero = Field(
        default=0.0, description="One-way delay from the clients to the site in s."
    )
    uplink_bps: BitsPerSecond = Field(default=100e6, description="Rate of a client's uplink in bits/s.")


class LinkSpec(Spec):
    """The way from a site to a cluster; a link of one site goes before one of `*`."""

    site: SiteOrAll = Field(description="Name of a site, or '*' for every site.")
    cluster: Name = Field(description="Name of a cluster.")
    delay_s: SecondsOrZero = Field(description="Mean one-way delay in s.")
    deviation_s: SecondsOrZero = Field(
        default=0.0, description="Standard deviation of the one-way delay in s."
    )
    bandwidth_bps: BitsPerSecond = Field(default=1e9, description="Bandwidth in bits/s.")


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


class ApplicationSpec(Spec):
    """What clients run: each client opens one stream of one application."""

    name: Name = Field(description="Unique among the applications.")
    task: Name = Field(description="Task it needs; a model must have it.")
    rate_qps: RateRange = Field(description="Queries/s of a stream: x, or drawn from [lowest, highest].")
    size_bytes: Bytes = Field(description="Payload of a query in bytes.")
    deadline_s: SecondsRange = Field(description="Tolerated end-to-end delay in s: x or [lowest, highest].")
    length_s: SecondsRange = Field(description="How long a stream lasts in s: x or [lowest, highest].")
    min_accuracy: NotNegative = Field(
        default=0.0, description="Least accuracy of the model, in the task's metric."
    )
    weight: NotNegative = Field(default=1.0, description="Relative share of the clients who run it.")
    priority: Annotated[int, *integer(-1000)] = Field(default=0, description="Larger is more important.")
    arrivals: Literal["periodic", "poisson"] = Field(
        default="periodic", description="Queries of a stream: evenly spaced frames, or a Poisson process."
    )


class ApplicationsSpec(Spec):
    """A file of applications."""

    applications: tuple[ApplicationSpec, ...] = Field(min_length=1, description="What clients run.")


class ApplicationsUseSpec(Spec):
    """Applications from a file, with those of the same name replaced and others added."""

    use: str = Field(min_length=1, description="'reference', or a file, relative to the scenario's folder.")
    weights: Literal["fitted", "uniform"] = Field(
        default="fitted", description="'fitted': the file's weights; 'uniform': the same for all."
    )
    applications: tuple[ApplicationSpec, ...] = Field(
        default=(), description="Added, or in place of the same name; they keep their weights."
    )


class StepSpec(Spec):
    """From `at_s` on, clients come at `rate`."""

    at_s: SecondsOrZero = Field(description="Start of the step in s; the first one is 0.")
    rate: NotNegative = Field(description="Clients per minute at each site.")


class ArrivalsSpec(Spec):
    """When clients come: a Poisson process at each site."""

    clients_per_min: (
        Annotated[
            tuple[StepSpec, ...],
            BeforeValidator(_plain_to_steps),
            WithJsonSchema(
                {
                    "anyOf": [
                        *amount_schema(PLAIN, zero=True)["anyOf"],
                        {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["at_s", "rate"],
                                "properties": {
                                    "at_s": amount_schema(SECONDS, zero=True)
                                    | {"description": "Start in s."},
                                    "rate": amount_schema(PLAIN, zero=True) | {"description": "Clients/min."},
                                },
                            },
                        },
                    ]
                }
            ),
        ]
        | None
    ) = Field(
        default=None, description="Clients per minute at each site: x, or steps [{at_s, rate}, …] in order."
    )
    pattern: Literal["burst", "steady"] | None = Field(
        default=None,
        description="Instead: 20, 60, 100 ('burst') or 60, 40, 20 ('steady') clients per minute, "
        "150 s each, over and over.",
    )

    @model_validator(mode="after")
    def _steps_in_order(self) -> ArrivalsSpec:
        if (self.clients_per_min is None) == (self.pattern is None):
            raise ValueError("needs either 'clients_per_min' or 'pattern'; give exactly one of them")
        if self.clients_per_min is None:
            return self
        starts = [step.at_s for step in self.clients_per_min]
        if not starts or starts[0] != 0.0:
            raise ValueError("clients_per_min: the first step must start at 0; add {at_s: 0, rate: …}")
        if any(a >= b for a, b in pairwise(starts)):
            raise ValueError(f"clients_per_min: at_s {starts} must increase; put the steps in order")
        return self


class WaySpec(Spec):
    """Which link changes."""

    site: SiteOrAll = Field(description="Name of a site, or '*' for every site.")
    cluster: Name = Field(description="Name of a cluster.")


class ChangeSpec(Spec):
    """A node, a cluster or a link fails, returns or changes."""

    at_s: SecondsOrZero = Field(description="When, in s; before duration_s.")
    node: Name | None = Field(default=None, description="Name of the node; or give `cluster` or `link`.")
    cluster: Name | None = Field(default=None, description="Name of a cluster, all of whose nodes change.")
    link: WaySpec | None = Field(default=None, description="The link that changes.")
    up: bool | None = Field(default=None, description="false: it fails; true: it returns.")
    delay_s: SecondsOrZero | None = Field(
        default=None, description="New mean one-way delay of the link in s."
    )
    deviation_s: SecondsOrZero | None = Field(default=None, description="New deviation of the link in s.")
    bandwidth_bps: BitsPerSecond | None = Field(
        default=None, description="New bandwidth of the link in bits/s."
    )

    @model_validator(mode="after")
    def _one_change(self) -> ChangeSpec:
        if sum(what is not None for what in (self.node, self.cluster, self.link)) != 1:
            raise ValueError("needs one of 'node', 'cluster' and 'link'; give exactly one of them")
        values = [self.delay_s, self.deviation_s, self.bandwidth_bps]
        if self.link is None and (self.up is None or any(value is not None for value in values)):
            raise ValueError("a node or cluster goes up or down; give 'up: true' or 'up: false' only")
        if self.link is not None and self.up is None and all(value is None for value in values):
            raise ValueError("changes nothing; give up, delay_s, deviation_s or bandwidth_bps")
        return self


class TelemetrySpec(Spec):
    """How often and how late measurements reach the policy."""

    period_s: Seconds = Field(default=1.0, description="Time between measurements in s.")
    lag_s: SecondsOrZero = Field(default=0.0, description="Age of a measurement when it arrives, in s.")


class ScenarioSpec(Spec):
    """A scenario: what can be run, where, and who asks for it."""

    name: Name = Field(description="Name of the scenario.")
    description: str = Field(default="", description="What it shows, in a sentence.")
    duration_s: Seconds = Field(description="Duration of a run in s.")
    window_s: Seconds = Field(default=25.0, description="Length of a window in s (ASET's T).")
    retry_refused: bool = Field(default=False, description="Decide refused streams anew at each window.")
    telemetry: TelemetrySpec = Field(default=TelemetrySpec(), description="Measurements of the workers.")
    decision_delay_s: SecondsOrZero = Field(
        default=0.0, description="From a stream's opening until its queries may leave the site, in s."
    )
    catalog: Annotated[
        Annotated[CatalogSpec, Tag("(own)")] | Annotated[CatalogUseSpec, Tag("(use)")], Discriminator(_form)
    ] = Field(description="Models and variants, written out or from a file.")
    topology: TopologySpec | None = Field(
        default=None, description="A generated topology, instead of clusters, sites, links and workers."
    )
    clusters: tuple[ClusterSpec, ...] | None = Field(
        default=None, min_length=1, description="Where workers run."
    )
    sites: tuple[SiteSpec, ...] | None = Field(default=None, min_length=1, description="Where streams enter.")
    links: tuple[LinkSpec, ...] | None = Field(
        default=None, min_length=1, description="From every site to every cluster."
    )
    workers: tuple[WorkerSpec, ...] | None = Field(
        default=None, min_length=1, description="Variants deployed on nodes."
    )
    applications: Annotated[
        Annotated[tuple[ApplicationSpec, ...], Field(min_length=1), Tag("(own)")]
        | Annotated[ApplicationsUseSpec, Tag("(use)")],
        Discriminator(_form),
    ] = Field(description="What clients run, written out or from a file.")
    arrivals: ArrivalsSpec = Field(description="When clients come.")
    timeline: tuple[ChangeSpec, ...] = Field(
        default=(), description="What fails, returns or changes, and when."
    )
    orchestration: LiveOrchestrationSpec | None = Field(
        default=None, description="Live: services whose requests are dispatched and replicas orchestrated."
    )
    streams: LiveStreamsSpec | None = Field(default=None, description="Live: bounds of streams.")

    @model_validator(mode="after")
    def _one_topology(self) -> ScenarioSpec:
        parts = {name: getattr(self, name) for name in ("clusters", "sites", "links", "workers")}
        given = [name for name, part in parts.items() if part is not None]
        missing = [name for name in parts if name not in given]
        if self.topology is not None and given:
            raise ValueError(f"'topology' makes the {', '.join(given)}; remove one or the other")
        if self.topology is None and missing:
            raise ValueError(f"{', '.join(missing)}: missing; add them, or a 'topology'")
        return self
