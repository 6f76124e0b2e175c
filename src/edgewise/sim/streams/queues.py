"""Streams on FIFO workers with batching: the compiled inner loop.

Between two global events bindings change nothing about queries already under way, so every
worker's queue evolves alone: one pass over the queries of each worker, in order of their
arrival there, without a global event queue. A stream's queries keep their order on the network.

Forbidden here: policies and views. This is the truth that the driver owns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.state import Ways
from edgewise.core.keyed import Purpose, exponential_of, normal_of, normal_pair_of, uniform_of
from edgewise.core.world import LAWS
from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import drop_first, rise, sink
from edgewise.sim.streams.servers import may_begin, soonest
from edgewise.sim.streams.state import ENDED, FAILED, FRESH, OK, REJECTED, WAITING, Streams, Tally, Workers
from edgewise.sim.streams.telemetry import count_answers, delay_cell

NETWORK, SERVICE, PHASE, QUERY = (
    int(p) for p in (Purpose.NETWORK, Purpose.SERVICE, Purpose.PHASE, Purpose.QUERY)
)
EXPONENTIAL = LAWS.index("exponential")


@kernel(allocates=False)
def make_query(q: Any, seed: np.uint64) -> None:
    """Make the next query of stream `q`; its state is ENDED when there is none.

    Periodic frames start at a random phase; Poisson queries have exponential gaps.
    """
    gap = 1.0 / q.rate_qps
    if q.poisson:
        gap *= exponential_of(seed, QUERY, q.id, q.number)
    elif q.number == 0:
        gap *= uniform_of(seed, PHASE, q.id, 0)
    q.sent_s += gap
    q.number += 1
    q.state = WAITING if q.sent_s < q.close_s else ENDED


@kernel(allocates=False)
def count(outcome: int, sent_s: float, tally: Tally) -> None:
    """Count one query in the window it was sent in."""
    tally.queries[outcome, min(int(sent_s / tally.window_s), tally.queries.shape[1] - 1)] += 1


@kernel(allocates=False)
def lose(q: Any, sent_s: float, outcome: int, tally: Tally) -> None:
    """Count one query of stream `q` that nobody answered; whose requests are lost knows it."""
    if q.size_bytes < 0.0:
        return
    if outcome == FAILED:
        q.failed += 1
    else:
        q.rejected += 1
    count(outcome, sent_s, tally)


@kernel(allocates=False)
def lose_with(k: int, i: int, number: int, sent_s: float, s: Streams, workers: Workers, tally: Tally) -> None:
    """A query is lost with worker `k`; where its gateway may hear of it in time, it is put down as LOST."""
    w, q = workers.each[k], s[i]
    if q.size_bytes < 0.0 or w.news_s - sent_s >= q.deadline_s:
        lose(q, sent_s, FAILED, tally)
        return
    h = workers.lost[workers.many[0]]
    h.stream, h.number, h.sent_s, h.worker, h.lost = i, number, sent_s, k, q.lost + 1
    workers.many[0] += 1


@kernel(allocates=False)
def room_to_lose(workers: Workers, queries: int) -> bool:
    """Whether so many more queries may be put down as LOST."""
    return bool(workers.many[0] + queries <= workers.lost.size)


@kernel(allocates=False)
def drop_until(s: Streams, i: int, until_s: float, outcome: int, seed: np.uint64, tally: Tally) -> bool:
    """Count stream `i`'s queries sent before `until_s` as FAILED or REJECTED.

    Returns:
        Whether a query sent later waits to be carried.
    """
    q = s[i]
    if q.state == FRESH:
        make_query(q, seed)
    while q.state == WAITING and q.sent_s < until_s:
        lose(q, q.sent_s, outcome, tally)
        make_query(q, seed)
    return bool(q.state == WAITING)


@kernel(allocates=False)
def send(q: Any, way: Any, seed: np.uint64) -> float:
    """Carry the query of stream `q` to its worker; queries of a stream do not overtake.

    Returns:
        Its transmission, in seconds.
    """
    there = back = way.delay_s
    if way.deviation_s > 0.0:
        up, down = normal_pair_of(seed, NETWORK, q.id, q.number - 1)
        there = max(way.delay_s + way.deviation_s * up, 0.0)
        back = max(way.delay_s + way.deviation_s * down, 0.0)
    tx_s = q.size_bytes * 8.0 / way.bps
    q.arrival_s = max(q.before_s, max(q.sent_s, q.from_s) + (there + way.access_s + tx_s))
    q.back_s = back + way.access_s + q.answer_bytes * 8.0 / way.bps
    return float(tx_s)


@kernel(allocates=False)
def hold(w: Any, servers: Any, s: Streams, batch: Any, heap: Any, ways: Ways, seed: np.uint64) -> None:
    """Take the query that arrived first into worker `w`'s batch, and send its stream's next one.

    A request that could not begin by its deadline is dropped.
    """
    i = heap[0].order
    q, h = s[i], batch[w.held]
    if q.size_bytes >= 0.0 or may_begin(q, w, servers):
        h.stream = i
        h.number = q.number - 1
        h.sent_s = q.sent_s
        h.arrival_s = q.arrival_s
        h.back_s = q.back_s
        w.held += 1
    go_on(w, heap, s, ways, seed)


@kernel(allocates=False)
def go_on(w: Any, heap: Any, s: Streams, ways: Ways, seed: np.uint64) -> None:
    """The stream whose query came first to worker `w` sends its next one."""
    i = heap[0].order
    q = s[i]
    q.before_s = q.arrival_s
    make_query(q, seed)
    if q.state == WAITING:
        send(q, ways[q.site, w.cluster], seed)
        sink(heap, w.attached, q.arrival_s, i)
    else:
        w.attached -= 1
        drop_first(heap, w.attached)


@kernel(allocates=False)
def service_s(w: Any, s: Streams, batch: Any, seed: np.uint64) -> float:
    """Processing delay of the batch that worker `w` holds; with requests, that of who needs longest."""
    largest, longest_s = 0.0, 0.0
    for k in range(w.held):
        size = s[batch[k].stream].size_bytes
        largest, longest_s = max(largest, size), max(longest_s, -size)
    more, at = 1.0 + w.batch_slope * (w.held - 1), 0
    mean = (w.fixed_s + w.per_byte_s * largest) * more
    if longest_s > 0.0:
        longest_s *= more
        while s[batch[at].stream].size_bytes < 0.0:
            at += 1
            if at == w.held:  # there are no others
                return float(longest_s)
    first, number = s[batch[at].stream].id, batch[at].number
    if w.law == EXPONENTIAL:
        mean *= exponential_of(seed, SERVICE, first, number)
    elif w.deviation > 0.0:
        mean *= max(1.0 + w.deviation * normal_of(seed, SERVICE, first, number), 0.0)
    return float(max(mean, longest_s))


@kernel(allocates=False)
def judge(q: Any, delay_s: float, sent_s: float, tally: Tally) -> None:
    """Count an answer to stream `q` by its deadline; of a request, which is sent at 0, note its end."""
    if q.size_bytes < 0.0:
        q.delay_max_s = delay_s
        return
    q.answered += 1
    q.delay_sum_s += delay_s
    q.delay_max_s = max(q.delay_max_s, delay_s)
    tally.delays[q.application, delay_cell(delay_s)] += 1
    if delay_s <= q.deadline_s:
        q.ok += 1
        count(OK, sent_s, tally)
    else:
        q.failed += 1
        count(FAILED, sent_s, tally)


@kernel(allocates=False)
def answer(k: int, c: int, s: Streams, workers: Workers, tally: Tally) -> None:
    """Return the batch to its clients when server `c` is free again; judge every query by its deadline."""
    w, server, batch, sojourn_s = workers.each[k], workers.servers[k, c], workers.batch[k], workers.sojourn_s
    finish_s = server.free_s
    lost = finish_s > w.down_s
    server.uncounted = 0 if lost else w.held
    for j in range(w.held):
        h = batch[j]
        if lost:
            lose_with(k, h.stream, h.number, h.sent_s, s, workers, tally)
            continue
        judge(s[h.stream], finish_s + h.back_s - h.sent_s, h.sent_s, tally)
        sojourn_s[k, c, j] = finish_s - h.arrival_s


@kernel(allocates=False)
def arrive_dead(
    k: int, until_s: float, s: Streams, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> bool:
    """What comes to worker `k`, which is dead, before `until_s` is lost; as `advance_worker` returns."""
    w, heap = workers.each[k], workers.members[k]
    while w.attached > 0 and heap[0].at_s < until_s:
        if not room_to_lose(workers, 1):
            return False
        i = heap[0].order
        q = s[i]
        lose_with(k, i, q.number - 1, q.sent_s, s, workers, tally)
        go_on(w, heap, s, ways, seed)
    return True


@kernel(allocates=False)
def begin(k: int, c: int, start_s: float, s: Streams, workers: Workers, seed: np.uint64) -> None:
    """Server `c` of worker `k` begins with the batch that the worker holds."""
    w, server = workers.each[k], workers.servers[k, c]
    count_answers(k, c, workers)  # of its last batch: it has ended, since the server is free
    took_s = service_s(w, s, workers.batch[k], seed)
    server.free_s = start_s + took_s
    w.busy_s += took_s
    server.serving = w.held
    w.batches += 1


@kernel(allocates=False)
def advance_worker(
    k: int, until_s: float, s: Streams, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> bool:
    """Serve every batch of worker `k` that starts before `until_s`, first come first served.

    A free server waits `timeout_s` from the first query's arrival for the batch to fill. What
    arrived before `until_s` is final, so a batch may be gathered now and start in a later call.

    Returns:
        Whether that is done; else there must be room for more that is lost to go on.
    """
    w, servers, batch, heap = workers.each[k], workers.servers[k], workers.batch[k], workers.members[k]
    if w.dead:
        return arrive_dead(k, until_s, s, workers, ways, seed, tally)
    while True:
        if w.held == 0:
            if w.attached == 0 or heap[0].at_s >= until_s:
                return True
            hold(w, servers, s, batch, heap, ways, seed)
            if w.held == 0:
                continue
        first = soonest(w, servers)
        free = servers[first].free_s
        start = max(free, batch[0].arrival_s + w.timeout_s)
        while w.held < w.max_batch and w.attached > 0:
            arrival = heap[0].at_s
            if arrival > start or arrival >= until_s:
                break
            hold(w, servers, s, batch, heap, ways, seed)
        if w.held == w.max_batch:
            start = max(free, batch[w.held - 1].arrival_s)
        if start >= until_s:
            return True
        if not room_to_lose(workers, w.held):
            return False
        begin(k, first, start, s, workers, seed)
        answer(k, first, s, workers, tally)
        w.held = 0


@kernel(allocates=False)
def advance_all(
    until_s: float, s: Streams, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> bool:
    """Advance every worker to `until_s`; as `advance_worker` returns."""
    done = True
    for k in range(workers.each.size):
        done &= advance_worker(k, until_s, s, workers, ways, seed, tally)
    return done


@kernel(allocates=False)
def attach(
    streams: Ints,
    now_s: Floats,
    worker: Ints,
    s: Streams,
    workers: Workers,
    ways: Ways,
    seed: np.uint64,
    tally: Tally,
) -> int:
    """Send streams to their workers; what they sent before, nobody served: rejected.

    Args:
        streams, now_s, worker: (K,) which streams, from when on, and to where.
    Returns:
        K, or the position of the first stream whose worker's heap is full.
    """
    for k in range(streams.size):
        i, w = streams[k], workers.each[worker[k]]
        if w.attached == workers.members.shape[1]:
            return k
        if drop_until(s, i, now_s[k], REJECTED, seed, tally):
            send(s[i], ways[s[i].site, w.cluster], seed)
            rise(workers.members[worker[k]], w.attached, s[i].arrival_s, i)
            w.attached += 1
    return streams.size
