"""Streams on FIFO workers with batching: the compiled inner loop.

Between two telemetry periods bindings change nothing about queries already under way, so
every worker's queue evolves alone: one pass over the queries of each worker, in order of their
arrival there, without a global event queue. A stream's queries keep their order on the network.

Forbidden here: policies and views. This is the truth that the driver owns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.core.compiled import kernel
from edgewise.core.keyed import Purpose, normal_pair_of, uniform_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NETWORK, SERVICE, PHASE, QUERY = (
    int(p) for p in (Purpose.NETWORK, Purpose.SERVICE, Purpose.PHASE, Purpose.QUERY)
)
DELAY_BINS = 128  # of the sojourn histogram, see `delay_bin`
BINS_PER_DECADE = 20.0
SHORTEST_S = 1e-5


class Streams(NamedTuple):
    """Truth about N streams, by position; `next_*` advance as queries are made.

    site, worker (-1 unbound), open_s, close_s, rate_qps, size_bytes, deadline_s,
    poisson (0/1), next_number, next_sent_s, next_arrival_s, and the tallies ok, failed, rejected,
    delay_sum_s, delay_max_s.
    """

    id: Ints
    site: Ints
    worker: Ints
    open_s: Floats
    close_s: Floats
    rate_qps: Floats
    size_bytes: Floats
    deadline_s: Floats
    poisson: Ints
    next_number: Ints
    next_sent_s: Floats
    next_arrival_s: Floats
    ok: Ints
    failed: Ints
    rejected: Ints
    delay_sum_s: Floats
    delay_max_s: Floats


class Workers(NamedTuple):
    """Truth about W workers: static profile, `free_s` (W, servers), telemetry of the period."""

    cluster: Ints
    fixed_s: Floats
    per_byte_s: Floats
    batch_slope: Floats
    deviation: Floats
    max_batch: Ints
    servers: Ints
    free_s: Floats
    answered: Ints
    delay_sum_s: Floats
    histogram: Ints
    waiting: Ints
    batches: Ints


class Network(NamedTuple):
    """(S, C) one-way delays and deviations; (S,) access delay and uplink."""

    delay_s: Floats
    deviation_s: Floats
    access_delay_s: Floats
    uplink_bps: Floats


class Tally(NamedTuple):
    """(windows,) queries by the window they were sent in."""

    window_s: float
    ok: Ints
    failed: Ints
    rejected: Ints


@kernel
def delay_bin(delay_s: float) -> int:
    """Bin of a sojourn: 20 a decade from 10 µs, so quantiles are exact within 12 %."""
    if delay_s <= SHORTEST_S:
        return 0
    return min(int(np.log10(delay_s / SHORTEST_S) * BINS_PER_DECADE) + 1, DELAY_BINS - 1)


@kernel
def push(heap: Ints, size: int, i: int, key: Floats) -> int:
    """Add stream `i` to a binary heap ordered by (key, position); returns the new size."""
    heap[size] = i
    at = size
    while at > 0:
        up = (at - 1) // 2
        a, b = heap[at], heap[up]
        if key[a] < key[b] or (key[a] == key[b] and a < b):
            heap[at], heap[up] = b, a
            at = up
        else:
            break
    return size + 1


@kernel
def sift(heap: Ints, size: int, key: Floats) -> None:
    """Restore the heap after the key of its root grew."""
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size:
                a, b = heap[child], heap[least]
                if key[a] < key[b] or (key[a] == key[b] and a < b):
                    least = child
        if least == at:
            return
        heap[at], heap[least] = heap[least], heap[at]
        at = least


@kernel
def make_query(s: Streams, i: int, seed: np.uint64) -> bool:
    """Make stream `i`'s next query; False when the stream has ended.

    Periodic frames start at a random phase; Poisson queries have exponential gaps.
    """
    n = s.next_number[i]
    gap = 1.0 / s.rate_qps[i]
    if s.poisson[i]:
        gap *= -np.log(uniform_of(seed, QUERY, s.id[i], n))
    elif n == 0:
        gap *= uniform_of(seed, PHASE, s.id[i], 0)
    s.next_sent_s[i] += gap
    s.next_number[i] = n + 1
    return bool(s.next_sent_s[i] < s.close_s[i])


@kernel
def reject_until(s: Streams, i: int, until_s: float, seed: np.uint64, tally: Tally) -> bool:
    """Reject the stream's queries sent before `until_s`; False when the stream has ended.

    On True, the first query sent later has been made and waits in `next_sent_s`.
    """
    while make_query(s, i, seed):
        if s.next_sent_s[i] >= until_s:
            return True
        s.rejected[i] += 1
        tally.rejected[min(int(s.next_sent_s[i] / tally.window_s), tally.ok.size - 1)] += 1
    return False


@kernel
def send(s: Streams, i: int, net: Network, cluster: int, seed: np.uint64) -> None:
    """Carry the stream's query to its worker; queries of a stream do not overtake."""
    site = s.site[i]
    up, _ = normal_pair_of(seed, NETWORK, s.id[i], s.next_number[i] - 1)
    travel = max(net.delay_s[site, cluster] + net.deviation_s[site, cluster] * up, 0.0)
    travel += net.access_delay_s[site] + s.size_bytes[i] * 8.0 / net.uplink_bps[site]
    s.next_arrival_s[i] = max(s.next_arrival_s[i], s.next_sent_s[i] + travel)


