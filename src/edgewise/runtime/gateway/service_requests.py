"""Requests of services over HTTP: each is dispatched to a replica when it comes, without a stream.

    POST /v2/models/{service}/infer     `edgewise-deadline-s` or the service's own deadline

A request that cannot end in time is refused with 409 and why. Replicas work by deadline, and drop with 504
what they could not end in time if they began it now. A request whose replica is lost goes elsewhere.
"""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewise.core.dispatch.events import (
    Drop,
    ReplicaChanged,
    ReplicaForgotten,
    ReplicaTold,
    RequestAgain,
    RequestArrived,
    RequestEnded,
    RequestReturned,
    Wait,
)  # fmt: skip
from edgewise.core.dispatch.requests import RequestCore
from edgewise.runtime import http
from edgewise.runtime.gateway.forwarding import (
    LONGEST_S,
    Destination,
    LiveQuery,
    Patience,
    Upstream,
    took_s,
)
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.metrics import ServiceMetrics
from edgewise.runtime.protocol.messages import DEADLINE, PRIORITY, in_header, remaining_s
from edgewise.runtime.store import Running

log = logging.getLogger("edgewise.dispatching")
MOST_UNKEPT = 10_000  # requests, where nobody keeps them
DROPPED = (409, 429, 503, 504)  # not worked on, for lack of time or room


@dataclass(slots=True, eq=False)
class ServiceRequests:
    """The requests of a gateway, and the replicas that serve them.

    Args:
        core: decides and counts.
        workers: the gateway's own list of upstreams, among them those in the cloud.
        cloud: index in `workers` of each worker in the cloud, by name.
        wanted: replicas as the store has them, called each health period.
        patience: times.
        metrics: told about answers.
        session: told what goes to workers, where streams have their queries, too.
        token: that replicas want to see.
    Attributes:
        came: the latest requests, for whoever keeps them: Unix time, and service, time they had, payload.
        answered: since then, of each service how many answers, and their bytes together.
    """

    core: RequestCore
    workers: Sequence[Upstream]
    cloud: dict[str, int]
    wanted: Callable[[], list[Running]]
    patience: Patience
    metrics: ServiceMetrics
    session: Session
    token: str | None = field(default=None, repr=False)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    came: deque[tuple[float, tuple[str, float, int]]] = field(
        default_factory=lambda: deque(maxlen=MOST_UNKEPT)
    )
    answered: dict[str, tuple[int, int]] = field(default_factory=dict)
    _targets: dict[str, Upstream] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The services."""
        return self.core.services.names

    def at(self, worker: str) -> dict[str, float]:
        """Requests of this gateway at a worker, and their load; nothing where it serves none."""
        if worker not in self.cloud:
            return {}
        load_qps = float(self.session.requests_qps[self.cloud[worker]])
        return {"held": self.core.replicas[worker].mine, "requests_qps": load_qps}

    def targets(self, service: str) -> list[Upstream]:
        """Replicas of a service."""
        s = self.names.index(service)
        return [self.target(replica.name) for replica in self.core.replicas.values() if replica.service == s]

    def checks(self) -> list[Coroutine[Any, Any, None]]:
        """Read which replicas there are, and how to check the health of each."""
        self.refresh()
        return [self._check(name) for name in self.core.replicas]

    def refresh(self) -> None:
        """Take over what the store says of replicas."""
        services, replicas = self.core.services, self.core.replicas
        rows = {running.process.name: running.process for running in self.wanted()}
        for name, process in rows.items():
            place = services.place(process.settings)
            if place is None:
                continue  # of a scenario that this gateway is yet to be started with
            n, s = place
            old = self._targets.get(name)
            if old is None or old.client.url != process.url:
                self._targets[name] = Upstream(http.Client.of_url(process.url, self.token), services.names[s])
                self._targets[name].up = old is not None and old.up  # its successor was ready first
                if old is not None:
                    old.client.close()
            up = name in replicas and replicas[name].up
            self._tell(ReplicaChanged(self._now(), name, s, n + 1, process.wanted, up))
        for name in set(self._targets) - set(rows):
            self._seen(name, wanted=False)
            if replicas[name].mine == 0:
                self._tell(ReplicaForgotten(self._now(), name))
                self._targets.pop(name).client.close()

    def close(self) -> None:
        """Close the connections to replicas."""
        for target in self._targets.values():
            target.client.close()

    def work(self, request: http.HttpRequest, name: str) -> "RequestWork":
        """A request that came."""
        return RequestWork(self, request, self.names.index(name), next(self.numbers))

    def target(self, name: str) -> Upstream:
        """Who serves as a replica."""
        return self.workers[self.cloud[name]] if name in self.cloud else self._targets[name]

    def note_cloud(self) -> None:
        """Which workers in the cloud are up is the session's to find out."""
        for name, worker in self.cloud.items():
            if self.core.replicas[name].up != self.workers[worker].up:
                self._seen(name, up=self.workers[worker].up)

    def note_queue(self, name: str) -> None:
        """How many requests a replica has, as it last said."""
        if (queued := self.target(name).queued) is not None and name in self.core.replicas:
            self._tell(ReplicaTold(self._now(), name, queued))

    async def _check(self, name: str) -> None:
        if name not in self.cloud:
            target, wait = self._targets[name], self.patience
            up = await target.check(wait.health_timeout_s, wait.health_misses)
            if self._targets.get(name) is not target:
                return
            target.up = up
            self._seen(name, up=up)
            if not up and target.silent:
                target.client.abort()  # what was under way there goes elsewhere at once
        self.note_queue(name)

    def _seen(self, name: str, *, up: bool | None = None, wanted: bool | None = None) -> None:
        """Tell the core what changed of a replica that it knows."""
        r = self.core.replicas[name]
        known = r.wanted if wanted is None else wanted, r.up if up is None else up
        self._tell(ReplicaChanged(self._now(), name, r.service, r.station, *known))

    def _now(self) -> float:
        return self.session.clock()

    def _tell(self, event: ReplicaChanged | ReplicaTold | ReplicaForgotten) -> None:
        self.core.handle(event)


