"""Queries that have come over shared links and stand in line at workers, by when they came."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints, Records
from edgewise.core.compiled import inner, kernel
from edgewise.sim.links.net import Net, forget
from edgewise.sim.links.sort import later
from edgewise.sim.streams.queues import ENDED, FAILED, Streams, Tally, Workers, lose
from edgewise.sim.streams.servers import may_begin

FREE, SENDING, IN_LINE = range(3)  # of `OnLinks.many`
LINE = np.dtype([("first", "i8"), ("last", "i8")])  # of queries at a worker; -1: there is none
# A stream: how often it was moved, where it sends (-1: nowhere), when its last query came.
SENDER = np.dtype([("epoch", "i8"), ("worker", "i8"), ("came_s", "f8")])
# A query in line. who, number, epoch, sent_s, back_s: of its message; slot: this, where an answer will need
# links. ahead: who stands before it, if it is not the first; left: who behind it, or the next that is free;
# number: -1, it is free.
IN_A_LINE = np.dtype(
    [("who", "u4")]
    + [(name, "i4") for name in ("number", "epoch", "slot", "ahead", "left")]
    + [(name, "f8") for name in ("at_s", "sent_s", "back_s")]
)


class OnLinks(NamedTuple):
    """What of streams goes over shared links.

    net: the links. queries: (room,) IN_A_LINE; `many[FREE]` is free. line: (W,) LINE, by when they came.
    sender: (N,) SENDER. sending: (N,) who send, the first `many[SENDING]` of them; next_s: (N,) when each
    does next. now_s: (1,) up to when all is done. there: how many levels lie on the ways there.
    feeds_back: answers use these links too.
    """

    net: Net
    queries: Records
    line: Records
    sender: Records
    sending: Ints
    next_s: Floats
    many: Ints
    now_s: Floats
    there: int
    feeds_back: bool


@inner
def stand(x: OnLinks, k: int, who: int, number: int, at_s: float) -> int:
    """A query comes to worker `k`; its place in `queries`."""
    queries, line, at = x.queries, x.line[k], x.many[FREE]
    h, ahead, behind = queries[at], line.last, -1
    x.many[FREE] = h.left
    x.many[IN_LINE] += 1
    h.who, h.number, h.at_s = who, number, at_s
    while ahead >= 0 and at_s <= queries[ahead].at_s:
        if at_s == queries[ahead].at_s and later(queries, at, ahead):
            break
        ahead, behind = -1 if ahead == line.first else queries[ahead].ahead, ahead
    h.ahead, h.left = ahead, behind
    if ahead < 0:
        line.first = at
    else:
        queries[ahead].left = at
    if behind < 0:
        line.last = at
    else:
        queries[behind].ahead = at
    return int(at)


@inner
def go(x: OnLinks, line: Any) -> None:
    """The first in line is there no more."""
    at = line.first
    h = x.queries[at]
    line.first = h.left
    if h.left < 0:
        line.last = -1
    h.left, h.number, x.many[FREE] = x.many[FREE], -1, at
    x.many[IN_LINE] -= 1


@inner
def next_here_s(line: Any, until_s: float, s: Streams, x: OnLinks, tally: Tally) -> float:
    """When the first in line came, by `until_s` if nobody before; whose stream was moved since is lost."""
    while line.first >= 0:
        h = x.queries[line.first]
        if h.at_s >= until_s or h.epoch == x.sender[h.who].epoch:
            return float(h.at_s)
        lose(s[h.who], h.sent_s, FAILED, tally)
        if s[h.who].answer_bytes > 0.0:
            forget(x.net, h.slot)
        go(x, line)
    return until_s


@inner
def take(line: Any, w: Any, servers: Any, batch: Any, s: Streams, x: OnLinks) -> None:
    """The first in line comes into worker `w`'s batch, but a request that cannot begin by its deadline."""
    h, b = x.queries[line.first], batch[w.held]
    q = s[h.who]
    if q.size_bytes >= 0.0 or may_begin(q, w, servers):
        b.stream, b.number, b.slot = h.who, h.number, h.slot
        b.sent_s, b.arrival_s, b.back_s = h.sent_s, h.at_s, h.back_s
        w.held += 1
    if q.size_bytes < 0.0:
        q.state = ENDED
    go(x, line)


@kernel
def waiting(now_s: float, carried: OnLinks, workers: Workers) -> Floats:
    """(W,) queries waiting or in service at `now_s`, up to which all has been served."""
    queue = np.zeros(workers.each.size)
    for k in range(queue.size):
        queue[k] += workers.each[k].held
        at = carried.line[k].first
        while at >= 0:
            h = carried.queries[at]
            queue[k] += h.at_s <= now_s and h.epoch == carried.sender[h.who].epoch
            at = h.left
        for c in range(workers.each[k].servers):
            if workers.servers[k, c].free_s > now_s:
                queue[k] += workers.servers[k, c].serving
    return queue
