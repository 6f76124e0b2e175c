"""The gateway's administration, below /v1/admin: it needs the operator's token, see `http.Guard`.

GET  /v1/admin/policies/{decision}   the policy in use and those there are; of streams: dispatch, or requests
PUT  /v1/admin/policies/{decision}   {"policy": name}: switch; bindings stay
GET  /v1/admin/shadows/{decision}    what a second policy would have done
PUT  /v1/admin/shadows/{decision}    {"policy": name}: begin anew; {"policy": ""}: end
GET  /v1/admin/replicas              totals of services, and each replica's state and requests
GET  /v1/admin/pools                 of workers that come and go: each one's state and streams, what was asked
GET  /v1/admin/operations[/{id}]     how far a switch is; PUT answers 202 and says where to ask
GET  /v1/admin/workers               each worker's address, state and load
PUT  /v1/admin/workers/{name}        {"url": …, "model": …, "token": …}: any Open Inference Protocol server;
                                     without a token it is shown none
POST /v1/admin/drain                 take no more streams and queries
…    /v1/admin/reservations/{worker}/… what gateways have of a server that knows no reservations, and that
                                     this gateway grants: see `Reservations`

What takes long is accepted at once, and whoever asked for it can ask how far it is.

    PUT …                  202, `location: BASE/{id}`, and the operation as JSON
    GET BASE               the last operations, oldest first
    GET BASE/{id}          one: waiting → compiling → switching → done, or failed and why

Operations of one process run one after the other, in the order in which they came.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from functools import partial

import msgspec
from msgspec import UNSET

from edgewise import policies
from edgewise.errors import EdgewiseError, ProtocolError, ScenarioError
from edgewise.runtime import clock, http
from edgewise.runtime.apart import load
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import Move
from edgewise.runtime.gateway.service_requests import ServiceRequests
from edgewise.runtime.gateway.split import SplitGroup
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.process.compiling import compiled, try_out_here
from edgewise.runtime.protocol.bodies import (
    Draining,
    Policy,
    PolicyNamed,
    Switch,
    SwitchStep,
    VariantPolicy,
    WorkerPlace,
    WorkerSeen,
    read,
)
from edgewise.runtime.protocol.messages import text
from edgewise.runtime.protocol.openapi import unanswered
from edgewise.runtime.protocol.shown_bodies import ReplicasShown, ShadowShown
from edgewise.runtime.states import DONE, FAILED, WAITING
from edgewise.runtime.store import POLICIES, SHADOWS

COMPILING, SWITCHING = "compiling", "switching"
OVER = (DONE, FAILED)
KEPT = 100  # operations that can be asked for
MOST_WAITING = 16


@dataclass(slots=True)
class Step:
    """How far something is.

    Attributes:
        state: see the module.
        since_s: Unix time when it came into this state.
        error: why it failed, None otherwise.
    """

    state: str = WAITING
    since_s: float = field(default_factory=lambda: clock.unix_s())
    error: str | None = None

    def enter(self, state: str, error: str | None = None) -> None:
        """Come into a state; the same state again changes nothing."""
        if (state, error) != (self.state, self.error):
            self.state, self.since_s, self.error = state, clock.unix_s(), error


@dataclass(slots=True)
class Operation(Step):
    """The switch of a policy.

    Attributes:
        id: unique in its process, and over restarts of a controller.
        what: "policies" or "shadows".
        decision: of `policies.DECISIONS`.
        policy: which is to be used.
        accepted_s: Unix time.
        gateways: how far each gateway is; empty at a gateway itself.
    """

    id: int = 0
    what: str = ""
    decision: str = ""
    policy: str = ""
    accepted_s: float = field(default_factory=lambda: clock.unix_s())
    gateways: dict[str, Step] = field(default_factory=dict)

    def report(self) -> Switch:
        """As it is told."""
        steps = [SwitchStep(name, **asdict(step)) for name, step in self.gateways.items()]
        return Switch(**asdict(self) | {"gateways": steps})


Work = Callable[[Operation], Awaitable[None]]


class Operations:
    """The operations of one process.

    Args:
        base: path below which they can be asked for.
        last_id: of the process before this one.
        ended: is told of each that is done or has failed.
    """

    def __init__(
        self, base: str, last_id: int = 0, ended: Callable[[Operation], None] = lambda operation: None
    ) -> None:
        self._base, self._last_id, self._ended = base, last_id, ended
        self._kept: dict[int, Operation] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, what: str, decision: str, policy: str, work: Work, number: int | None = None
    ) -> Operation:
        """Accept an operation; `work` runs when those before it have ended.

        Args:
            number: of one that is taken up again; a new one when None.
        Raises:
            ProtocolError: too many wait; status 429.
        """
        if len(self._tasks) > MOST_WAITING:
            raise ProtocolError(f"{MOST_WAITING} switches wait; let them end first", status=429)
        self._last_id = max(self._last_id + 1, number or 0)
        made = Operation(
            id=self._last_id if number is None else number, what=what, decision=decision, policy=policy
        )
        self._kept[made.id] = made
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        task = asyncio.create_task(self._run(made, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    async def _run(self, operation: Operation, work: Work) -> None:
        more = {"of": operation.decision, "policy": operation.policy, "operation": operation.id}
        async with self._turn:
            try:
                await work(operation)
            except Exception as error:  # whatever somebody's policy raises: whoever waits must hear of it
                known = isinstance(error, EdgewiseError)
                operation.enter(FAILED, str(error) if known else f"{type(error).__name__}: {error}")
                log.error("not switched", extra=more | {"why": operation.error}, exc_info=not known)
            else:
                operation.enter(DONE)
                log.info("switched", extra=more)
        self._ended(operation)

    def accepted(self, operation: Operation) -> http.Response:
        """The answer to whoever asked for it."""
        answer = http.as_json(operation.report(), 202)
        answer.headers["location"] = f"{self._base}/{operation.id}"
        return answer

    def answer(self, request: http.HttpRequest, rest: list[str]) -> http.Response:
        """Answer a request for the operations, or for one.

        Raises:
            ProtocolError: it is not known, or no longer; status 404.
        """
        if request.method != "GET" or len(rest) > 1:
            return not_allowed(f"{request.path} takes GET", "GET")
        if not rest:
            return http.as_json([each.report() for each in self._kept.values()])
        number = int(rest[0]) if rest[0].isascii() and rest[0].isdigit() and len(rest[0]) < 19 else -1
        if number not in self._kept:
            raise ProtocolError(f"no operation {rest[0][:80]!r}; the last {KEPT} are kept", status=404)
        return http.as_json(self._kept[number].report())


def check_name(name: str, have: list[str]) -> None:
    """Refuse a name that a client made up; files are for those who write the scenario.

    Raises:
        ProtocolError: it is none of `have`.
    """
    if name not in have:
        raise ProtocolError(f"policy: {name[:80]!r} is none of {', '.join(have)}")


log = logging.getLogger("edgewise.admin")
HAND_OVER_S = 0.0005  # a thread that loads kernels lets the next query have the interpreter so soon
DECIDED = ("dispatch", "requests", "split")
NO_SERVICES = "the scenario has no orchestration; add services to it"


def with_admin(gateway: Gateway) -> http.Handler:
    """A handler for the gateway's own paths and for those of its administration."""
    operations = Operations("/v1/admin/operations")

    async def admin(request: http.HttpRequest, rest: list[str]) -> http.Response:
        if rest[:1] == ["operations"]:
            return operations.answer(request, rest[1:])
        if len(rest) == 2 and rest[0] in (POLICIES, SHADOWS):
            return _policies(gateway, operations, request, rest[0], rest[1])
        return _admin(gateway, request, rest)

    def handle(request: http.HttpRequest) -> Awaitable[http.Response]:
        if not request.path.startswith(http.QUERIES) and (parts := request.parts)[:2] == ["v1", "admin"]:
            return admin(request, parts[2:])
        return gateway.handle(request)

    return handle


