"""Replicas of services and the links to them, played: as a simulation says, one request at a time, naive.

What a gateway hears from them it hears over the messages of real ones. Knows nothing of cores.
"""

import asyncio
import math
from dataclasses import asdict
from typing import Any, NamedTuple

from ground import until

from edgewise.core.keyed import Purpose, normal
from edgewise.core.sojourns import Sojourns
from edgewise.model.orchestration import System
from edgewise.runtime import http
from edgewise.runtime.protocol.messages import QUEUED, REMAINING, TOOK

CLOUD = 0


class Waiting(NamedTuple):
    """A request at a replica; `done` says how long it was there, None: it was dropped."""

    order: tuple[float, int]
    service_s: float
    came_s: float
    begin_by_s: float
    done: asyncio.Future[float | None]


class PlayedReplica:
    """Works on one request at a time, by deadline or first come first served, and drops what is late."""

    def __init__(self, by_deadline: bool) -> None:
        self._loop, self._by_deadline = asyncio.get_running_loop(), by_deadline
        self._waiting: list[Waiting] = []
        self._working: Waiting | None = None
        self.up = True

    @property
    def queued(self) -> int:
        """Requests that wait or are worked on."""
        return len(self._waiting) + (self._working is not None)

    def start(self) -> None:
        """Begin anew."""
        self.up = True

    def die(self) -> None:
        """Connections break with what was there."""
        lost = [*self._waiting, *([self._working] if self._working else [])]
        self.up, self._waiting, self._working = False, [], None
        for each in lost:
            each.done.set_exception(ConnectionError("the replica is gone"))

    def take(self, request: Waiting) -> None:
        """A request arrives now."""
        if not self.up:
            request.done.set_exception(ConnectionError("nobody is there"))
            return
        self._waiting.append(request)
        self._loop.call_at(self._loop.time(), self._go_on)  # once all is there that comes now

    def _go_on(self) -> None:
        if not self._by_deadline and self._working is not None:
            return  # a worker of streams looks at what waits when it is free
        for late in [each for each in self._waiting if self._loop.time() > each.begin_by_s]:
            self._waiting.remove(late)
            late.done.set_result(None)
        if self._working is None and self._waiting:
            first = min(self._waiting, key=lambda each: each.order) if self._by_deadline else self._waiting[0]
            self._waiting.remove(first)
            self._working = first
            self._loop.call_at(self._loop.time() + first.service_s, self._ended, first)

    def _ended(self, request: Waiting) -> None:
        if self._working is request:
            self._working = None
            if not request.done.done():
                request.done.set_result(self._loop.time() - request.came_s)
            if not self._by_deadline:
                self._go_on()  # what is dropped now is not there any more when the answer says how many are
            self._loop.call_at(self._loop.time(), self._go_on)  # once the answer has left, as `Line.look`


class Ways:
    """A link at each site and one to the cloud, each a queue; then the delay, which varies to the cloud."""

    def __init__(self, system: System, answers: bool, seed: int) -> None:
        self._system, self._seed = system, seed
        self._free_s = {"cloud": 0.0}
        self._back = 0.5 if answers else 0.0

    def back_s(self, site: int, station: int) -> float:
        """Of an answer's way."""
        return self._back * float(self._system.delay_s[site, station])

    def there_s(self, site: int, station: int, size_bytes: float) -> float:
        """When a request is there that leaves now."""
        system, now_s = self._system, asyncio.get_running_loop().time()
        delay_s = float(system.delay_s[site, station]) - self.back_s(site, station)
        link, rate_bps = ("cloud" if station == CLOUD else site), float(system.rate_bps[site, station])
        if station == CLOUD:
            draw = normal(self._seed, Purpose.NETWORK, 0, int(now_s / system.slot_s))
            delay_s = max(0.0, delay_s + system.deviation_s[site, station] * draw)
        sent_s = max(now_s, self._free_s.get(link, 0.0)) + 8.0 * size_bytes / rate_bps
        self._free_s[link] = sent_s
        return float(sent_s + delay_s)


class ReplicaClient:
    """What a gateway has in place of connections to a replica.

    Args:
        requests: rows of what was asked, by number, see `edgewise.sim.slots.replica_state.REQUEST`.
        lag_s: what a replica says of itself is so long on its way; not so at the very beginning.
    """

    url = "played"

    def __init__(
        self, replica: PlayedReplica, place: tuple[int, int], ways: Ways, requests: Any, lag_s: float
    ):
        self._replica, self._place, self._ways, self._requests = replica, place, ways, requests
        self._lag_s = lag_s

    def close(self) -> None:
        """Nothing is open."""

    def abort(self) -> None:
        """Connections broke when it died."""

    async def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"",
        timeout_s: float = 30.0,
    ) -> http.Response:  # fmt: skip
        """As `http.Client.request`."""
        if path.endswith("/infer"):
            return await self._infer(int(body.split(b":")[0]), headers or {}, len(body))
        if path == "/v1/telemetry":  # nobody streams, so nothing is counted
            await asyncio.sleep(self._lag_s)
            return http.as_json(asdict(Sojourns.none()))
        if not path.endswith("/ready"):
            return http.Response(404)
        up, queued, loop = self._replica.up, self._replica.queued, asyncio.get_running_loop()
        await asyncio.sleep(self._lag_s if loop.time() > 0.0 else 0.0)
        if not up:
            raise ConnectionRefusedError("nobody is there")
        return http.Response(200, b"{}", {QUEUED: str(queued)} if loop.time() > 0.0 else {})

    async def _infer(self, number: int, headers: dict[str, str], size_bytes: int) -> http.Response:
        loop, row = asyncio.get_running_loop(), self._requests[number]
        there_s, back_s = self._ways.there_s(*self._place, size_bytes), self._ways.back_s(*self._place)
        begin_by_s = loop.time() + float(
            headers.get(REMAINING, math.inf)
        )  # its way there counts, as emulated
        await until(there_s)
        done = loop.create_future()
        order = float(row["deadline_s"]), number
        request = Waiting(order, float(row["service_s"]), there_s, begin_by_s, done)
        self._replica.take(request)
        try:
            took_s = await done
        finally:
            queued = self._replica.queued
            await until(loop.time() + back_s)
        if took_s is None:
            return http.Response(504, b"{}")
        return http.Response(200, b'{"outputs":[]}', {TOOK: repr(took_s), QUEUED: str(queued)})
