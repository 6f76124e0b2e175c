"""What sites are told of replicas, compiled: gathered once in a period, and heard after a lag.

Forbidden here: rules about scheduling.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from edgewise.core.dispatch import desks
from edgewise.core.dispatch.request_flow import OVER
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.sim.requests.events import push
from edgewise.sim.requests.state import GATHERED, HEARD, NONE, TOLD_OF, RequestRun, Stop

THERE, SETTLE = int(Stop.THERE), int(Stop.SETTLE)


class News(NamedTuple):
    """How often sites are told of replicas and what these have, and how late it arrives."""

    period_s: float
    lag_s: float = 0.0

    def after(self, now_s: float) -> float:
        """When they are gathered next."""
        return next_news_s(now_s, self.period_s) if now_s < math.inf else math.inf


@inner
def next_news_s(now_s: float, period_s: float) -> float:
    """When news are gathered next."""
    return (math.floor(now_s / period_s + 1e-9) + 1) * period_s


@kernel
def do_now(x: RequestRun, what: int, number: int) -> None:
    """What Python asks for outside of the loop: news are GATHERED or HEARD, else only noted."""
    x = held(x)
    if what == GATHERED:
        gather(x, number)
    elif what == HEARD:
        hear(x, number)
    else:
        note(x, number)


@kernel
def gather(x: RequestRun, number: int) -> None:
    """Note how replicas are; sites hear of it later."""
    c, news = x.clock[0], number % (x.tellers.size - 1)
    note(x, news)
    push(x, c.now_s + c.lag_s, HEARD, news)
    if c.now_s < c.end_s:
        push(x, (number + 1) * c.period_s, GATHERED, number + 1)


@kernel
def note(x: RequestRun, news: int) -> None:
    """Note how replicas are."""
    x.tellers[news] = x.clock[0].servers
    for j in range(x.tellers[news]):
        s, t = x.server[x.alive[j]], x.told[news, j]
        t.server, t.wanted, t.up, t.queued = x.alive[j], s.wanted, s.up, s.waiting + s.working
        t.down = x.down[s.station]


@kernel
def same(x: RequestRun, news: int) -> bool:
    """Whether all sites know of the same replicas, as they are told."""
    for d in range(x.row_of.shape[0]):
        if x.desks.desk[d].replicas != x.tellers[news]:
            return False
        for j in range(x.tellers[news]):
            t = x.told[news, j]
            if x.row_of[d, t.server] == NONE:
                return False
            r = x.desks.replica[d, x.row_of[d, t.server]]
            if r.wanted != t.wanted or r.up != t.up:
                return False
    return True


@kernel
def hear(x: RequestRun, news: int) -> int:
    """Sites hear how many requests replicas have, of those that answer; as `go_on` returns."""
    for j in range(x.tellers[news]):
        t = x.told[news, j]
        x.server[t.server].broken = t.down
        for d in range(x.row_of.shape[0] if t.up else 0):
            tell(x, d, x.row_of[d, t.server], t.queued)
    for j in range(x.clock[0].servers):
        s = x.server[x.alive[j]]
        if not s.wanted and s.worker == NONE:
            return SETTLE
    return THERE


@kernel
def tell(x: RequestRun, d: int, row: int, queued: int) -> None:
    """A site hears how many requests a replica has."""
    desks.tell(x.desks, d, row, queued)
    write(x, TOLD_OF, d, NONE, row, queued, OVER)


@kernel
def write(x: RequestRun, kind: int, d: int, i: int, row: int, value: int, said: int) -> None:
    """Note what a site was told and said, if anybody reads it."""
    c = x.clock[0]
    if x.notes.size:
        n = x.notes[c.notes]
        n.at_s, n.took_s, n.kind, n.desk, n.request, n.row = c.now_s, 0.0, kind, d, i, row
        n.value, n.said = value, said
        c.notes += 1