@kernel
def answer(
    s: Streams,
    i: int,
    sent_s: float,
    n: int,
    finish_s: float,
    net: Network,
    cluster: int,
    seed: np.uint64,
    tally: Tally,
) -> None:
    """Return query `n` of stream `i` to its client and judge it against the deadline."""
    site = s.site[i]
    _, down = normal_pair_of(seed, NETWORK, s.id[i], n)
    back = max(net.delay_s[site, cluster] + net.deviation_s[site, cluster] * down, 0.0)
    delay = finish_s + back + net.access_delay_s[site] - sent_s
    s.delay_sum_s[i] += delay
    s.delay_max_s[i] = max(s.delay_max_s[i], delay)
    window = min(int(sent_s / tally.window_s), tally.ok.size - 1)
    if delay <= s.deadline_s[i]:
        s.ok[i] += 1
        tally.ok[window] += 1
    else:
        s.failed[i] += 1
        tally.failed[window] += 1


@kernel
def advance_worker(
    w: int,
    until_s: float,
    members: Ints,
    size: int,
    s: Streams,
    workers: Workers,
    net: Network,
    seed: np.uint64,
    tally: Tally,
) -> int:
    """Serve every batch of worker `w` that starts before `until_s`, first come first served.

    Args:
        members: heap of the worker's streams by next arrival; changed in place.
        size: streams in it.
    Returns:
        The number of streams left in the heap.
    """
    cluster = workers.cluster[w]
    most = workers.max_batch[w]
    batch_stream = np.empty(most, dtype=np.int64)
    batch_number = np.empty(most, dtype=np.int64)
    batch_sent = np.empty(most, dtype=np.float64)
    batch_arrival = np.empty(most, dtype=np.float64)
    while size > 0:
        server = 0
        for c in range(1, workers.servers[w]):
            if workers.free_s[w, c] < workers.free_s[w, server]:
                server = c
        start = max(s.next_arrival_s[members[0]], workers.free_s[w, server])
        if start >= until_s:
            break
        count, largest = 0, 0.0
        while size > 0 and count < most and s.next_arrival_s[members[0]] <= start:
            i = members[0]
            batch_stream[count] = i
            batch_number[count] = s.next_number[i] - 1
            batch_sent[count] = s.next_sent_s[i]
            batch_arrival[count] = s.next_arrival_s[i]
            largest = max(largest, s.size_bytes[i])
            count += 1
            if make_query(s, i, seed):
                send(s, i, net, cluster, seed)
            else:
                size -= 1
                members[0] = members[size]
            sift(members, size, s.next_arrival_s)
        first, number = batch_stream[0], batch_number[0]
        noise, _ = normal_pair_of(seed, SERVICE, s.id[first], number)
        mean = (workers.fixed_s[w] + workers.per_byte_s[w] * largest) * (
            1.0 + workers.batch_slope[w] * (count - 1)
        )
        finish = start + mean * max(1.0 + workers.deviation[w] * noise, 0.0)
        workers.free_s[w, server] = finish
        workers.batches[w] += 1
        for b in range(count):
            answer(s, batch_stream[b], batch_sent[b], batch_number[b], finish, net, cluster, seed, tally)
            sojourn = finish - batch_arrival[b]
            workers.answered[w] += 1
            workers.delay_sum_s[w] += sojourn
            workers.histogram[w, delay_bin(sojourn)] += 1
    return size


@kernel
def advance_all(
    until_s: float,
    heaps: Ints,
    sizes: Ints,
    s: Streams,
    workers: Workers,
    net: Network,
    seed: np.uint64,
    tally: Tally,
) -> None:
    """Advance every worker to `until_s`; `heaps` is (W, most streams), `sizes` (W,)."""
    for w in range(sizes.size):
        sizes[w] = advance_worker(w, until_s, heaps[w], sizes[w], s, workers, net, seed, tally)
        waiting = 0
        for j in range(sizes[w]):
            i = heaps[w, j]
            late = until_s - s.next_arrival_s[i]
            if late >= 0.0:  # only a stream's oldest query is held: count those behind it by rate
                waiting += 1 + int(late * s.rate_qps[i])
        for c in range(workers.servers[w]):
            waiting += workers.free_s[w, c] > until_s
        workers.waiting[w] = waiting
