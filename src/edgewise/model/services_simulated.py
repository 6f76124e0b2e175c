"""Services of a scenario to be simulated: what the engine of slots and frames can do with a scenario.

Forbidden here: I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from edgewise.errors import ScenarioError
from edgewise.model.grammar.services import RequestsSpec, ServicesSpec
from edgewise.model.orchestration import System
from edgewise.model.problems import listed
from edgewise.model.sections import not_run
from edgewise.model.services import system_of
from edgewise.model.topology import Way

if TYPE_CHECKING:
    from edgewise.model.scenario import Scenario

WHOLE = 1e-6  # a quotient is a whole number within this


class SimulatedServices(NamedTuple):
    """What is simulated.

    Attributes:
        spec: the scenario's `services`.
        system: sites, nodes, services.
        requests: what arrives.
        slots: length of a run, whole frames.
    """

    spec: ServicesSpec
    system: System
    requests: RequestsSpec
    slots: int

    @property
    def horizon_s(self) -> float:
        """Length of a run, s."""
        return self.slots * self.system.slot_s


def simulated_services(scenario: Scenario) -> SimulatedServices:
    """The services of a scenario, to be simulated.

    Raises:
        ScenarioError: it has no services or requests, times are no whole slots and frames, or links are
            none that the engine knows: one cable per site to all nodes, one to the cloud for all sites.
    """
    not_run(scenario.spec, ("services",), "edgewise orchestrate")
    spec = scenario.spec.services
    assert spec is not None, "not_run says that there are services"
    problems = _links(scenario, spec.cloud)
    if spec.requests is None:
        problems.append(
            "services.requests: is missing; add what arrives, for example {rate_qps: 20, service_s: 0.5}"
        )
    for name, whole_s, of, part_s in (
        ("services.frame_s", spec.frame_s, "services.slot_s", spec.slot_s),
        ("duration_s", scenario.duration_s, "services.frame_s", spec.frame_s),
    ):
        number = whole_s / part_s
        if round(number) < 1 or abs(number - round(number)) > WHOLE * number:
            times = max(round(number), 1)
            problems.append(
                f"{name}: {whole_s:g} is not a multiple of {of}, {part_s:g}; use {times * part_s:g}"
            )
    if problems or spec.requests is None:
        raise ScenarioError(listed(scenario.name, problems))
    system = system_of(spec, scenario.catalog, scenario.topology)
    slots = round(scenario.duration_s / spec.frame_s) * system.frame_slots
    return SimulatedServices(spec, system, spec.requests, slots)


def _links(scenario: Scenario, cloud: str) -> list[str]:
    """What the engine cannot do with the links."""
    uplink = {site.name: site.uplink_bps for site in scenario.topology.sites}
    ways = scenario.topology.ways
    lan, wan = [way for way in ways if way.cluster != cloud], [way for way in ways if way.cluster == cloud]
    problems = []
    for what, some in (("nodes", lan), ("the cloud", wan)):
        rates = {min(uplink[way.site], way.bandwidth_bps) for way in some}
        if len(rates) > 1:
            problems.append(
                f"links: to {what} have rates of {_values(rates)} bits/s (the least of uplink_bps and "
                "bandwidth_bps); simulated services need one, give all the same"
            )
    cables = {(way.site, way.over) for way in lan}
    if len({over for _, over in cables}) < len(uplink) or len(cables) > len(uplink) or ("" in _over(lan)):
        problems.append(
            'links: simulated, all nodes share one cable of each site; add `over: "lan-{site}"` to each '
            "link to nodes"
        )
    if len(_over(wan)) > 1 or "" in _over(wan) or _over(wan) & _over(lan):
        problems.append(
            "links: simulated, all sites share one cable to the cloud; add `over: wan` to each link to it"
        )
    if deviations := {way.deviation_s for way in lan} - {0.0}:
        problems.append(
            f"links: deviation_s {_values(deviations)} to nodes; services are simulated without, use 0"
        )
    if len(deviations := {way.deviation_s for way in wan}) > 1:
        problems.append(f"links: deviation_s {_values(deviations)} to the cloud; give all sites the same")
    if any(way.shared for way in ways):
        problems.append("links: `shared: both` is not simulated for services; remove it")
    return problems


def _over(ways: Iterable[Way]) -> set[str]:
    return {way.over for way in ways}


def _values(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in sorted(numbers))