class RequestWork:
    """One request on its way."""

    def __init__(
        self, services: ServiceRequests, request: http.HttpRequest, service: int, number: int
    ) -> None:
        self._services, self._request, self._service, self._number = services, request, service, number
        self._core, self._session = services.core, services.session
        self._stated_s = LONGEST_S
        self._name = ""
        self._arrived = False

    async def choose(self, query: LiveQuery) -> Destination | http.Response:
        """Where the policy sends it, once it no longer holds it; or why it is refused.

        Raises:
            ProtocolError: a header is wrong.
        """
        core, services, headers = self._core, self._services, self._request.headers
        services.note_cloud()
        if self._arrived:
            (command,) = core.handle(RequestAgain(self._now(), self._number))
        else:
            stated_s = in_header(headers, DEADLINE, float(core.services.deadline_s[self._service]))
            self._stated_s = min(stated_s, remaining_s(headers), LONGEST_S)
            query.expires_s = query.received_s + self._stated_s
            query.headers |= {PRIORITY: headers[PRIORITY]} if PRIORITY in headers else {}
            until_s = self._now() + query.expires_s - time.monotonic()
            what = self._number, self._service, until_s, len(query.body)
            self._arrived = True
            came = services.names[self._service], self._stated_s, len(query.body)
            services.came.append((time.time(), came))
            (command,) = core.handle(RequestArrived(self._now(), *what))
        while isinstance(command, Wait):
            await asyncio.sleep(core.services.spec.slot_s)
            services.note_cloud()
            (command,) = core.handle(RequestAgain(self._now(), self._number))
        if isinstance(command, Drop):
            return http.failure(409 if command.late else 503, command.reason)
        return self._at(command.replica, query)

    def lost(self) -> bool:
        """Its replica is lost; it may go elsewhere."""
        return True

    def returned(
        self, answer: http.Response | None, there_s: float | None, back_s: float, lost: bool
    ) -> None:
        """It came back from its replica, or not; its answer has `back_s` yet to go."""
        name, took = self._name, took_s(answer) if answer is not None else 0.0
        now_s, answered = self._now() + back_s, there_s is not None
        self._core.handle(RequestReturned(now_s, self._number, answered, took, lost))
        if name in self._services.cloud:
            self._session.came_back(self._services.cloud[name], there_s)
        if answer is not None:
            self._services.target(name).heard(answer)
            self._services.note_queue(name)

    def ended(self, answer: http.Response | None) -> None:
        """Count what became of it."""
        status = 0 if answer is None else answer.status
        outcome = None if status == 200 else "dropped" if status in DROPPED else "failed"
        if self._arrived:
            self._core.handle(RequestEnded(self._now(), self._number, outcome))
        if answer is not None and status == 200:
            name = self._services.names[self._service]
            answers, size_bytes = self._services.answered.get(name, (0, 0))
            self._services.answered[name] = answers + 1, size_bytes + len(answer.body)
            self._services.metrics.delays[self._service].observe(time.monotonic() - self._request.received_s)

    def _at(self, name: str, query: LiveQuery) -> Destination:
        core, services = self._core, self._services
        station = core.replicas[name].station
        self._name, query.began_s = name, time.monotonic()
        back_s = 0.5 * float(core.services.system.delay_s[core.site, station])
        query.reserve_s = float(core.service_s[self._service]) + back_s
        if name in services.cloud:
            self._session.request_sent(services.cloud[name], len(query.body))
        cluster = core.services.clusters[station]
        return Destination(services.target(name), name, services.names[self._service], core.site, cluster)

    def _now(self) -> float:
        return self._session.clock()
