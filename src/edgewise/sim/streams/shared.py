"""Streams over shared links: payloads take their turns on links there, answers on links back.

Queries of streams are sent whatever becomes of them, so a window goes in levels: streams send; links carry
on level by level; workers serve; links carry answers back. All queries that a stream sent before a moment are
on their way then. A stream that moves or loses its way begins another epoch: what it sent before uses its
links to the end, and is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import inner, kernel
from edgewise.core.dispatch.state import Ways
from edgewise.core.held import held
from edgewise.sim.links.advance import pass_levels, soonest_change
from edgewise.sim.links.net import FIFO, MESSAGES, Net, append, depart, forget, new_message
from edgewise.sim.links.sort import take_sorted
from edgewise.sim.streams.guests import ask
from edgewise.sim.streams.queues import (
    ENDED,
    FAILED,
    REJECTED,
    WAITING,
    Streams,
    Tally,
    Workers,
    begin,
    drop_until,
    judge,
    lose,
    make_query,
    send,
)
from edgewise.sim.streams.servers import may_begin, soonest

SENDING, TURN = range(2)  # of `OnLinks.many`
TOGETHER = 300  # messages that are carried on together, so that they stay in the cache
AT_WORKERS = 3000  # so many wait at workers before these go on, each for a while
COME, HERE, HOME = range(3)  # sinks: payloads that came, those that wait at workers, answers that came


class OnLinks(NamedTuple):
    """What of streams goes over shared links.

    net: the links. epoch: (N,) how often a stream was moved. worker: (N,) where it sends, -1 nowhere. came_s:
    (N,) when its last query came. sending: (N,) streams that send, the first `many[SENDING]` of them; next_s:
    (N,) when each does next; `many[TURN]`: whose turn it is in this step. now_s: (1,) up to when all is done.
    there: how many levels lie on the ways there. feeds_back: answers use links that payloads use.
    """

    net: Net
    epoch: Ints
    worker: Ints
    came_s: Floats
    sending: Ints
    next_s: Floats
    many: Ints
    now_s: Floats
    there: int
    feeds_back: bool


@kernel
def serve_until(
    until_s: float, s: Streams, carried: OnLinks, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> bool:
    """Let streams send, links carry and workers serve up to `until_s`; `now_s` says how far they are.

    Steps are as long as about `TOGETHER` messages take, so that they stay in the cache.

    Returns:
        Whether that is done; else there must be room for more messages to go on.
    """
    x, w = held(carried), held(workers)
    net, rate_qps = x.net, 0.0
    for k in range(x.many[SENDING]):
        rate_qps += s[x.sending[k]].rate_qps
    while x.now_s[0] < until_s:
        step_s = min(TOGETHER / rate_qps, 1.0) if x.many[SENDING] > 0 else np.inf
        to_s = min(x.now_s[0] + step_s, until_s)
        if x.feeds_back:  # what begins to be served in a step is answered after it
            to_s = min(to_s, max(next_start_s(x, w), np.nextafter(x.now_s[0], np.inf)))
        if not send_all(to_s, s, x, w, ways, seed):
            return False
        pass_levels(net, 0, x.there, to_s)
        take_in(s, x, tally)
        if to_s == until_s or x.feeds_back or net.many[net.sinks + HERE] > AT_WORKERS:
            serve_all(to_s, s, x, w, ways, seed, tally)
            pass_levels(net, x.there, net.sinks, to_s)
            take_home(s, x, tally)
        x.now_s[0], x.many[TURN] = to_s, 0
    return True


@inner
def next_start_s(x: OnLinks, workers: Workers) -> float:
    """No worker begins a batch before, all having been served up to now."""
    net, found_s = x.net, np.inf
    for k in range(x.many[SENDING]):
        found_s = min(found_s, x.next_s[k])
    for row in range(net.sinks):
        for k in range(net.many[row]):
            if net.sharing == FIFO:
                m = net.messages[net.lists[row, k]]
                at_s = m.start_s if m.begun else m.at_s
                found_s = min(found_s, max(at_s, m.due_s + m.wait_s))
    if net.sharing != FIFO:
        found_s = min(found_s, soonest_change(net))
    for k in range(net.many[net.sinks + HERE]):
        if net.when[net.sinks + HERE, k] >= x.now_s[0]:  # else it waits behind a batch
            found_s = min(found_s, net.when[net.sinks + HERE, k])
    for k in range(workers.each.size):
        w, batch = workers.each[k], workers.batch[k]
        if w.held > 0:
            ready_s = batch[0].arrival_s + w.timeout_s
            if w.held == w.max_batch:
                ready_s = batch[w.held - 1].arrival_s
            found_s = min(found_s, max(workers.servers[k, soonest(w, workers.servers[k])].free_s, ready_s))
    return found_s


@inner
def send_all(until_s: float, s: Streams, x: OnLinks, workers: Workers, ways: Ways, seed: np.uint64) -> bool:
    """Let streams send all that leaves before `until_s`; as `serve_until` returns."""
    while x.many[TURN] < x.many[SENDING]:
        at = x.many[TURN]
        if x.next_s[at] < until_s:
            i = x.sending[at]
            q, cluster = s[i], workers.each[x.worker[i]].cluster
            while q.state == WAITING and q.sent_s < until_s:
                if x.net.free[MESSAGES] < 0:
                    return False
                send(q, ways[q.site, cluster], seed)
                q.before_s = q.arrival_s
                post(i, s, x, ways, cluster)
                make_query(q, seed)
            x.next_s[at] = q.sent_s
            if q.state == ENDED:
                send_no_more(at, x)
                continue
        x.many[TURN] += 1
    return True


@inner
def send_no_more(at: int, x: OnLinks) -> None:
    """Take a stream out of those that send."""
    x.many[SENDING] -= 1
    x.sending[at], x.next_s[at] = x.sending[x.many[SENDING]], x.next_s[x.many[SENDING]]


@inner
def post(i: int, s: Streams, x: OnLinks, ways: Ways, cluster: int) -> None:
    """Stream `i`'s query sets out; `send` has said when it would be there with every link to itself."""
    net, q, slot = x.net, s[i], new_message(x.net)
    m, way = net.messages[slot], ways[q.site, cluster]
    m.who, m.number, m.epoch, m.sink = i, q.number - 1, x.epoch[i], COME
    m.route = q.site * ways.shape[1] + cluster
    m.bits, m.sent_s, m.back_s, m.due_s = q.size_bytes * 8.0, q.sent_s, q.back_s, q.arrival_s
    m.answer_s = q.answer_bytes * 8.0 / way.bps
    m.base_s, m.tx_s = max(q.sent_s, q.from_s) + way.access_s, m.bits / way.bps
    m.there_s = max(m.due_s - m.base_s - m.tx_s, 0.0)
    depart(net, slot)


