"""How many requests are asked for over time, and what each takes: drawn beforehand, or recorded."""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.limits.load import STEPS, edges_of
from edgewise.model.grammar.services import RequestsSpec, TracedRequestsSpec
from edgewise.model.scenario import Scenario
from edgewise.model.services import plain, service_names, system_of
from edgewise.workloads.hours import evenly_s
from edgewise.workloads.services import PROFILED, names_of, simulated_services


class AskedRequests(NamedTuple):
    """Requests at K sites of S services.

    Attributes:
        names: of the services.
        demand: (K, S, STEPS) per second.
        service_s, core_s, payload_bytes, answer_bytes: (S,) of a request, on average.
    """

    names: list[str]
    demand: Floats
    service_s: list[float]
    core_s: list[float]
    payload_bytes: list[float]
    answer_bytes: list[float]


def requests_of(scenario: Scenario) -> AskedRequests | None:
    """Of a scenario; None where it has none to simulate.

    Raises:
        ScenarioError: they cannot be simulated.
    """
    spec = scenario.services
    if spec is None or spec.requests is None:
        return None
    if isinstance(spec.requests, RequestsSpec):
        return _steady(scenario, spec.requests)
    return _seen(scenario)


def _steady(scenario: Scenario, asked: RequestsSpec) -> AskedRequests:
    """Every site and every service as likely."""
    spec, sites = scenario.served, len(scenario.topology.sites)
    names, system = (
        service_names(spec, scenario.catalog),
        system_of(spec, scenario.catalog, scenario.topology),
    )
    each_qps, service_s = asked.rate_qps / len(names) / sites, float(np.mean(asked.service_s))
    edges = edges_of(scenario.duration_s)
    busy = np.diff(evenly_s(edges, asked.by_hour, scenario.streams.begins_at_s)) / np.diff(edges)
    return AskedRequests(
        names,
        np.full((sites, len(names), STEPS), each_qps) * busy,
        [service_s] * len(names),
        (system.service_cpu_cores * service_s).tolist(),
        [asked.payload_bytes] * len(names),
        [each.answer_bytes for each in plain(spec, scenario.catalog) for _ in range(each.count or 1)],
    )


def _seen(scenario: Scenario) -> AskedRequests:
    """Those of a pattern, of one seed that nobody runs; those of a file."""
    given, spec = simulated_services(scenario), scenario.served
    names, seen = names_of(scenario, given.spec), given.draw([PROFILED])
    many = int(seen.count[0])
    service, site = seen.service[0, :many], seen.site[0, :many]
    edges, shape = edges_of(scenario.duration_s), (len(scenario.topology.sites), len(names), STEPS)
    step = np.searchsorted(edges, seen.arrival_s[0, :many], side="right") - 1
    demand = np.zeros(shape)
    np.add.at(demand, (site, service, step.clip(0, STEPS - 1)), 1.0 / (edges[1] - edges[0]))
    number = np.maximum(np.bincount(service, minlength=len(names)), 1)

    def mean(values: Floats) -> list[float]:
        found: list[float] = (np.bincount(service, values[0, :many], len(names)) / number).tolist()
        return found

    traced = isinstance(spec.requests, TracedRequestsSpec)
    answers = [each.answer_bytes for each in plain(spec, scenario.catalog) for _ in range(each.count or 1)]
    return AskedRequests(
        names,
        demand,
        mean(seen.service_s()),
        mean(seen.work_core_s),
        mean(seen.payload_bytes),
        [0.0] * len(names) if traced else answers,
    )
