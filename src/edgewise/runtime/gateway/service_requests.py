"""Requests of services over HTTP: each is dispatched to a replica when it comes, without a stream.

    POST /v2/models/{service}/infer     `edgewise-deadline-s` or the service's own deadline

Clients have equal shares of the replicas (`core.dispatch.shares`): a request beyond its client's share waits
for its turn, and is answered 429 where too many of its client's do, later the more often that happens. One
that cannot end in time is refused with 409 and why. Replicas work by deadline, and drop with 504 what they
could not end in time if they began it now. A request whose replica is lost goes elsewhere.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from edgewise.core.dispatch.events import (
    Drop,
    ReplicaChanged,
    ReplicaForgotten,
    ReplicaTold,
    RequestAgain,
    RequestArrived,
    RequestCommand,
    RequestEnded,
    RequestReturned,
    Wait,
)  # fmt: skip
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.dispatch.shares import MOST_WAITING
from edgewise.runtime import clock, http
from edgewise.runtime.gateway.forwarding import (
    LONGEST_S,
    Destination,
    LiveQuery,
    Patience,
    Upstream,
    took_s,
)
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import DEADLINE, PRIORITY, in_header, remaining_s
from edgewise.runtime.store import Running
from edgewise.runtime.watch.metrics import ServiceMetrics

log = logging.getLogger("edgewise.dispatching")
MOST_UNKEPT = 10_000  # requests, where nobody keeps them
Over = tuple[float, tuple[str, float, int, str | None, float, str]]
DROPPED = (409, 429, 503, 504)  # not worked on, for lack of time or room


@dataclass(slots=True, eq=False)
class ServiceRequests:
    """The requests of a gateway, and the replicas that serve them.

    Args:
        core: decides and counts.
        workers: the gateway's own list of upstreams, among them those that serve requests.
        shared: index in `workers` of each worker that streams and requests share, by name.
        wanted: replicas as the store has them, called each health period.
        patience: times.
        metrics: told about answers.
        session: told what goes to workers, where streams have their queries, too.
        token: that replicas want to see.
        emulated: whether a request has passed its way there when it is sent on.
    Attributes:
        over: the latest requests that are, for whoever keeps them: Unix time, and the rest of a `Request`
            after its site.
        stations: the cloud's cluster, then nodes.
        answer_bytes: of each service, as simulated.
        answered: since then, of each service how many answers, and their bytes together.
    """

    core: RequestCore
    workers: Sequence[Upstream]
    shared: dict[str, int]
    wanted: Callable[[], list[Running]]
    patience: Patience
    metrics: ServiceMetrics
    session: Session
    token: str | None = field(default=None, repr=False)
    emulated: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)
    over: deque[Over] = field(default_factory=lambda: deque(maxlen=MOST_UNKEPT))
    answered: dict[str, tuple[int, int]] = field(default_factory=dict)
    stations: tuple[str, ...] = field(init=False)
    answer_bytes: list[float] = field(init=False)
    _targets: dict[str, Upstream] = field(default_factory=dict)
    _told: dict[str, tuple[bool, bool]] = field(default_factory=dict)  # of workers: wanted, and up
    _turns: dict[int, asyncio.Future[None]] = field(default_factory=dict)  # of requests that wait

    def __post_init__(self) -> None:
        services = self.core.services
        self.stations = (services.spec.cloud, *services.nodes)
        self.answer_bytes = services.simulated_answer_bytes.tolist()

    @property
    def names(self) -> tuple[str, ...]:
        """The services."""
        return self.core.services.names

    def at(self, worker: str) -> dict[str, float]:
        """Requests of this gateway at a worker, and their load; nothing where it serves none."""
        if worker not in self.shared:
            return {}
        load_qps = float(self.session.requests_qps[self.shared[worker]])
        return {"held": self.core.replicas[worker].mine, "requests_qps": load_qps}

    def targets(self, service: str) -> list[Upstream]:
        """Replicas of a service."""
        s = self.names.index(service)
        return [self.target(replica.name) for replica in self.core.replicas.values() if replica.service == s]

    def checks(self) -> list[Callable[[], Awaitable[None]]]:
        """Read which replicas there are, and how to check the health of each; workers are the gateway's."""
        self.refresh()
        return [partial(self._check, name, target) for name, target in self._targets.items()]

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
            self._tell(ReplicaForgotten(self._now(), name))
            if name not in replicas:
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
        return self.workers[self.shared[name]] if name in self.shared else self._targets[name]

    def note_workers(self) -> None:
        """Which shared workers are up, and which are to go, is the gateway's to find out."""
        for name, worker in self.shared.items():
            target = self.workers[worker]
            if self._told.get(name) != (now := (target.wanted, target.up)):
                self._told[name] = now
                self._seen(name, *now)

    def note_worker(self, worker: int) -> None:
        """A worker was looked after, and how much it has, as it last said."""
        for name in [name for name, at in self.shared.items() if at == worker]:
            target, known = self.workers[worker], self.core.replicas[name]
            if (known.wanted, known.up) != (target.wanted, target.up):
                self._seen(name, target.wanted, target.up)
            self.note_queue(name)

    def note_queue(self, name: str) -> None:
        """How many requests a replica has, as it last said."""
        if (queued := self.target(name).queued) is not None and name in self.core.replicas:
            self._tell(ReplicaTold(self._now(), name, queued))

    async def turn(self, client: str, service: int, number: int, until_s: float) -> bool:
        """Wait until a request's turn has come, or it is too late for it; False: its client has too many."""
        goes = self.core.enter(self._now(), client, service, number)
        if goes is False:
            turn = self._turns[number] = asyncio.get_running_loop().create_future()
            timer = clock.later(until_s - clock.monotonic_s(), _given, turn)
            try:
                await turn
            finally:
                timer.cancel()
                del self._turns[number]
        return goes is not None

    def left(self, client: str, service: int, number: int) -> None:
        """A request that had a turn, or waited for one, is over: others go."""
        for each in self.core.make_way(self._now(), client, service, number):
            if each in self._turns:  # else it is over, too, and will say so
                _given(self._turns[each])

    async def _check(self, name: str, target: Upstream) -> None:
        up = await target.check(self.patience.health_timeout_s, self.patience.health_misses)
        if self._targets.get(name) is not target:
            return
        target.up = up
        self.session.worked(name, target.worked)
        self._seen(name, bool(self.core.replicas[name].wanted), up)
        if not up and target.silent:
            target.client.abort()  # what was under way there goes elsewhere at once
        self.note_queue(name)

    def _seen(self, name: str, wanted: bool, up: bool) -> None:
        """Tell the core whether a replica that it knows is to stay, and is up."""
        r = self.core.replicas[name]
        self._tell(ReplicaChanged(self._now(), name, r.service, r.station, wanted, up))

    def _now(self) -> float:
        return self.session.clock()

    def _tell(self, event: ReplicaChanged | ReplicaTold | ReplicaForgotten) -> None:
        self.core.handle(event)


