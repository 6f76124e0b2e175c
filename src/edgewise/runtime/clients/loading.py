"""A load of requests on the services of a live system: Poisson arrivals, whatever comes back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgewise.config import load_scenario
from edgewise.core.keyed import Purpose, exponential
from edgewise.errors import RunError
from edgewise.model.services import services_of
from edgewise.runtime import http
from edgewise.runtime.clients.traffic import GONE_S, zeros
from edgewise.runtime.controller.plan import SCENARIO
from edgewise.runtime.protocol.headers import DEADLINE
from edgewise.runtime.reaching import client_to, store_of
from edgewise.runtime.starving import numbers_of, watched

LOAD = 2**41  # keys the gaps apart from those of streams


@dataclass(slots=True)
class Loaded:
    """What clients saw.

    Attributes:
        deadline_s: of each request.
        delays_s: of requests that were answered.
        in_time, late: of them.
        refused: could not end in time, by what the gateway knew.
        dropped: could not end in time, at their replica; or there was no room.
        failed: everything else.
        why: the last error.
        busy: why all this says more about the machine than about the system; None where it does not.
    """

    deadline_s: float
    delays_s: list[float] = field(default_factory=list)
    in_time: int = 0
    late: int = 0
    refused: int = 0
    dropped: int = 0
    failed: int = 0
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
    fronts = [r.process for r in store.processes("gateway")]
    services = store.get("services", {})
    if service not in services:
        raise RunError(f"service {service!r}: the system has {', '.join(services) or 'none'}")
    chosen = [front for front in fronts if site in (None, front.settings["site"])]
    if not chosen:
        raise RunError(f"site {site!r}: there is {', '.join(front.settings['site'] for front in fronts)}")
    if deadline_s is None:
        deadline_s = _own_deadline_s(state, service)
    clients = [client_to(front, store, store.get("token")) for front in chosen]
    numbers = numbers_of(store.processes())
    store.close()

    async def watch() -> Loaded:
        async with watched(numbers) as seen:
            loaded = await _load(clients, service, rate_qps, seconds, deadline_s, seed)
        loaded.busy = seen.busy
        return loaded

    try:
        return asyncio.run(watch())
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise RunError(f"load: {error}") from error


def _own_deadline_s(state: Path, service: str) -> float:
    """The deadline that the scenario gives a service."""
    services = services_of(load_scenario(state / SCENARIO))
    assert services is not None  # the store lists this one
    return float(services.deadline_s[services.names.index(service)])


async def _load(
    clients: Sequence[http.Client],
    service: str,
    rate_qps: float,
    seconds: float,
    deadline_s: float,
    seed: int,
) -> Loaded:
    headers, body = await zeros(clients[0], service)
    headers = {**headers, DEADLINE: str(deadline_s)}
    loaded, tasks, began_s, at_s, number = (
        Loaded(deadline_s),
        set[asyncio.Task[None]](),
        time.monotonic(),
        0.0,
        0,
    )
    while True:
        at_s += exponential(seed, Purpose.QUERY, LOAD, number) / rate_qps
        if at_s >= seconds:
            break
        await asyncio.sleep(max(began_s + at_s - time.monotonic(), 0.0))
        client = clients[number % len(clients)]
        tasks.add(asyncio.create_task(_ask(client, service, headers, body, deadline_s, loaded)))
        number += 1
    await asyncio.gather(*tasks)
    for client in clients:
        client.close()
    return loaded


async def _ask(
    client: http.Client, service: str, headers: dict[str, str], body: bytes, deadline_s: float, loaded: Loaded
) -> None:
    sent_s = time.monotonic()
    try:
        answer = await client.request(
            "POST", f"/v2/models/{service}/infer", headers, body, deadline_s + GONE_S
        )
    except (ConnectionError, TimeoutError) as error:
        loaded.failed, loaded.why = loaded.failed + 1, str(error)
        return
    delay_s = time.monotonic() - sent_s
    if answer.status == 200:
        loaded.delays_s.append(delay_s)
        loaded.in_time += delay_s <= deadline_s
        loaded.late += delay_s > deadline_s
        return
    loaded.why = str(json.loads(answer.body).get("error"))
    loaded.refused += answer.status == 409
    loaded.dropped += answer.status in (429, 503, 504)
    loaded.failed += answer.status not in (409, 429, 503, 504)