def _admin(gateway: Gateway, request: http.HttpRequest, rest: list[str]) -> http.Response:
    match request.method, rest:
        case "GET", ["workers"]:
            return http.as_json([_worker(gateway, worker) for worker in range(len(gateway.upstreams))])
        case "PUT", ["workers", name]:
            return _move(gateway, name, request.body)
        case "GET", ["replicas"]:
            return http.as_json(msgspec.convert(_services(gateway).core.report(), ReplicasShown))
        case "GET", ["pools"]:
            wanted, up = ([getattr(each, what) for each in gateway.upstreams] for what in ("wanted", "up"))
            return http.as_json(gateway.session.pools(wanted, up))
        case _, ["reservations", name, *more] if gateway.granting is not None:
            return gateway.granting.answer(name, request, more)
        case "POST", ["drain"]:
            gateway.draining = True
            return http.as_json(Draining(True))
    return unanswered(request, "gateway")


def _services(gateway: Gateway) -> ServiceRequests:
    """The services of a gateway.

    Raises:
        ProtocolError: it has none; status 404.
    """
    if gateway.services is None:
        raise ProtocolError(NO_SERVICES, status=404)
    return gateway.services


# policies


def _policies(
    gateway: Gateway, operations: Operations, request: http.HttpRequest, what: str, decision: str
) -> http.Response:
    """Say which policy is in use, or begin to switch it; to a file only if the store names it."""
    if decision not in DECIDED:
        raise ProtocolError(f"no decision {decision[:80]!r} here; there are {', '.join(DECIDED)}", status=404)
    services = _services(gateway) if decision == "requests" else None
    have = policies.names(decision, live=True)
    if request.method == "PUT":
        name = text(read(request.body, PolicyNamed).policy, "policy", least=what != SHADOWS)
        if name and name != gateway.book.policy(decision, what):
            check_name(name, have)
        return operations.accepted(operations.begin(what, decision, name, partial(_switch, gateway)))
    if request.method != "GET":
        return unanswered(request, "gateway")
    if decision == "split":
        return http.as_json([row for group in gateway.splits if (row := _split(group, what))])
    if what == SHADOWS:
        watching = (gateway.session if services is None else services).core.shadow
        found = {"policy": ""} if watching is None else watching.report()
        return http.as_json(msgspec.convert(found, ShadowShown))
    session, adviser = gateway.session, None if services is None else services.core.adviser
    policy, faults = (
        (session.core.policy, session.core.faults)
        if adviser is None
        else (adviser.policy, adviser.guard.faults)
    )
    budget_s = session.budget_s(decision)
    return http.as_json(Policy(policy.name, have, budget_s, dict(faults)))


