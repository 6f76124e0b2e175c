"""What would fill the memory, or never end, is refused before a run.

Forbidden here: printing and files.
"""

from collections.abc import Iterator

import numpy as np

from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.model.sources import Source


def refuse_too_much(scenario: Scenario) -> None:
    """Refuse what would fill the memory, or never end: most often a slip of the pen.

    Raises:
        ScenarioError: says how much of what there would be.
    """
    for what, count, most in (*_much_of_streams(scenario), *_much_of_others(scenario)):
        if count > most:
            raise ScenarioError(
                f"{scenario.name}: {what}: about {count:.3g}; {most:,} can be simulated at most"
            )


def _much_of_streams(scenario: Scenario) -> Iterator[tuple[str, float, int]]:
    """What there is much of, how much, and the most that can be simulated."""
    came, duration_s = scenario.streams, scenario.duration_s
    starts_s = [min(start_s, duration_s) for start_s, _ in came.arrivals.steps]
    clients = float(np.diff([*starts_s, duration_s]) @ [rate / 60.0 for _, rate in came.arrivals.steps])
    clients *= len(scenario.topology.sites)
    queries = max([each.rate_qps[1] * min(each.length_s[1], duration_s) for each in came.applications] or [0])
    sent = sum(map(_sent, came.sources)) * duration_s
    yield "window_s: windows in duration_s", duration_s / scenario.window_s, 10_000_000
    yield "telemetry.period_s: periods in duration_s", duration_s / scenario.telemetry.period_s, 100_000_000
    yield "streams.arrivals: clients in duration_s", clients, 10_000_000
    yield "streams.applications: queries of all clients", clients * queries, 1_000_000_000_000
    yield "streams.sources: queries of all of them", sent, 1_000_000_000_000


def _much_of_others(scenario: Scenario) -> Iterator[tuple[str, float, int]]:
    """As `_much_of_streams`, of work that is no stream."""
    duration_s, services = scenario.duration_s, scenario.services
    if services is not None:
        rate_qps = getattr(services.requests, "rate_qps", 0.0)
        yield "services.requests: requests in duration_s", rate_qps * duration_s, 100_000_000
        yield "services.slot_s: slots in duration_s", duration_s / services.slot_s, 1_000_000_000
    for i, graph in enumerate(scenario.graphs):
        yield f"graphs[{i}].rate_qps: queries in duration_s", graph.rate_qps * duration_s, 100_000_000
    if scenario.jobs is not None:
        pattern = scenario.jobs.pattern
        slots = duration_s / pattern.slot_s
        drawn = pattern.jobs_per_slot * slots
        yield "jobs.slot_s: slots in duration_s", slots, 10_000_000
        yield "jobs.drawn.per_slot: jobs in duration_s", drawn, 10_000_000


def _sent(source: Source) -> float:
    """Queries/s of all of a source."""
    return source.rate_qps * source.count * len(source.sites)
