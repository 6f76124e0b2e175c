"""The gateway's administration, below /v1/admin: it needs the operator's token, see `http.Guard`.

GET  /v1/admin/policy                the policy in use and those there are
PUT  /v1/admin/policy                {"policy": name}: switch; bindings stay
GET  /v1/admin/shadow                what a second policy would have done
PUT  /v1/admin/shadow                {"policy": name}: begin anew; {"policy": ""}: end
GET  /v1/admin/replicas              totals of services, and each replica's state and requests
GET  /v1/admin/request-policy        the policy that dispatches requests of services
PUT  /v1/admin/request-policy        {"policy": name}: switch
GET  /v1/admin/workers               each worker's address, state and load
PUT  /v1/admin/workers/{name}        {"url": …, "model": …, "token": …}: any Open Inference Protocol server;
                                     without a token it is shown none
POST /v1/admin/drain                 take no more streams and queries
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from edgewise import policies
from edgewise.core.policy import DispatchPolicy
from edgewise.errors import PolicyError, ProtocolError, ScenarioError
from edgewise.runtime import http
from edgewise.runtime.dispatching import rehearse as rehearse_requests
from edgewise.runtime.gateway import Gateway
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.service_policies import check_name, load_request_policy, request_policies
from edgewise.runtime.session import rehearse
from edgewise.runtime.store import is_text

log = logging.getLogger("edgewise.admin")
NO_SERVICES = "the scenario has no orchestration; add services to it"


def with_admin(gateway: Gateway) -> http.Handler:
    """A handler for the gateway's own paths and for those of its administration."""

    async def handle(request: http.Request) -> http.Response:
        parts = request.parts
        if parts[:2] != ["v1", "admin"]:
            return await gateway.handle(request)
        if request.method == "PUT" and parts[2:] in (["policy"], ["shadow"]):
            await _rehearse(gateway, request.body)
        if parts[2:] in (["replicas"], ["request-policy"]):
            return await _services(gateway, request, parts[2])
        return _admin(gateway, request, parts[2:])

    return handle


def _admin(gateway: Gateway, request: http.Request, rest: list[str]) -> http.Response:
    match request.method, rest:
        case "GET", ["policy"]:
            return http.as_json(_policy(gateway))
        case "PUT", ["policy"]:
            return _switch(gateway, request.body)
        case "GET", ["shadow"]:
            return _shadow(gateway)
        case "PUT", ["shadow"]:
            return _begin_shadow(gateway, request.body)
        case "GET", ["workers"]:
            return http.as_json([_worker(gateway, worker) for worker in range(len(gateway.upstreams))])
        case "PUT", ["workers", name]:
            return _move(gateway, name, request.body)
        case "POST", ["drain"]:
            gateway.draining = True
            return http.as_json({"draining": True})
        case _, ["policy" | "shadow" as name]:
            return not_allowed(f"/v1/admin/{name} takes GET and PUT", "GET", "PUT")
        case _, ["workers"]:
            return not_allowed("/v1/admin/workers takes GET", "GET")
        case _, ["workers", _]:
            return not_allowed("/v1/admin/workers/{name} takes PUT", "PUT")
        case _, ["drain"]:
            return not_allowed("/v1/admin/drain takes POST", "POST")
    return http.failure(404, f"no {request.path}")


async def _services(gateway: Gateway, request: http.Request, what: str) -> http.Response:
    """Answer about the services of a gateway.

    Raises:
        ProtocolError: it has none, or a policy cannot be loaded.
    """
    services = gateway.services
    if services is None:
        raise ProtocolError(NO_SERVICES, status=404)
    if request.method == "GET":
        if what == "replicas":
            return http.as_json(services.core.report())
        return http.as_json({"policy": services.core.policy.name, "available": request_policies()})
    if what == "replicas" or request.method != "PUT":
        methods = ["GET"] if what == "replicas" else ["GET", "PUT"]
        return not_allowed(f"/v1/admin/{what} takes {' and '.join(methods)}", *methods)
    name = field(request.body, "policy")
    check_name(name, request_policies())
    try:
        await asyncio.to_thread(rehearse_requests, services.core.services, load_request_policy(name))
        services.core.use(load_request_policy(name))
    except PolicyError as error:
        raise ProtocolError(f"policy: {error}") from error
    log.info("request policy switched", extra={"policy": name})
    return http.as_json({"policy": name, "available": request_policies()})