@inner
def take_in(s: Streams, x: OnLinks, tally: Tally) -> None:
    """Payloads that came wait at their workers; queries of a stream do not overtake."""
    net = x.net
    for k in range(net.many[net.sinks + COME]):
        slot = net.lists[net.sinks + COME, k]
        m = net.messages[slot]
        if m.lost or m.epoch != x.epoch[m.who]:
            lose(s[m.who], m.sent_s, FAILED, tally)
            forget(net, slot)
            continue
        m.at_s = max(m.at_s, x.came_s[m.who])
        x.came_s[m.who] = m.at_s
        m.place = x.worker[m.who]
        append(net, net.sinks + HERE, slot, m.place, m.at_s)
    net.many[net.sinks + COME] = 0


@inner
def serve_all(
    until_s: float, s: Streams, x: OnLinks, workers: Workers, ways: Ways, seed: np.uint64, tally: Tally
) -> None:
    """Every worker serves what starts before `until_s`, and keeps the rest."""
    net, here = x.net, x.net.sinks + HERE
    take_sorted(net, net.messages, here, workers.each.size)
    for k in range(workers.each.size):
        end = net.starts[k + 1]
        if net.starts[k] == end and workers.each[k].held == 0:
            continue
        for at in range(serve_one(k, until_s, s, x, workers, ways, seed, tally), end):
            append(net, here, net.slots[at], k, net.keys[at])


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
) -> int:
    """`queues.advance_worker` on the messages that wait at worker `k`; the first that still does."""
    at, end = x.net.starts[k], x.net.starts[k + 1]
    w, servers, batch = workers.each[k], workers.servers[k], workers.batch[k]
    while True:
        at = next_here(at, end, s, x, tally)
        if w.held == 0:
            if at == end or x.net.keys[at] >= until_s:
                return at
            at = take(at, w, servers, batch, s, x)
            if w.held == 0:
                continue
        first = soonest(w, servers)
        free_s = servers[first].free_s
        start_s = max(free_s, batch[0].arrival_s + w.timeout_s)
        while w.held < w.max_batch:
            at = next_here(at, end, s, x, tally)
            if at == end or x.net.keys[at] > start_s or x.net.keys[at] >= until_s:
                break
            at = take(at, w, servers, batch, s, x)
        if w.held == w.max_batch:
            start_s = max(free_s, batch[w.held - 1].arrival_s)
        if start_s >= until_s:
            return at
        begin(k, first, start_s, s, workers, seed)
        reply(w, servers[first], workers.sojourn_s[k, first], batch, s, x, ways, tally)
        w.held = 0


@inner
def next_here(at: int, end: int, s: Streams, x: OnLinks, tally: Tally) -> int:
    """The next message whose stream has not been moved since; others are lost."""
    while at < end:
        slot = x.net.slots[at]
        m = x.net.messages[slot]
        if m.epoch == x.epoch[m.who]:
            break
        lose(s[m.who], m.sent_s, FAILED, tally)
        forget(x.net, slot)
        at += 1
    return at


