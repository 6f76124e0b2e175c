"""Streams on FIFO workers with batching: the compiled inner loop.

Between two global events bindings change nothing about queries already under way, so every
worker's queue evolves alone: one pass over the queries of each worker, in order of their
arrival there, without a global event queue. A stream's queries keep their order on the network.

Forbidden here: policies and views. This is the truth that the driver owns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.core.compiled import kernel
from edgewise.core.keyed import Purpose, normal_pair_of, uniform_of
from edgewise.core.world import LAWS, Links
from edgewise.sim.telemetry import delay_bin

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NETWORK, SERVICE, PHASE, QUERY = (
    int(p) for p in (Purpose.NETWORK, Purpose.SERVICE, Purpose.PHASE, Purpose.QUERY)
)
EXPONENTIAL = LAWS.index("exponential")
FRESH, WAITING, ENDED = 0, 1, 2  # no query made yet; one is made and not yet counted; none will come


class Streams(NamedTuple):
    """Truth about N streams, by position.

    Needs: id, site, close_s, rate_qps, size_bytes, deadline_s, poisson (0/1), from_s (queries
    leave the site no sooner). The next query: state, number, sent_s, arrival_s (at the worker),
    back_s (way home), before_s (arrival of the one before). Tallies: ok, failed, rejected,
    delay_sum_s, delay_max_s.
    """

    id: Ints
    site: Ints
    close_s: Floats
    rate_qps: Floats
    size_bytes: Floats
    deadline_s: Floats
    poisson: Ints
    from_s: Floats
    state: Ints
    number: Ints
    sent_s: Floats
    arrival_s: Floats
    back_s: Floats
    before_s: Floats
    ok: Ints
    failed: Ints
    rejected: Ints
    delay_sum_s: Floats
    delay_max_s: Floats


class Workers(NamedTuple):
    """Truth about W workers, and what they measured in this telemetry period.

    Profile: cluster, fixed_s, per_byte_s, batch_slope, deviation, law, max_batch, timeout_s,
    servers. down_s: when the worker fails next. free_s, serving: (W, servers) when each server is
    free again, and its queries until then. held: queries of the batch being gathered, whose
    stream, number, sent, arrival and way back are in held_* (W, largest batch). Streams with a
    query on its way or waiting: members (W, room), a heap by arrival, and size. Telemetry: answered,
    delay_sum_s, histogram, batches.
    """

    cluster: Ints
    fixed_s: Floats
    per_byte_s: Floats
    batch_slope: Floats
    deviation: Floats
    law: Ints
    max_batch: Ints
    timeout_s: Floats
    servers: Ints
    down_s: Floats
    free_s: Floats
    serving: Ints
    held: Ints
    held_stream: Ints
    held_number: Ints
    held_sent_s: Floats
    held_arrival_s: Floats
    held_back_s: Floats
    members: Ints
    size: Ints
    answered: Ints
    delay_sum_s: Floats
    histogram: Ints
    batches: Ints


class Network(NamedTuple):
    """links: (S, C) ways, a way that is down has an infinite delay; (S,) access delay and uplink."""

    links: Links
    access_delay_s: Floats
    uplink_bps: Floats


class Tally(NamedTuple):
    """(windows,) queries by the window they were sent in."""

    window_s: float
    ok: Ints
    failed: Ints
    rejected: Ints


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
def make_query(s: Streams, i: int, seed: np.uint64) -> None:
    """Make stream `i`'s next query; its state is ENDED when there is none.

    Periodic frames start at a random phase; Poisson queries have exponential gaps.
    """
    n = s.number[i]
    gap = 1.0 / s.rate_qps[i]
    if s.poisson[i]:
        gap *= -np.log(uniform_of(seed, QUERY, s.id[i], n))
    elif n == 0:
        gap *= uniform_of(seed, PHASE, s.id[i], 0)
    s.sent_s[i] += gap
    s.number[i] = n + 1
    s.state[i] = WAITING if s.sent_s[i] < s.close_s[i] else ENDED


@kernel
def drop_until(s: Streams, i: int, until_s: float, failed: bool, seed: np.uint64, tally: Tally) -> bool:
    """Count the stream's queries sent before `until_s` as failed or rejected.

    Returns:
        Whether a query sent later waits to be carried.
    """
    if s.state[i] == FRESH:
        make_query(s, i, seed)
    while s.state[i] == WAITING and s.sent_s[i] < until_s:
        count_lost(s, i, s.sent_s[i], failed, tally)
        make_query(s, i, seed)
    return bool(s.state[i] == WAITING)


@kernel
def count_lost(s: Streams, i: int, sent_s: float, failed: bool, tally: Tally) -> None:
    """Count one query that nobody answered."""
    window = min(int(sent_s / tally.window_s), tally.ok.size - 1)
    if failed:
        s.failed[i] += 1
        tally.failed[window] += 1
    else:
        s.rejected[i] += 1
        tally.rejected[window] += 1


@kernel
def send(s: Streams, i: int, net: Network, cluster: int, seed: np.uint64) -> None:
    """Carry the stream's query to its worker; queries of a stream do not overtake."""
    site = s.site[i]
    delay, deviation = net.links.delay_s[site, cluster], net.links.deviation_s[site, cluster]
    there = back = delay
    if deviation > 0.0:
        up, down = normal_pair_of(seed, NETWORK, s.id[i], s.number[i] - 1)
        there, back = max(delay + deviation * up, 0.0), max(delay + deviation * down, 0.0)
    slowest = min(net.uplink_bps[site], net.links.bandwidth_bps[site, cluster])
    travel = there + net.access_delay_s[site] + s.size_bytes[i] * 8.0 / slowest
    s.arrival_s[i] = max(s.before_s[i], max(s.sent_s[i], s.from_s[i]) + travel)
    s.back_s[i] = back + net.access_delay_s[site]


