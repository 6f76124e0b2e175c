"""What gateways and the controller show of a running system: processes, nodes, streams, replicas, policies.

See `bodies`. A field that is left out is not known there; null says that there is none.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from edgewise.runtime.protocol.bodies import UnixTime, WorkerSeen

Seconds = Annotated[float, Meta(description="seconds since the gateway began")]


class ModelState(Struct):
    """A model in the index of a repository, and why it is not ready."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


# gateways


class StreamShown(Struct):
    """A stream of a gateway, and what became of its queries; an open one ends now."""

    seed: int
    policy: str
    stream: int
    site: str
    application: str
    source: str | None
    task: str
    open_s: Seconds
    close_s: Seconds
    rate_qps: float
    size_bytes: float
    deadline_s: float
    min_accuracy: float
    worker: str | None
    variant: str | None
    cluster: str | None
    reason: str | None
    queries: int
    ok: int
    failed: int
    rejected: int
    excess: int
    delay_mean_s: float | None
    delay_max_s: float | None


class TwoFigures(Struct):
    """A figure of the last decision, by a policy that watches and by the one in use."""

    shadow: float
    in_use: float


class ShadowShown(Struct):
    """What a policy that watches would have done; its name alone, "", where nobody watches."""

    policy: str
    seconds: float | UnsetType = UNSET
    decisions: int | UnsetType = UNSET
    alike: int | UnsetType = UNSET
    items: dict[str, int] | UnsetType = UNSET
    chosen: dict[str, int] | UnsetType = UNSET
    figures: dict[str, TwoFigures] | UnsetType = UNSET
    faults: dict[str, int] | UnsetType = UNSET
    variant: str | UnsetType = UNSET


class ReplicaShown(Struct):
    """A replica as a gateway has it; `held` are its requests there."""

    service: str
    up: bool
    wanted: bool
    held: int


class ReplicasShown(Struct):
    """Totals of services at a gateway by what became of requests, and their replicas."""

    policy: str
    fault: str | None
    faults: dict[str, int]
    cloud_delay_s: float
    services: dict[str, dict[str, int]]
    replicas: dict[str, ReplicaShown]


# the controller


class Amounts(Struct):
    """Of what a node has."""

    cpu_cores: float
    memory_bytes: float
    accelerator_memory_bytes: float


class HolderShown(Amounts):
    """Who holds something of a node; `decision` is null where nobody decided it."""

    owner: str
    decision: str | None
    priority: float


class NodeShown(Struct):
    """A node in the ledger."""

    node: str
    up: bool
    total: Amounts
    held: Amounts
    holders: list[HolderShown]


class LinkShown(Struct):
    """A link between two nodes: what flows reserve of it, and what they carry."""

    ends: list[str]
    up: bool
    bandwidth_bps: float
    reserved_bps: float
    carried_bps: float


class FaultsShown(Struct):
    """How often a policy failed since it decides, and the last time."""

    times: int
    at_s: UnixTime
    process: str
    kind: str
    why: str
    instead: str


class PolicyShown(Struct):
    """Who decides, who watches, and why a policy is not followed.

    `available` is said of one decision alone, `decisions` and `alike`, of who watches, in the status alone.
    """

    decision: str
    policy: str
    shadow: str | None
    fault: str | None
    faults: FaultsShown | None
    available: list[str] | UnsetType = UNSET
    decisions: int | UnsetType | None = UNSET
    alike: int | UnsetType | None = UNSET


class ShadowAtGateway(Struct):
    """What a policy that watches would have done at a gateway, or in the controller."""

    gateway: str
    answer: ShadowShown


class ProcessShown(Struct):
    """A process that is wanted or runs, of replicas with their service, of workers as gateways see them."""

    name: str
    kind: str
    url: str
    wanted: bool
    outdated: bool
    failures: int
    why: str | None
    state: str
    restarts: int
    since_s: float | None
    handle: str | None
    service: str | UnsetType = UNSET
    node: str | UnsetType = UNSET
    held: int | UnsetType = UNSET
    gateways: dict[str, WorkerSeen] | UnsetType = UNSET


class ServiceShown(Struct):
    """Replicas of a service by node and state, and its requests by what became of them."""

    service: str
    nodes: dict[str, dict[str, int]]
    requests: dict[str, int]


class OrchestrationShown(Struct):
    """All services."""

    services: list[ServiceShown]


class FieldShown(Struct):
    """A value that a change replaces; null where there is none."""

    name: str
    before: Any
    after: Any


class DeedShown(Struct):
    """One thing that a change does."""

    deed: str
    kind: str
    name: str
    fields: list[FieldShown]


class ChangeShown(Struct):
    """State of the latest change, why it failed, and what it does."""

    state: str
    why: str
    difference: list[DeedShown]


class StatusShown(Struct):
    """A system at a glance; jobs and pipelines by state, `store` says what is wrong with it."""

    policies: list[PolicyShown]
    processes: list[ProcessShown]
    streams_open: int
    jobs: dict[str, int]
    pipelines: dict[str, int]
    orchestration: OrchestrationShown | None
    nodes: list[NodeShown]
    change: ChangeShown
    store: str


class StreamRow(Struct):
    """A stream that is or was open at a gateway: its needs, and what became of it as far as that is kept."""

    stream: int
    gateway: str
    opened_s: UnixTime
    closed_s: UnixTime | None
    worker: str | None
    task: str
    rate_qps: float
    size_bytes: float
    deadline_s: float
    min_accuracy: float | UnsetType = UNSET
    application: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    site: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    queries: int | UnsetType = UNSET
    ok: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    rejected: int | UnsetType = UNSET
    excess: int | UnsetType = UNSET
    answered: int | UnsetType = UNSET
    delay_mean_s: float | UnsetType | None = UNSET
    delay_max_s: float | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET
    variant: str | UnsetType | None = UNSET
    cluster: str | UnsetType | None = UNSET


class FlowShown(Struct):
    """A flow of a pipeline between two nodes; `path` has the nodes at the ends of each link."""

    edge: str
    path: list[list[str]]
    planned_bps: float
    allowed_bps: float
    measured_bps: float


class RatesShown(Struct):
    """What a pipeline and its flows did in the last seconds, beside what was planned."""

    name: str
    nodes: dict[str, str]
    planned_fps: float
    measured_fps: float
    busy_s: dict[str, float]
    flows: list[FlowShown]


SHOWN_BODIES = (
    ModelState,
    StreamShown,
    ShadowShown,
    ReplicasShown,
    NodeShown,
    LinkShown,
    PolicyShown,
    ShadowAtGateway,
    ProcessShown,
    StatusShown,
    StreamRow,
    RatesShown,
)
"""All that a document may name beside `bodies.SAID`, and beside what these are made of."""
