"""Streams of a scenario: Poisson clients at each site, and sources; or arrivals from a file; and their load.

Every draw is a hash of (seed, purpose, site, client number), so the streams of a seed are
the same under every policy, and a higher arrival rate only brings the same clients sooner.

Forbidden here: global randomness, and anything a policy decides.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Purpose, uniform
from edgewise.errors import ScenarioError
from edgewise.model.problems import listed, nearest
from edgewise.model.scenario import Application, Arrivals, Scenario
from edgewise.model.values import most_of
from edgewise.model.work import Stream
from edgewise.workloads.sources import source_streams


def generate_streams(scenario: Scenario, seed: int) -> list[Stream]:
    """All streams that open during a run.

    Args:
        seed: keys every draw.
    Returns:
        Clients' streams in order of open_s (then site), then those of sources (`source_streams`); ids
        0 … n-1, 0 <= open_s < close_s <= duration_s.
    """
    clients = client_streams(scenario, seed) if scenario.streams.applications else []
    return clients + source_streams(scenario, len(clients))


def client_streams(scenario: Scenario, seed: int) -> list[Stream]:
    """Clients' streams, as `generate_streams` says."""
    came, sites = scenario.streams, range(len(scenario.topology.sites))
    opens = [arrival_times_s(came.arrivals, scenario.duration_s, seed, site) for site in sites]
    chosen = [_applications(came.applications, seed, site, opens[site].size) for site in sites]
    counts = [times.size for times in opens]
    where = np.repeat(sites, counts)
    clients = np.concatenate([np.arange(count) for count in counts])
    open_s, application = np.concatenate(opens), np.concatenate(chosen)
    order = np.lexsort((clients, where, open_s))
    return draw_streams(scenario, seed, where[order], clients[order], application[order], open_s[order])


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
            kind.min_accuracy, kind.priority, kind.arrivals, kind.answer_bytes,
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


def queries_per_client(application: Application, duration_s: float) -> float:
    """Mean queries of a client who comes at a uniform moment of a run and leaves at its end at the latest.

    r E[g(L)],  g(L) = (1/T) ∫_0^T min(L, u) du = L - L²/2T for L <= T, T/2 beyond

    with the stream's rate r and length L independent and uniform in their ranges. A Poisson client
    comes at a uniform moment when the arrival rate is constant.
    """
    low, high = application.length_s
    knots = np.clip([low, duration_s, high], low, high)
    # Simpson's rule is exact on each side of T, where g is a quadratic and a constant.
    pieces = [
        (b - a) / 6.0 * (_mean_stay_s(a, duration_s) + 4.0 * _mean_stay_s((a + b) / 2.0, duration_s)
                         + _mean_stay_s(b, duration_s))
        for a, b in pairwise(knots)
    ]  # fmt: skip
    stay_s = sum(pieces) / (high - low) if high > low else _mean_stay_s(low, duration_s)
    return float(np.mean(application.rate_qps) * stay_s)


def mean_load_qps(applications: Sequence[Application], arrivals: Arrivals, duration_s: float) -> float:
    """Mean queries/s that the clients of one site send, over a run that starts empty.

    (1/T) ∫_0^T λ(t) Σ_a p_a r_a E[min(L_a, T - t)] dt

    with the share p_a of the clients who run application a.
    """
    weights = np.array([application.weight for application in applications])
    left_s = [duration_s - start for start, _ in arrivals.steps if start < duration_s]
    rises = np.diff([per_min / 60.0 for _, per_min in arrivals.steps[: len(left_s)]], prepend=0.0)
    # What a step adds to the rate of clients lasts to the end of the run.
    queries = [[left * queries_per_client(each, left) for each in applications] for left in left_s]
    return float(rises @ np.array(queries) @ weights / weights.sum() / duration_s)


