"""The ground under a live system that is played: networks and workers as a scenario says, on a virtual clock.

What happens here is drawn as a simulation draws it, and written anew: naive, one event at a time. It tells
gateways what real workers tell, over the same messages, and knows nothing of cores.
"""

import asyncio
from collections import deque
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from edgewise.core.keyed import Purpose, exponential, normal, normal_pair_of
from edgewise.core.sojourns import Sojourns
from edgewise.core.world import LAWS, World
from edgewise.model.work import Stream
from edgewise.runtime import http
from edgewise.runtime.worker.reservations import Reservations

EXPONENTIAL = LAWS.index("exponential")


class Query(NamedTuple):
    """A query at a worker; `served` is set when it ends there."""

    stream: int
    number: int
    arrival_s: float
    served: asyncio.Future[None]


class PlayedWorker:
    """A queue with servers and batches, which grants reservations and counts what it did."""

    def __init__(self, world: World, w: int, trace: list[Stream], seed: int) -> None:
        self.world, self.w, self.trace, self.seed = world, w, trace, seed
        self._loop = asyncio.get_running_loop()
        self.start()

    @property
    def queued(self) -> int:
        """Queries that wait or are served."""
        return self.counts.queue

    def start(self) -> None:
        """Begin anew."""
        self.up, self._free = True, int(self.world.servers[self.w])
        self._waiting = deque[Query]()
        self.counts = Sojourns.none()
        self.reservations = Reservations(float(self.world.capacity_qps[self.w]), self._loop.time)
        self._life = object()

    def die(self) -> None:
        """What it has is lost; nobody is told."""
        self.up, self._life = False, object()
        self._waiting.clear()

    def take(self, query: Query) -> None:
        """A query arrives now."""
        if not self.up:
            return
        self._waiting.append(query)
        self.counts.queue += 1
        timeout_s = float(self.world.batch_timeout_s[self.w])
        if timeout_s > 0.0:
            self._loop.call_at(query.arrival_s + timeout_s, self._serve)
        self._serve()

    def _serve(self) -> None:
        most, timeout_s = int(self.world.max_batch[self.w]), float(self.world.batch_timeout_s[self.w])
        while self._free and self._waiting:
            due_s = self._waiting[0].arrival_s + timeout_s
            if len(self._waiting) < most and self._loop.time() < due_s:
                return
            batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._free -= 1
            self._loop.call_at(self._loop.time() + self._takes_s(batch), self._ended, batch, self._life)

    def _takes_s(self, batch: list[Query]) -> float:
        world, w, first = self.world, self.w, batch[0]
        largest = max(self.trace[query.stream].size_bytes for query in batch)
        more = 1.0 + world.batch_slope[w] * (len(batch) - 1)
        mean_s = (world.fixed_s[w] + world.per_byte_s[w] * largest) * more
        draw = self.seed, Purpose.SERVICE, first.stream, first.number
        if world.distribution[w] == EXPONENTIAL:
            return float(mean_s * exponential(*draw))
        return float(mean_s * max(1.0 + world.deviation[w] * normal(*draw), 0.0))

    def _ended(self, batch: list[Query], life: object) -> None:
        if life is not self._life:
            return
        self._free += 1
        for query in batch:
            self.counts.queue -= 1
            self.counts.note(self._loop.time() - query.arrival_s)
            if not query.served.done():
                query.served.set_result(None)
        self._serve()


class PlayedClient:
    """What a gateway has in place of connections to a worker: messages take the time of their way.

    Args:
        worker: at the other end.
        site: of the gateway.
        lag_s: what a worker counted is so long on its way.
    """

    url = "played"

    def __init__(self, worker: PlayedWorker, site: int, lag_s: float) -> None:
        self._worker, self._lag_s = worker, lag_s
        self._message_s = float(worker.world.delay_s[site, worker.world.cluster[worker.w]])
        self._before_s: dict[int, float] = {}
        self._under_way: dict[Query, None] = {}

    def close(self) -> None:
        """Nothing is open."""

    def abort(self) -> None:
        """Connections break, with all that was not served yet."""
        for query in self._under_way:
            if not query.served.done():
                query.served.set_exception(ConnectionError("nobody is there"))

    async def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"",
        timeout_s: float = 30.0,
    ) -> http.Response:  # fmt: skip
        """As `http.Client.request`."""
        if path.endswith("/infer"):
            return await self._infer(*map(int, body.split(b":")), timeout_s)
        if path == "/v1/telemetry":
            told, up = http.as_json(asdict(self._worker.counts)), self._worker.up
            await asyncio.sleep(self._lag_s)
            if not up:
                raise ConnectionError("nobody is there")
            return told
        if path.startswith("/v1/reservations"):
            return await self._reserve(method, path, body, timeout_s)
        if not self._worker.up:
            raise ConnectionError("nobody is there")
        return http.Response(200, b'{"extensions": ["binary_tensor_data"]}')

    async def _infer(self, stream: int, number: int, timeout_s: float) -> http.Response:
        """Who gave up waiting has sent it all the same; queries of a stream do not overtake each other."""
        loop = asyncio.get_running_loop()
        there_s, back_s = way_s(self._worker, self._worker.trace[stream], number)
        arrival_s = max(loop.time() + there_s, self._before_s.get(stream, 0.0))
        self._before_s[stream] = arrival_s
        query = Query(stream, number, arrival_s, loop.create_future())
        loop.call_at(arrival_s, self._worker.take, query)
        self._under_way[query] = None
        try:
            async with asyncio.timeout(timeout_s):
                await query.served
                await asyncio.sleep(back_s)
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        finally:
            del self._under_way[query]
        return http.Response(200, b'{"outputs":[]}')

    async def _reserve(self, method: str, path: str, body: bytes, timeout_s: float) -> http.Response:
        await asyncio.sleep(self._message_s)
        if not self._worker.up:
            await asyncio.sleep(timeout_s - self._message_s)
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        request = http.HttpRequest(method, path, {}, body)
        answer = self._worker.reservations.handle(request, path.split("/")[3:])
        await asyncio.sleep(self._message_s)
        return answer


def way_s(worker: PlayedWorker, stream: Stream, number: int) -> tuple[float, float]:
    """Seconds of a query's way to a worker, and of its answer's back."""
    world, site, c = worker.world, stream.site, int(worker.world.cluster[worker.w])
    mean_s, deviation_s = world.delay_s[site, c], world.deviation_s[site, c]
    up, down = normal_pair_of(np.uint64(worker.seed), int(Purpose.NETWORK), stream.id, number)
    rate_bps = min(world.uplink_bps[site], world.bandwidth_bps[site, c])
    access_s = world.access_delay_s[site]
    there_s = max(mean_s + deviation_s * up, 0.0) + access_s + stream.size_bytes * 8.0 / rate_bps
    return float(there_s), float(max(mean_s + deviation_s * down, 0.0) + access_s)


async def until(at_s: float) -> None:
    """Wait for a time."""
    loop = asyncio.get_running_loop()
    there = loop.create_future()
    loop.call_at(at_s, lambda: there.done() or there.set_result(None))
    await there
