"""The controller switches a policy: everywhere, or nowhere.

    1. its kernels are compiled apart, and it is tried out (`compiling`);
    2. the store names it, for every process that starts from now on;
    3. each gateway is told, and asked how far it is until it is done.

A gateway that refuses, or says nothing for `patience_s`, makes it fail: the store and those that had
switched go back. What is under way is in the store too, and a controller that starts again takes it up.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from edgewise import policies
from edgewise.errors import ProtocolError, RunError
from edgewise.runtime import http
from edgewise.runtime.compiling import KINDS, compiled, try_out
from edgewise.runtime.controller.replicas import Replicas
from edgewise.runtime.gateway.admin import NO_SERVICES
from edgewise.runtime.operations import (
    COMPILING,
    DONE,
    ENDED,
    FAILED,
    SWITCHING,
    Operation,
    Operations,
    Step,
    check_name,
)
from edgewise.runtime.process import world_of
from edgewise.runtime.protocol.stated import stated_in, text
from edgewise.runtime.store import Process, Store

LAST, UNDER_WAY = "last_operation", "operations"  # in the store
PATIENCE_S = 60.0  # a gateway that hangs is killed and started anew long before
POLL_S = 0.1
AT_START, UNDONE = "when it starts", "undone"
Answer = Callable[[Process, str, str, bytes], Awaitable[http.Response | None]]


class Switching:
    """Switches policies of a live system.

    Args:
        store: names the policies in use; its folder holds the scenario.
        replicas: knows the services.
        answer: of a gateway to method, path and body; None when it gives none.
    """

    def __init__(self, store: Store, replicas: Replicas, answer: Answer) -> None:
        self.store, self.replicas, self._answer = store, replicas, answer
        self.patience_s = PATIENCE_S
        self.operations = Operations("/v1/operations", store.get(LAST, 0), self._ended)

    def resume(self) -> None:
        """Take up what a controller before this one began."""
        for row in self.store.get(UNDER_WAY, []):
            self.operations.begin(row["what"], row["policy"], self._switch, row["id"])

    def begin(self, request: http.HttpRequest, what: str) -> http.Response:
        """Answer a request to switch a policy.

        Raises:
            ProtocolError: there is none of this name, there are no services, or too many switches wait.
        """
        have = self.available(what)
        name = text(stated_in(request.body, "policy").get("policy"), "policy", least=what != "shadow")
        if name:
            check_name(name, have)
        made = self.operations.begin(what, name, self._switch)
        self.store.put(LAST, made.id)
        row = {"id": made.id, "what": what, "policy": name}
        self.store.put(UNDER_WAY, [*self.store.get(UNDER_WAY, []), row])
        return self.operations.accepted(made)

    def available(self, what: str) -> list[str]:
        """Names of the policies that can be used.

        Raises:
            ProtocolError: it decides about services, and there are none; status 404.
        """
        if what in ("policy", "shadow"):
            return policies.names("dispatch", live=True)
        if self.replicas.services is None:
            raise ProtocolError(NO_SERVICES, status=404)
        if what == "request-policy":
            return policies.names("dispatch", "requests", live=True)
        return policies.names("orchestrate", live=True)

    def _ended(self, operation: Operation) -> None:
        left = [row for row in self.store.get(UNDER_WAY, []) if row["id"] != operation.id]
        self.store.put(UNDER_WAY, left)

    async def _switch(self, operation: Operation) -> None:
        """Carry an operation out.

        Raises:
            EdgewiseError: it failed, and was undone.
        """
        what, name, setting = operation.what, operation.policy, operation.what.replace("-", "_")
        former = self.store.get(setting) or ""
        if name:
            world = world_of(self.store.file.parent)[1]
            wanted, services = (KINDS[what], name), self.replicas.services
            await compiled([wanted], world, services, lambda: operation.enter(COMPILING))
            if what == "replica-policy":  # it decides in this process
                await asyncio.to_thread(try_out, wanted, world, services)
        operation.enter(SWITCHING)
        self.store.put(setting, name)
        if what == "replica-policy":
            return
        operation.gateways = {r.process.name: Step() for r in self.store.processes("gateway")}
        await asyncio.gather(*(self._tell(f, what, name, step) for f, step in operation.gateways.items()))
        if failed := {f: step.error for f, step in operation.gateways.items() if step.state == FAILED}:
            self.store.put(setting, former)
            await self._undo(operation, former)
            said = "; ".join(f"{front}: {why}" for front, why in failed.items())
            raise RunError(f"{said}; {what} is {former or 'none'} as before")

    async def _undo(self, operation: Operation, former: str) -> None:
        """Have all gateways that had switched use again what they did before."""
        for front, step in operation.gateways.items():
            if step.state == DONE:
                back = Step()
                await self._tell(front, operation.what, former, back)
                step.enter(UNDONE if back.state != FAILED else FAILED, back.error)

    async def _tell(self, front: str, what: str, name: str, step: Step) -> None:
        """Have a gateway switch, and wait until it has; one that is started anew meanwhile is told again."""
        body = json.dumps({"policy": name}).encode()
        told: str | None = None  # the process that has accepted it
        path, until_s = "", time.monotonic() + self.patience_s
        while time.monotonic() < until_s:
            running = self.store.process(front)
            if running is None or running.handle is None:
                return step.enter(AT_START)
            asked = ("GET", path, b"") if told == running.handle else ("PUT", f"/v1/admin/{what}", body)
            answer = await self._answer(running.process, *asked)
            if answer is not None and answer.status != 503:
                found: dict[str, Any] = json.loads(answer.body)
                if answer.status not in (200, 202):
                    return step.enter(FAILED, f"refused: {found.get('error', answer.status)}")
                told, path = running.handle, f"/v1/admin/operations/{found['id']}"
                step.enter(found["state"], found["error"])
                if step.state in ENDED:
                    return None
                until_s = time.monotonic() + self.patience_s
            await asyncio.sleep(POLL_S)
        return step.enter(FAILED, f"no answer within {self.patience_s:g} s")