def most_load_bps(applications: Sequence[Application], arrivals: Arrivals, duration_s: float) -> float:
    """Mean bits/s that the clients of one site send, at the moment of a run at which that is most.

    max over t in [0, T] of Σ_k (λ_k - λ_(k-1)) Σ_a p_a 8 r_a b_a E[min(L_a, t - s_k)⁺]

    with arrival rates λ_k from s_k on: what came since then and is still there. The mean grows with the run
    until the longest streams end, and a run that ends before never sees what they would add up to.
    """
    weights = np.array([application.weight for application in applications])
    steps = [step for step in arrivals.steps if step[0] < duration_s]
    starts_s = np.array([start_s for start_s, _ in steps])
    rises = np.diff([per_min / 60.0 for _, per_min in steps], prepend=0.0)
    ends = np.unique([end for each in applications for end in each.length_s])
    bends_s = np.minimum((starts_s[:, None] + ends).ravel(), duration_s)
    # Between two of these the load is a smooth curve, so points this close find its top.
    at_s = np.concatenate([np.linspace(0.0, duration_s, 1001), starts_s, bends_s])
    since_s = np.maximum(at_s[:, None] - starts_s, 0.0)
    there = np.array([_mean_of_least(each.length_s, since_s) @ rises for each in applications])
    bps = np.array([8.0 * np.mean(each.rate_qps) * each.size_bytes for each in applications])
    return float(((weights * bps) @ there).max() / weights.sum())


def _mean_of_least(length_s: tuple[float, float], most_s: Floats) -> Floats:
    """E[min(L, x)] of L uniform in its range."""
    low, high = length_s
    x = np.clip(most_s, low, high)
    inside = low if high == low else (0.5 * (x**2 - low**2) + x * (high - x)) / (high - low)
    return np.where(most_s < low, most_s, inside)


def fit_weights(
    applications: Sequence[Application],
    load_qps: float = 1000.0,
    clients_per_min: float = 60.0,
    duration_s: float = 480.0,
) -> Floats:
    """Weights nearest to uniform with which a site is loaded as wanted, on average over a run.

    Of all shares p with Σ p_a m_a = m, m_a the queries per client, the one of maximum entropy is
    p_a ∝ exp(-μ m_a); μ is found by bisection.                    (Jaynes 1957)

    Returns:
        (A,) weights, the largest 1.
    Raises:
        ScenarioError: no weights bring this load; says which loads they can bring.
    """
    from scipy.optimize import brentq  # slow to import, and only needed here

    rate = clients_per_min / 60.0
    queries = np.array([queries_per_client(application, duration_s) for application in applications])
    wanted = load_qps / rate
    if not queries.min() < wanted < queries.max():
        raise ScenarioError(
            f"load_qps: {load_qps:g} cannot be reached; use a number between {rate * queries.min():g} "
            f"and {rate * queries.max():g}, or change clients_per_min"
        )
    scaled = queries / queries.max()

    def surplus(slope: float) -> float:
        weights = _tilted(scaled, slope)
        return float(weights @ scaled / weights.sum() - wanted / queries.max())

    reach = 1.0
    while surplus(reach) > 0.0 or surplus(-reach) < 0.0:
        reach *= 2.0
    return _tilted(scaled, brentq(surplus, -reach, reach, xtol=1e-12))


def _tilted(scaled: Floats, slope: float) -> Floats:
    exponent = -slope * scaled
    found: Floats = np.exp(exponent - exponent.max())
    return found


def _mean_stay_s(length_s: float, duration_s: float) -> float:
    """Mean of min(L, T - t) over t in [0, T)."""
    return length_s - length_s**2 / (2.0 * duration_s) if length_s <= duration_s else duration_s / 2.0


REQUIRED = ("open_s", "site", "application")
OPTIONAL = ("length_s", "rate_qps", "size_bytes", "deadline_s", "min_accuracy", "priority")
SOURCE = "source"
SHORTEST_S = 1e-3  # of a stream, and of a record of traffic
BROUGHT = "brought.json"  # in a record: what became of the work that `edgewise load` brought last


