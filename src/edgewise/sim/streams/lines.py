"""Queries that have come over shared links and stand in line at workers, by when they came."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints, Places, Records, records
from edgewise.kernels.compiled import inner, kernel
from edgewise.sim.links.net import Net, forget
from edgewise.sim.links.sort import later
from edgewise.sim.streams.queues import lose
from edgewise.sim.streams.servers import may_begin
from edgewise.sim.streams.state import ENDED, FAILED, Streams, Tally, Workers

LINE = np.dtype([("first", "i8"), ("last", "i8")])  # of queries at a worker; -1: there is none
# A stream: how often it was moved, where it sends (-1: nowhere), when its last query came.
SENDER = np.dtype([("epoch", "i4"), ("worker", "i4"), ("came_s", "f8")])
# A query in line. who, number, sent_s, back_s: of its message; slot: this, where an answer will need links.
# ahead: who stands before it, if it is not the first; behind: who comes next; -1: nobody.
IN_A_LINE = np.dtype(
    [("who", "u4")]
    + [(name, "i4") for name in ("number", "slot", "ahead", "behind")]
    + [(name, "f8") for name in ("at_s", "sent_s", "back_s")],
    align=True,
)


class AtWorkers(NamedTuple):
    """Queries at W workers.

    each: (W,) LINE, by when they came. queries: (room,) IN_A_LINE. many: (1,) so many stand in line. places:
    (room,) of `queries`, in no order; those from `many[0]` on are free. wakes_s: (W,) a worker begins nothing
    before, as things stood when it was looked at.
    """

    each: Records
    queries: Records
    many: Ints
    places: Places
    wakes_s: Floats


class Senders(NamedTuple):
    """N streams that send over links.

    each: (N,) SENDER. sending: (N,) who send, the first `many[0]` of them. next_s: (N,) when each does next;
    infinite: never. due: (N + 1,) for those who do in a step. soonest_s: (1,) none does before.
    """

    each: Records
    sending: Ints
    next_s: Floats
    many: Ints
    due: Ints
    soonest_s: Floats


class OnLinks(NamedTuple):
    """What of streams goes over shared links.

    net: the links. now_s: (1,) up to when all is done. there: how many levels lie on the ways there.
    feeds_back: answers use these links too.
    """

    net: Net
    senders: Senders
    lines: AtWorkers
    now_s: Floats
    there: int
    feeds_back: bool


def with_room(lines: AtWorkers, room: int) -> AtWorkers:
    """The same lines, with room for so many queries, or as many as now."""
    size = lines.queries.size
    queries = records((max(size, room),), IN_A_LINE)
    queries[:size] = lines.queries
    more: Places = np.arange(size, queries.size, dtype=np.uint32)
    return lines._replace(queries=queries, places=np.concatenate([lines.places, more]))


def with_rows(senders: Senders, rows: int) -> Senders:
    """The same streams, and so many more that send nothing."""
    more = records((rows,), SENDER)
    more.worker = -1
    whole, times = np.zeros(rows, dtype=np.int64), np.zeros(rows)
    return Senders(
        np.concatenate([senders.each, more]).view(np.recarray), np.concatenate([senders.sending, whole]),
        np.concatenate([senders.next_s, times]), senders.many, np.concatenate([senders.due, whole]),
        senders.soonest_s,
    )  # fmt: skip


@inner
def stand(x: OnLinks, k: int, who: int, number: int, at_s: float) -> int:
    """A query comes to worker `k`; its place in `queries`."""
    lines, line = x.lines, x.lines.each[k]
    queries, at = lines.queries, int(lines.places[lines.many[0]])
    h, ahead, behind = queries[at], line.last, -1
    lines.many[0] += 1
    lines.wakes_s[k] = -np.inf
    h.who, h.number, h.at_s = who, number, at_s
    while ahead >= 0 and at_s <= queries[ahead].at_s:
        if at_s == queries[ahead].at_s and later(queries, at, ahead):
            break
        ahead, behind = -1 if ahead == line.first else queries[ahead].ahead, ahead
    h.ahead, h.behind = ahead, behind
    if ahead < 0:
        line.first = at
    else:
        queries[ahead].behind = at
    if behind < 0:
        line.last = at
    else:
        queries[behind].ahead = at
    return at


@inner
def leave(lines: AtWorkers, line: Any, at: int) -> None:
    """A query stands in a line no more."""
    h = lines.queries[at]
    if at == line.first:
        line.first = h.behind
    else:
        lines.queries[h.ahead].behind = h.behind
    if at == line.last:
        line.last = -1 if line.first < 0 else h.ahead
    else:
        lines.queries[h.behind].ahead = h.ahead
    lines.many[0] -= 1
    lines.places[lines.many[0]] = at


@inner
def leave_all(i: int, k: int, s: Streams, x: OnLinks, tally: Tally) -> None:
    """What stream `i` has in line at worker `k` is lost."""
    line = x.lines.each[k]
    at = line.first
    while at >= 0:
        h, behind = x.lines.queries[at], x.lines.queries[at].behind
        if h.who == i:
            lose(s[i], h.sent_s, FAILED, tally)
            if s[i].answer_bytes > 0.0:
                forget(x.net, h.slot)
            leave(x.lines, line, at)
        at = behind


@inner
def next_here_s(lines: AtWorkers, line: Any) -> float:
    """When the first in line came; infinite: there is nobody."""
    return float(lines.queries[line.first].at_s) if line.first >= 0 else np.inf


@inner
def take(line: Any, w: Any, servers: Any, batch: Any, s: Streams, x: OnLinks) -> None:
    """The first in line comes into worker `w`'s batch, but a request that cannot begin by its deadline."""
    h, b = x.lines.queries[line.first], batch[w.held]
    q = s[h.who]
    if q.size_bytes >= 0.0 or may_begin(q, w, servers):
        b.stream, b.number, b.slot = h.who, h.number, h.slot
        b.sent_s, b.arrival_s, b.back_s = h.sent_s, h.at_s, h.back_s
        w.held += 1
    if q.size_bytes < 0.0:
        q.state = ENDED
    leave(x.lines, line, line.first)


@inner
def waiting_at(k: int, now_s: float, lines: AtWorkers, workers: Workers) -> int:
    """Queries waiting or in service at worker `k` at `now_s`, up to which all has been served."""
    w, at = workers.each[k], lines.each[k].first
    queue = w.held
    while at >= 0:
        queue += lines.queries[at].at_s <= now_s
        at = lines.queries[at].behind
    for c in range(w.servers):
        if workers.servers[k, c].free_s > now_s:
            queue += workers.servers[k, c].serving
    return int(queue)


@kernel
def waiting(now_s: float, lines: AtWorkers, workers: Workers) -> Floats:
    """(W,) queries waiting or in service at `now_s`, up to which all has been served."""
    queue = np.zeros(workers.each.size)
    for k in range(queue.size):
        queue[k] = waiting_at(k, now_s, lines, workers)
    return queue