@inner
def take(at: int, w: Any, servers: Any, batch: Any, s: Streams, x: OnLinks) -> int:
    """Take a message into worker `w`'s batch; it is kept where an answer will need links.

    A request that could not begin by its deadline is dropped.
    """
    slot = x.net.slots[at]
    m, h = x.net.messages[slot], batch[w.held]
    q = s[m.who]
    if q.size_bytes >= 0.0 or may_begin(q, w, servers):
        h.stream, h.number, h.slot = m.who, m.number, slot
        h.sent_s, h.arrival_s, h.back_s = m.sent_s, m.at_s, m.back_s
        w.held += 1
    if q.size_bytes < 0.0:
        q.state = ENDED
    if q.answer_bytes == 0.0:
        forget(x.net, slot)
    return at + 1


@inner
def reply(
    w: Any, server: Any, sojourn_s: Floats, batch: Any, s: Streams, x: OnLinks, ways: Ways, tally: Tally
) -> None:
    """`queues.answer` over links: answers of a size set out when the batch ends."""
    finish_s = server.free_s
    lost = finish_s > w.down_s
    server.uncounted = 0 if lost else w.held
    for k in range(w.held):
        h = batch[k]
        q = s[h.stream]
        if lost:
            lose(q, h.sent_s, FAILED, tally)
            if q.answer_bytes > 0.0:
                forget(x.net, h.slot)
            continue
        sojourn_s[k] = finish_s - h.arrival_s
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
    depart(x.net, h.slot)


@inner
def take_home(s: Streams, x: OnLinks, tally: Tally) -> None:
    """Answers reach their clients."""
    net = x.net
    for k in range(net.many[net.sinks + HOME]):
        slot = net.lists[net.sinks + HOME, k]
        m = net.messages[slot]
        if m.lost:
            lose(s[m.who], m.sent_s, FAILED, tally)
        else:
            judge(s[m.who], m.at_s - m.sent_s, m.sent_s, tally)
        forget(net, slot)
    net.many[net.sinks + HOME] = 0


@kernel
def attach(
    streams: Ints, now_s: Floats, worker: Ints, s: Streams, carried: OnLinks, seed: np.uint64, tally: Tally
) -> None:
    """Let streams send to workers; what they sent before, nobody served: rejected.

    Args:
        streams, now_s, worker: (K,) which streams, from when on, and to where.
    """
    for k in range(streams.size):
        i = streams[k]
        if drop_until(s, i, now_s[k], REJECTED, seed, tally):
            carried.worker[i] = worker[k]
            carried.sending[carried.many[SENDING]], carried.next_s[carried.many[SENDING]] = i, s[i].sent_s
            carried.many[SENDING] += 1


@kernel
def join(i: int, k: int, at_s: float, work_s: float, begin_by_s: float, s: Streams, carried: OnLinks) -> bool:
    """Request `i` comes to worker `k`, see `guests.ask`; whether there is room."""
    net = carried.net
    slot = new_message(net)
    if slot < 0:
        return False
    m = net.messages[slot]
    m.who, m.number, m.epoch, m.sink, m.place = i, 0, carried.epoch[i], COME, k
    m.at_s, m.sent_s, m.back_s = at_s, 0.0, 0.0
    ask(s[i], at_s, work_s, begin_by_s)
    append(net, net.sinks + HERE, slot, k, max(at_s, carried.now_s[0]))  # who is here begins, or waits
    return True


@kernel
def detach(i: int, k: int, s: Streams, carried: OnLinks, workers: Workers) -> None:
    """Stream `i` sends no more to worker `k`; what it sent is lost, and what is held there is forgotten."""
    carried.epoch[i] += 1
    carried.came_s[i] = s[i].before_s = 0.0
    for j in range(workers.each[k].held if s[i].answer_bytes > 0.0 else 0):
        if workers.batch[k, j].stream == i:
            forget(carried.net, workers.batch[k, j].slot)
    for at in range(carried.many[SENDING]):
        if carried.sending[at] == i:
            send_no_more(at, carried)
            return


@kernel
def lose_rest(s: Streams, carried: OnLinks, tally: Tally) -> None:
    """Nothing will happen any more: what links that carry nothing still hold is lost."""
    for slot in range(carried.net.messages.size):
        m = carried.net.messages[slot]
        if m.number >= 0 and m.sink <= HOME:
            lose(s[m.who], m.sent_s, FAILED, tally)
            forget(carried.net, slot)


@kernel
def waiting(now_s: float, carried: OnLinks, workers: Workers) -> Floats:
    """(W,) queries waiting or in service at `now_s`, up to which all has been served."""
    net, queue = carried.net, np.zeros(workers.each.size)
    for k in range(net.many[net.sinks + HERE]):
        m = net.messages[net.lists[net.sinks + HERE, k]]
        if m.at_s <= now_s and m.epoch == carried.epoch[m.who]:
            queue[m.place] += 1.0
    for k in range(queue.size):
        queue[k] += workers.each[k].held
        for c in range(workers.each[k].servers):
            if workers.servers[k, c].free_s > now_s:
                queue[k] += workers.servers[k, c].serving
    return queue