def _split(group: SplitGroup, what: str) -> VariantPolicy | ShadowShown | None:
    """Who splits the queries of a variant, or what a second policy would have done."""
    shadow = group.core.shadow
    if what == POLICIES:
        return VariantPolicy(group.variant, group.core.policy.name)
    if shadow is None:
        return None
    return msgspec.convert(shadow.report() | {"variant": group.variant}, ShadowShown)


async def _switch(gateway: Gateway, operation: Operation) -> None:
    """Have a policy compiled apart, load it in a thread, and use it: requests are answered meanwhile.

    Raises:
        PolicyError: it cannot be loaded.
    """
    session, name, watches = gateway.session, operation.policy, operation.what == SHADOWS
    services = gateway.services.core.services if gateway.services is not None else None
    core = _services(gateway).core if operation.decision == "requests" else session.core
    if name:
        wanted = operation.decision, name
        await compiled([wanted], session.world, services, lambda: operation.enter(COMPILING))
        operation.enter(SWITCHING)
        sys.setswitchinterval(HAND_OVER_S)
        await asyncio.to_thread(try_out_here, wanted, session.world, services)
    if operation.decision == "split":
        for group in gateway.splits:
            begun = await asyncio.to_thread(group.begun, name) if name else None
            group.hand(begun, watches)
        return
    given = operation.decision, name, session.budget_s(operation.decision), *core.given
    policy = await asyncio.to_thread(load, *given) if name else None
    session.hand(core, operation.decision, policy, watches)


# workers


def _worker(gateway: Gateway, worker: int) -> WorkerSeen:
    world, view, target = gateway.session.world, gateway.session.core.view(), gateway.upstreams[worker]
    requests = {} if gateway.services is None else gateway.services.at(world.worker_names[worker])
    return WorkerSeen(
        worker=world.worker_names[worker],
        variant=world.variant_names[worker],
        url=target.client.url,
        model=target.model,
        up=target.up,
        refuses_token=target.refuses,
        streams=int(view.streams[worker]),
        load_qps=float(view.load_qps[worker]),
        capacity_qps=float(world.capacity_qps[worker]),
        **requests,
    )


def _move(gateway: Gateway, name: str, body: bytes) -> http.Response:
    world = gateway.session.world
    if name not in world.worker_names:
        raise ProtocolError(f"no worker {name!r}; there are {', '.join(world.worker_names)}", status=404)
    stated = read(body, WorkerPlace)
    url, model = text(stated.url, "url"), text(stated.model, "model")
    token = text(stated.token, "token") if stated.token is not UNSET else None
    worker = world.worker_names.index(name)
    try:
        http.check_token(token)
        gateway.move(worker, url, model, token)
    except (ScenarioError, ValueError) as error:
        raise ProtocolError(str(error)) from None
    gateway.book.moved(name, Move(url, model, token))
    log.info("worker moved", extra={"worker": name, "url": url, "model": model})
    return http.as_json(_worker(gateway, worker))
