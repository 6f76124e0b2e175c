"""Streams over shared links: payloads take their turns on links there, answers on links back.

Queries of streams are sent whatever becomes of them, so a window goes in levels: streams send; links carry
on level by level; workers serve; links carry answers back. All queries that a stream sent before a moment are
on their way then. A stream that loses its way begins another epoch: what it sent before uses its links to the
end, and is lost. One that moves leaves a row behind, whose that is from then on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.state import Ways
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.sim.links.advance import pass_levels, soonest_change
from edgewise.sim.links.fifo import soonest_there
from edgewise.sim.links.net import FIFO, MESSAGES, depart, forget, look, new_message, next_look_s
from edgewise.sim.streams.lines import OnLinks, Senders, next_here_s, stand, take
from edgewise.sim.streams.queues import (
    begin,
    drop_until,
    judge,
    lose,
    lose_with,
    make_query,
    room_to_lose,
    send,
)
from edgewise.sim.streams.servers import soonest
from edgewise.sim.streams.state import FAILED, REJECTED, WAITING, Streams, Tally, Workers

TOGETHER = 1000  # messages that are carried on together, so that they stay in the cache
SHORT_S = 0.05  # as many come in so short a time in most worlds: it would take longer to add up all rates
AT_WORKERS = 3000  # so many stand in line at workers before these go on, each for a while
COME, HOME = range(2)  # sinks: payloads that are through, answers that came


@kernel
def serve_until(
    until_s: float, s: Streams, carried: OnLinks, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> bool:
    """`serve_on`, where others may have changed workers since."""
    carried.lines.wakes_s[:] = -np.inf
    return serve_on(until_s, s, carried, workers, ways, seed, tally)


@kernel
def serve_on(
    until_s: float, s: Streams, carried: OnLinks, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> bool:
    """Let streams send, links carry and workers serve up to `until_s`; `now_s` says how far they are.

    Steps are as long as about `TOGETHER` messages take, so that they stay in the cache.

    Returns:
        Whether that is done; else there must be room for more messages to go on.
    """
    x, w = held(carried), held(workers)
    net, step_s = x.net, np.inf
    if until_s - x.now_s[0] > SHORT_S and x.senders.many[0] > 0:
        step_s = min(TOGETHER / rate_of_all(s, x.senders), 1.0)
    while x.now_s[0] < until_s:
        end_s = min(until_s, next_look_s(net))
        to_s = min(x.now_s[0] + step_s, end_s)
        if x.feeds_back:  # what begins to be served in a step is answered after it
            to_s = min(to_s, max(next_start_s(x, w), np.nextafter(x.now_s[0], np.inf)))
        if not send_all(to_s, s, x, w, ways, seed):
            return False
        pass_levels(net, 0, x.there, to_s)
        if not take_in(s, x, w, tally):
            return False
        if to_s == end_s or x.feeds_back or x.lines.many[0] > AT_WORKERS:
            for k in range(w.each.size):
                if x.lines.wakes_s[k] < to_s and not serve_one(k, to_s, s, x, w, ways, seed, tally):
                    return False
            pass_levels(net, x.there, net.sinks, to_s)
            take_home(s, x, tally)
        look(net, to_s)
        x.now_s[0] = to_s
    return True


@inner
def next_start_s(x: OnLinks, workers: Workers) -> float:
    """No worker begins a batch before, all having been served up to now."""
    net, found_s = x.net, np.inf
    for k in range(x.senders.many[0]):
        found_s = min(found_s, x.senders.next_s[k])
    for row in range(net.sinks):
        for k in range(net.many[row]):
            if net.sharing == FIFO:
                found_s = min(found_s, soonest_there(net, net.messages[net.lists[row, k].slot]))
    for j in range(net.links.size):
        slot = net.links[j].first
        while slot >= 0:
            found_s = min(found_s, soonest_there(net, net.messages[slot]))
            slot = net.messages[slot].left
    if net.sharing != FIFO:
        found_s = min(found_s, soonest_change(net))
    for k in range(workers.each.size):
        w, batch = workers.each[k], workers.batch[k]
        if x.lines.each[k].first >= 0 and w.held < w.max_batch:
            found_s = min(found_s, max(x.lines.queries[x.lines.each[k].first].at_s, x.now_s[0]))
        if w.held > 0:
            ready_s = batch[0].arrival_s + w.timeout_s
            if w.held == w.max_batch:
                ready_s = batch[w.held - 1].arrival_s
            found_s = min(found_s, max(workers.servers[k, soonest(w, workers.servers[k])].free_s, ready_s))
    return found_s


@inner
def send_all(until_s: float, s: Streams, x: OnLinks, workers: Workers, ways: Ways, seed: np.uint64) -> bool:
    """Let streams send all that leaves before `until_s`; as `serve_until` returns.

    Each that is due sends one query, then each that is still due: no branch depends on how many it has, which
    a processor would guess wrongly.
    """
    senders, due, many, over = x.senders, x.senders.due, 0, False
    if senders.soonest_s[0] >= until_s:
        return True
    for at in range(senders.many[0]):
        due[many] = at
        many += senders.next_s[at] < until_s
    while many > 0:
        more = 0
        for k in range(many):
            if x.net.free[MESSAGES] < 0:
                return False
            at = due[k]
            i = senders.sending[at]
            q, cluster = s[i], workers.each[senders.each[i].worker].cluster
            tx_s = send(q, ways[q.site, cluster], seed)
            q.before_s = q.arrival_s
            post(x, i, q, ways[q.site, cluster], q.site * ways.shape[1] + cluster, tx_s)
            make_query(q, seed)
            senders.next_s[at] = q.sent_s if q.state == WAITING else np.inf
            over = over or q.state != WAITING
            due[more] = at
            more += senders.next_s[at] < until_s
        many = more
    if over:
        leave_out(senders)
    senders.soonest_s[0] = np.inf
    for at in range(senders.many[0]):
        senders.soonest_s[0] = min(senders.soonest_s[0], senders.next_s[at])
    return True


@inner
def rate_of_all(s: Streams, x: Senders) -> float:
    """Queries per second of all who send."""
    rate_qps = 0.0
    for at in range(x.many[0]):
        rate_qps += s[x.sending[at]].rate_qps
    return rate_qps


@inner
def leave_out(x: Senders) -> None:
    """Take out who has sent all."""
    at = 0
    while at < x.many[0]:
        if x.next_s[at] == np.inf:
            send_no_more(at, x)
        else:
            at += 1


@inner
def send_no_more(at: int, x: Senders) -> None:
    """Take a stream out of those that send."""
    x.many[0] -= 1
    x.sending[at], x.next_s[at] = x.sending[x.many[0]], x.next_s[x.many[0]]


@inner
def post(x: OnLinks, i: int, q: Any, way: Any, route: int, tx_s: float) -> None:
    """Stream `i`'s query sets out; `send` has said when it would be there with every link to itself."""
    slot = new_message(x.net)
    m = x.net.messages[slot]
    m.who, m.number, m.epoch, m.sink, m.route = i, q.number - 1, x.senders.each[i].epoch, COME, route
    m.bits, m.sent_s, m.back_s, m.due_s = q.size_bytes * 8.0, q.sent_s, q.back_s, q.arrival_s
    m.answer_s = q.answer_bytes * 8.0 / way.bps if q.answer_bytes > 0.0 else 0.0
    m.base_s, m.tx_s = max(q.sent_s, q.from_s) + way.access_s, tx_s
    m.there_s = max(m.due_s - m.base_s - m.tx_s, 0.0)
    depart(x.net, slot, m)