async def _rehearse(gateway: Gateway, body: bytes) -> None:
    """Compile what a policy needs in a thread: requests are answered meanwhile, and after it at once."""
    if name := field(body, "policy", empty=True):
        await asyncio.to_thread(rehearse, gateway.session.world, load_policy(name))


def _policy(gateway: Gateway) -> dict[str, Any]:
    return {"policy": gateway.session.core.policy.name, "available": policies.names()}


def load_policy(name: str) -> DispatchPolicy:
    """A policy by its name; a file name would run code of the sender's choice.

    Raises:
        ProtocolError: there is none, or it cannot be loaded.
    """
    if name not in policies.names():
        raise ProtocolError(f"policy: {name[:80]!r} is none of {', '.join(policies.names())}")
    try:
        return policies.load(name)
    except PolicyError as error:
        raise ProtocolError(f"policy: {error}") from error


def _shadow(gateway: Gateway) -> http.Response:
    shadow = gateway.session.shadow
    return http.as_json({"policy": ""} if shadow is None else shadow.report())


def _begin_shadow(gateway: Gateway, body: bytes) -> http.Response:
    name = field(body, "policy", empty=True)
    gateway.session.watch_with(load_policy(name) if name else None)
    log.info("shadow", extra={"policy": name})
    return _shadow(gateway)


def _switch(gateway: Gateway, body: bytes) -> http.Response:
    name = field(body, "policy")
    gateway.session.use(load_policy(name))
    log.info("policy switched", extra={"policy": name})
    return http.as_json(_policy(gateway))


def _worker(gateway: Gateway, worker: int) -> dict[str, Any]:
    world, view, target = gateway.session.world, gateway.session.core.view(), gateway.upstreams[worker]
    requests = {} if gateway.services is None else gateway.services.at(world.worker_names[worker])
    return {
        "worker": world.worker_names[worker],
        "variant": world.variant_names[worker],
        "url": target.client.url,
        "model": target.model,
        "up": target.up,
        "refuses_token": target.refuses,
        "streams": int(view.streams[worker]),
        "load_qps": float(view.load_qps[worker]),
        "capacity_qps": float(world.capacity_qps[worker]),
        **requests,
    }


def _move(gateway: Gateway, name: str, body: bytes) -> http.Response:
    world = gateway.session.world
    if name not in world.worker_names:
        raise ProtocolError(f"no worker {name!r}; there are {', '.join(world.worker_names)}", status=404)
    url, model = field(body, "url"), field(body, "model")
    token = field(body, "token") if "token" in json.loads(body) else None
    worker = world.worker_names.index(name)
    try:
        http.check_token(token)
        gateway.move(worker, url, model, token)
    except (ScenarioError, ValueError) as error:
        raise ProtocolError(str(error)) from None
    gateway.book.moved(name, url, model, token)
    log.info("worker moved", extra={"worker": name, "url": url, "model": model})
    return http.as_json(_worker(gateway, worker))


def field(body: bytes, name: str, empty: bool = False) -> str:
    """A text in a JSON object.

    Raises:
        ProtocolError: it is missing, no text, or empty where it must not be.
    """
    try:
        stated = json.loads(body)
    except (ValueError, RecursionError):
        stated = None
    value = stated.get(name) if isinstance(stated, dict) else None
    if not isinstance(value, str) or not (value or empty) or not is_text(value):
        raise ProtocolError(f"{name}: a JSON object with this field, a string, is needed")
    return value
