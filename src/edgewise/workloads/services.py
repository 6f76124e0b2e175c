"""Services of a scenario to be simulated: what the engine of slots can do with it, and what arrives.

Requests come Poisson at every site and for every service, steadily or by the hour of the day, as in a trace
(`workloads.requests`), or as they were recorded.
Every draw is a hash of (seed, purpose, number of the request), so a seed's requests are the same under
every policy.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.keyed import Purpose, uniforms_of
from edgewise.core.orchestrate import Requests
from edgewise.errors import ScenarioError
from edgewise.model.grammar.services import (
    RecordedRequestsSpec,
    RequestsSpec,
    ServicesSpec,
    TracedRequestsSpec,
)
from edgewise.model.orchestration import System
from edgewise.model.scenario import Scenario
from edgewise.model.services import (
    Services,
    answers_of,
    first_replicas,
    have_answers,
    service_names,
    serving,
    spread,
)
from edgewise.model.services_simulated import system_in_slots
from edgewise.model.topology import Resources
from edgewise.model.values import most_of
from edgewise.workloads.hours import at_hours, evenly_s
from edgewise.workloads.requests import first_services, generate, pattern_of, service_needs

Draw = Callable[[Sequence[int]], Requests]


class SimulatedServices(NamedTuple):
    """What is simulated.

    Attributes:
        spec: the scenario's `services`.
        system: sites, nodes, services.
        draw: worlds of what arrives, one for each seed.
        slots: length of a run, whole frames.
    """

    spec: ServicesSpec
    system: System
    draw: Draw
    slots: int

    @property
    def horizon_s(self) -> float:
        """Length of a run, s."""
        return self.slots * self.system.slot_s


def simulated_services(scenario: Scenario) -> SimulatedServices:
    """The services of a scenario, to be simulated.

    Raises:
        ScenarioError: see `system_in_slots`.
    """
    (system, slots), spec = system_in_slots(scenario), scenario.served
    if isinstance(spec.requests, TracedRequestsSpec):
        return _traced(spec, spec.requests, system, slots)
    if isinstance(spec.requests, RecordedRequestsSpec):
        seen = recorded(Path(spec.requests.file), scenario, system)
        return SimulatedServices(
            spec, system, lambda seeds: Requests._make(np.repeat(x, len(seeds), 0) for x in seen), slots
        )
    assert spec.requests is not None  # else there is a problem
    asked, horizon_s = spec.requests, slots * system.slot_s
    begins_at_s = scenario.streams.begins_at_s
    return SimulatedServices(
        spec, system, lambda seeds: steady(asked, system, seeds, horizon_s, begins_at_s), slots
    )


PROFILED = 2**31 - 1  # the seed of the requests by which services are known beforehand; nobody runs it


def services_at_sites(scenario: Scenario, given: SimulatedServices) -> Services:
    """Services as the cores of sites know them."""
    spec, topology, names = given.spec, scenario.topology, names_of(scenario, given.spec)
    clusters = [cluster.name for cluster in topology.clusters]
    nodes = [node for node in topology.nodes if node.cluster != spec.cloud]
    seen, system = given.draw([PROFILED]), given.system
    number, took_s = np.bincount(seen.service[0], minlength=system.services), seen.service_s()
    deadline_s, service_s = (
        np.bincount(seen.service[0], values[0], system.services) / np.maximum(number, 1)
        for values in (seen.deadline_s - seen.arrival_s, took_s)
    )
    of_each = [took_s[0][seen.service[0] == s] for s in range(system.services)]
    return Services(
        spec=spec,
        system=system,
        names=tuple(names),
        nodes=tuple(node.name for node in nodes),
        clusters=tuple(clusters.index(name) for name in [spec.cloud, *(node.cluster for node in nodes)]),
        workers=serving(spec, topology, names),
        holds=tuple(map(Resources, system.service_cpu_cores.tolist(), system.service_memory_bytes.tolist())),
        service_s=service_s,
        least_s=np.array([np.quantile(each, 0.1) if each.size else 0.0 for each in of_each]),
        deadline_s=deadline_s,
        answer_bytes=answers_of(spec, scenario.catalog) if have_answers(spec) else np.zeros(system.services),
    )


def names_of(scenario: Scenario, spec: ServicesSpec) -> list[str]:
    """(S,) names of the services that are simulated."""
    if isinstance(spec.requests, TracedRequestsSpec):  # those of the trace
        return [f"service-{s}" for s in range(spec.requests.services)]
    return service_names(spec, scenario.catalog)


def _traced(spec: ServicesSpec, asked: TracedRequestsSpec, system: System, slots: int) -> SimulatedServices:
    """The trace's services in place of those offered, whose images they have, the lightest first."""
    model, what = first_services(asked.services), pattern_of(asked, system.sites, slots * system.slot_s)
    cores, memory_bytes = service_needs(what, model)
    images = np.argsort(np.argsort(memory_bytes)) * system.services // memory_bytes.size
    for_life = cores if spec.cores_held == "life" else np.zeros_like(cores)
    held = np.stack([memory_bytes, for_life], axis=1)
    free = system.node_has
    if spec.initial_share is None:
        initial = first_replicas([1] * memory_bytes.size, held, free)
    else:
        initial = spread(free * spec.initial_share, held)
    system = system._replace(
        service_memory_bytes=memory_bytes,
        service_cpu_cores=cores,
        replica_cpu_cores=for_life,
        needs_layer=system.needs_layer[images],
        initial=initial,
    )
    return SimulatedServices(spec, system, lambda seeds: generate(what, seeds, model), slots)


