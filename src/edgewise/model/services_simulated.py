"""What engines of services need of a scenario: times in whole frames, and links that they know."""

from collections.abc import Iterable, Sequence

from edgewise.errors import ScenarioError
from edgewise.model.grammar.services import ServicesSpec
from edgewise.model.left_out import not_run
from edgewise.model.orchestration import System
from edgewise.model.problems import listed
from edgewise.model.scenario import Scenario
from edgewise.model.services import system_of
from edgewise.model.topology import Way
from edgewise.model.ways import plain

WHOLE = 1e-6  # a quotient is a whole number within this


def system_in_slots(scenario: Scenario) -> tuple[System, int]:
    """Sites, nodes and services, and the length of a run in slots, which are whole frames.

    Raises:
        ScenarioError: it has no services or requests, times are no whole slots and frames, or links are
            none that the engine knows: one cable per site to all nodes, one to the cloud for all sites.
    """
    not_run(scenario, ("services",), "simulate")
    spec = scenario.served
    problems = _links(scenario, spec)
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
    if problems:
        raise ScenarioError(listed(scenario.name, problems))
    system = system_of(spec, scenario.catalog, scenario.topology)
    return system, round(scenario.duration_s / spec.frame_s) * system.frame_slots


def _links(scenario: Scenario, spec: ServicesSpec) -> list[str]:
    """What the engine cannot do with the links; where all work shares them, it can have any."""
    ways = scenario.topology.ways
    lan = [way for way in ways if way.cluster != spec.cloud]
    wan = [way for way in ways if way.cluster == spec.cloud]
    problems = _unequal(scenario, lan, wan) if spec.gateways == "one" else []
    if scenario.sharing != "none":
        return problems
    instead, sites = "or write `sharing: fifo`, with which links may be any", scenario.topology.sites
    cables = {(way.site, plain(way.over)) for way in lan}
    if len({over for _, over in cables}) < len(sites) or len(cables) > len(sites) or (() in _over(lan)):
        problems.append(
            'links: simulated, all nodes share one cable of each site; add `over: "lan-{site}"` to each '
            f"link to nodes, and a cable of this name, {instead}"
        )
    if len(_over(wan)) > 1 or () in _over(wan) or _over(wan) & _over(lan):
        problems.append(
            "links: simulated, all sites share one cable to the cloud; add `over: wan` to each link to it, "
            f"and a cable of this name, {instead}"
        )
    if any([way.shared for way in ways] + [cable.shared for cable in scenario.topology.cables]):
        problems.append("links: `shared: both` is not simulated for services without `sharing`; remove it")
    return problems


def _unequal(scenario: Scenario, lan: Sequence[Way], wan: Sequence[Way]) -> list[str]:
    """Where links differ, which are all alike in the published settings."""
    uplink = {site.name: site.uplink_bps for site in scenario.topology.sites}
    problems, instead = [], "with `services: {gateways: one}`; give all the same, or leave that out"
    for what, some in (("nodes", lan), ("the cloud", wan)):
        rates = {min(uplink[way.site], way.bandwidth_bps) for way in some}
        if len(rates) > 1:
            problems.append(
                f"links: to {what} have rates of {_values(rates)} bits/s (the least of uplink_bps and "
                f"bandwidth_bps), and there is one {instead}"
            )
    if deviations := {way.deviation_s for way in lan} - {0.0}:
        problems.append(f"links: deviation_s {_values(deviations)} to nodes, and there is none {instead}")
    if len(deviations := {way.deviation_s for way in wan}) > 1:
        problems.append(f"links: deviation_s {_values(deviations)} to the cloud, and there is one {instead}")
    return problems


def _over(ways: Iterable[Way]) -> set[tuple[str, ...]]:
    return {plain(way.over) for way in ways}


def _values(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in sorted(numbers))
