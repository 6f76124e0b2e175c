"""Queueing theory: the simulated worker is an M/D/1, M/D/c, D/D/1 queue where it should be.

Queries go through the same kernel that scenarios use; only the profile is chosen.
"""

import numpy as np
import pytest

from edgewise.core.keyed import Purpose, uniform
from edgewise.sim import streams as k


def serve(rate_qps, service_s, seconds, *, servers=1, max_batch=1, deviation=0.0, poisson=True, seed=0):
    """One stream on one worker with no network; returns (stream arrays, worker arrays)."""
    one = np.zeros(1)
    ints = [np.zeros(1, dtype=np.int64) for _ in range(9)]
    s = k.Streams(
        id=ints[0], site=ints[1], worker=ints[2], open_s=one.copy(), close_s=np.array([seconds]),
        rate_qps=np.array([rate_qps]), size_bytes=one.copy(), deadline_s=np.array([np.inf]),
        poisson=np.array([int(poisson)]), next_number=ints[3], next_sent_s=one.copy(),
        next_arrival_s=one.copy(), ok=ints[4], failed=ints[5], rejected=ints[6], delay_sum_s=one.copy(),
        delay_max_s=one.copy(),
    )  # fmt: skip
    w = k.Workers(
        cluster=np.zeros(1, dtype=np.int64), fixed_s=np.array([service_s]), per_byte_s=one, batch_slope=one,
        deviation=np.array([deviation]), max_batch=np.array([max_batch]), servers=np.array([servers]),
        free_s=np.zeros((1, servers)), answered=ints[7], delay_sum_s=one.copy(),
        histogram=np.zeros((1, k.DELAY_BINS), dtype=np.int64), waiting=np.zeros(1, dtype=np.int64),
        batches=ints[8],
    )  # fmt: skip
    net = k.Network(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1), np.full(1, 1e12))
    tally = k.Tally(1e9, *(np.zeros(1, dtype=np.int64) for _ in range(3)))
    key = np.uint64(seed)
    heaps, sizes = np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
    k.reject_until(s, 0, 0.0, key, tally)
    k.send(s, 0, net, 0, key)
    sizes[0] = k.push(heaps[0], 0, 0, s.next_arrival_s)
    k.advance_all(np.inf, heaps, sizes, s, w, net, key, tally)
    return s, w


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_md1_mean_sojourn(rho):
    # Pollaczek-Khinchine with deterministic service: W = S (1 + ρ / (2 (1 - ρ))).
    runs = []
    for seed in range(12):
        s, w = serve(rho, 1.0, 400_000.0, seed=seed)
        runs.append(w.delay_sum_s[0] / w.answered[0])
    expected = 1.0 + rho / (2 * (1 - rho))
    error = np.std(runs, ddof=1) / np.sqrt(len(runs))
    assert error < 0.005 * expected
    assert abs(np.mean(runs) - expected) < 3 * error


def test_normal_service_is_mg1():
    # W = S + λ E[S²] / (2 (1 - ρ)) with E[S²] = S² (1 + c²).
    rho, c = 0.7, 0.25
    runs = []
    for seed in range(12):
        s, w = serve(rho, 1.0, 400_000.0, deviation=c, seed=seed)
        runs.append(w.delay_sum_s[0] / w.answered[0])
    expected = 1.0 + rho * (1 + c * c) / (2 * (1 - rho))
    error = np.std(runs, ddof=1) / np.sqrt(len(runs))
    assert abs(np.mean(runs) - expected) < 3 * error


def test_periodic_stream_below_capacity_never_waits():
    s, w = serve(10.0, 0.09, 1000.0, poisson=False)
    assert w.answered[0] == 10_000
    assert s.delay_max_s[0] == pytest.approx(0.09, abs=1e-9)


def test_servers_work_side_by_side_and_no_more():
    # 10 queries/s of 0.19 s each: two servers keep up without waiting, one would not.
    s, w = serve(10.0, 0.19, 1000.0, servers=2, poisson=False)
    assert s.delay_max_s[0] == pytest.approx(0.19, abs=1e-9)
    s, w = serve(10.0, 0.19, 1000.0, servers=1, poisson=False)
    assert s.delay_max_s[0] == pytest.approx(900.0, rel=0.01)  # it falls behind by 0.09 s a query


def test_batches_are_bounded_and_serve_everybody():
    # With batch_slope 0 a batch costs the same as one query: 40/s fit where 10/s would be the limit.
    s, w = serve(40.0, 0.1, 500.0, max_batch=8)
    assert w.answered[0] == s.ok[0] == s.next_number[0] - 1
    assert w.answered[0] / w.batches[0] <= 8
    assert w.delay_sum_s[0] / w.answered[0] < 0.3


def test_fifo_equals_lindley():
    # A naive oracle: W_{n+1} = max(W_n + S - A_n, 0) over the same arrivals.
    rate, service, n = 0.9, 1.0, 2000
    gaps = -np.log(uniform(4, Purpose.QUERY, 0, np.arange(n + 1))) / rate
    arrivals = np.cumsum(gaps)
    wait, total = 0.0, 0.0
    for i in range(n):
        total += wait + service
        wait = max(wait + service - gaps[i + 1], 0.0)
    s, w = serve(rate, service, float(arrivals[n]), seed=4)
    assert w.answered[0] == n
    assert w.delay_sum_s[0] == pytest.approx(total, rel=1e-9)
