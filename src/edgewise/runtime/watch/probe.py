"""What a node sees of the others: how long a message takes there and back, how fast data comes; what it uses.

One probe runs on each node. Probes find each other by a name that stands for all of them. Each asks every
other one for a few bytes now and then, and, seldom and one after the other, for many:

    GET    /v1/node          which node this is
    GET    /v1/bytes/{N}     as many bytes, at most `MOST_BYTES`
    GET    /v1/measured      what was measured, as JSON
    GET    /metrics          the same for Prometheus
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from edgewise.runtime import clock, http
from edgewise.runtime.clock import next_period
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.watch.starving import PROC, CpuTotals, look

MOST_BYTES = 2_000_000  # a second at 16 Mbit/s
ROUNDS = 5  # the shortest of so many is what a way takes
SLOW_S = 10.0  # who takes longer is away
RATES_EVERY = 30  # periods of delays
BYTES = os.urandom(2**16) * (MOST_BYTES // 2**16 + 1)  # nothing on the way makes them fewer

log = logging.getLogger("edgewise.probe")


@dataclass(frozen=True, slots=True)
class OtherNode:
    """What was seen of another node.

    Attributes:
        node: its name.
        round_trip_s: of a small message, the shortest of some.
        rate_bps: at which data came from it; None before it was measured.
    """

    node: str
    round_trip_s: float
    rate_bps: float | None


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What all that runs on a node uses.

    Attributes:
        cores: in the mean since the last look.
        memory_bytes: that could be given to nobody else.
    """

    cores: float
    memory_bytes: float


class Probe:
    """Answers other probes, and measures the ways to them.

    Args:
        node: name of this node.
        addresses: finds the addresses of all probes, (host, port); this one's may be among them.
        token: that probes show each other; None: none.
        period_s: between two measurements of delays.
        load: reads what this node uses; by default, what Linux says.
    """

    def __init__(
        self,
        node: str,
        addresses: Callable[[], Awaitable[Iterable[tuple[str, int]]]],
        token: str | None = None,
        period_s: float = 10.0,
        load: Callable[[], NodeUse] | None = None,
    ) -> None:
        self.node, self._addresses, self._token, self._period_s = node, addresses, token, period_s
        self._load = MachineUse() if load is None else load
        self._clients: dict[tuple[str, int], http.Client] = {}
        self._turn = 0
        self.seen: dict[str, OtherNode] = {}
        self.use = self._load()
        self._registry = CollectorRegistry()
        self._registry.register(_Shown(self))

    async def keep(self) -> None:
        """Measure until cancelled."""
        while True:
            try:
                await self.measure()
            except OSError as error:  # as a name that cannot be looked up now
                log.warning("not measured", extra={"why": str(error)})
            await next_period(clock.monotonic_s, self._period_s)

    async def measure(self) -> None:
        """Look at this node and at all others, one after the other: those that are away are forgotten."""
        self.use = self._load()
        wanted = sorted(set(await self._addresses()))
        for address in [each for each in self._clients if each not in wanted]:
            self._clients.pop(address).close()
        found = dict[str, OtherNode]()
        for place, address in enumerate(wanted):
            if address not in self._clients:
                self._clients[address] = http.Client(*address, headers=http.bearer(self._token))
            with contextlib.suppress(ConnectionError, TimeoutError, ValueError, KeyError):
                # One way's rate at a time, so that rates do not disturb each other, nor work for long.
                in_turn = (self._turn - place) % max(RATES_EVERY, len(wanted)) == 0
                seen = await self._look(self._clients[address], in_turn)
                found |= {seen.node: seen} if seen is not None else {}
        self.seen, self._turn = found, self._turn + 1

    async def _look(self, client: http.Client, rate: bool) -> OtherNode | None:
        """What is seen of the node that answers; None of this one."""
        node, trips_s = "", list[float]()
        for _ in range(ROUNDS + 1):  # the first one may have to connect
            began_s = clock.monotonic_s()
            answer = await client.request("GET", "/v1/node", timeout_s=SLOW_S)
            trips_s.append(clock.monotonic_s() - began_s)
            node = str(json.loads(answer.body)["node"])
            if node == self.node:
                return None
        trip_s = min(trips_s[1:])
        known = self.seen.get(node)
        rate_bps = known.rate_bps if known is not None else None
        if rate or rate_bps is None:
            began_s = clock.monotonic_s()
            answer = await client.request("GET", f"/v1/bytes/{MOST_BYTES}", timeout_s=SLOW_S)
            took_s = clock.monotonic_s() - began_s - trip_s
            if answer.status == 200 and took_s > 0.0:
                rate_bps = 8.0 * len(answer.body) / took_s
        return OtherNode(node, trip_s, rate_bps)

    async def handle(self, request: http.HttpRequest) -> http.Response:
        """Answer a request."""
        if request.method != "GET":
            return not_allowed("probes are only read", "GET")
        match request.parts:
            case ["metrics"]:
                return http.Response(200, generate_latest(self._registry), {"content-type": "text/plain"})
            case ["v2", "health", "live" | "ready"]:
                return http.as_json({})
            case ["v1", "node"]:
                return http.as_json({"node": self.node})
            case ["v1", "bytes", number] if number.isascii() and number.isdecimal() and len(number) < 9:
                kind = {"content-type": "application/octet-stream"}
                return http.Response(200, BYTES[: min(int(number), MOST_BYTES)], kind)
            case ["v1", "measured"]:
                return http.as_json(self.measured())
        return http.failure(404, f"no {request.path[:80]}; use /v1/measured or /metrics")

    def measured(self) -> dict[str, object]:
        """What was measured, for JSON."""
        nodes = [asdict(each) for each in self.seen.values()]
        return {"node": self.node, **asdict(self.use), "others": nodes}

    def close(self) -> None:
        """Close the connections to others."""
        for client in self._clients.values():
            client.close()


