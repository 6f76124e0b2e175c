"""A scenario: what can be run, where it runs, and who asks for it.

`parse_scenario` is the only way in: it turns plain data (as YAML gives it) into frozen
dataclasses, or says everything that is wrong with it. Forbidden here: I/O
(`edgewise.config` reads files).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from edgewise.errors import ScenarioError
from edgewise.model.build import (
    build_catalog,
    build_timeline,
    build_topology,
    check_applications,
)
from edgewise.model.deploy import fits
from edgewise.model.dotted import assigned
from edgewise.model.grammar.pipelines import GraphSpec, PipelinesSpec
from edgewise.model.grammar.places import CatalogSpec
from edgewise.model.grammar.scenario import (
    MOVED_POLICIES,
    Library,
    LiveSpec,
    ReservationsSpec,
    ScenarioSpec,
    TelemetrySpec,
    resolve,
)
from edgewise.model.grammar.services import ApplicationSpec, ArrivalsSpec, ServicesSpec
from edgewise.model.pipelines import check_pipelines
from edgewise.model.problems import Problems, explain, listed, shown, unique
from edgewise.model.services import workers_used
from edgewise.model.services_fit import check_services, of_workers, one_cloud
from edgewise.model.sources import Source, build_sources
from edgewise.model.topologies import generate
from edgewise.model.topology import KINDS, Catalog, Change, Resources, Topology, Worker
from edgewise.model.ways import check_shared
from edgewise.model.work import Edge, Jobs, Task, TaskGraph, build_jobs


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """Servers of one power: how many, and operations per second of each."""

    name: str
    servers: int
    power_ops: float


def check_graphs(specs: Sequence[GraphSpec], problems: list[str]) -> None:
    """Names given twice, tensors of unknown operators and cycles are problems."""
    unique("graphs", [spec.name for spec in specs], problems)
    for i, spec in enumerate(specs):
        try:
            graph_of(spec)
        except ValueError as error:
            problems.append(f"graphs[{i}]: {error}; change its tensors")


def check_servers(
    specs: Sequence[GraphSpec], catalog: Catalog, topology: Topology, problems: list[str]
) -> None:
    """Servers of split models that do not fit beside the workers of their nodes are problems."""
    left = {node.name: np.array(node.resources.as_tuple()) for node in topology.nodes}
    for worker in topology.at_first:
        left[worker.node] -= catalog.variant(worker.variant).resources.as_tuple()
    for i, spec in enumerate(specs):
        needs = Resources(spec.cpu_cores, spec.memory_bytes).as_tuple()
        for node in topology.nodes if any(needs) else ():
            if node.speed_ops > 0.0 and not fits(needs, left[node.name].tolist(), node.resources.as_tuple()):
                kind, most = max(zip(KINDS, needs - left[node.name], strict=True), key=lambda each: each[1])
                problems.append(
                    f"graphs[{i}].{kind}: a server of {spec.name!r} does not fit node {node.name!r} beside "
                    f"its workers, by {most:g}; lower it or workers.count, or add resources"
                )
                break
            left[node.name] -= needs if node.speed_ops > 0.0 else 0.0


def graph_of(spec: GraphSpec) -> TaskGraph:
    """The operators and tensors that are written out; none where they are read from a network.

    Raises:
        ValueError: a tensor names an unknown operator, or there is a cycle.
    """
    tasks = tuple(Task(operator.name, operator.work_ops) for operator in spec.operators)
    edges = tuple(Edge(t.source, t.target, t.size_bytes, t.tensor) for t in spec.tensors)
    return TaskGraph(spec.name, tasks, edges)


def server_groups(topology: Topology) -> tuple[ServerGroup, ...]:
    """One group for each cluster whose nodes have a speed.

    Raises:
        ScenarioError: nodes of a cluster differ, or none has a speed.
    """
    groups = []
    for cluster in topology.clusters:
        speeds = {node.speed_ops for node in cluster.nodes}
        if len(speeds) > 1:
            different = ", ".join(f"{speed:g}" for speed in sorted(speeds))
            raise ScenarioError(
                f"cluster {cluster.name!r}: its nodes have speed_ops {different}; "
                "graphs need equal servers in a cluster: put the others in a cluster of their own"
            )
        if speeds != {0.0}:
            groups.append(ServerGroup(cluster.name, len(cluster.nodes), speeds.pop()))
    if not groups:
        raise ScenarioError("clusters: no node has speed_ops, which graphs need; give some nodes a speed")
    return tuple(groups)


def group_links(topology: Topology) -> dict[tuple[str, str], float]:
    """(cluster, cluster) → bits/s of the link between them, or between the nodes of one.

    Raises:
        ScenarioError: a link has a delay, or one rate for each direction.
    """
    found = {}
    clusters = {cluster.name for cluster in topology.clusters}
    for link in [link for link in topology.links if clusters.issuperset(link.ends)]:
        if not link.shared or link.delay_s or link.deviation_s:
            raise ScenarioError(
                f"links: between {' and '.join(link.ends)}: graphs know links without delay and one rate "
                "for both directions; set shared: both, and delay_s and deviation_s to 0"
            )
        found[link.ends] = link.bandwidth_bps
    return found


PATTERNS = {"burst": (20.0, 60.0, 100.0), "steady": (60.0, 40.0, 20.0)}  # clients/min (ASET, section V-B)
PATTERN_STEP_S = 150.0
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


def parse_scenario(data: Any, where: str, library: Library | None = None) -> Scenario:
    """Check plain data and build the scenario it describes.

    Args:
        data: what YAML or JSON gave: a mapping with the keys of `ScenarioSpec`.
        where: file or name, to begin error messages with.
        library: reads the catalogs, applications and graphs that the scenario uses by name.
    Raises:
        ScenarioError: lists every problem with its dotted path, the bad value and the fix.
    """
    return build_scenario(check_scenario(data, where), where, library)


def check_scenario(data: Any, where: str) -> ScenarioSpec:
    """Check the form of plain data, key by key.

    Raises:
        ScenarioError: as `parse_scenario`.
    """
    if not isinstance(data, dict):
        raise ScenarioError(
            f"{where}: {shown(data)} is not a mapping; a scenario has the keys "
            f"{', '.join(ScenarioSpec.model_fields)}"
        )
    try:
        return ScenarioSpec.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(listed(where, explain(error, ScenarioSpec))) from None


def build_scenario(spec: ScenarioSpec, where: str, library: Library | None = None) -> Scenario:
    """Build the scenario of a checked form.

    Raises:
        ScenarioError: lists every name that does not fit, as `parse_scenario`.
    """
    problems: Problems = []
    library = library or Library()
    spec = resolve(spec, library, problems)
    if problems:
        raise ScenarioError(listed(where, problems))
    catalog = (
        build_catalog(spec.catalog, problems) if isinstance(spec.catalog, CatalogSpec) else Catalog((), ())
    )
    if spec.topology is None:
        topology = build_topology(spec, catalog, problems)
    else:
        topology = generate(spec.topology, catalog, library, problems)
    streams = _streams(spec, catalog, topology, problems)
    idle: tuple[Worker, ...] = ()
    if spec.services is not None and not problems:
        services = of_workers(one_cloud(spec.services, topology), topology, problems)
        spec = spec.model_copy(update={"services": services})
    if spec.streams is None and not problems:
        used = workers_used(spec.services, topology)
        idle = tuple(worker for worker in topology.workers if worker not in used)
        there = {worker.pool for worker in used}
        pools = tuple(pool for pool in topology.pools if pool.name in there)
        topology = replace(topology, workers=used, pools=pools)
    if spec.services is not None and not problems:
        check_services(spec.services, catalog, topology, problems)
    begins_at_s = 0.0 if spec.streams is None else spec.streams.begins_at_s
    jobs = None
    if spec.jobs is not None:
        jobs = build_jobs(spec.jobs, spec.duration_s, topology.nodes, problems, begins_at_s)
    check_graphs(spec.graphs or (), problems)
    if not problems:
        check_servers(spec.graphs or (), catalog, topology, problems)
        check_pipelines(spec, catalog, topology, problems)
    timeline: tuple[Change, ...] = ()
    if spec.sharing != "none":
        check_shared(spec, topology, problems)
    if topology.clusters:  # where it has problems of its own, every name would count as unknown
        timeline = build_timeline(spec.timeline, spec.duration_s, topology, problems)
    if problems:
        raise ScenarioError(listed(where, problems))
    return Scenario(
        name=spec.name,
        description=spec.description,
        duration_s=spec.duration_s,
        window_s=spec.window_s,
        telemetry=spec.telemetry,
        retry_refused=spec.retry_refused,
        catalog=catalog,
        topology=topology,
        streams=streams,
        spec=spec,
        holds=spec.holds,
        policies=spec.policies.model_dump(exclude_none=True),
        live=spec.live,
        reservations=spec.reservations,
        timeline=timeline,
        decision_delay_s=spec.decision_delay_s,
        jobs=jobs,
        services=spec.services,
        graphs=spec.graphs or (),
        pipelines=spec.pipelines,
        sharing=spec.sharing,
        idle=idle,
    )


def _streams(spec: ScenarioSpec, catalog: Catalog, topology: Topology, problems: Problems) -> Streams:
    if (of := spec.streams) is None:
        return Streams()
    found, arrivals = of.applications if isinstance(of.applications, tuple) else (), NOBODY_COMES
    if of.arrivals is not None:
        check_applications(found, catalog, problems)
        arrivals = Arrivals(_steps(of.arrivals, spec.duration_s))
    sources = build_sources(of.sources, [each.name for each in found], catalog, topology, problems)
    return Streams(found, arrivals, of.lease_s, of.burst, of.gateways, sources, of.begins_at_s)


def _steps(spec: ArrivalsSpec, duration_s: float) -> tuple[tuple[float, float], ...]:
    if spec.pattern is None:
        return tuple((step.at_s, step.rate) for step in spec.clients_per_min or ())
    rates = PATTERNS[spec.pattern]
    count = math.ceil(duration_s / PATTERN_STEP_S)
    return tuple((k * PATTERN_STEP_S, rates[k % len(rates)]) for k in range(count))


INSTEAD = {
    "streams.arrivals.pattern": "clients_per_min",
    "streams.arrivals.clients_per_min": "pattern",
}


def set_paths(data: Any, settings: Mapping[str, Any], where: str, library: Library) -> Any:
    """Plain data of a scenario with values put at dotted paths.

    Entries of lists are named by number or by their `name`; the only entry of a list needs neither.
    Of `streams.arrivals.pattern` and `streams.arrivals.clients_per_min` the one that is set replaces
    the other.

    Args:
        data: the scenario as YAML gave it; must be correct in form without the settings.
        settings: dotted path → value, as `topology.antennas` or `streams.applications.pool.weight`.
    Raises:
        ScenarioError: the data are wrong, or a path does not exist; names the nearest key.
    """
    for path, value in settings.items():
        spec = check_scenario(data, where)
        problems: list[str] = []
        written = resolve(spec, library, problems).model_dump(mode="json")
        if problems:
            raise ScenarioError(listed(where, problems))
        parts = re.sub(r"\[(\d+)\]", r".\1", path).split(".")
        try:
            data = assigned(data, spec.model_dump(mode="json"), written, parts, value)
        except KeyError as error:
            old = path.removeprefix("services.")
            why = f"is now 'policies.{MOVED_POLICIES[old]}'" if old in MOVED_POLICIES else error.args[0]
            raise ScenarioError(f"{where}: setting {path!r}: {why}") from None
        if path in INSTEAD and value is not None:
            data["streams"]["arrivals"].pop(INSTEAD[path], None)
    return data
