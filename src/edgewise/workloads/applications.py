"""The load that applications bring, computed, and weights that bring a wanted load.

Forbidden here: randomness; these are expectations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from edgewise.arrays import Floats
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Application, Arrivals


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
    starts = [start for start, _ in arrivals.steps if start < duration_s]
    ends = [*starts[1:], duration_s]
    load = 0.0
    for start, end, (_, per_min) in zip(starts, ends, arrivals.steps, strict=False):
        # Clients of [start, end) in a run that ends at T: those of [start, T) less those of [end, T).
        queries = [
            (duration_s - start) * queries_per_client(application, duration_s - start)
            - (
                (duration_s - end) * queries_per_client(application, duration_s - end)
                if end < duration_s
                else 0.0
            )
            for application in applications
        ]
        load += per_min / 60.0 * float(weights @ queries) / weights.sum() / duration_s
    return load


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
