"""Requests of services in the queues of streams' workers.

A worker serves who came first, whatever it is. Queries of streams come whatever becomes of them; where a
request goes is decided by what became of others. So requests go on alone up to where one of theirs could end
at a worker at the soonest; then workers serve up to there, and what ended is handed over.
Forbidden here: any idea of who decides, and by what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.compiled import kernel
from edgewise.sim.streams.arrivals import push
from edgewise.sim.streams.queues import WAITING, Streams, Workers


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
    w.attached = push(workers.members[k], w.attached, i, s)
    return True


class Host(Protocol):
    """Who has streams' workers, see `carrying.Private`."""

    truth: Streams
    workers: Workers

    def admit(self, guests: Guests, count: int) -> None:
        """Make room for so many requests behind the streams."""

    def join(self, i: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """Request `i` comes to a worker; it is dropped where it cannot begin in time."""

    def leave(self, i: int, worker: int) -> None:
        """Request `i`, which came to a worker, is there no more."""

    def serve(self, until_s: float) -> None:
        """Serve all that starts before `until_s`."""

    def waiting(self, now_s: float) -> Floats:
        """(W,) queries and requests waiting or in service."""


class Guests:
    """All that services have at streams' workers.

    Args:
        host: before its first stream.
        count: of requests that may come; they are numbers below it.
        workers, nodes: number and node of each worker that services have, by name.
        real: of `core.dispatch.state.State`, with the costs of workers.
        measured: is told what gateways have measured of requests' load at workers, as (B, W).
    Attributes:
        run: lets events of services happen that come before a time and before `next_s`.
        ended: is told which request ended at a worker, when, whether it was dropped, and how many are there.
        looked: is told how many queries and requests were at (W,) workers at `look_s`, and says when it wants
            to know next.
    """

    def __init__(
        self,
        host: Host,
        count: int,
        workers: Mapping[str, int],
        nodes: Mapping[str, str],
        real: Floats,
        measured: Callable[[float, Floats], None],
    ) -> None:
        self._host, self._first = host, len(host.truth)
        self.workers, self.nodes, self.real, self.measured = workers, nodes, real, measured
        self.run: Callable[[float], None] = lambda to_s: None
        self.ended: Callable[[int, float, bool, int], None] = lambda i, at_s, dropped, queued: None
        self.looked: Callable[[float, Floats], float] = lambda at_s, queue: math.inf
        self.look_s = math.inf
        self._there: dict[int, tuple[int, float, float]] = {}  # worker, work and latest begin of each
        self._now_s, self._soonest_s = 0.0, math.inf
        host.admit(self, count)

    def serves(self, worker: int) -> int:
        """How many batches it works on at once."""
        return int(self._host.workers.each[worker].servers)

    @property
    def busy(self) -> bool:
        """Whether a request is at a worker."""
        return bool(self._there)

    def next_s(self) -> float:
        """Nothing that services have to know happens at workers before; infinite: never."""
        return min(self._soonest_s, self.look_s)

    def advance(self, to_s: float) -> None:
        """Let services go on up to `to_s`, and workers as far as they need it."""
        while True:
            self.run(to_s)
            if (next_s := self.next_s()) >= to_s:
                return
            self._host.serve(math.nextafter(max(next_s, self._now_s), math.inf))

    def come(self, i: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """Request `i` comes to a worker.

        Args:
            work_s: what it takes alone.
            begin_by_s: it is dropped where it cannot begin by then.
        """
        self._host.join(self._first + i, worker, at_s, work_s, begin_by_s)
        self._there[i] = worker, work_s, begin_by_s
        self._soonest_s = min(self._soonest_s, self._not_before_s(i))

    def lose(self, worker: int) -> list[int]:
        """Requests that a worker has, and loses."""
        found = [i for i, (at, *_) in self._there.items() if at == worker]
        for i in found:
            del self._there[i]
            self._host.leave(self._first + i, worker)
        self._look()
        return found

    def settle(self, now_s: float) -> None:
        """Workers have served all that starts before `now_s`: tell what has ended."""
        self._now_s = now_s
        if self.look_s <= now_s and self.look_s < math.inf:
            self.look_s = self.looked(self.look_s, self._queue(self.look_s))
        if now_s <= self._soonest_s:
            return
        for i, (worker, *_) in list(self._there.items()):
            request = self._host.truth[self._first + i]
            if request.delay_max_s < now_s:
                del self._there[i]
                queued = int(self._queue(request.delay_max_s)[worker])
                self.ended(i, float(request.delay_max_s), bool(request.rejected), queued)
        self._look()

    def _queue(self, now_s: float) -> Floats:
        """(W,) queries and requests, of which some are known to be dropped later."""
        queue = self._host.waiting(now_s)
        for i, (worker, *_) in self._there.items():
            request = self._host.truth[self._first + i]
            queue[worker] += request.rejected and request.delay_max_s > now_s
        return queue

    def _look(self) -> None:
        self._soonest_s = min(map(self._not_before_s, self._there), default=math.inf)

    def _not_before_s(self, i: int) -> float:
        """When it may end, or be dropped, at the soonest."""
        worker, work_s, begin_by_s = self._there[i]
        request, workers = self._host.truth[self._first + i], self._host.workers
        if request.delay_max_s < math.inf:
            return float(request.delay_max_s)
        servers = workers.servers[worker, : workers.each[worker].servers]
        begin_s = max(self._now_s, float(request.arrival_s), float(servers.free_s.min()))
        soonest_s = begin_s + work_s
        return min(soonest_s, max(begin_s, begin_by_s)) if request.state == WAITING else soonest_s
