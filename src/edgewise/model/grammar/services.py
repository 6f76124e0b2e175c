"""Services in YAML: what requests ask for, and the replicas that serve them. Forbidden here: I/O."""

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, WithJsonSchema, model_validator

from edgewise.model.grammar.sources import ByHour, SourceSpec
from edgewise.model.values import (
    BOUNDS,
    PLAIN,
    Bytes,
    BytesOrZero,
    BytesRange,
    Cores,
    CoresRange,
    Count,
    CountOrZero,
    Name,
    NotNegative,
    PerMinuteOrZero,
    QueriesPerSecond,
    RateRange,
    Seconds,
    SecondsOrZero,
    SecondsRange,
    Share,
    Slack,
    SlackRange,
    Spec,
    amount_schema,
    having,
    integer,
)

Initial = Annotated[
    CountOrZero, Field(description="Replicas at first, each where most memory is free; see `initial_share`.")
]

Answer = Annotated[
    BytesOrZero,
    Field(
        description="Simulated, with a gateway at each site: size of an answer in bytes; 0 takes no time to "
        "send. `edgewise record` writes the mean of what came."
    ),
]


class ServiceSpec(Spec):
    """A service: a variant whose replicas come and go. It is called by the variant's name."""

    variant: Name = Field(
        description="Name of the variant, and of the service; a worker of it is needed in the cloud, unless "
        "that has a pool. Where `workers` has more of it, outside the cloud or in pools, these serve its "
        "requests beside streams, and it has no replicas."
    )
    deadline_s: Seconds = Field(description="Live: deadline of requests that state none, s.")
    image_bytes: Bytes | None = Field(
        default=None,
        description="Simulated: a node pulls so many bytes from the cloud before its first replica starts. "
        "Left out: the model is on every machine, as live.",
    )
    answer_bytes: Answer = 0.0
    initial: Initial = 1


class PlainServiceSpec(Spec):
    """A service without a model, simulated only; or `count` of them, their values spread over the ranges."""

    name: Name = Field(description="Unique among the services; with `count` they are name-0, name-1, …")
    count: Count | None = Field(default=None, description="Number of services; left out: one, called `name`.")
    memory_bytes: BytesRange = Field(
        description="What a replica holds while it lives, bytes: x or [low, high]."
    )
    cpu_cores: CoresRange = Field(description="Cores a request uses while it is worked on: x or [low, high].")
    image_bytes: BytesRange = Field(description="Layers of its own in its image, bytes: x or [low, high].")
    base: Name = Field(default="base", description="Its images share this base layer.")
    base_bytes: BytesOrZero = Field(default=0.0, description="Size of the base layer in bytes.")
    answer_bytes: Answer = 0.0
    initial: Initial = 1


class RequestsSpec(Spec):
    """Requests to simulate: Poisson arrivals, every site and every service as likely."""

    rate_qps: QueriesPerSecond = Field(description="Requests per second, all sites together.")
    by_hour: ByHour = None
    service_s: SecondsRange = Field(description="Time on a replica in s: x, or uniform in [low, high].")
    slack: SlackRange = Field(
        default=(1.5, 4.0), description="Deadline over time on a replica: x, or uniform in [low, high]."
    )
    least_slack_s: SecondsOrZero = Field(
        default=0.0, description="Deadlines leave at least this much more, s."
    )
    memory_share: NotNegative = Field(
        default=0.0, description="Memory in use while working, as a share of what the replica holds."
    )
    payload_bytes: BytesOrZero = Field(default=100e3, description="Payload of a request in bytes.")


