"""From what was written to a scenario.

`parse_scenario` is the only way in: it turns plain data (as YAML gives it) into frozen
dataclasses, or says everything that is wrong with it. Forbidden here: I/O
(`edgewise.config` reads files).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from edgewise.errors import ScenarioError
from edgewise.model.build import (
    build_catalog,
    build_timeline,
    build_topology,
    check_applications,
)
from edgewise.model.dotted import assigned
from edgewise.model.grammar.places import CatalogSpec
from edgewise.model.grammar.scenario import MOVED_POLICIES, Library, ScenarioSpec, resolve
from edgewise.model.grammar.services import ArrivalsSpec
from edgewise.model.graphs import check_graphs, check_servers
from edgewise.model.pipelines import check_pipelines
from edgewise.model.problems import Problems, explain, listed, shown
from edgewise.model.scenario import NOBODY_COMES, Arrivals, Scenario, Streams
from edgewise.model.services import workers_used
from edgewise.model.services_fit import check_services, of_workers, one_cloud
from edgewise.model.sources import build_sources
from edgewise.model.topologies import generate
from edgewise.model.topology import Catalog, Change, Topology, Worker
from edgewise.model.ways import check_shared
from edgewise.model.work import build_jobs

PATTERNS = {"burst": (20.0, 60.0, 100.0), "steady": (60.0, 40.0, 20.0)}  # clients/min (ASET, section V-B)
PATTERN_STEP_S = 150.0


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