GAP, SITE, SERVICE, TIME, SLACK = range(50, 55)  # counters of draws


def steady(
    spec: RequestsSpec, system: System, seeds: Sequence[int], horizon_s: float, begins_at_s: float = 0.0
) -> Requests:
    """W worlds of requests, one for each seed.

    Args:
        spec: rates, times and slack.
        system: sites to reach and services to ask for.
        seeds: one for each world.
        horizon_s: nothing arrives later.
        begins_at_s: time of the day at which the worlds begin.
    """
    mean = spec.rate_qps * float(evenly_s(np.array([horizon_s]), spec.by_hour, begins_at_s)[0])
    most = int(mean + 8.0 * np.sqrt(mean)) + 10
    keys = [np.uint64(seed & 0xFFFFFFFFFFFFFFFF) for seed in seeds]

    def draws(counter: int) -> Floats:
        return np.stack([uniforms_of(key, int(Purpose.ARRIVAL), most, counter) for key in keys])

    even_s = np.cumsum(-np.log(draws(GAP)), axis=1) / spec.rate_qps
    arrival = at_hours(even_s, spec.by_hour, begins_at_s)
    service = (draws(SERVICE) * system.services).astype(np.int64)
    took = _within(spec.service_s, draws(TIME))
    slack = took * _within(spec.slack, draws(SLACK))
    cores = system.service_cpu_cores[service]
    return Requests(
        count=(arrival < horizon_s).sum(axis=1),
        arrival_s=arrival,
        site=(draws(SITE) * system.sites).astype(np.int64),
        service=service,
        deadline_s=arrival + np.maximum(slack, took + spec.least_slack_s),
        work_core_s=took * cores,
        cpu_cores=cores,
        memory_bytes=spec.memory_share * system.service_memory_bytes[service],
        payload_bytes=np.full(arrival.shape, spec.payload_bytes),
    )


def _within(ends: tuple[float, float], draws: Floats) -> Floats:
    low, high = ends
    return low + (high - low) * draws


COLUMNS = ("arrival_s", "site", "service", "deadline_s", "service_s", "payload_bytes")  # of what is recorded

MOST = {name: most_of(name) for name in COLUMNS if "_" in name}


def recorded(file: Path, scenario: Scenario, system: System) -> Requests:
    """One world of the requests of a file, see `model.grammar.services.RecordedRequestsSpec`.

    Raises:
        ScenarioError: it cannot be read, or a line is wrong.
    """
    sites = [site.name for site in scenario.topology.sites]
    names, rows = service_names(scenario.served, scenario.catalog), []
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            for row in csv.DictReader(opened):
                figures = [float(row[name]) for name in MOST]
                if strange := [name for name in MOST if not 0.0 <= float(row[name]) <= MOST[name]]:
                    raise ValueError(
                        f"{strange[0]}: {row[strange[0]]!r} is not a number from 0 to {MOST[strange[0]]:g}"
                    )
                rows.append((*figures, sites.index(row["site"]), names.index(row["service"])))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ScenarioError(
            f"{file}, line {len(rows) + 2}: {error}; columns are {', '.join(COLUMNS)}"
        ) from None
    found = np.array(sorted(rows), dtype=np.float64).reshape(-1, len(COLUMNS))
    arrival_s, deadline_s, service_s, payload_bytes = found[:, :4].T[:, None]
    site, service = found[:, 4:].T[:, None].astype(np.int64)
    cores = system.service_cpu_cores[service]
    return Requests(
        count=np.array([len(rows)]), arrival_s=arrival_s, site=site, service=service,
        deadline_s=arrival_s + deadline_s, work_core_s=service_s * cores, cpu_cores=cores,
        memory_bytes=np.zeros_like(cores), payload_bytes=payload_bytes,
    )  # fmt: skip
