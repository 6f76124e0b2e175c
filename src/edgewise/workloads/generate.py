"""Streams of a scenario: Poisson clients at each site, each running one application.

Every draw is a hash of (seed, purpose, site, client number), so the streams of a seed are
the same under every policy, and a higher arrival rate only brings the same clients sooner.
Forbidden here: global randomness, and anything a policy decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgewise.core.keyed import Purpose, uniform
from edgewise.model.scenario import Application, Arrivals, Scenario
from edgewise.model.work import Stream

Floats = NDArray[np.float64]


def generate_streams(scenario: Scenario, seed: int) -> list[Stream]:
    """All streams that open during a run.

    Args:
        seed: keys every draw.
    Returns:
        Streams in order of open_s (then site), ids 0 … n-1, 0 <= open_s < close_s <= duration_s.
    """
    clients = []
    for site in range(len(scenario.topology.sites)):
        opens_s = arrival_times_s(scenario.arrivals, scenario.duration_s, seed, site)
        chosen = _applications(scenario.applications, seed, site, opens_s.size)
        clients += [(float(t), site, k, int(a)) for k, (t, a) in enumerate(zip(opens_s, chosen, strict=True))]
    clients.sort()
    return [
        draw_stream(scenario, seed, stream, site, k, scenario.applications[a], open_s)
        for stream, (open_s, site, k, a) in enumerate(clients)
    ]


def arrival_times_s(arrivals: Arrivals, duration_s: float, seed: int, site: int) -> Floats:
    """When clients come to one site: a Poisson process with a rate that changes in steps.

    Points of a unit-rate process are sent through the inverse of the cumulative rate
    Λ(t) = ∫ λ.                                       (Çinlar 1975, time-change theorem)

    Returns:
        (n,) increasing times in [0, duration_s).
    """
    starts = [start for start, _ in arrivals.steps if start < duration_s]
    knots = np.array([*starts, duration_s])
    rates = np.array([rate / 60.0 for _, rate in arrivals.steps[: len(starts)]])
    expected = np.concatenate(([0.0], np.cumsum(rates * np.diff(knots))))
    points = _unit_process(expected[-1], seed, site)
    segment = np.clip(np.searchsorted(expected, points, side="right") - 1, 0, len(rates) - 1)
    times = knots[segment] + (points - expected[segment]) / np.where(rates > 0, rates, 1.0)[segment]
    inside: Floats = times[times < duration_s]
    return inside


def draw_stream(
    scenario: Scenario,
    seed: int,
    stream: int,
    site: int,
    client: int,
    application: Application,
    open_s: float,
) -> Stream:
    """One stream of an application, its rate, deadline and length drawn from their ranges.

    Args:
        stream: id of the stream.
        site: index of the site; with `client` it keys the draws.
        client: number of the client at the site.
    """
    ranges = np.array([application.rate_qps, application.deadline_s, application.length_s])
    u = uniform(seed, Purpose.STREAM, site, 3 * client + np.arange(3))
    low, high = ranges[:, 0], ranges[:, 1]
    rate_qps, deadline_s, length_s = (float(x) for x in np.minimum(low + u * (high - low), high))
    return Stream(
        id=stream,
        site=site,
        application=application.name,
        task=application.task,
        open_s=open_s,
        close_s=min(open_s + length_s, scenario.duration_s),
        rate_qps=rate_qps,
        size_bytes=application.size_bytes,
        deadline_s=deadline_s,
        min_accuracy=application.min_accuracy,
        priority=application.priority,
        arrivals=application.arrivals,
    )


def _unit_process(until: float, seed: int, site: int) -> Floats:
    """Points of a Poisson process of rate 1 in (0, until)."""
    chunk = int(until + 6.0 * np.sqrt(until)) + 16
    gaps = np.empty(0)
    while gaps.sum() < until:
        counters = np.arange(gaps.size, gaps.size + chunk)
        gaps = np.concatenate((gaps, -np.log(uniform(seed, Purpose.ARRIVAL, site, counters))))
    points = np.cumsum(gaps)
    inside: Floats = points[points < until]
    return inside


def _applications(
    applications: tuple[Application, ...], seed: int, site: int, count: int
) -> NDArray[np.int64]:
    """Which application each client runs, by weight."""
    weights = np.array([application.weight for application in applications])
    edges = np.cumsum(weights) / weights.sum()
    draws = np.asarray(uniform(seed, Purpose.APPLICATION, site, np.arange(count)))
    last = int(np.flatnonzero(weights)[-1])
    return np.minimum(np.searchsorted(edges, draws, side="right"), last).astype(np.int64)