class _Shown(Collector):
    """What a probe measured, when it is asked: nodes that are away are no labels any more."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def collect(self) -> Iterable[GaugeMetricFamily]:
        here, seen = self._probe.node, self._probe.seen.values()
        for name, what, value in (
            ("cores", "Cores that all on a node uses.", self._probe.use.cores),
            ("memory_bytes", "Memory that all on a node uses.", self._probe.use.memory_bytes),
        ):
            of_node = GaugeMetricFamily(f"edgewise_node_{name}", what, labels=["node"])
            of_node.add_metric([here], value)
            yield of_node
        trips = GaugeMetricFamily(
            "edgewise_way_round_trip_seconds", "There and back, a few bytes.", labels=["node", "other"]
        )
        rates = GaugeMetricFamily(
            "edgewise_way_bits_per_second", "How fast data came from another.", labels=["node", "other"]
        )
        for each in seen:
            trips.add_metric([here, each.node], each.round_trip_s)
            if each.rate_bps is not None:
                rates.add_metric([here, each.node], each.rate_bps)
        yield from (trips, rates)


class MachineUse:
    """Reads what a Linux machine uses, from `/proc`; zeros elsewhere."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc, self._before = proc, CpuTotals(0.0, 0.0, 0.0, 0.0)

    def __call__(self) -> NodeUse:
        """What it uses now."""
        try:
            return NodeUse(self._cores(), self._memory_bytes())
        except (OSError, ValueError, KeyError):
            return NodeUse(0.0, 0.0)

    def _cores(self) -> float:
        before, self._before = self._before, look([], self._proc)
        ticks = self._before.ticks - before.ticks
        idle = self._before.idle - before.idle
        return (os.cpu_count() or 1) * (1.0 - idle / ticks) if ticks > 0.0 else 0.0

    def _memory_bytes(self) -> float:
        lines = (self._proc / "meminfo").read_text().splitlines()
        kib = {name: float(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return 1024.0 * (kib["MemTotal"] - kib["MemAvailable"])


def found_at(host: str, port: int) -> Callable[[], Awaitable[Sequence[tuple[str, int]]]]:
    """Looks up all addresses that a name stands for."""

    async def look_up() -> Sequence[tuple[str, int]]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port)
        return [(str(address[0]), int(address[1])) for *_, address in found]

    return look_up
