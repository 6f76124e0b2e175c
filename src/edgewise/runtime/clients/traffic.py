"""Clients of a live system: how they reach it, and how they play streams and send requests.

Streams are played as the simulator's clients would: same times, same queries.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgewise.config import load_scenario
from edgewise.core.keyed import Purpose, exponential, uniform
from edgewise.errors import RunError
from edgewise.model.problems import nearest
from edgewise.model.services import services_of
from edgewise.model.work import Stream
from edgewise.runtime import clock, http
from edgewise.runtime.clients.reaching import client_to, fronts, store_of
from edgewise.runtime.controller.plan import SCENARIO
from edgewise.runtime.protocol.messages import DEADLINE, STREAM, InferRequest, encode_request
from edgewise.runtime.protocol.tensors import DTYPES
from edgewise.runtime.store import Running, Store
from edgewise.runtime.watch.starving import Watched, watched

T = TypeVar("T")
FREE_SIZE = 64  # of a free dimension, where nobody says a size
SIZES = 64  # of queries that are kept
GONE_S = 2.0  # nobody waits longer for an answer that is late
OK, FAILED, REJECTED = "ok", "failed", "rejected"
UNANSWERED = {409: "refused", 429: "dropped", 503: "dropped", 504: "dropped"}  # requests, by status


def at_sites(store: Store, sites: Iterable[str]) -> list[http.Client]:
    """A client of the gateway of each site; of the first gateway where a site has none."""
    found = fronts(store)
    of_site = {front.settings["site"]: front for front in reversed(found)}
    return [
        client_to(of_site.get(site, found[0]), store, http.one_token(store.get("token"))) for site in sites
    ]


def measured(
    what: str, running: Sequence[Running], clients: Iterable[http.Client], work: Coroutine[Any, Any, T]
) -> tuple[T, Watched]:
    """What clients saw, and whether that says more about the machine than about the system.

    Args:
        what: they do, for messages.
        running: processes of the system.
        clients: are closed at the end.
    Raises:
        RunError: the system does not answer.
    """

    async def watch() -> tuple[T, Watched]:
        async with watched(running) as machine:
            found = await work
        for client in clients:
            client.close()
        return found, machine

    try:
        return asyncio.run(watch())
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise RunError(f"{what}: {error}") from error


@dataclass(slots=True)
class StreamSeen:
    """What the client of one stream saw.

    The client of a source sends its queries while it is refused, too, and opens anew what was closed.

    Attributes:
        number: of the stream at its gateway, None before it was opened.
        worker, reason: where it was bound, or why it was refused.
        became: of its queries, how many were ok, failed, rejected.
        answer: the last one.
    """

    stream: Stream
    number: int | None = None
    worker: str | None = None
    reason: str | None = None
    became: Counter[str] = field(default_factory=Counter)
    delays_s: list[float] = field(default_factory=list)
    answer: http.Response | None = None
    closed: bool = False
    opening: bool = False


class Traffic:
    """Plays streams.

    Args:
        streams: what to play; times count from `play`.
        gateways: a client for each access site.
        sites: names of the sites.
        payload: the query of a stream, as headers and body.
        seed: keys phases and Poisson gaps, as in simulation.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        gateways: Sequence[http.Client],
        sites: Sequence[str],
        payload: Callable[[Stream], tuple[dict[str, str], bytes]],
        seed: int = 0,
    ) -> None:
        self.seen = [StreamSeen(stream) for stream in streams]
        self._gateways, self._sites, self._payload, self._seed = gateways, sites, payload, seed
        self._began_s = 0.0

    async def play(self) -> list[StreamSeen]:
        """Play everything to its end; what a refused stream would have sent counts as rejected."""
        self._began_s = clock.monotonic_s()
        await asyncio.gather(*(self._stream(seen) for seen in self.seen))
        return self.seen

    async def _stream(self, seen: StreamSeen) -> None:
        stream, client = seen.stream, self._gateways[seen.stream.site]
        await self._until(stream.open_s)
        await self._open(seen, client)
        headers, body = self._payload(stream)
        under_way: set[asyncio.Task[None]] = set()
        for due_s in send_times_s(stream, self._seed):
            await self._until(due_s)
            if seen.worker is None and not stream.source:
                seen.became[REJECTED] += 1
                continue
            stated = {**headers, STREAM: str(seen.number)}
            task = asyncio.create_task(self._query(seen, client, stated, body))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await self._until(stream.close_s)
        await asyncio.gather(*under_way)
        if seen.number is not None:
            await client.request("DELETE", f"/v1/streams/{seen.number}")
        seen.closed = True

    async def _open(self, seen: StreamSeen, client: http.Client) -> None:
        stream = seen.stream
        needs = {
            "task": stream.task, "application": stream.application, "site": self._sites[stream.site],
            "rate_qps": stream.rate_qps, "size_bytes": stream.size_bytes, "deadline_s": stream.deadline_s,
            "min_accuracy": stream.min_accuracy, "priority": stream.priority, "source": stream.source,
        }  # fmt: skip
        body = json.dumps(needs).encode()
        answer = await client.request("POST", "/v1/streams", body=body, repeat=False)
        found = json.loads(answer.body)
        seen.number, seen.worker = found.get("stream"), found.get("worker")
        seen.reason = None if seen.worker else found.get("reason", found.get("error"))

    async def _query(
        self, seen: StreamSeen, client: http.Client, headers: dict[str, str], body: bytes
    ) -> None:
        path, deadline_s = f"/v2/models/{seen.stream.task}/infer", seen.stream.deadline_s
        sent_s = clock.monotonic_s()
        try:
            answer = await client.request("POST", path, headers, body, deadline_s + GONE_S)
        except (ConnectionError, TimeoutError):
            seen.became[FAILED] += 1
            return
        delay_s = clock.monotonic_s() - sent_s
        if answer.status == 409 or (answer.status == 404 and seen.stream.source):
            seen.became[REJECTED] += 1
            if answer.status == 404 and not seen.opening:
                seen.opening = True
                await self._open(seen, client)
                seen.opening = False
            return
        seen.became[OK if answer.status == 200 and delay_s <= deadline_s else FAILED] += 1
        if answer.status == 200:
            seen.delays_s.append(delay_s)
            seen.answer = answer

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(self._began_s + at_s - clock.monotonic_s(), 0.0))


