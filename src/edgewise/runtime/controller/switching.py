"""The controller switches a policy: everywhere, or nowhere.

    1. its kernels are compiled apart, and it is tried out (`compiling`);
    2. the store names it, for every process that starts from now on;
    3. who decides here takes it; each gateway is told, and asked how far it is until it is done.

A policy may also be a file, as whoever has the operator's token can run programs anyway (`edgewise submit`).
Gateways, which listen to others as well, take no file but the one that the store names.

A gateway that refuses, or says nothing for `patience_s`, makes it fail: the store and those that had
switched go back. What is under way is in the store too, and a controller that starts again takes it up.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from edgewise import policies
from edgewise.errors import ProtocolError, RunError
from edgewise.runtime import clock, http
from edgewise.runtime.controller.live_plane import LiveDecision
from edgewise.runtime.controller.replicas import Replicas
from edgewise.runtime.gateway.admin import (
    COMPILING,
    NO_SERVICES,
    OVER,
    SWITCHING,
    Operation,
    Operations,
    Step,
    check_name,
)
from edgewise.runtime.process.compiling import compiled, try_out_here
from edgewise.runtime.process.entry import world_of
from edgewise.runtime.protocol.bodies import PolicyNamed, read
from edgewise.runtime.protocol.messages import text
from edgewise.runtime.states import DONE, FAILED
from edgewise.runtime.store import OPERATIONS, POLICIES, SHADOWS, Process, Store
from edgewise.runtime.worker.pieces import read_split

LAST = "last_operation"  # in the store
PATIENCE_S = 60.0  # a gateway that hangs is killed and started anew long before
POLL_S = 0.1
AT_START, UNDONE = "when it starts", "undone"
NO_SITES = "the scenario has no sites; add some, by whose gateways streams come"
NO_PIPELINES = "the scenario has no pipelines; add a section of them"
NO_SPLIT = "no variant of the scenario is split; start with --models and a folder that has one"
Answer = Callable[[Process, str, str, bytes], Awaitable[http.Response | None]]


class Switching:
    """Switches policies of a live system.

    Args:
        store: names the policies in use; its folder holds the scenario.
        replicas: knows the services.
        here: decisions that are made in this process.
        answer: of a gateway to method, path and body; None when it gives none.
    """

    def __init__(
        self, store: Store, replicas: Replicas, here: Mapping[str, LiveDecision], answer: Answer
    ) -> None:
        self.store, self.replicas, self._here, self._answer = store, replicas, here, answer
        self.patience_s = PATIENCE_S
        self.operations = Operations("/v1/operations", store.get(LAST, 0), self._ended)

    def resume(self) -> None:
        """Take up what a controller before this one began."""
        for row in self.store.get(OPERATIONS, []):
            wanted = row["what"], row["decision"], row["policy"]
            self.operations.begin(*wanted, self._switch, row["id"])

    def begin(self, request: http.HttpRequest, what: str, decision: str) -> http.Response:
        """Answer a request to switch a policy.

        Raises:
            ProtocolError: there is none of this name, there are no services, or too many switches wait.
        """
        have = self.available(decision)
        name = text(read(request.body, PolicyNamed).policy, "policy", least=what != SHADOWS)
        if policies.is_file(name):
            file = Path(name.rpartition(":")[0] if ".py:" in name else name)
            if not file.is_absolute() or not file.is_file():
                raise ProtocolError(f"policy: {name[:200]!r} is no file; write its path from / on")
        elif name:
            check_name(name, have)
        made = self.operations.begin(what, decision, name, self._switch)
        _keep(self.store, made.id, what, decision, name)
        return self.operations.accepted(made)

    def available(self, decision: str) -> list[str]:
        """Names of the policies that can be used.

        Raises:
            ProtocolError: nobody decides that here, or it is about services, and there are none; status 404.
        """
        if decision not in policies.DECISIONS:
            have = ", ".join(policies.DECISIONS)
            raise ProtocolError(f"no decision {decision[:80]!r} here; there are {have}", status=404)
        if why := self._lacking(decision):
            raise ProtocolError(why, status=404)
        return policies.names(decision, live=True)

    def report(self, decisions: Iterable[str] = policies.DECISIONS) -> list[dict[str, Any]]:
        """Who decides and who watches, of those decisions that there are."""
        return [
            {
                "decision": each,
                "policy": self.store.policy(each) or ", ".join(self._splits()),
                "shadow": self.store.policy(each, SHADOWS) or None,
            }
            for each in decisions
            if not self._lacking(each)
        ]

    def _lacking(self, decision: str) -> str:
        """Why there is nothing to decide in this scenario; "" where there is."""
        plane = self.replicas.plane
        has_services, orchestrated = plane.services is not None, plane.orchestrated is not None
        there = {
            "dispatch": (not plane.has_scenario or bool(plane.scenario.topology.sites), NO_SITES),
            "split": (bool(self._splits()), NO_SPLIT),
            "place": (plane.has_pipelines, NO_PIPELINES),
            "requests": (has_services, NO_SERVICES),
            "orchestrate": (orchestrated, NO_SERVICES),
        }
        has, why = there.get(decision, (True, ""))
        return "" if has else why

    def _splits(self) -> list[str]:
        """The policies of split variants, one of each variant."""
        folders = {row.process.settings.get("split") for row in self.store.processes("worker")}
        return [read_split(Path(folder)).policy for folder in sorted(filter(None, folders))]

    def _ended(self, operation: Operation) -> None:
        left = [row for row in self.store.get(OPERATIONS, []) if row["id"] != operation.id]
        self.store.put(OPERATIONS, left)

    async def _switch(self, operation: Operation) -> None:
        """Carry an operation out.

        Raises:
            EdgewiseError: it failed, and was undone.
        """
        what, decision, name = operation.what, operation.decision, operation.policy
        former, here = self.store.policy(decision, what), self._here.get(decision)
        if name:
            world = world_of(self.store.file.parent)[1]
            wanted, services = (decision, name), self.replicas.plane.services
            decided = self.replicas.plane.orchestrated
            await compiled([wanted], world, services, lambda: operation.enter(COMPILING), decided)
            if here is not None:
                await asyncio.to_thread(try_out_here, wanted, world, services, decided)
        operation.enter(SWITCHING)
        if here is not None:
            await here.take(name, what)
        self.store.set_policy(decision, name, what)
        if here is not None:
            return
        operation.gateways = {r.process.name: Step() for r in self.store.processes("gateway")}
        await asyncio.gather(*(self._tell(front, operation, name) for front in operation.gateways))
        if failed := {f: step.error for f, step in operation.gateways.items() if step.state == FAILED}:
            self.store.set_policy(decision, former, what)
            await self._undo(operation, former)
            said = "; ".join(f"{front}: {why}" for front, why in failed.items())
            raise RunError(f"{said}; {former or 'none'} decides as before")

    async def _undo(self, operation: Operation, former: str) -> None:
        """Have all gateways that had switched use again what they did before."""
        for front, step in operation.gateways.items():
            if step.state == DONE:
                step.enter(SWITCHING)
                await self._tell(front, operation, former)
                step.enter(UNDONE if step.state != FAILED else FAILED, step.error)

    async def _tell(self, front: str, operation: Operation, name: str) -> None:
        """Have a gateway switch, and wait until it has; one that is started anew meanwhile is told again."""
        body, step = json.dumps({"policy": name}).encode(), operation.gateways[front]
        begin = f"/v1/admin/{operation.what}/{operation.decision}"
        told: str | None = None  # the process that has accepted it
        path, until_s = "", clock.monotonic_s() + self.patience_s
        while clock.monotonic_s() < until_s:
            running = self.store.process(front)
            if running is None or running.handle is None:
                return step.enter(AT_START)
            asked = ("GET", path, b"") if told == running.handle else ("PUT", begin, body)
            answer = await self._answer(running.process, *asked)
            if answer is not None and answer.status != 503:
                found: dict[str, Any] = json.loads(answer.body)
                if answer.status not in (200, 202):
                    return step.enter(FAILED, f"refused: {found.get('error', answer.status)}")
                told, path = running.handle, f"/v1/admin/operations/{found['id']}"
                step.enter(found["state"], found["error"])
                if step.state in OVER:
                    return None
                until_s = clock.monotonic_s() + self.patience_s
            await clock.sleep(POLL_S)
        return step.enter(FAILED, f"no answer within {self.patience_s:g} s")


def switch_later(store: Store, decision: str, name: str) -> None:
    """Have the next controller of a system switch a policy, as it takes up what one before it began."""
    with store.at_once():
        _keep(store, store.get(LAST, 0) + 1, POLICIES, decision, name)


def _keep(store: Store, number: int, what: str, decision: str, name: str) -> None:
    """Write down that a switch is under way."""
    row = {"id": number, "what": what, "decision": decision, "policy": name}
    store.put(LAST, number)
    store.put(OPERATIONS, [*store.get(OPERATIONS, []), row])
