"""Workers that die, and streams that move: what becomes of queries that are under way then.

A query that was sent goes on to where it was sent, whatever becomes of its stream: what a stream has left
behind is a row of its own. What a worker loses its gateway sends elsewhere once it has heard of it, where
`core.dispatch.request_rules.goes_again` says so. Forbidden here: that rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.core.dispatch.state import Ways
from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import rise
from edgewise.sim.streams.queues import lose, lose_with, make_query, room_to_lose, send
from edgewise.sim.streams.state import FAILED, WAITING, Streams, Tally, Workers


@kernel(allocates=False)
def fail_worker(k: int, now_s: float, s: Streams, workers: Workers, tally: Tally) -> None:
    """Worker `k` dies: what it holds is lost; there is `room_to_lose` it. Requests are not there any more."""
    w, heap, kept = workers.each[k], workers.members[k], 0
    w.dead = 1
    for j in range(w.held):
        h = workers.batch[k, j]
        lose_with(k, h.stream, h.number, h.sent_s, s, workers, tally)
    for j in range(w.attached):
        if s[heap[j].order].size_bytes >= 0.0:
            heap[kept] = heap[j]
            kept += 1
    rebuild(k, kept, s, workers)
    w.held = 0
    for c in range(w.servers):
        server = workers.servers[k, c]
        if server.serving > 0:
            w.busy_s -= max(server.free_s - now_s, 0.0)
        server.serving = 0


@kernel(allocates=False)
def leave_behind(
    i: int, rest: int, k: int, now_s: float, s: Streams, workers: Workers, seed: np.uint64
) -> bool:
    """Stream `i` leaves worker `k`; what it sent before `now_s` goes on there as the stream in row `rest`.

    Returns:
        Whether there is something. What was not yet sent, it will send elsewhere.
    """
    w, heap, q = workers.each[k], workers.members[k], s[i]
    for at in range(w.attached):
        if heap[at].order == i:
            if q.sent_s >= now_s:
                detach(i, k, s, workers)
                q.before_s = 0.0
                return False
            follow(s, rest, i, min(q.close_s, now_s))
            heap[at].order = rest
            rebuild(k, w.attached, s, workers)
            while q.state == WAITING and q.sent_s < now_s:
                make_query(q, seed)
            q.before_s = 0.0
            return True
    return False


@kernel(allocates=False)
def follow(s: Streams, rest: int, i: int, close_s: float) -> None:
    """Row `rest` is of stream `i`, of whose queries it sends those that are next, before `close_s`."""
    s[rest] = s[i]
    q = s[rest]
    q.close_s, q.ok, q.failed, q.rejected, q.answered = close_s, 0, 0, 0, 0
    q.delay_sum_s = q.delay_max_s = 0.0


@kernel(allocates=False)
def give_up(
    k: int, now_s: float, s: Streams, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> bool:
    """Gateways hear that worker `k` is dead: what they have sent, and is on its way there, is lost.

    Returns:
        Whether that is done; else there must be room for more that is lost to go on.
    """
    w, heap, kept = workers.each[k], workers.members[k], 0
    for at in range(w.attached):
        q = s[heap[at].order]
        while q.state == WAITING and q.sent_s < now_s:
            if not room_to_lose(workers, 1):
                return False
            lose_with(k, heap[at].order, q.number - 1, q.sent_s, s, workers, tally)
            make_query(q, seed)
    for at in range(w.attached):
        q = s[heap[at].order]
        if q.state == WAITING:
            send(q, ways[q.site, w.cluster], seed)
            heap[kept] = heap[at]
            kept += 1
    rebuild(k, kept, s, workers)
    return True


@kernel(allocates=False)
def send_again(i: int, h: Any, rest: int, now_s: float, s: Streams) -> None:
    """Row `rest` is of stream `i`, and sends the query `h`, which was lost, again now."""
    follow(s, rest, i, h.sent_s)
    q = s[rest]
    q.number, q.sent_s, q.from_s, q.state, q.lost = h.number + 1, h.sent_s, now_s, WAITING, h.lost


@kernel(allocates=False)
def attach_again(
    i: int, rest: int, k: int, s: Streams, workers: Workers, ways: Ways, seed: np.uint64
) -> None:
    """Row `rest` sends its one query to worker `k`, where stream `i` is bound; that does not overtake it."""
    w, heap, q = workers.each[k], workers.members[k], s[i]
    send(s[rest], ways[q.site, w.cluster], seed)
    q.before_s = s[rest].arrival_s
    for at in range(w.attached):
        if heap[at].order == i:
            send(q, ways[q.site, w.cluster], seed)
    heap[w.attached].order = rest
    rebuild(k, w.attached + 1, s, workers)


@kernel(allocates=False)
def detach(i: int, k: int, s: Streams, workers: Workers) -> None:
    """Take stream `i` out of worker `k`'s heap, if it is there."""
    w, heap = workers.each[k], workers.members[k]
    for at in range(w.attached):
        if heap[at].order == i:
            heap[at] = heap[w.attached - 1]
            rebuild(k, w.attached - 1, s, workers)
            return


@kernel(allocates=False)
def withdraw(i: int, k: int, s: Streams, workers: Workers, tally: Tally) -> None:
    """Stream `i`'s queries that worker `k` holds, and has not begun with, are lost."""
    w, batch, kept = workers.each[k], workers.batch[k], 0
    for j in range(w.held):
        if batch[j].stream == i:
            lose(s[i], batch[j].sent_s, FAILED, tally)
        else:
            batch[kept] = batch[j]
            kept += 1
    w.held = kept


@kernel(allocates=False)
def rebuild(k: int, size: int, s: Streams, workers: Workers) -> None:
    """Make worker `k`'s first `size` members a heap again, by when their queries arrive now."""
    w, heap = workers.each[k], workers.members[k]
    w.attached = size
    for at in range(size):  # what rises stands at `at` still: only what is before it moves
        i = heap[at].order
        rise(heap, at, s[i].arrival_s, i)


@kernel(allocates=False)
def resend(
    site: int, cluster: int, now_s: float, s: Streams, workers: Workers, ways: Ways, seed: np.uint64
) -> None:
    """The way from `site` to `cluster` changed: queries that leave from `now_s` on go by the new one."""
    for k in range(workers.each.size):
        w = workers.each[k]
        if w.cluster != cluster:
            continue
        for j in range(w.attached):
            q = s[workers.members[k, j].order]
            if q.site == site and q.sent_s >= now_s:
                send(q, ways[site, cluster], seed)
        rebuild(k, w.attached, s, workers)
