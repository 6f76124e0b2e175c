"""Requests of services in the queues of streams' workers.

A worker serves who came first, whatever it is. Queries of streams come whatever becomes of them; where a
request goes is decided by what became of others. So requests go on alone up to where one of theirs could end
at a worker at the soonest; then workers serve up to there, and what ended is handed over.
Forbidden here: any idea of who decides, and by what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import rise
from edgewise.sim.streams.servers import soonest
from edgewise.sim.streams.state import WAITING, Streams, Workers

# A request at a worker (GONE: it has ended): its row among streams, what it takes alone, and
# when it begins at the latest.
VISIT = np.dtype(
    [(name, "i8") for name in ("request", "worker", "row")] + [("work_s", "f8"), ("begin_by_s", "f8")]
)
GONE = -1  # instead of a worker
ROOM = 64  # rows at first
THERE, FREE, CAME = range(3)  # of `Visits.many`: that are there; rows of nobody; that ever came
NOW, SOONEST, LOOK = range(3)  # of `Visits.times_s`


class Visits(NamedTuple):
    """Requests at workers.

    each: (room,) VISIT, the first `many[THERE]`, in the order in which they came. rows: (room,) of streams,
    the first `many[FREE]` are nobody's. times_s: workers have served what starts before NOW; no request ends
    before SOONEST; at LOOK services want to know how many are at workers.
    """

    each: Records
    rows: Ints
    many: Ints
    times_s: Floats


def no_visits() -> Visits:
    """Nobody is at workers, and nobody wants to know."""
    nothing, never_s = np.zeros(0, dtype=np.int64), np.array([0.0, math.inf, math.inf])
    return Visits(records((0,), VISIT), nothing, np.zeros(3, dtype=np.int64), never_s)


NO_VISITS = no_visits()  # of who can have none


@kernel(allocates=False)
def ask(q: Any, at_s: float, work_s: float, begin_by_s: float) -> None:
    """Make `q` a request that comes to a worker at `at_s`, see `STREAM`."""
    q.site, q.rate_qps, q.state, q.number, q.sent_s, q.close_s = -1, 1.0, WAITING, 1, 0.0, 0.0
    q.arrival_s, q.size_bytes, q.deadline_s, q.delay_max_s, q.rejected = at_s, -work_s, begin_by_s, np.inf, 0


@kernel(allocates=False)
def join(i: int, k: int, at_s: float, work_s: float, begin_by_s: float, s: Streams, workers: Workers) -> bool:
    """Request `i` comes to worker `k`, see `ask`; whether there is room."""
    w = workers.each[k]
    if w.attached == workers.members.shape[1]:
        return False
    ask(s[i], at_s, work_s, begin_by_s)
    rise(workers.members[k], w.attached, at_s, i)
    w.attached += 1
    return True


@kernel(allocates=False)
def come(v: Visits, i: int, k: int, work_s: float, begin_by_s: float, s: Streams, workers: Workers) -> None:
    """Request `i` has come to worker `k` in the last row that was nobody's."""
    many, times_s = v.many, v.times_s
    many[FREE] -= 1
    g = v.each[many[THERE]]
    g.request, g.worker, g.row, g.work_s, g.begin_by_s = i, k, v.rows[many[FREE]], work_s, begin_by_s
    many[THERE] += 1
    many[CAME] += 1
    times_s[SOONEST] = min(times_s[SOONEST], not_before_s(g, times_s[NOW], s, workers))


@kernel(allocates=False)
def not_before_s(g: Any, now_s: float, s: Streams, workers: Workers) -> float:
    """When a request may end, or be dropped, at the soonest; all before `now_s` is served."""
    q, w = s[g.row], workers.each[g.worker]
    if q.delay_max_s < np.inf:
        return float(q.delay_max_s)
    servers = workers.servers[g.worker]
    begin_s = max(now_s, q.arrival_s, servers[soonest(w, servers)].free_s)
    soonest_s = begin_s + g.work_s
    return float(min(soonest_s, max(begin_s, g.begin_by_s)) if q.state == WAITING else soonest_s)


@kernel(allocates=False)
def ended(v: Visits, at: int, s: Streams) -> int:
    """The first request from place `at` on of which it is known before NOW that it has ended; else -1."""
    for j in range(at, v.many[THERE]):
        if s[v.each[j].row].delay_max_s < v.times_s[NOW]:
            return j
    return -1


@kernel(allocates=False)
def to_be_dropped(v: Visits, k: int, now_s: float, s: Streams) -> int:
    """Requests at worker `k` of which it is known that they are dropped later than `now_s`."""
    found = 0
    for j in range(v.many[THERE]):
        q = s[v.each[j].row]
        found += v.each[j].worker == k and q.rejected and q.delay_max_s > now_s
    return found


@kernel(allocates=False)
def tidy(v: Visits, s: Streams, workers: Workers) -> None:
    """Leave out who has ended, and work out anew when one of the others may."""
    kept, soonest_s = 0, np.inf
    for j in range(v.many[THERE]):
        g = v.each[j]
        if g.worker == GONE:
            v.rows[v.many[FREE]] = g.row
            v.many[FREE] += 1
        else:
            soonest_s = min(soonest_s, not_before_s(g, v.times_s[NOW], s, workers))
            v.each[kept] = g
            kept += 1
    v.many[THERE], v.times_s[SOONEST] = kept, soonest_s