@inner
def take_in(s: Streams, x: OnLinks, workers: Workers, tally: Tally) -> bool:
    """Payloads that are through come to their workers; queries of a stream do not overtake."""
    net, many = x.net, x.net.many[x.net.sinks + COME]
    if x.lines.many[0] + many > x.lines.queries.size or not room_to_lose(workers, many):
        return False
    for k in range(many):
        slot = net.lists[net.sinks + COME, k].slot
        m = net.messages[slot]
        sender = x.senders.each[m.who]
        if m.lost or m.epoch != sender.epoch:
            lose(s[m.who], m.sent_s, FAILED, tally)
            forget(net, slot)
            continue
        if workers.each[sender.worker].dead:
            lose_with(sender.worker, m.who, m.number, m.sent_s, s, workers, tally)
            forget(net, slot)
            continue
        sender.came_s = max(m.at_s, sender.came_s)
        h = x.lines.queries[stand(x, sender.worker, m.who, m.number, sender.came_s)]
        h.sent_s, h.back_s, h.slot = m.sent_s, m.back_s, slot
        if m.answer_s == 0.0:
            forget(net, slot)
    net.many[net.sinks + COME] = 0
    return True


@inner
def serve_one(
    k: int,
    until_s: float,
    s: Streams,
    x: OnLinks,
    workers: Workers,
    ways: Ways,
    seed: np.uint64,
    tally: Tally,
) -> bool:
    """`queues.advance_worker` on the queries in line at worker `k`; notes when it goes on at the soonest."""
    w, servers, batch, line = workers.each[k], workers.servers[k], workers.batch[k], x.lines.each[k]
    while True:
        here_s = next_here_s(x.lines, line)
        if w.held == 0:
            if here_s >= until_s:
                x.lines.wakes_s[k] = here_s
                return True
            take(line, w, servers, batch, s, x)
            if w.held == 0:
                continue
        first = soonest(w, servers)
        free_s = servers[first].free_s
        start_s = max(free_s, batch[0].arrival_s + w.timeout_s)
        while w.held < w.max_batch:
            here_s = next_here_s(x.lines, line)
            if here_s > start_s or here_s >= until_s:
                break
            take(line, w, servers, batch, s, x)
        if w.held == w.max_batch:
            start_s = max(free_s, batch[w.held - 1].arrival_s)
        if start_s >= until_s:
            x.lines.wakes_s[k] = min(start_s, next_here_s(x.lines, line))
            return True
        if not room_to_lose(workers, w.held):
            return False
        begin(k, first, start_s, s, workers, seed)
        reply(k, first, s, x, workers, ways, tally)
        w.held = 0