@kernel
def hold(w: int, s: Streams, workers: Workers, net: Network, seed: np.uint64) -> None:
    """Take the query that arrived first into the batch, and send its stream's next one."""
    heap = workers.members[w]
    i, k = heap[0], workers.held[w]
    workers.held_stream[w, k] = i
    workers.held_number[w, k] = s.number[i] - 1
    workers.held_sent_s[w, k] = s.sent_s[i]
    workers.held_arrival_s[w, k] = s.arrival_s[i]
    workers.held_back_s[w, k] = s.back_s[i]
    workers.held[w] = k + 1
    s.before_s[i] = s.arrival_s[i]
    make_query(s, i, seed)
    if s.state[i] == WAITING:
        send(s, i, net, workers.cluster[w], seed)
    else:
        workers.size[w] -= 1
        heap[0] = heap[workers.size[w]]
    sift(heap, workers.size[w], s.arrival_s)


@kernel
def service_s(w: int, s: Streams, workers: Workers, seed: np.uint64) -> float:
    """Processing delay of the batch that worker `w` holds."""
    largest, count = 0.0, workers.held[w]
    for k in range(count):
        largest = max(largest, s.size_bytes[workers.held_stream[w, k]])
    mean = (workers.fixed_s[w] + workers.per_byte_s[w] * largest) * (
        1.0 + workers.batch_slope[w] * (count - 1)
    )
    first, number = s.id[workers.held_stream[w, 0]], workers.held_number[w, 0]
    if workers.law[w] == EXPONENTIAL:
        return float(mean * -np.log(uniform_of(seed, SERVICE, first, number)))
    if workers.deviation[w] > 0.0:
        noise, _ = normal_pair_of(seed, SERVICE, first, number)
        return float(mean * max(1.0 + workers.deviation[w] * noise, 0.0))
    return float(mean)


@kernel
def answer(w: int, finish_s: float, s: Streams, workers: Workers, tally: Tally) -> None:
    """Return the batch to its clients and judge every query by its deadline."""
    lost = finish_s > workers.down_s[w]
    for k in range(workers.held[w]):
        i, sent_s = workers.held_stream[w, k], workers.held_sent_s[w, k]
        if lost:
            count_lost(s, i, sent_s, True, tally)
            continue
        delay = finish_s + workers.held_back_s[w, k] - sent_s
        s.delay_sum_s[i] += delay
        s.delay_max_s[i] = max(s.delay_max_s[i], delay)
        window = min(int(sent_s / tally.window_s), tally.ok.size - 1)
        if delay <= s.deadline_s[i]:
            s.ok[i] += 1
            tally.ok[window] += 1
        else:
            s.failed[i] += 1
            tally.failed[window] += 1
        sojourn = finish_s - workers.held_arrival_s[w, k]
        workers.answered[w] += 1
        workers.delay_sum_s[w] += sojourn
        workers.histogram[w, delay_bin(sojourn)] += 1