def send_times_s(stream: Stream, seed: int) -> list[float]:
    """When a stream's queries are sent: periodic from a random phase, or with exponential gaps."""
    gap_s = 1.0 / stream.rate_qps
    times: list[float] = []
    at_s, number = stream.open_s, 0
    if stream.arrivals != "poisson":
        at_s += gap_s * uniform(seed, Purpose.PHASE, stream.key)
    while True:
        if stream.arrivals == "poisson":
            at_s += gap_s * exponential(seed, Purpose.QUERY, stream.key, number)
        if at_s >= stream.close_s:
            return times
        times.append(at_s)
        at_s += 0.0 if stream.arrivals == "poisson" else gap_s
        number += 1


class Zeros:
    """Queries of zeros that a task's workers take, from its metadata.

    Args:
        inputs: of the metadata. Free sizes are 1, then `FREE_SIZE`.
    """

    def __init__(self, inputs: Sequence[Mapping[str, Any]]) -> None:
        self._inputs = inputs
        self.sized = lru_cache(SIZES)(self._sized)

    def of(self, size: int = FREE_SIZE) -> tuple[dict[str, str], bytes]:
        """Headers and body of one whose free sizes are 1, then this."""
        tensors = {}
        for tensor in self._inputs:
            free = [1] + [size] * (len(tensor["shape"]) - 1)
            shape = [n if n > 0 else other for n, other in zip(tensor["shape"], free, strict=True)]
            dtype = DTYPES[tensor["datatype"]]
            tensors[tensor["name"]] = (
                np.full(shape, b"", object) if tensor["datatype"] == "BYTES" else np.zeros(shape, dtype)
            )
        return encode_request(InferRequest(tensors))

    def _sized(self, size_bytes: float) -> tuple[dict[str, str], bytes]:
        """One of so many bytes, where one size of its only input is free; else as it is."""
        (first, *others), width = self._inputs, 0.0
        if not others and sum(n <= 0 for n in first["shape"][1:]) == 1 and first["datatype"] != "BYTES":
            row = np.dtype(DTYPES[first["datatype"]]).itemsize * math.prod(n for n in first["shape"] if n > 0)
            width = size_bytes / row
        return self.of(max(round(width), 1) if width else FREE_SIZE)


async def zeros(client: http.Client, task: str) -> tuple[dict[str, str], bytes]:
    """One query of zeros for a task; see `zeros_for`."""
    return (await zeros_for(client, task)).of()