@inner
def reply(k: int, c: int, s: Streams, x: OnLinks, workers: Workers, ways: Ways, tally: Tally) -> None:
    """`queues.answer` over links: answers of a size set out when the batch ends."""
    w, server, batch = workers.each[k], workers.servers[k, c], workers.batch[k]
    finish_s = server.free_s
    lost = finish_s > w.down_s
    server.uncounted = 0 if lost else w.held
    for j in range(w.held):
        h = batch[j]
        q = s[h.stream]
        if lost:
            lose_with(k, h.stream, h.number, h.sent_s, s, workers, tally)
            if q.answer_bytes > 0.0:
                forget(x.net, h.slot)
            continue
        workers.sojourn_s[k, c, j] = finish_s - h.arrival_s
        if q.answer_bytes > 0.0:
            post_back(h, finish_s, q, x, ways, w.cluster)
        else:
            judge(q, finish_s + h.back_s - h.sent_s, h.sent_s, tally)


@inner
def post_back(h: Any, finish_s: float, q: Any, x: OnLinks, ways: Ways, cluster: int) -> None:
    """An answer sets out, in the place of its payload."""
    m, way = x.net.messages[h.slot], ways[q.site, cluster]
    m.sink, m.route = HOME, q.site * ways.shape[1] + cluster + ways.size
    m.bits, m.base_s, m.due_s = q.answer_bytes * 8.0, finish_s, finish_s + h.back_s
    m.tx_s = m.bits / x.net.routes[m.route].bps
    m.due_s += m.tx_s - m.answer_s  # the way back may have less left than the way there
    m.there_s = max(h.back_s - way.access_s - m.answer_s, 0.0)
    depart(x.net, h.slot, m)


@inner
def take_home(s: Streams, x: OnLinks, tally: Tally) -> None:
    """Answers reach their clients."""
    net = x.net
    for k in range(net.many[net.sinks + HOME]):
        slot = net.lists[net.sinks + HOME, k].slot
        m = net.messages[slot]
        if m.lost:
            lose(s[m.who], m.sent_s, FAILED, tally)
        else:
            judge(s[m.who], m.at_s - m.sent_s, m.sent_s, tally)
        forget(net, slot)
    net.many[net.sinks + HOME] = 0


@kernel
def attach(
    streams: Ints, now_s: Floats, worker: Ints, s: Streams, senders: Senders, seed: np.uint64, tally: Tally
) -> None:
    """Let streams send to workers; what they sent before, nobody served: rejected.

    Args:
        streams, now_s, worker: (K,) which streams, from when on, and to where.
    """
    for k in range(streams.size):
        i = streams[k]
        if drop_until(s, i, now_s[k], REJECTED, seed, tally):
            at = senders.many[0]
            senders.each[i].worker, senders.sending[at], senders.next_s[at] = worker[k], i, s[i].sent_s
            senders.many[0] += 1
            senders.soonest_s[0] = min(senders.soonest_s[0], s[i].sent_s)


@kernel
def lose_rest(s: Streams, carried: OnLinks, tally: Tally) -> None:
    """Nothing will happen any more: what links that carry nothing still hold is lost."""
    for slot in range(carried.net.messages.size):
        m = carried.net.messages[slot]
        if m.number >= 0 and m.sink <= HOME:
            lose(s[m.who], m.sent_s, FAILED, tally)
            forget(carried.net, slot)
