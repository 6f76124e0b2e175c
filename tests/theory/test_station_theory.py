"""Queueing theory through the general engine: one station, Poisson queries of one task."""

import math

import numpy as np
import pytest

from edgewise.core.keyed import Purpose, uniform
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.network import Station, StationNetwork

ONE = TaskGraph("one", (Task("t", 1.0),), ())


def poisson(rate_qps, n, seed):
    return np.cumsum(-np.log(uniform(seed, Purpose.QUERY, 0, np.arange(n)))) / rate_qps


def serve(station, rate_qps, n, seed, **fields):
    engine = GraphEngine(
        StationNetwork([station]), [ONE], poisson(rate_qps, n, seed), placement=[[0]], seed=seed, **fields
    )
    engine.run()
    return engine


def check_mean(expected, station, rate_qps, *, n=300_000, seeds=24, exact=0.005, **fields):
    """The mean sojourn over seeds is within three standard errors, and those are at most `exact`."""
    means = [serve(station, rate_qps, n, seed, **fields).sojourn_s.mean() for seed in range(seeds)]
    error = np.std(means, ddof=1) / math.sqrt(seeds)
    assert error <= exact * expected
    assert abs(np.mean(means) - expected) < 3 * error


@pytest.mark.parametrize(
    "law, deviation, rho, n",
    [
        ("exponential", 1.0, 0.5, 100_000),
        ("exponential", 1.0, 0.8, 300_000),
        ("fixed", 0.0, 0.8, 150_000),
        ("lognormal", 1.5, 0.5, 200_000),
        ("lognormal", 1.5, 0.8, 700_000),
        ("normal", 0.2, 0.8, 150_000),
    ],
)
def test_mg1(law, deviation, rho, n):
    # Pollaczek-Khinchine: W = S + ρ S (1 + c²) / (2 (1 - ρ)); M/M/1 for c = 1, M/D/1 for c = 0.
    expected = 1 + rho * (1 + deviation**2) / (2 * (1 - rho))
    check_mean(expected, Station("s", 1.0, law=law, deviation=deviation), rho, n=n)


@pytest.mark.parametrize("servers", [2, 8])
def test_mmc(servers):
    # Erlang C.
    rho = 0.8
    a = rho * servers
    top = a**servers / math.factorial(servers) / (1 - rho)
    waits = top / (sum(a**i / math.factorial(i) for i in range(servers)) + top)
    expected = 1 + waits / (servers - a)
    check_mean(expected, Station("s", 1.0, servers=servers, law="exponential"), a)


def test_mm_infinity_is_a_pure_delay():
    engine = serve(Station("s", math.inf, delay_s=2.0), 50.0, 1000, 1)
    np.testing.assert_allclose(engine.sojourn_s, 2.0, rtol=1e-9)


@pytest.mark.parametrize("law, deviation", [("exponential", 1.0), ("fixed", 0.0), ("lognormal", 2.0)])
def test_processor_sharing_is_insensitive(law, deviation):
    # M/G/1-PS: W = S / (1 - ρ) whatever the law of the work.
    check_mean(1 / (1 - 0.7), Station("s", 1.0, discipline="ps", law=law, deviation=deviation), 0.7)


def test_processor_sharing_on_many_servers_is_mmc():
    # The number in an M/M/c-PS station is that of M/M/c FIFO, so the mean sojourn is the same.
    rho, servers = 0.7, 3
    a = rho * servers
    top = a**servers / math.factorial(servers) / (1 - rho)
    waits = top / (sum(a**i / math.factorial(i) for i in range(servers)) + top)
    station = Station("s", 1.0, servers=servers, discipline="ps", law="exponential")
    check_mean(1 + waits / (servers - a), station, a)


def test_erlang_b():
    # No waiting room: the share lost is B(c, a).
    servers, a = 5, 4.0
    terms = [a**i / math.factorial(i) for i in range(servers + 1)]
    station = Station("s", 1.0, servers=servers, law="exponential", room=0, on_full="drop")
    lost = [serve(station, a, 200_000, seed).tallies()["failed"][0] / 200_000 for seed in range(10)]
    error = np.std(lost, ddof=1) / math.sqrt(10)
    assert abs(np.mean(lost) - terms[-1] / sum(terms)) < 3 * error


def test_little_and_utilisation():
    # L = λ W by sample path: the integral of the number inside is the sum of sojourns.
    engine = serve(Station("s", 1.0, law="exponential", servers=2), 1.4, 100_000, 3)
    tallies, now = engine.tallies(), engine.now_s
    assert tallies["mean_number"][0] * now == pytest.approx(engine.sojourn_s.sum(), rel=1e-9)
    assert tallies["busy_s"][0] / now == pytest.approx(1.4, rel=0.02)


def test_reneging_is_a_loss_system():
    # M/D/1 with deadlines that nobody misses equals M/D/1; with hopeless ones all who wait leave.
    station = Station("s", 1.0, renege=True)
    calm = serve(station, 0.5, 20_000, 2, deadline_s=1e9)
    assert np.all(calm.queries.outcome == 1)
    hopeless = serve(station, 0.5, 50_000, 2, deadline_s=0.0)
    # Those who find the server busy leave: an Erlang loss system, B = a / (1 + a).
    assert np.mean(hopeless.queries.outcome == 3) == pytest.approx(0.5 / 1.5, rel=0.02)


def test_tandem_of_exponential_stations():
    # Jackson: each station is M/M/1 by itself.
    graph = TaskGraph("two", (Task("a", 1.0), Task("b", 1.0)), (Edge("a", "b", 1 / 8),))
    stations = [Station("a", 1.0, law="exponential"), Station("b", 1.25, law="exponential")]
    network = StationNetwork(stations, [Station("l", 2.0, law="exponential")], {("*", "*"): ["l"]})
    means = []
    for seed in range(12):
        engine = GraphEngine(network, [graph], poisson(0.7, 200_000, seed), placement=[[0, 1]], seed=seed)
        engine.run()
        means.append(engine.sojourn_s.mean())
    expected = 1 / (1 - 0.7) + 1 / (1.25 - 0.7) + 1 / (2 - 0.7)
    error = np.std(means, ddof=1) / math.sqrt(12)
    assert abs(np.mean(means) - expected) < 3 * error
