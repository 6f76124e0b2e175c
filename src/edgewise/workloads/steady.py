"""Requests without a trace: Poisson arrivals, every site and every service as likely.

Every draw is a hash of (seed, purpose, number of the request), so a seed's requests are the same under
every policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.keyed import Purpose, uniform
from edgewise.core.orchestration import Requests
from edgewise.model.grammar.services import RequestsSpec
from edgewise.model.orchestration import System

GAP, SITE, SERVICE, TIME, SLACK = range(50, 55)  # counters of draws


def steady(spec: RequestsSpec, system: System, seeds: Sequence[int], horizon_s: float) -> Requests:
    """W worlds of requests, one for each seed.

    Args:
        spec: rates, times and slack.
        system: sites to reach and services to ask for.
        seeds: one for each world.
        horizon_s: nothing arrives later.
    """
    most = int(spec.rate_qps * horizon_s + 8.0 * np.sqrt(spec.rate_qps * horizon_s)) + 10
    ids = np.arange(most)

    def draws(counter: int) -> Floats:
        return np.stack([uniform(seed, int(Purpose.ARRIVAL), ids, counter) for seed in seeds])

    arrival = np.cumsum(-np.log(draws(GAP)), axis=1) / spec.rate_qps
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
