"""A whole scenario in YAML: places, a catalog, and any mix of work.

Forbidden here: I/O.

What a scenario takes from elsewhere, catalogs, applications, graphs of operators, is read by whoever
implements `Library` (`edgewise.config`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, Tag, model_validator

from edgewise.errors import ScenarioError
from edgewise.model.grammar.generated import AnyTopologySpec, EdgeNetworkSpec
from edgewise.model.grammar.pipelines import GraphSpec, JobsSpec, PipelinesSpec
from edgewise.model.grammar.places import (
    CatalogSpec,
    CatalogUseSpec,
    ClusterSpec,
    LinkSpec,
    ModelSpec,
    SiteOrAll,
    SiteSpec,
    VariantSpec,
    WorkerSpec,
)
from edgewise.model.grammar.services import ApplicationSpec, ApplicationsUseSpec, ServicesSpec, StreamsSpec
from edgewise.model.values import (
    BitsPerSecond,
    Name,
    Seconds,
    SecondsOrZero,
    Spec,
    having,
)

PLACES = ("clusters", "sites", "links", "workers")
NEEDS = {  # places that each kind of work needs
    "streams": ("clusters", "sites", "links", "workers"),
    "services": ("clusters", "sites", "links"),
    "jobs": ("clusters",),
    "graphs": ("clusters",),
    "pipelines": ("clusters",),
}
MOVED = {"applications": "streams.applications", "arrivals": "streams.arrivals", "orchestration": "services"}

MOVED_POLICIES = {"dispatch": "requests", "orchestrate": "orchestrate"}  # that services named themselves
MOVED_BUDGETS = {"streams": "dispatch", "services": "requests", "jobs": "defer"}  # that had one of their own


class WaySpec(Spec):
    """Which link changes."""

    site: SiteOrAll = Field(description="Name of a site or of a kind of site, or '*' for every site.")
    cluster: Name = Field(description="Name of a cluster, or of a kind of cluster.")


class ChangeSpec(Spec):
    """A node, a cluster or a link fails, returns or changes."""

    ONE_OF = ("node", "cluster", "link")
    at_s: SecondsOrZero = Field(description="When, in s; before duration_s.")
    node: Name | None = Field(default=None, description="Name of the node; or give `cluster` or `link`.")
    cluster: Name | None = Field(
        default=None, description="Name of a cluster, or of a kind of cluster, all of whose nodes change."
    )
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
    def _one_change(self) -> "ChangeSpec":
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
    servers: Literal[True] | None = Field(
        default=None,
        description="Splitting hears of its servers so, too, and its plans follow the rates, as live; "
        "otherwise, as published, it knows at once how far each server is, and plans stay.",
    )


class PoliciesSpec(Spec):
    """Who decides where no command says it: a name, file.py:Class, or a card, relative to this file.

    Left out: the usual policy of the decision, the same in simulation and live.
    """

    dispatch: str | None = Field(default=None, description="Of streams.")
    requests: str | None = Field(default=None, description="Of requests of services.")
    split: str | None = Field(default=None, description="Of queries of split models.")
    place: str | None = Field(default=None, description="Of pipelines.")
    orchestrate: str | None = Field(default=None, description="Of replicas of services.")
    defer: str | None = Field(default=None, description="Of deferrable jobs.")


class BudgetsSpec(Spec):
    """Time that a policy has for each answer of a decision, by the clock on the wall; one in shadow, too."""

    dispatch: Seconds = Field(
        default=2.0,
        description="Of streams, s; then the worker of least impedance is taken, until the next window.",
    )
    requests: Seconds = Field(
        default=0.5, description="Dispatch of requests, s; then they go to the cloud, for 10 s."
    )
    split: Seconds = Field(
        default=0.5, description="s; then queries run whole where there is least to do, for 10 s."
    )
    place: Seconds = Field(
        default=30.0, description="s, compiling included; then what runs goes on as it is, for 10 s."
    )
    orchestrate: Seconds = Field(default=5.0, description="s; then nothing comes or goes, for 10 s.")
    defer: Seconds = Field(default=0.5, description="s; then 'fifo' decides, for 10 s.")


BUDGETS_S = BudgetsSpec()


class ReservationsSpec(Spec):
    """What flows of pipelines, and image pulls, reserve of links, and tasks of nodes."""

    capped: bool = Field(
        default=True,
        description="No more than what their pipeline can use of it; false: all that the policy gives, as "
        "published by ENTS.",
    )
    kept: float = Field(
        default=0.1,
        ge=0.0,
        lt=1.0,
        description="Part of each link that no flow and no image pull gets, for messages; 0 as published by "
        "ENTS.",
    )
    cores: Literal["used", "none"] = Field(
        default="used",
        description="Tasks share the cores that other work leaves of their node, and hold what they use; "
        "'none', as published by ENTS: each has the whole node, and holds no cores.",
    )


class LiveSpec(Spec):
    """What counts in a running system only."""

    budgets_s: BudgetsSpec = Field(
        default=BudgetsSpec(),
        description="Time that policies have, by decision; what takes longer is recorded.",
    )
    bodies_bytes: Annotated[float, Field(ge=2**20, le=2**40)] = Field(
        default=256e6,
        description="Bodies of requests that a gateway holds at once, bytes; beyond them it answers 503.",
    )


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
    live: LiveSpec = Field(
        default=LiveSpec(), description="Budgets of policies in a running system, and what it may hold."
    )
    policies: PoliciesSpec = Field(default=PoliciesSpec(), description="Who decides, by decision.")
    catalog: (
        Annotated[
            Annotated[CatalogSpec, Tag("(without)")] | Annotated[CatalogUseSpec, Tag("(with)")],
            having("use"),
        ]
        | None
    ) = Field(default=None, description="Models and variants, written out or from a file.")
    topology: AnyTopologySpec | None = Field(
        default=None, description="A generated topology, instead of clusters, sites, links and workers."
    )
    clusters: tuple[ClusterSpec, ...] | None = Field(
        default=None, min_length=1, description="Where work runs."
    )
    sites: tuple[SiteSpec, ...] | None = Field(
        default=None, min_length=1, description="Where streams and requests enter."
    )
    links: tuple[LinkSpec, ...] | None = Field(
        default=None, min_length=1, description="From every site to every cluster, and between nodes."
    )
    workers: tuple[WorkerSpec, ...] | None = Field(
        default=None, min_length=1, description="Variants deployed on nodes."
    )
    streams: StreamsSpec | None = Field(default=None, description="Clients, each with a stream of queries.")
    services: ServicesSpec | None = Field(
        default=None, description="Services whose requests are dispatched and replicas orchestrated."
    )
    jobs: JobsSpec | None = Field(default=None, description="Deferrable jobs, in what other work leaves.")
    graphs: tuple[GraphSpec, ...] | None = Field(
        default=None,
        min_length=1,
        description="Split models: queries whose operators run on several servers.",
    )
    pipelines: PipelinesSpec | None = Field(
        default=None, description="Graphs of tasks through which frames stream, placed on nodes and links."
    )
    reservations: ReservationsSpec = Field(
        default=ReservationsSpec(), description="What flows and image pulls may reserve of links."
    )
    sharing: Literal["none", "fifo", "ps"] = Field(
        default="none",
        description="What messages on one link do to each other. 'none': nothing, each has the "
        "whole bandwidth, as in edgewise 0.1. 'fifo': they go one after the other. 'ps': all at once, each "
        "with its share. New scenarios should say 'fifo'; one that says nothing is told what that means.",
    )
    timeline: tuple[ChangeSpec, ...] = Field(
        default=(), description="What fails, returns or changes, and when."
    )

    @model_validator(mode="before")
    @classmethod
    def _where_keys_went(cls, data: Any) -> Any:
        for key in MOVED.keys() & data.keys() if isinstance(data, dict) else ():
            raise ValueError(f"{key!r} is now {MOVED[key]!r}; move it there")
        for kind, decision in MOVED_BUDGETS.items() if isinstance(data, dict) else ():
            if isinstance(section := data.get(kind), dict) and "budget_s" in section:
                raise ValueError(f"'{kind}.budget_s' is now 'live.budgets_s.{decision}'; move it there")
        services = data.get("services") if isinstance(data, dict) else None
        for key in MOVED_POLICIES.keys() & services.keys() if isinstance(services, dict) else ():
            raise ValueError(f"'services.{key}' is now 'policies.{MOVED_POLICIES[key]}'; move it there")
        return data

    @model_validator(mode="after")
    def _places_of_its_work(self) -> "ScenarioSpec":
        if not self.holds:
            raise ValueError(f"holds no work; add one of {', '.join(NEEDS)}")
        given = [name for name in PLACES if getattr(self, name) is not None]
        if self.topology is not None and given:
            raise ValueError(f"'topology' makes the {', '.join(given)}; remove one or the other")
        if self.topology is not None:
            given = ["clusters", "links"] if isinstance(self.topology, EdgeNetworkSpec) else list(PLACES)
        for kind in self.holds:
            if missing := [name for name in NEEDS[kind] if name not in given]:
                fix = "add them, or a 'topology'," if self.topology is None else "use another topology"
                raise ValueError(f"{', '.join(missing)}: missing; {fix} for {kind}")
        return self

    @property
    def holds(self) -> tuple[str, ...]:
        """The kinds of work in it, in the order of `NEEDS`."""
        return tuple(kind for kind in NEEDS if getattr(self, kind) is not None)


Named = TypeVar("Named", ModelSpec, VariantSpec, ApplicationSpec)


@dataclass(frozen=True, slots=True)
class Backbone:
    """Nodes and links of an operator's network.

    Attributes:
        nodes: names, unique.
        edges: (node index, node index, length in km).
    """

    nodes: tuple[str, ...]
    edges: tuple[tuple[int, int, float], ...]


class Library:
    """Reads what scenarios name; raises ScenarioError with a reason when it cannot.

    This one is without anything, for scenarios that are complete in themselves.
    """

    def catalog(self, name: str) -> CatalogSpec:
        """The catalog of this name or file."""
        raise ScenarioError(f"catalog {name!r}: not at hand; load the scenario with edgewise.config")

    def applications(self, name: str) -> tuple[ApplicationSpec, ...]:
        """The applications of this name or file."""
        raise ScenarioError(f"applications {name!r}: not at hand; load the scenario with edgewise.config")

    def graph(self, name: str) -> Backbone:
        """The graph of this name."""
        raise ScenarioError(f"graph {name!r}: not at hand; load the scenario with edgewise.config")


def resolve(spec: ScenarioSpec, library: Library, problems: list[str]) -> ScenarioSpec:
    """The scenario with its catalog and applications written out.

    What cannot be found is a problem, and left as it is.
    """
    changed: dict[str, Any] = {}
    try:
        if isinstance(spec.catalog, CatalogUseSpec):
            changed["catalog"] = _catalog(spec.catalog, library)
    except ScenarioError as error:
        problems.append(f"catalog.use: {error}")
    try:
        if spec.streams is not None and isinstance(spec.streams.applications, ApplicationsUseSpec):
            applications = _applications(spec.streams.applications, library)
            changed["streams"] = spec.streams.model_copy(update={"applications": applications})
    except ScenarioError as error:
        problems.append(f"streams.applications.use: {error}")
    return spec.model_copy(update=changed)


def _catalog(use: CatalogUseSpec, library: Library) -> CatalogSpec:
    base = library.catalog(use.use)
    return CatalogSpec(models=_merged(base.models, use.models), variants=_merged(base.variants, use.variants))


def _applications(use: ApplicationsUseSpec, library: Library) -> tuple[ApplicationSpec, ...]:
    base = library.applications(use.use)
    if use.weights == "uniform":
        base = tuple(application.model_copy(update={"weight": 1.0}) for application in base)
    return _merged(base, use.applications)


def _merged(base: Sequence[Named], changes: Sequence[Named]) -> tuple[Named, ...]:
    """`base` with entries of the same name replaced in place, and the others at the end.

    A name twice among the changes stays twice, so that it is found out later.
    """
    new: dict[str, Named] = {change.name: change for change in reversed(changes)}
    replaced = {entry.name for entry in base} & new.keys()
    left: list[Named] = [c for c in changes if c.name not in replaced or c is not new[c.name]]
    merged: list[Named] = [new.get(entry.name, entry) for entry in base]
    return tuple(merged + left)