def _given(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class RequestWork:
    """One request on its way."""

    def __init__(
        self, services: ServiceRequests, request: http.HttpRequest, service: int, number: int
    ) -> None:
        self._services, self._request, self._service, self._number = services, request, service, number
        self._core, self._session = services.core, services.session
        self._stated_s = LONGEST_S
        self._name = ""
        self._station: int | None = None  # that it was sent to last
        self._entered = self._came = False
        self._said: RequestCommand | None = None  # what is to be done; None: it did not come yet, or is over

    async def choose(self, query: LiveQuery) -> Destination | http.Response:
        """Where the core sends it, once it no longer keeps it; or why it is refused.

        Raises:
            ProtocolError: a header is wrong.
        """
        services = self._services
        if self._said is None and (refused := await self._come(query)) is not None:
            return refused
        while isinstance(said := self._said, Wait):
            await clock.sleep(max(said.until_s - self._now(), 0.0))
            services.note_workers()
            self._said = self._tell(RequestAgain(self._now(), self._number))
        assert said is not None, "who came is to be sent, kept or dropped"
        if isinstance(said, Drop):
            self._said = None
            return http.failure(409 if said.late else 503, said.reason)
        return self._at(said.replica, query)

    async def _come(self, query: LiveQuery) -> http.Response | None:
        """Have its turn among those of all clients, and tell the core; why it has none, if so."""
        services, headers = self._services, self._request.headers
        services.note_workers()
        stated_s = in_header(headers, DEADLINE, float(self._core.services.deadline_s[self._service]))
        self._stated_s, self._came = min(stated_s, remaining_s(headers), LONGEST_S), True
        query.expires_s = query.received_s + self._stated_s
        query.headers |= {PRIORITY: headers[PRIORITY]} if PRIORITY in headers else {}
        who = self._request.client, self._service, self._number
        self._entered = True
        if not await services.turn(*who, query.expires_s):
            self._entered = False
            why = f"{MOST_WAITING} requests of this client wait for their share of the replicas"
            refused = http.failure(429, why)
            refused.after_s = self._core.turn_away(self._now(), self._request.client, self._service)
            return refused
        services.note_workers()
        until_s = self._now() + query.expires_s - clock.monotonic_s()
        what = self._number, self._service, until_s, len(query.body)
        self._said = self._tell(RequestArrived(self._now(), *what))
        return None

    def lost(self, tried: int, left_s: float) -> bool:
        """Its replica is lost; the core says whether it goes elsewhere."""
        return True

    def returned(
        self, answer: http.Response | None, there_s: float | None, back_s: float, lost: bool
    ) -> None:
        """It came back from its replica, or not; its answer has `back_s` yet to go."""
        name, took = self._name, took_s(answer) if answer is not None else 0.0
        if lost:  # it goes elsewhere at once
            self._services.note_workers()
            back_s = 0.0
        self._said = self._tell(RequestReturned(self._now() + back_s, self._number, _how(answer, lost), took))
        if name in self._services.shared:
            self._session.came_back(self._services.shared[name], there_s)
        if answer is not None:
            self._services.target(name).heard(answer)
            self._services.note_queue(name)

    def ended(self, answer: http.Response | None) -> None:
        """Let others have their turn, and count what its client got."""
        if self._entered:
            self._services.left(self._request.client, self._service, self._number)
        if isinstance(self._said, Wait):  # its client left it while it was kept
            self._core.handle(RequestEnded(self._now(), self._number))
        took_s, served = clock.monotonic_s() - self._request.received_s, False
        if answer is not None and answer.status == 200:
            served = True
            name = self._services.names[self._service]
            answers, size_bytes = self._services.answered.get(name, (0, 0))
            self._services.answered[name] = answers + 1, size_bytes + len(answer.body)
            self._services.metrics.delays[self._service].observe(took_s)
        if self._came:
            self._keep(took_s, served)

    def _keep(self, took_s: float, served: bool) -> None:
        """Write down what became of it."""
        services, end_s, station = self._services, clock.unix_s(), self._station
        outcome = "dropped" if not served else "in_time" if took_s <= self._stated_s else "late"
        what = services.names[self._service], self._stated_s, len(self._request.body)
        where = None if station is None else services.stations[station]
        services.over.append((end_s - took_s, (*what, where, end_s, outcome)))

    def _tell(self, event: RequestArrived | RequestAgain | RequestReturned) -> RequestCommand | None:
        """What is to be done with it; None: it is over."""
        return next(iter(self._core.handle(event)), None)

    def _at(self, name: str, query: LiveQuery) -> Destination:
        core, services = self._core, self._services
        station = self._station = core.replicas[name].station
        self._name, query.began_s = name, clock.monotonic_s()
        query.reserve_s = core.reserve_s(self._number, there=not services.emulated)
        query.answer_bytes = services.answer_bytes[self._service]
        if name in services.shared:
            self._session.request_sent(services.shared[name], len(query.body))
        cluster = core.services.clusters[station]
        return Destination(services.target(name), name, services.names[self._service], core.site, cluster)

    def _now(self) -> float:
        return self._session.clock()


def _how(answer: http.Response | None, lost: bool) -> str:
    """How a request came back, see `RequestReturned`."""
    status = 0 if answer is None else answer.status
    if lost:
        return "lost"
    return "answered" if status == 200 else "dropped" if status in DROPPED else "failed"
