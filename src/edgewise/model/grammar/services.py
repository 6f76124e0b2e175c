"""Services in YAML: what requests ask for, and the replicas that serve them. Forbidden here: I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from edgewise.model.values import (
    AmountRange,
    Bytes,
    BytesOrZero,
    BytesRange,
    Count,
    Index,
    Name,
    NotNegative,
    Positive,
    RateRange,
    Seconds,
    SecondsOrZero,
    SecondsRange,
    Share,
    Spec,
)

Initial = Annotated[
    Index, Field(description="Replicas at first, each where most memory is free; see `initial_share`.")
]


class ServiceSpec(Spec):
    """A service: a variant whose replicas come and go. It is called by the variant's name."""

    variant: Name = Field(
        description="Name of the variant, and of the service; a worker of it is needed in the cloud."
    )
    deadline_s: Seconds = Field(description="Live: deadline of requests that state none, s.")
    initial: Initial = 1


class PlainServiceSpec(Spec):
    """A service without a model, simulated only; or `count` of them, their values spread over the ranges."""

    name: Name = Field(description="Unique among the services; with `count` they are name-0, name-1, …")
    count: Count | None = Field(default=None, description="Number of services; left out: one, called `name`.")
    memory_bytes: BytesRange = Field(
        description="What a replica holds while it lives, bytes: x or [low, high]."
    )
    cpu_cores: AmountRange = Field(
        description="Cores a request uses while it is worked on: x or [low, high]."
    )
    image_bytes: BytesRange = Field(description="Layers of its own in its image, bytes: x or [low, high].")
    base: Name = Field(default="base", description="Its images share this base layer.")
    base_bytes: BytesOrZero = Field(default=0.0, description="Size of the base layer in bytes.")
    initial: Initial = 1


class RequestsSpec(Spec):
    """Requests to simulate: Poisson arrivals, every site and every service as likely."""

    rate_qps: Positive = Field(description="Requests per second, all sites together.")
    service_s: SecondsRange = Field(description="Time on a replica in s: x, or uniform in [low, high].")
    slack: RateRange = Field(
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
    rate_qps: Positive = Field(description="Requests per second, all sites together.")
    services: Annotated[Count, Field(le=30)] = Field(
        default=30, description="How many of the trace's 30 services, the most frequent first."
    )
    period_s: Seconds = Field(default=100.0, description="Of P1 and P2, s; P3 has half of it.")
    swing: Annotated[NotNegative, Field(lt=1.0)] = Field(
        default=0.5, description="Of P1 to P3: the mean load swings by this share, below 1."
    )
    delay_scale: Positive = Field(
        default=0.1, description="Delay that is required, as a share of how long the trace's task took."
    )
    delay_least_s: Seconds = Field(default=2.0, description="The least delay that is required, s.")
    delay_most_s: Seconds = Field(default=20.0, description="The largest delay that is required, s.")
    slack_least: Positive = Field(
        default=1.5,
        description="Least delay that is required over time on a replica; uniform up to the next.",
    )
    slack_most: Positive = Field(default=3.0, description="Largest delay required over time on a replica.")
    most_cores: Positive = Field(default=1.0, description="No request uses more cores.")
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


def _arrivals(value: Any) -> str:
    traced = "pattern" in value if isinstance(value, dict) else hasattr(value, "pattern")
    return "(traced)" if traced else "(steady)"


AnyRequests = Annotated[
    Annotated[RequestsSpec, Tag("(steady)")] | Annotated[TracedRequestsSpec, Tag("(traced)")],
    Discriminator(_arrivals),
]


def _form(value: Any) -> str:
    written = "variant" in value if isinstance(value, dict) else hasattr(value, "variant")
    return "(variant)" if written else "(plain)"


Offered = Annotated[
    Annotated[ServiceSpec, Tag("(variant)")] | Annotated[PlainServiceSpec, Tag("(plain)")],
    Discriminator(_form),
]


class ServicesSpec(Spec):
    """Services whose requests are dispatched one by one, and whose replicas are orchestrated (KaiS)."""

    cloud: Name = Field(
        description="Cluster whose `workers` serve what nodes cannot; replicas run on all other clusters."
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
    dispatch: str = Field(
        default="deadline-queue", description="Request policy, or a card NAME.json, relative to this file."
    )
    orchestrate: str = Field(
        default="autoscaler", description="Replica policy, or a card NAME.json, relative to this file."
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