@kernel
def advance_worker(
    w: int, until_s: float, s: Streams, workers: Workers, net: Network, seed: np.uint64, tally: Tally
) -> None:
    """Serve every batch of worker `w` that starts before `until_s`, first come first served.

    A free server waits `timeout_s` from the first query's arrival for the batch to fill. What
    arrived before `until_s` is final, so a batch may be gathered now and start in a later call.
    """
    heap, most = workers.members[w], workers.max_batch[w]
    while True:
        if workers.held[w] == 0:
            if workers.size[w] == 0 or s.arrival_s[heap[0]] >= until_s:
                return
            hold(w, s, workers, net, seed)
        server = 0
        for c in range(1, workers.servers[w]):
            if workers.free_s[w, c] < workers.free_s[w, server]:
                server = c
        free = workers.free_s[w, server]
        start = max(free, workers.held_arrival_s[w, 0] + workers.timeout_s[w])
        while workers.held[w] < most and workers.size[w] > 0:
            arrival = s.arrival_s[heap[0]]
            if arrival > start or arrival >= until_s:
                break
            hold(w, s, workers, net, seed)
        if workers.held[w] == most:
            start = max(free, workers.held_arrival_s[w, most - 1])
        if start >= until_s:
            return
        finish = start + service_s(w, s, workers, seed)
        workers.free_s[w, server] = finish
        workers.serving[w, server] = workers.held[w]
        workers.batches[w] += 1
        answer(w, finish, s, workers, tally)
        workers.held[w] = 0


@kernel
def advance_all(
    until_s: float, s: Streams, workers: Workers, net: Network, seed: np.uint64, tally: Tally
) -> None:
    """Advance every worker to `until_s`."""
    for w in range(workers.size.size):
        advance_worker(w, until_s, s, workers, net, seed, tally)


@kernel
def attach(
    streams: Ints,
    start: int,
    now_s: Floats,
    worker: Ints,
    s: Streams,
    workers: Workers,
    net: Network,
    seed: np.uint64,
    tally: Tally,
) -> int:
    """Send streams to their workers; what they sent before, nobody served: rejected.

    Args:
        streams, now_s, worker: (K,) which streams, from when on, and to where.
        start: where to begin in `streams`.
    Returns:
        K, or the position of the first stream whose worker's heap is full.
    """
    for k in range(start, streams.size):
        i, w = streams[k], worker[k]
        if workers.size[w] == workers.members.shape[1]:
            return k
        if drop_until(s, i, now_s[k], False, seed, tally):
            send(s, i, net, workers.cluster[w], seed)
            workers.size[w] = push(workers.members[w], workers.size[w], i, s.arrival_s)
    return streams.size


@kernel
def detach(i: int, w: int, s: Streams, workers: Workers) -> bool:
    """Take stream `i` out of worker `w`'s heap; whether it was there."""
    heap, size = workers.members[w], workers.size[w]
    found = False
    for k in range(size):
        if heap[k] == i:
            heap[k] = heap[size - 1]
            found = True
            break
    if found:
        rebuild(w, size - 1, s, workers)
    return found


@kernel
def rebuild(w: int, size: int, s: Streams, workers: Workers) -> None:
    """Make worker `w`'s first `size` members a heap again."""
    kept = workers.members[w, :size].copy()
    workers.size[w] = 0
    for i in kept:
        workers.size[w] = push(workers.members[w], workers.size[w], i, s.arrival_s)


@kernel
def fail_worker(w: int, now_s: float, s: Streams, workers: Workers, seed: np.uint64, tally: Tally) -> None:
    """Worker `w` went down: what it holds is lost, and so is what was sent to it before `now_s`."""
    for k in range(workers.held[w]):
        count_lost(s, workers.held_stream[w, k], workers.held_sent_s[w, k], True, tally)
    for k in range(workers.size[w]):
        drop_until(s, workers.members[w, k], now_s, True, seed, tally)
    workers.held[w] = 0
    workers.size[w] = 0


@kernel
def resend(
    site: int, cluster: int, now_s: float, s: Streams, workers: Workers, net: Network, seed: np.uint64
) -> None:
    """The way from `site` to `cluster` changed: queries that leave from `now_s` on go by the new one."""
    for w in range(workers.size.size):
        if workers.cluster[w] != cluster:
            continue
        for k in range(workers.size[w]):
            i = workers.members[w, k]
            if s.site[i] == site and s.sent_s[i] >= now_s:
                send(s, i, net, cluster, seed)
        rebuild(w, workers.size[w], s, workers)
