"""Queueing theory: a simulated worker is the textbook queue that its profile describes.

Every queue here is a scenario of one stream and one worker, and goes through the same
`Simulation` as all others; nothing else tells it from a deployment.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.keyed import Purpose, exponential
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.sim.simulate import Simulation
from edgewise.testing import queue_scenario


def run(*args, seed=0, **kwargs):
    """The stream's record, and the simulation as it stood at the end."""
    scenario, streams = queue_scenario(*args, **kwargs)
    simulation = Simulation(scenario, policies.load("dispatch", "closest"), seed, streams)
    outcome = simulation.run()
    return {name: column[0] for name, column in outcome.streams.items()}, simulation


def waits(rate_qps, service_s, queries, *, seeds=range(10), **kwargs):
    """Mean wait of each seed."""
    runs = [run(rate_qps, service_s, queries / rate_qps, seed=seed, **kwargs)[0] for seed in seeds]
    return np.array([r["delay_mean_s"] for r in runs]) - service_s


def check(found, expected):
    """The mean is within three standard errors, and the error small enough to mean something."""
    error = found.std(ddof=1) / math.sqrt(found.size)
    assert error <= 0.005 * expected
    assert abs(found.mean() - expected) <= 3 * error


def erlang_c(servers, offered):
    """Probability of waiting in M/M/c with `offered` erlangs (Erlang, 1917)."""
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_mm1(rho):
    check(waits(rho, 1.0, 3e6 if rho > 0.7 else 1e6), rho / (1 - rho))


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.7), (10, 0.8)])
def test_mmc(servers, rho):
    expected = erlang_c(servers, servers * rho) / (servers * (1 - rho))
    check(waits(servers * rho, 1.0, 3e6, servers=servers), expected)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_md1(rho):
    # Pollaczek-Khinchine: W = λ E[S²] / (2 (1 - ρ)).
    check(waits(rho, 1.0, 1.5e6 if rho > 0.7 else 6e5, distribution="normal"), rho / (2 * (1 - rho)))


def test_mg1():
    rho, c = 0.7, 0.25
    expected = rho * (1 + c * c) / (2 * (1 - rho))
    check(waits(rho, 1.0, 1.5e6, distribution="normal", deviation=c), expected)


def test_little():
    # L = λ W: queries in the system as telemetry samples them, and their mean sojourn.
    rate, seconds, period = 0.7, 400_000.0, 5.0
    scenario, streams = queue_scenario(rate, 1.0, seconds)
    seen = []

    class Sampling(ScorePolicy):
        name = "sampling"

        def tick(self, view):
            seen.append(view.queue[0])

        def score(self, view, item):
            return view.network_s

    scenario = replace(scenario, telemetry=TelemetrySpec(period_s=period), window_s=period)
    record = Simulation(scenario, Sampling(), 1, streams).run().streams
    sojourn, throughput = record["delay_mean_s"][0], record["queries"][0] / seconds
    assert np.mean(seen) == pytest.approx(throughput * sojourn, rel=0.02)


def test_periodic_stream_below_capacity_never_waits():
    record, _ = run(10.0, 0.09, 1000.0, distribution="normal", poisson=False)
    assert record["ok"] == 10_000
    assert record["delay_max_s"] == pytest.approx(0.09, abs=1e-9)


def test_servers_work_side_by_side_and_no_more():
    # 10 queries/s of 0.19 s each: two servers keep up without waiting, one would not.
    record, _ = run(10.0, 0.19, 1000.0, servers=2, distribution="normal", poisson=False)
    assert record["delay_max_s"] == pytest.approx(0.19, abs=1e-9)
    record, _ = run(10.0, 0.19, 1000.0, servers=1, distribution="normal", poisson=False)
    assert record["delay_max_s"] == pytest.approx(900.0, rel=0.01)  # it falls behind by 0.09 s a query


def test_batches_are_bounded_and_serve_everybody():
    # With batch_slope 0 a batch costs the same as one query: 40/s fit where 10/s would be the limit.
    record, simulation = run(40.0, 0.1, 500.0, max_batch=8, distribution="normal")
    assert record["ok"] == record["queries"]
    assert record["queries"] / simulation.workers.each.batches[0] <= 8
    assert record["delay_mean_s"] < 0.3


def test_fifo_equals_lindley():
    # A naive oracle: W_{n+1} = max(W_n + S - A_n, 0) over the same arrivals.
    rate, service, n = 0.9, 1.0, 2000
    gaps = exponential(4, Purpose.QUERY, 0, np.arange(n + 1)) / rate
    arrivals = np.cumsum(gaps)
    wait, total = 0.0, 0.0
    for i in range(n):
        total += wait + service
        wait = max(wait + service - gaps[i + 1], 0.0)
    record, _ = run(rate, service, float(arrivals[n]), distribution="normal", seed=4)
    assert record["queries"] == n
    assert record["delay_mean_s"] * n == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(("timeout_s", "max_batch"), [(0.0, 4), (0.3, 4), (1.0, 3), (0.3, 1)])
def test_batch_timeout_equals_a_naive_loop(timeout_s, max_batch):
    rate, service, slope, n = 6.0, 0.2, 0.3, 500
    arrivals = np.cumsum(exponential(2, Purpose.QUERY, 0, np.arange(n + 1)) / rate)[: n + 1]
    free, total, i = 0.0, 0.0, 0
    while i < n:
        start = max(free, arrivals[i] + timeout_s)
        batch = [k for k in range(i, min(i + max_batch, n)) if arrivals[k] <= start]
        if len(batch) == max_batch:
            start = max(free, arrivals[batch[-1]])
        free = start + service * (1 + slope * (len(batch) - 1))
        total += sum(free - arrivals[k] for k in batch)
        i += len(batch)
    record, _ = run(
        rate, service, float(arrivals[n - 1 :].mean()), max_batch=max_batch, batch_slope=slope,
        batch_timeout_s=timeout_s, distribution="normal", seed=2,
    )  # fmt: skip
    assert record["queries"] == n
    assert record["delay_mean_s"] * n == pytest.approx(total, rel=1e-9)