class TracedRequestsSpec(Spec):
    """Requests to simulate: a pattern of KaiS, drawn from a model of the Alibaba 2018 trace.

    Replicas then hold the memory and requests use the cores that the trace plans, in place of what `offered`
    says; images, from the lightest service to the heaviest, are those of `offered`.
    """

    pattern: Literal["P1", "P2", "P3", "P4", "P1-P4", "sequences"] = Field(
        description="The sum of arrivals' CPU load rises and falls (P1), or of their memory load (P2), or P1 "
        "twice as fast (P3), or as in the trace (P4); all in a row (P1-P4); clips of P4 of different load "
        "and delays (sequences)."
    )
    rate_qps: QueriesPerSecond = Field(description="Requests per second, all sites together.")
    services: Annotated[Count, Field(le=30)] = Field(
        default=30, description="How many of the trace's 30 services, the most frequent first."
    )
    period_s: Seconds = Field(default=100.0, description="Of P1 and P2, s; P3 has half of it.")
    swing: Annotated[NotNegative, Field(lt=1.0)] = Field(
        default=0.5, description="Of P1 to P3: the mean load swings by this share, below 1."
    )
    delay_scale: Slack = Field(
        default=0.1, description="Delay that is required, as a share of how long the trace's task took."
    )
    delay_least_s: Seconds = Field(default=2.0, description="The least delay that is required, s.")
    delay_most_s: Seconds = Field(default=20.0, description="The largest delay that is required, s.")
    slack_least: Slack = Field(
        default=1.5,
        description="Least delay that is required over time on a replica; uniform up to the next.",
    )
    slack_most: Slack = Field(default=3.0, description="Largest delay required over time on a replica.")
    most_cores: Cores = Field(default=1.0, description="No request uses more cores.")
    memory_bytes_per_share: Bytes = Field(
        default=1e9,
        description="Memory of a replica for each percent of a machine that the trace plans, bytes.",
    )
    memory_in_work: NotNegative = Field(
        default=0.1, description="Memory in use while working, as a share of what the replica holds."
    )
    payload_bytes: BytesOrZero = Field(
        default=250e3,
        description="Mean payload of a request in bytes; uniform in half to one and a half of it.",
    )


class RecordedRequestsSpec(Spec):
    """Requests to simulate: those of a file, as `edgewise record` writes it; the same for every seed."""

    file: str = Field(
        min_length=1,
        description="CSV with columns arrival_s, site, service, deadline_s (from its arrival), service_s "
        "(time on a replica) and payload_bytes, relative to the scenario's folder.",
    )


DrawnRequests = Annotated[
    Annotated[RequestsSpec, Tag("(without)")] | Annotated[TracedRequestsSpec, Tag("(with)")],
    having("pattern"),
]
AnyRequests = Annotated[
    Annotated[DrawnRequests, Tag("(without)")] | Annotated[RecordedRequestsSpec, Tag("(with)")],
    having("file"),
]


Offered = Annotated[
    Annotated[ServiceSpec, Tag("(with)")] | Annotated[PlainServiceSpec, Tag("(without)")],
    having("variant"),
]


class ServicesSpec(Spec):
    """Services whose requests are dispatched one by one, and whose replicas are orchestrated (KaiS)."""

    cloud: Name = Field(
        description="Cluster whose `workers` serve what nodes cannot; replicas run on all other clusters."
    )
    cloud_has: Literal["workers", "pool"] | None = Field(
        default=None,
        description="What requests meet there. 'workers': the named `workers` of their variant, each with "
        "its queue, which streams use, too. 'pool': as many replicas as fit beside workers, simulated only. "
        "Left out: workers for services that are variants, as live, and a pool for plain services; simulated "
        "with `gateways: one`, a pool for all, as KaiS is published.",
    )
    offered: tuple[Offered, ...] = Field(
        min_length=1, description="What requests ask for: variants of the catalog, or plain services."
    )
    requests: AnyRequests | None = Field(
        default=None, description="Simulated: what arrives. Live, clients send it."
    )
    cores_held: Literal["life", "request"] = Field(
        default="request",
        description="Simulated: a replica holds its cores for its 'life', or each 'request' while it is "
        "worked on, as in KaiS.",
    )
    slot_s: Seconds = Field(
        default=0.01,
        description="Time until a request that the policy holds is decided anew, s; simulated, each site "
        "sends one request per slot.",
    )
    frame_s: Seconds = Field(default=25.0, description="Time between orchestrations, s.")
    nodes_per_frame: Count | None = Field(
        default=None,
        description="Nodes on which replicas may change in a frame (KaiS's H); all by default.",
    )
    initial_share: Share | None = Field(
        default=None,
        description="Share of each node's memory that replicas of all services fill at first, in turn; "
        "left out: as `initial` of each service says.",
    )
    start_delay_s: SecondsOrZero = Field(
        default=0.5, description="Simulated: from a pulled image to a ready replica, s."
    )
    service_deviation: NotNegative | None = Field(
        default=None,
        description="Simulated: standard deviation of times on a replica as a fraction of their mean; left "
        "out: the largest of the variants' profiles.",
    )
    gateways: Literal["one", "per_site"] = Field(
        default="per_site",
        description="Simulated: 'per_site': a gateway at each site, as live, sends requests as they come and "
        "knows of replicas and of other sites' requests what `telemetry` tells; 'one', as KaiS is published, "
        "sees all replicas and requests at once and sends one request per site and slot.",
    )
    answers: bool = Field(
        default=True,
        description="Answers travel back, so delays count both ways; false: one way, as KaiS is published.",
    )
    returns_cores: bool = Field(
        default=True,
        description="Simulated: false: nodes never get a request's cores back, as in KaiS's public demo.",
    )
    drops: bool = Field(
        default=True, description="Simulated: false: nothing is dropped; late requests are served."
    )