async def zeros_for(client: http.Client, task: str) -> Zeros:
    """Queries of zeros for a task.

    Raises:
        ConnectionError, TimeoutError: the gateway does not answer.
        ValueError: no worker describes its model.
    """
    answer = await client.request("GET", f"/v2/models/{task}")
    if answer.status != 200:
        raise ValueError(f"task {task}: no worker describes its model: {answer.body.decode()[:200]}")
    return Zeros(json.loads(answer.body)["inputs"])


def poisson_s(rate_qps: float, until_s: float, seed: int, entity: int) -> Iterator[float]:
    """Times of a Poisson process, keyed by seed and entity."""
    at_s, number = 0.0, 0
    while True:
        at_s += float(exponential(seed, Purpose.QUERY, entity, number)) / rate_qps
        if at_s >= until_s:
            return
        yield at_s
        number += 1


LOAD = 2**41  # keys the gaps apart from those of streams


@dataclass(slots=True)
class Loaded:
    """What clients saw.

    Attributes:
        deadline_s: of each request.
        delays_s: of requests that were answered.
        became: how many were answered in time, late, refused (they could not end in time, by what the gateway
            knew), dropped (not at their replica, or there was no room), failed (everything else).
        why: the last error.
        busy: why all this says more about the machine than about the system; None where it does not.
    """

    deadline_s: float
    delays_s: list[float] = field(default_factory=list)
    became: Counter[str] = field(default_factory=Counter)
    why: str = ""
    busy: str | None = None


def load(
    state: Path,
    service: str,
    rate_qps: float,
    seconds: float,
    deadline_s: float | None = None,
    site: str | None = None,
    seed: int = 0,
) -> Loaded:
    """Send requests of zeros to the system that is up, to all its gateways or that of one site.

    Args:
        state: its folder.
        rate_qps: of all gateways together.
        deadline_s: of each request; the service's own when None.
        seed: keys the gaps.
    Raises:
        RunError: it does not answer, or has no such service or site.
    """
    store = store_of(state)
    found = fronts(store)
    services = store.get("services", {})
    if service not in services:
        raise RunError(f"SERVICE: unknown service {service!r}; {nearest(service, services)}")
    chosen = [front for front in found if site in (None, front.settings["site"])]
    if not chosen:
        sites = [front.settings["site"] for front in found]
        raise RunError(f"--site: unknown site {site!r}; {nearest(site, sites)}")
    if deadline_s is None:
        deadline_s = _own_deadline_s(state, service)
    clients = [client_to(front, store, http.one_token(store.get("token"))) for front in chosen]
    running, loaded = store.processes(), Loaded(deadline_s)
    store.close()
    times_s = poisson_s(rate_qps, seconds, seed, LOAD)
    _, machine = measured("load", running, clients, _load(clients, service, times_s, loaded))
    loaded.busy = machine.busy
    return loaded


def _own_deadline_s(state: Path, service: str) -> float:
    """The deadline that the scenario gives a service."""
    services = services_of(load_scenario(state / SCENARIO))
    assert services is not None  # the store lists this one
    return float(services.deadline_s[services.names.index(service)])


async def _load(
    clients: Sequence[http.Client], service: str, times_s: Iterable[float], loaded: Loaded
) -> None:
    headers, body = await zeros(clients[0], service)
    headers = {**headers, DEADLINE: str(loaded.deadline_s)}
    began_s = clock.monotonic_s()

    async def one(number: int, at_s: float) -> None:
        await asyncio.sleep(max(began_s + at_s - clock.monotonic_s(), 0.0))
        await ask_service(clients[number % len(clients)], service, headers, body, loaded.deadline_s, loaded)

    await asyncio.gather(*(one(number, at_s) for number, at_s in enumerate(times_s)))


async def ask_service(
    client: http.Client, service: str, headers: dict[str, str], body: bytes, deadline_s: float, loaded: Loaded
) -> None:
    """Send a request without a stream, and count what became of it."""
    sent_s = clock.monotonic_s()
    try:
        answer = await client.request(
            "POST", f"/v2/models/{service}/infer", headers, body, deadline_s + GONE_S
        )
    except (ConnectionError, TimeoutError) as error:
        loaded.became["failed"] += 1
        loaded.why = str(error)
        return
    delay_s = clock.monotonic_s() - sent_s
    if answer.status == 200:
        loaded.delays_s.append(delay_s)
        loaded.became["in time" if delay_s <= deadline_s else "late"] += 1
        return
    loaded.why = str(json.loads(answer.body).get("error"))
    loaded.became[UNANSWERED.get(answer.status, "failed")] += 1