def read_streams_csv(path: str | Path, scenario: Scenario, seed: int = 0) -> list[Stream]:
    """Read arrivals from CSV with a header line.

    Columns: open_s, site, application (names of the scenario); optional length_s, rate_qps,
    size_bytes, deadline_s, min_accuracy, priority. An empty optional cell is drawn from the
    application's range. A stream with a `source` is of that source of its site, and stays. Rows
    may be in any order; streams that open at or after duration_s are errors.

    Args:
        seed: keys the draws of what the file leaves out.
    Returns:
        Streams in order of open_s, ids 0 … n-1.
    Raises:
        ScenarioError: the file cannot be read, or lists what is wrong, row by row.
    """
    problems: list[str] = []
    streams = []
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            _check_header(reader.fieldnames or [], str(path))
            for number, row in enumerate(reader):
                try:
                    streams.append(_stream(row, number, scenario, seed))
                except ValueError as error:
                    problems.append(f"line {reader.line_num}: {error}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    if problems:
        raise ScenarioError(listed(str(path), problems))
    streams.sort(key=lambda stream: stream.open_s)
    return [replace(stream, id=i) for i, stream in enumerate(streams)]


def _check_header(names: Sequence[str], where: str) -> None:
    problems = [
        f"column {name!r} is missing; add it to the first line" for name in REQUIRED if name not in names
    ]
    known = (*REQUIRED, *OPTIONAL, SOURCE)
    problems += [f"unknown column {name!r}; {nearest(name, known)}" for name in names if name not in known]
    if problems:
        raise ScenarioError(listed(where, problems))


def _stream(row: Mapping[str, str | None], number: int, scenario: Scenario, seed: int) -> Stream:
    if None in row or None in row.values():  # csv's marks for a row too long or too short
        raise ValueError("has not as many cells as the first line has columns")
    sites = [site.name for site in scenario.topology.sites]
    applications = [application.name for application in scenario.streams.applications]
    site, application = str(row["site"]), str(row["application"])
    if site not in sites:
        raise ValueError(f"site: unknown site {site!r}; {nearest(site, sites)}")
    if application not in applications:
        raise ValueError(
            f"application: unknown application {application!r}; {nearest(application, applications)}"
        )
    open_s = _cell(row, "open_s", zero=True)
    if open_s is None or open_s >= scenario.duration_s:
        raise ValueError(
            f"open_s: {row['open_s']!r} is not in [0, duration_s); use 0 … {scenario.duration_s:g}"
        )
    cells = {name: _cell(row, name, zero=name in ("min_accuracy", "priority")) for name in OPTIONAL}
    given = {name: value for name, value in cells.items() if value is not None}
    where, which = np.array([sites.index(site)]), np.array([applications.index(application)])
    (drawn,) = draw_streams(scenario, seed, where, np.array([number]), which, np.array([open_s]))
    return replace(
        drawn,
        close_s=min(open_s + given["length_s"], scenario.duration_s)
        if "length_s" in given
        else drawn.close_s,
        rate_qps=given.get("rate_qps", drawn.rate_qps),
        size_bytes=given.get("size_bytes", drawn.size_bytes),
        deadline_s=given.get("deadline_s", drawn.deadline_s),
        min_accuracy=given.get("min_accuracy", drawn.min_accuracy),
        priority=int(given.get("priority", drawn.priority)),
        source=(row.get(SOURCE) or "").strip(),
    )


def _cell(row: Mapping[str, str | None], name: str, zero: bool) -> float | None:
    """The number in a cell, None when it is empty or the column is absent."""
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if name == "priority" and math.isfinite(value):
        return value
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise ValueError(f"{name}: {text!r} is not a number {'>=' if zero else '>'} 0; correct it")
    if value > most_of(name):
        raise ValueError(f"{name}: {text!r} is too large; use at most {most_of(name):g}")
    return value