class Host(Protocol):
    """Who has streams' workers, see `carrying.Private`."""

    truth: Streams
    workers: Workers

    def admit(self, guests: Guests) -> None:
        """Requests will come."""

    def more_rows(self, count: int) -> range:
        """So many more rows behind the streams."""

    def join(self, row: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """The request in a row comes to a worker; it is dropped where it cannot begin in time."""

    def leave(self, row: int, worker: int) -> None:
        """The request in a row, which came to a worker, is there no more."""

    def serve(self, until_s: float) -> None:
        """Serve all that starts before `until_s`."""

    def waiting(self, now_s: float) -> Floats:
        """(W,) queries and requests waiting or in service."""


class Guests:
    """All that services have at streams' workers.

    Args:
        host: before its first stream.
        workers, nodes: number and node of each worker that services have, by name.
        real: of `core.dispatch.state.State`, with the costs of workers.
        measured: is told what gateways have measured of requests' load at workers, as (B, W).
    Attributes:
        visits: of requests that are at workers.
        run: lets events of services happen that come before a time and before `next_s`.
        ended: is told which request ended at a worker, when, whether it was dropped, and how many are there.
        looked: is told how many queries and requests were at (W,) workers at `look_s`, and says when it wants
            to know next.
    """

    def __init__(
        self,
        host: Host,
        workers: Mapping[str, int],
        nodes: Mapping[str, str],
        real: Floats,
        measured: Callable[[float, Floats], None],
    ) -> None:
        self._host, self.workers, self.nodes, self.real, self.measured = host, workers, nodes, real, measured
        self.run: Callable[[float], None] = lambda to_s: None
        self.ended: Callable[[int, float, bool, int], None] = lambda i, at_s, dropped, queued: None
        self.looked: Callable[[float, Floats], float] = lambda at_s, queue: math.inf
        self.visits = no_visits()
        host.admit(self)

    @property
    def look_s(self) -> float:
        """When services want to know next how many are at workers."""
        return float(self.visits.times_s[LOOK])

    @look_s.setter
    def look_s(self, at_s: float) -> None:
        self.visits.times_s[LOOK] = at_s

    def serves(self, worker: int) -> int:
        """How many batches it works on at once."""
        return int(self._host.workers.each[worker].servers)

    @property
    def busy(self) -> bool:
        """Whether a request is at a worker."""
        return bool(self.visits.many[THERE])

    @property
    def came(self) -> int:
        """How many requests ever came to workers."""
        return int(self.visits.many[CAME])

    def next_s(self) -> float:
        """Nothing that services have to know happens at workers before; infinite: never."""
        times_s = self.visits.times_s
        return float(min(times_s[SOONEST], times_s[LOOK]))

    def advance(self, to_s: float) -> None:
        """Let services go on up to `to_s`, and workers as far as they need it."""
        while True:
            self.run(to_s)
            if (next_s := self.next_s()) >= to_s:
                return
            self._host.serve(math.nextafter(max(next_s, float(self.visits.times_s[NOW])), math.inf))

    def come(self, i: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """Request `i` comes to a worker.

        Args:
            work_s: what it takes alone.
            begin_by_s: it is dropped where it cannot begin by then.
        """
        if not self.visits.many[FREE]:
            self._make_room()
        row = int(self.visits.rows[self.visits.many[FREE] - 1])
        self._host.join(row, worker, at_s, work_s, begin_by_s)
        come(self.visits, i, worker, work_s, begin_by_s, self._host.truth, self._host.workers)

    def lose(self, worker: int) -> list[int]:
        """Requests that a worker has, and loses."""
        there = self.visits.each[: self.visits.many[THERE]]
        mine = there[there["worker"] == worker]
        for row in mine["row"].tolist():
            self._host.leave(row, worker)
        there["worker"][there["worker"] == worker] = GONE
        self._tidy()
        found: list[int] = mine["request"].tolist()
        return found

    def settle(self, now_s: float) -> None:
        """Workers have served all that starts before `now_s`: tell what has ended."""
        times_s, truth, at = self.visits.times_s, self._host.truth, -1
        times_s[NOW] = now_s
        if times_s[LOOK] <= now_s and times_s[LOOK] < math.inf:
            self.look_s = self.looked(self.look_s, self._queue(self.look_s))
        if now_s <= times_s[SOONEST]:
            return
        while (at := ended(self.visits, at + 1, truth)) >= 0:
            visit = self.visits.each[at]
            i, worker, request = int(visit.request), int(visit.worker), truth[visit.row]
            visit.worker = GONE
            end_s = float(request.delay_max_s)
            self.ended(i, end_s, bool(request.rejected), int(self._queue(end_s)[worker]))
        self._tidy()

    def _make_room(self) -> None:
        old, size = self.visits, len(self.visits.rows)
        rows = np.array(self._host.more_rows(max(size, ROOM)))
        each = records((size + rows.size,), VISIT)
        each[:size] = old.each
        # The lowest is taken first.
        self.visits = old._replace(each=each, rows=np.concatenate([rows[::-1], np.zeros_like(old.rows)]))
        old.many[FREE] = rows.size

    def _queue(self, now_s: float) -> Floats:
        """(W,) queries and requests, of which some are known to be dropped later."""
        queue = self._host.waiting(now_s)
        for worker in self.workers.values():
            queue[worker] += to_be_dropped(self.visits, worker, now_s, self._host.truth)
        return queue

    def _tidy(self) -> None:
        tidy(self.visits, self._host.truth, self._host.workers)
