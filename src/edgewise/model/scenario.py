"""A scenario: what can be run, where it runs, and who asks for it.

`edgewise.model.parsing` makes one. Forbidden here: I/O (`edgewise.config` reads files).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from edgewise.model.grammar.pipelines import GraphSpec, PipelinesSpec
from edgewise.model.grammar.scenario import LiveSpec, ReservationsSpec, ScenarioSpec, TelemetrySpec
from edgewise.model.grammar.services import ApplicationSpec, ServicesSpec
from edgewise.model.sources import Source
from edgewise.model.topology import Catalog, Change, Topology, Worker
from edgewise.model.work import Jobs

Application = ApplicationSpec  # what clients run: each opens one stream of one application


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When clients come: a Poisson process at each site whose rate changes in steps.

    Attributes:
        steps: (start in s, clients per minute and site), in order, the first at 0.
    """

    steps: tuple[tuple[float, float], ...]


NOBODY_COMES = Arrivals(((0.0, 0.0),))


@dataclass(frozen=True, slots=True)
class Streams:
    """Clients of a scenario; without applications it holds none.

    Attributes:
        lease_s: live, a stream that is opened by itself and not used for so long is closed.
        burst: live, queries of a stream that may come at once, or those that it declares for 1 s.
        gateways: simulated, "one" that decides for all sites, or one "per_site".
        sources: streams that stay, beside the clients.
        begins_at_s: time of the day at which a run begins.
    """

    applications: tuple[Application, ...] = ()
    arrivals: Arrivals = NOBODY_COMES
    lease_s: float = 600.0
    burst: int = 20
    gateways: str = "per_site"
    sources: tuple[Source, ...] = ()
    begins_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a run needs besides a policy and a seed.

    Attributes:
        duration_s: length of a run.
        window_s: length of a window (ASET's T).
        telemetry: how often and how late measurements arrive, and of what.
        retry_refused: decide refused streams anew at each window.
        spec: what was written, checked, to be written out again, or edited; all else reads the rest.
        holds: the kinds of work in it, in the order of `NEEDS`.
        policies: those that it names, by decision.
        live: what counts in a running system only.
        timeline: changes of nodes and links, in order of time.
        decision_delay_s: from a stream's opening until its queries may leave the site.
        jobs: deferrable jobs; None where it holds none.
        services: what is asked for by requests; None where it holds none.
        graphs: split models, which servers of the topology share.
        pipelines: graphs of tasks through which frames stream; None where it holds none.
        reservations: what flows and images may reserve of links, and tasks of nodes.
        sharing: what messages of streams on one link do to each other: "none", "fifo" or "ps".
        idle: workers that it names and nobody uses, as nothing streams: they are not there and hold nothing.
    """

    name: str
    description: str
    duration_s: float
    window_s: float
    telemetry: TelemetrySpec
    retry_refused: bool
    catalog: Catalog
    topology: Topology
    streams: Streams
    spec: ScenarioSpec
    holds: tuple[str, ...]
    policies: Mapping[str, str]
    live: LiveSpec
    reservations: ReservationsSpec
    timeline: tuple[Change, ...] = ()
    decision_delay_s: float = 0.0
    jobs: Jobs | None = None
    services: ServicesSpec | None = None
    graphs: tuple[GraphSpec, ...] = ()
    pipelines: PipelinesSpec | None = None
    sharing: str = "none"
    idle: tuple[Worker, ...] = ()

    @property
    def served(self) -> ServicesSpec:
        """Its services, of a scenario that is known to have some."""
        assert self.services is not None, "who asks has services"
        return self.services
