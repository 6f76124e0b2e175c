"""Streams of a scenario: Poisson clients at each site, each running one application.

Every draw is a hash of (seed, purpose, site, client number), so the streams of a seed are
the same under every policy, and a higher arrival rate only brings the same clients sooner.
Forbidden here: global randomness, and anything a policy decides.
"""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Purpose, uniform
from edgewise.model.scenario import Application, Arrivals, Scenario
from edgewise.model.work import Stream


def generate_streams(scenario: Scenario, seed: int) -> list[Stream]:
    """All streams that open during a run.

    Args:
        seed: keys every draw.
    Returns:
        Streams in order of open_s (then site), ids 0 … n-1, 0 <= open_s < close_s <= duration_s.
    """
    opens, chosen = [], []
    for site in range(len(scenario.topology.sites)):
        opens.append(arrival_times_s(scenario.streams.arrivals, scenario.duration_s, seed, site))
        chosen.append(_applications(scenario.streams.applications, seed, site, opens[-1].size))
    counts = [times.size for times in opens]
    sites = np.repeat(np.arange(len(counts)), counts)
    clients = np.concatenate([np.arange(count) for count in counts])
    open_s, application = np.concatenate(opens), np.concatenate(chosen)
    order = np.lexsort((clients, sites, open_s))
    return draw_streams(scenario, seed, sites[order], clients[order], application[order], open_s[order])


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
    return times[times < duration_s]


def draw_streams(
    scenario: Scenario, seed: int, site: Ints, client: Ints, application: Ints, open_s: Floats
) -> list[Stream]:
    """Streams of clients, their rates, deadlines and lengths drawn from their applications' ranges.

    Args:
        site: (n,) index of the site; with `client` it keys the draws.
        client: (n,) number of the client at the site.
        application: (n,) index of what it runs.
        open_s: (n,) when it comes.
    Returns:
        Streams in the order given, ids 0 … n-1.
    """
    kinds = scenario.streams.applications
    ranges = np.array([[kind.rate_qps, kind.deadline_s, kind.length_s] for kind in kinds])[application]
    u = uniform(seed, Purpose.STREAM, site[:, None], 3 * client[:, None] + np.arange(3))
    low, high = ranges[..., 0], ranges[..., 1]
    rate_qps, deadline_s, length_s = np.minimum(low + u * (high - low), high).T
    close_s = np.minimum(open_s + length_s, scenario.duration_s)
    columns = (array.tolist() for array in (site, application, open_s, close_s, rate_qps, deadline_s))
    return [
        Stream(
            i, s, (kind := kinds[a]).name, kind.task, opens, closes, rate, kind.size_bytes, deadline,
            kind.min_accuracy, kind.priority, kind.arrivals,
        )
        for i, (s, a, opens, closes, rate, deadline) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def _unit_process(until: float, seed: int, site: int) -> Floats:
    """Points of a Poisson process of rate 1 in (0, until)."""
    chunk = int(until + 6.0 * np.sqrt(until)) + 16
    gaps = np.empty(0)
    while gaps.sum() < until:
        counters = np.arange(gaps.size, gaps.size + chunk)
        gaps = np.concatenate((gaps, -np.log(uniform(seed, Purpose.ARRIVAL, site, counters))))
    points = np.cumsum(gaps)
    return points[points < until]


def _applications(applications: tuple[Application, ...], seed: int, site: int, count: int) -> Ints:
    """Which application each client runs, by weight."""
    weights = np.array([application.weight for application in applications])
    edges = np.cumsum(weights) / weights.sum()
    draws = np.asarray(uniform(seed, Purpose.APPLICATION, site, np.arange(count)))
    last = int(np.flatnonzero(weights)[-1])
    return np.minimum(np.searchsorted(edges, draws, side="right"), last).astype(np.int64)
