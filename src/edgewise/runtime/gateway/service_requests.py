"""Requests of services over HTTP: each is dispatched to a replica when it comes, without a stream.

    POST /v2/models/{service}/infer     `edgewise-deadline-s` or the service's own deadline

A request that cannot end in time is refused with 409 and why. Replicas work by deadline, and drop with 504
what they could not end in time if they began it now. A request whose replica is lost goes elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgewise.errors import ProtocolError
from edgewise.runtime import http
from edgewise.runtime.gateway.dispatching import Dispatching, Replica
from edgewise.runtime.gateway.forwarding import (
    LONGEST_S,
    PASSED,
    TRIES,
    LiveQuery,
    Patience,
    Upstream,
    Ways,
    forward,
    pass_time,
    reported,
    took_s,
)
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.metrics import ServiceMetrics
from edgewise.runtime.protocol.headers import DEADLINE, PRIORITY, number, remaining_s
from edgewise.runtime.store import Running
from edgewise.runtime.tracing import OFF, Tracing

NO_STREAM = 2**40  # keys the emulated ways of requests, one number for each site
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
        ways: emulated delays; None where the network has its own.
        metrics: told about answers.
        session: told what goes to workers, where streams have their queries, too.
        tracing: records spans.
        token: that replicas want to see.
    """

    core: Dispatching
    workers: Sequence[Upstream]
    cloud: dict[str, int]
    wanted: Callable[[], list[Running]]
    patience: Patience
    metrics: ServiceMetrics
    session: Session
    ways: Ways | None = None
    tracing: Tracing = OFF
    token: str | None = field(default=None, repr=False)
    _targets: dict[str, Upstream] = field(default_factory=dict)
    _waiting: int = 0
    _travelled: int = 0

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
        return [self._target(replica) for replica in self.core.replicas.values() if replica.service == s]

    async def watch(self) -> None:
        """Read which replicas there are, and check their health, until cancelled."""
        while True:
            self.refresh()
            await asyncio.gather(*(self._check(replica) for replica in list(self.core.replicas.values())))
            await asyncio.sleep(self.patience.health_period_s)

    def refresh(self) -> None:
        """Take over what the store says of replicas."""
        services, replicas = self.core.services, self.core.replicas
        rows = {running.process.name: running.process for running in self.wanted()}
        for name, process in rows.items():
            place = services.place(process.settings)
            if place is None:
                continue  # of a scenario that this gateway is yet to be started with
            n, s = place
            if name not in replicas:
                replicas[name] = Replica(name, s, n + 1)
            old = self._targets.get(name)
            if old is None or old.client.url != process.url:
                self._targets[name] = Upstream(http.Client.of_url(process.url, self.token), services.names[s])
                self._targets[name].up = old is not None and old.up  # its successor was ready first
                if old is not None:
                    old.client.close()
            replicas[name].wanted = process.wanted
        for name in set(self._targets) - set(rows):
            replicas[name].wanted = False
            if replicas[name].mine == 0:
                del replicas[name]
                self._targets.pop(name).client.close()

    def close(self) -> None:
        """Close the connections to replicas."""
        for target in self._targets.values():
            target.client.close()

    async def infer(self, request: http.HttpRequest, name: str) -> http.Response:
        """Dispatch a request, and count what becomes of it.

        Raises:
            ProtocolError: a header is wrong, it cannot end in time, or nobody can serve it.
        """
        service, outcome = self.names.index(name), "failed"
        self.core.arrived[service] += 1
        try:
            stated_s = number(request.headers, DEADLINE, float(self.core.services.deadline_s[service]))
            stated_s = min(stated_s, remaining_s(request.headers), LONGEST_S)
            answer = await self._serve(request, service, request.received_s + stated_s)
            if answer.status == 200:
                delay_s = time.monotonic() - request.received_s
                outcome = "in_time" if delay_s <= stated_s else "late"
                self.metrics.delays.note(delay_s, service)
            elif answer.status in DROPPED:
                outcome = "dropped"
            return answer
        except ProtocolError as error:
            outcome = "dropped" if error.status in DROPPED else "failed"
            raise
        finally:
            self.core.ended[outcome][service] += 1

    async def _serve(self, request: http.HttpRequest, service: int, expires_s: float) -> http.Response:
        """The answer of a replica, or of another one where it is lost."""
        headers = {name: request.headers[name] for name in (*PASSED, PRIORITY) if name in request.headers}
        core, left = self.core, TRIES
        while True:
            with self.tracing.span("decide"):
                replica = await self._dispatch(service, expires_s, len(request.body))
            query = LiveQuery(-1, request.body, headers, expires_s, core.clock(), request.received_s)
            back_s = 0.5 * float(core.services.system.delay_s[core.site, replica.station])
            query.reserve_s = float(core.service_s[service]) + back_s
            answer, lost = await self._send(query, replica)
            left -= 1
            if not lost or not left:
                return reported(answer, replica.name, self.names[service])
            replica.up = False  # until its next health check

    async def _dispatch(self, service: int, expires_s: float, size_bytes: int) -> Replica:
        """Where the policy sends a request, once it no longer holds it."""
        self._waiting += 1
        try:
            while True:
                self._note_cloud()
                left_s = expires_s - time.monotonic()
                replica = self.core.decide(service, left_s, size_bytes, self._waiting)
                if replica is not None:
                    return replica
                await asyncio.sleep(self.core.services.spec.slot_s)
        finally:
            self._waiting -= 1

    async def _send(self, query: LiveQuery, replica: Replica) -> tuple[http.Response, bool]:
        """A replica's answer, over the emulated way there and back; and whether the replica is lost."""
        target, sent_s, alone = self._target(replica), time.monotonic(), replica.held == 0
        worker, total_s, there_s = self.cloud.get(replica.name), None, None
        replica.mine += 1
        if worker is not None:
            self.session.request_sent(worker, len(query.body))
        try:
            ways_s = await self._travel(replica, len(query.body))
            began_s = time.monotonic()
            answer, lost = await forward(target, replica.name, query, self.tracing)
            passed_s = time.monotonic() - began_s
            target.heard(answer)
            if ways_s is not None:
                await pass_time(sent_s + ways_s + took_s(answer) - time.monotonic())
            if answer.status == 200:
                total_s, there_s = time.monotonic() - sent_s, passed_s
        finally:
            replica.mine -= 1
            if worker is not None:
                self.session.request_done(worker, there_s)
        self._note_others(replica, target)
        if total_s is not None:
            self.core.measured(replica, len(query.body), total_s, took_s(answer), alone)
        return answer, lost

    async def _travel(self, replica: Replica, size_bytes: int) -> float | None:
        """Pass the emulated time to a replica; that of both ways, None where they are not emulated."""
        if self.ways is None:
            return None
        self._travelled += 1
        core = self.core
        cluster = core.services.clusters[replica.station]
        there_s, back_s = self.ways.delays_s(
            core.site, cluster, size_bytes, NO_STREAM + core.site, self._travelled
        )
        await pass_time(there_s)
        return there_s + back_s - self.ways.client_s

    async def _check(self, replica: Replica) -> None:
        if replica.station == 0:
            self._note_others(replica, self._target(replica))
            return
        target, wait = self._targets[replica.name], self.patience
        up = await target.check(wait.health_timeout_s, wait.health_misses)
        if self._targets.get(replica.name) is target:
            replica.up = target.up = up
            self._note_others(replica, target)
            if not up and target.silent:
                target.client.abort()  # what was under way there goes elsewhere at once

    def _note_cloud(self) -> None:
        for name, worker in self.cloud.items():
            self.core.replicas[name].up = self.workers[worker].up

    def _note_others(self, replica: Replica, target: Upstream) -> None:
        """Requests at a replica that are not from here, as it last said."""
        if target.queued is not None:
            replica.others = max(target.queued - replica.mine, 0)

    def _target(self, replica: Replica) -> Upstream:
        return self.workers[self.cloud[replica.name]] if replica.station == 0 else self._targets[replica.name]