def _plain_to_steps(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [{"at_s": 0.0, "rate": value}]


class ApplicationSpec(Spec):
    """What clients run: each client opens one stream of one application."""

    name: Name = Field(description="Unique among the applications.")
    task: Name = Field(description="Task it needs; a model must have it.")
    rate_qps: RateRange = Field(description="Queries/s of a stream: x, or drawn from [lowest, highest].")
    size_bytes: Bytes = Field(description="Payload of a query in bytes.")
    answer_bytes: BytesOrZero = Field(
        default=0.0, description="Simulated: size of an answer in bytes; 0 takes no time to send."
    )
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
    rate: PerMinuteOrZero = Field(description="Clients per minute at each site.")


class ArrivalsSpec(Spec):
    """When clients come: a Poisson process at each site."""

    ONE_OF = ("clients_per_min", "pattern")
    clients_per_min: (
        Annotated[
            tuple[StepSpec, ...],
            BeforeValidator(_plain_to_steps),
            WithJsonSchema(
                {
                    "anyOf": [
                        *amount_schema(PLAIN, True, BOUNDS["_per_min"])["anyOf"],
                        {"type": "array", "minItems": 1, "items": StepSpec.model_json_schema()},
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
    def _steps_in_order(self) -> "ArrivalsSpec":
        if self.clients_per_min is None:
            return self
        starts = [step.at_s for step in self.clients_per_min]
        if not starts or starts[0] != 0.0:
            raise ValueError("clients_per_min: the first step must start at 0; add {at_s: 0, rate: …}")
        if any(a >= b for a, b in pairwise(starts)):
            raise ValueError(f"clients_per_min: at_s {starts} must increase; put the steps in order")
        return self


class StreamsSpec(Spec):
    """Streams of queries: what clients run, when they come, sources that stay, what live gateways bound."""

    applications: (
        Annotated[
            Annotated[tuple[ApplicationSpec, ...], Field(min_length=1), Tag("(without)")]
            | Annotated[ApplicationsUseSpec, Tag("(with)")],
            having("use"),
        ]
        | None
    ) = Field(default=None, description="What clients run, written out or from a file.")
    arrivals: ArrivalsSpec | None = Field(default=None, description="When clients come.")
    sources: tuple[SourceSpec, ...] = Field(
        default=(), description="Streams that stay, such as cameras, beside clients or instead of them."
    )
    begins_at_s: SecondsOrZero = Field(
        default=0.0,
        lt=86400.0,
        description="Time of the day at which a run begins, s, for `hours` of sources.",
    )
    lease_s: Seconds = Field(
        default=600.0,
        description="Live: a stream that is opened by itself and not used for so long is closed, s.",
    )
    burst: Count = Field(
        default=20,
        description="Live: queries of a stream that may come at once, or those that it declares for 1 s.",
    )
    gateways: Literal["one", "per_site"] = Field(
        default="per_site",
        description="Simulated: 'per_site': each site's gateway decides by what it has heard, and workers "
        "grant, as live; 'one', as ASET is published, decides for all sites at once.",
    )

    @model_validator(mode="after")
    def _clients_or_sources(self) -> "StreamsSpec":
        if self.applications is None and self.arrivals is None and self.sources:
            return self
        for key in ("applications", "arrivals"):
            if getattr(self, key) is None:
                also = "" if self.sources else ", or 'sources'"
                raise ValueError(f"{key}: is missing; add it{also}")
        return self
