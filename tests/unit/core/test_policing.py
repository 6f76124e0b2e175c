"""The token bucket: honest clients are not refused, others get what they declared."""

import numpy as np
import pytest

from edgewise.core.dispatch.policing import BURST, BURST_S, MOST_CLOSED, OVER, Bucket, Buckets


def refused(bucket, times_s):
    return sum(bucket.take(at_s) > 0.0 for at_s in times_s)


@pytest.mark.parametrize("rate_qps", [0.2, 5.0, 20.0, 300.0])
def test_poisson_queries_at_the_declared_rate_are_hardly_ever_refused(rate_qps):
    draws = np.random.default_rng(1)
    times_s = draws.exponential(1.0 / rate_qps, 100_000).cumsum()
    assert refused(Bucket(rate_qps, 0.0), times_s.tolist()) <= 0.005 * times_s.size


@pytest.mark.parametrize("jitter", [0.0, 0.9])
def test_frames_are_never_refused_however_the_network_shakes_them(jitter):
    draws, rate_qps = np.random.default_rng(2), 25.0
    times_s = np.sort((np.arange(20_000) + jitter * draws.random(20_000)) / rate_qps)
    assert refused(Bucket(rate_qps, 0.0), times_s.tolist()) == 0


def test_a_client_that_was_held_up_for_a_second_may_send_what_it_owes():
    bucket, rate_qps = Bucket(100.0, 0.0), 100.0
    before = [k / rate_qps for k in range(1000)]
    after = [11.0] * int(BURST_S * rate_qps) + [11.0 + k / rate_qps for k in range(1, 1000)]
    assert refused(bucket, before + after) == 0


def test_who_sends_more_gets_the_declared_rate_and_hears_when_to_come_again():
    bucket = Bucket(20.0, 0.0)
    times_s = [k / 530.0 for k in range(53_000)]
    passed = len(times_s) - refused(bucket, times_s)
    assert passed == pytest.approx(BURST + OVER * 20.0 * 100.0, rel=0.01)
    wait_s = max(bucket.take(100.0) for _ in range(2))
    assert 0.0 < wait_s <= 1.0 / (OVER * 20.0)
    assert bucket.take(100.0 + 0.9 * wait_s) > 0.0
    assert bucket.take(100.0 + wait_s + 1e-9) == 0.0


def test_what_was_not_served_costs_nothing_and_gives_nothing():
    bucket = Bucket(1e-3, 0.0, burst=2.0)
    assert [bucket.take(0.0) == 0.0 for _ in range(3)] == [True, True, False]
    bucket.give_back()
    assert bucket.take(0.0) == 0.0
    for _ in range(5):
        bucket.give_back()
    assert [bucket.take(0.0) == 0.0 for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_gives_no_tokens():
    bucket = Bucket(1.0, 5.0, burst=1.0)
    assert bucket.take(5.0) == 0.0
    assert bucket.take(1.0) > 0.0 and bucket.take(5.0) > 0.0 and bucket.take(6.0) == 0.0


def test_who_closes_and_opens_streams_gets_the_declared_rate_and_no_more():
    buckets, rate_qps, passed = Buckets(), 20.0, 0
    for turn in range(200):  # 53 queries at 530/s, then another stream
        bucket = buckets.opened("score", rate_qps, turn * 0.1)
        passed += 53 - refused(bucket, [turn * 0.1 + k / 530.0 for k in range(53)])
        buckets.closed("score", bucket, turn * 0.1 + 0.1)
    assert passed <= BURST + OVER * rate_qps * 20.0 + 1
    assert refused(buckets.opened("other", rate_qps, 20.0), [20.0] * 20) == 0
    assert refused(buckets.opened("score", rate_qps, 40.0), [40.0] * 20) == 0  # it was full again


def test_what_is_remembered_of_closed_streams_is_bounded():
    buckets = Buckets()
    for _ in range(MOST_CLOSED + 10):
        bucket = Bucket(1.0, 0.0)
        bucket.take(0.0)
        buckets.closed("score", bucket, 0.0)
        buckets.closed("never used", Bucket(1.0, 0.0), 0.0)
    assert {kind: len(kept) for kind, kept in buckets.remembered.items()} == {"score": MOST_CLOSED}
    assert refused(buckets.opened("score", 1.0, 1e6), [1e6] * 20) == 0 and not buckets.remembered["score"]
