"""Replicas of services, live: every frame the replica policy says which come and go, on which nodes.

What is wanted is in the store, one process for each replica, so the death of the controller at any moment
loses nothing. A replica that is no longer wanted gets no more requests, and ends when every gateway says that
it holds none there; until then adding one of its service keeps it. The memory of a node, less what its
workers hold, is never exceeded: a replica holds its part until its process has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgewise import policies
from edgewise.arrays import Ints
from edgewise.config import load_scenario
from edgewise.core.counting import LEAVING, READY, REMOVING, STARTING, count, known
from edgewise.core.guard import Guard, begin
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestration import AddReplica, RemoveReplica, ReplicaPolicy, ReplicaView, new_view
from edgewise.model.catalog import Resources
from edgewise.model.scenario import Scenario
from edgewise.model.services import Services, services_of
from edgewise.runtime.controller.plan import MOST_PROCESSES, replica
from edgewise.runtime.controller.rolling import SCENARIO, free_port
from edgewise.runtime.controller.room import ledger_of
from edgewise.runtime.guarded import Limited
from edgewise.runtime.logs import SaidOnce
from edgewise.runtime.store import Running, Store

log = logging.getLogger("edgewise.replicas")
STATES = {STARTING: "starting", READY: "ready", REMOVING: "removing", LEAVING: "leaving"}
Ask = Callable[[str, str], Awaitable[list[dict[str, Any]]]]
Commands = list[AddReplica | RemoveReplica]
PATIENCE_S = 5.0  # nothing but replicas waits for their policy


@dataclass(slots=True)
class _Chosen:
    """A policy by its name, and once it was asked itself."""

    name: str
    policy: ReplicaPolicy | None = None
    guard: Guard = field(default_factory=lambda: Guard(Limited(PATIENCE_S)))

    def decide(self, services: Services, view: ReplicaView) -> Commands:
        """Its commands for the one world of a view."""
        if self.policy is None:
            loaded = batched(policies.load("orchestrate", self.name, live=True))
            begin(loaded, services.system, Key(0))
            self.policy = loaded
        return self.policy.decide(view).of_world(0)


class Replicas:
    """Keeps the replicas of a live system.

    Args:
        store: says which are wanted; its folder holds the scenario.
        ask: answers of all gateways to a method and a path.
        ends: whether the process of a handle was told to end.
    """

    def __init__(self, store: Store, ask: Ask, ends: Callable[[str], bool]) -> None:
        self.store, self._ask, self._ends = store, ask, ends
        self._content = b""
        self._scenario: Scenario | None = None
        self._services: Services | None = None
        self._policy: _Chosen | None = None
        self._seen: dict[str, dict[str, Any]] | None = None  # what gateways said last; None before they did
        self._arrived: dict[str, dict[str, int]] = {}  # totals of each gateway when the frame began
        self._frame: int | None = None
        self._going_on = SaidOnce(log, "replicas")

    @property
    def services(self) -> Services | None:
        """The services of the scenario, as its file says now; None where it has none.

        Raises:
            ScenarioError: the file is wrong.
        """
        file: Path = self.store.file.parent / SCENARIO
        content = file.read_bytes() if file.is_file() else b""
        if content != self._content:
            self._scenario = load_scenario(file) if content else None
            self._services = services_of(self._scenario) if self._scenario is not None else None
            self._content, self._policy = content, None
        return self._services

    def in_use(self, name: str) -> bool:
        """Whether a gateway may still send requests to a replica, or waits for its answers."""
        if self._seen is None:
            return True
        views = [seen["replicas"].get(name) for seen in self._seen.values()]
        return any(view is not None and (view["wanted"] or view["held"] > 0) for view in views)

    async def keep(self, period_s: float = 0.25) -> None:
        """Go on for ever."""
        while True:
            await asyncio.sleep(period_s)
            with self._going_on():
                await self.step(time.time())

    async def step(self, now_s: float) -> None:
        """One pass: forget replicas that ended, ask the gateways, and in a new frame the policy."""
        services, rows = self.services, self.store.processes("replica")
        if services is None and not rows:
            return
        for running in rows:
            if not running.process.wanted and running.handle is None:
                self.store.forget(running.process.name)
        seen = await self._ask("GET", "/v1/admin/replicas")
        self._seen = {row["gateway"]: row["answer"] for row in seen if "replicas" in row["answer"]}
        if services is None:
            return
        frame = int(now_s / services.spec.frame_s)
        if self._frame is None:
            self._frame = frame  # a controller that starts again does not repeat a frame
        if frame != self._frame and self._seen:
            self._frame = frame
            self.carry_out(services, await self._commands(services))

    # the policy

    @property
    def fault(self) -> str:
        """Why the policy was not followed, and nothing came or went; "" when it was."""
        return self._policy.guard.fault if self._policy is not None else ""

    def use(self, name: str) -> None:
        """Take a policy from the next frame on."""
        self._policy = _Chosen(name)

    async def _commands(self, services: Services) -> Commands:
        """What the policy that the store names says; nothing comes or goes where it fails."""
        view = self.view(services)
        view.arrived[0] = self._new_arrivals(services)
        name = self.store.policy("orchestrate") or services.spec.orchestrate
        if self._policy is None or self._policy.name != name:
            self._policy = _Chosen(name)
        chosen, guard = self._policy, self._policy.guard
        found = await asyncio.to_thread(
            guard.ask, lambda: chosen.decide(services, view), list[AddReplica | RemoveReplica]
        )
        if guard.new:
            log.error("replica policy failed", extra={"policy": name, "why": guard.fault})
        return found

    def view(self, services: Services) -> ReplicaView:
        """What the policy sees: counts of all gateways together."""
        system, seen = services.system, list((self._seen or {}).values())
        view = new_view(system, 1, np.zeros(1, dtype=np.uint64))
        view.clock_s[:] = time.time() - float(self.store.get("began_s", 0.0))
        if seen:
            view.cloud_delay_s[:] = np.mean([each["cloud_delay_s"] for each in seen])
        rows = [
            (0, s, self._held(name), READY if self._is_up(name) else LEAVING)
            for s, names in enumerate(services.cloud)
            for name in names
        ]
        for running in self._rows(services):
            place = services.place(running.process.settings)
            assert place is not None  # `_rows` leaves out the others
            rows.append((place[0] + 1, place[1], self._held(running.process.name), self._state(running)))
        count(system, view, known(rows), services.service_s)
        return view

    def _new_arrivals(self, services: Services) -> Ints:
        """(S,) requests that came since the last frame, of all gateways."""
        found = np.zeros(len(services.names), dtype=np.int64)
        for gateway, seen in (self._seen or {}).items():
            totals = {name: row["arrived"] for name, row in seen["services"].items()}
            before = self._arrived.get(gateway, {})
            for s, name in enumerate(services.names):
                new, old = totals.get(name, 0), before.get(name, 0)
                found[s] += new - old if new >= old else new  # it counts from 0 after a restart
            self._arrived[gateway] = totals
        return found

    # its commands

    def carry_out(self, services: Services, commands: Commands) -> None:
        """Add and remove replicas, in order; what is not possible is left out."""
        most, nodes = services.spec.nodes_per_frame or len(services.nodes), set[int]()
        for command in commands:
            n, s = command
            if not 0 <= n < len(services.nodes) or not 0 <= s < len(services.names):
                continue
            act = self.add if isinstance(command, AddReplica) else self.remove
            if (n in nodes or len(nodes) < most) and act(services, n, s):
                nodes.add(n)

    def add(self, services: Services, n: int, s: int) -> bool:
        """Keep a replica that was to go, or want one more where memory allows; False if nothing is done."""
        for running in self._rows(services, n, s):
            handle = running.handle
            if not running.process.wanted and handle is not None and not self._ends(handle):
                self.store.set_wanted(running.process.name, True)
                log.info("replica kept", extra={"who": running.process.name})
                return True
        assert self._scenario is not None
        rows, need_bytes = self.store.processes(), float(services.system.service_memory_bytes[s])
        room = ledger_of(self._scenario, rows).fits(services.nodes[n], Resources(memory_bytes=need_bytes))
        if not room or sum(r.process.wanted for r in rows) >= MOST_PROCESSES:
            return False
        template = self.store.get("services")[services.names[s]]
        made = replica(services, n, s, {r.process.name for r in rows}, template, free_port())
        self.store.add(made)
        log.info("replica added", extra={"who": made.name})
        return True

    def remove(self, services: Services, n: int, s: int) -> bool:
        """Want one replica less: an idle one, else the one with least to do; False where there is none."""
        wanted = [r for r in self._rows(services, n, s) if r.process.wanted]
        if not wanted:
            return False
        names = [running.process.name for running in reversed(wanted)]
        least = min(names, key=lambda name: (self._held(name), not self._is_up(name)))
        self.store.set_wanted(least, False)
        log.info("replica removed", extra={"who": least})
        return True

    # what is known

    def _rows(self, services: Services, n: int | None = None, s: int | None = None) -> list[Running]:
        """Replicas of these services, or those of one service on one node."""
        rows = self.store.processes("replica")
        places = [(running, services.place(running.process.settings)) for running in rows]
        return [running for running, place in places if place == (n, s) or (n is None and place)]

    def _held(self, name: str) -> int:
        views = [seen["replicas"].get(name) for seen in (self._seen or {}).values()]
        return sum(view["held"] for view in views if view is not None)

    def _is_up(self, name: str) -> bool:
        return any(seen["replicas"].get(name, {}).get("up", False) for seen in (self._seen or {}).values())

    def _state(self, running: Running) -> int:
        up = running.handle is not None and self._is_up(running.process.name)
        if running.process.wanted:
            return READY if up else STARTING
        return REMOVING if up and not self._ends(str(running.handle)) else LEAVING

    def describe(self, running: Running) -> dict[str, Any]:
        """Service, node, state and requests of a replica."""
        settings = running.process.settings
        held = self._held(running.process.name)
        return {
            "service": settings["service"], "node": settings["node"], "held": held,
            "state": STATES[self._state(running)],
        }  # fmt: skip

    def faults(self) -> dict[str, str | None]:
        """Why requests go to the cloud, or replicas stay, where their policy does not say so; else None."""
        faults = [seen["fault"] for seen in (self._seen or {}).values() if seen.get("fault")]
        return {"requests": faults[0] if faults else None, "orchestrate": self.fault or None}

    def report(self) -> dict[str, Any] | None:
        """Policies, totals and replicas of each service by node; None where there are no services."""
        services = self.services
        if services is None:
            return None
        rows = [self.describe(running) for running in self._rows(services)]
        totals = [seen["services"] for seen in (self._seen or {}).values()]
        found = []
        for name in services.names:
            mine = [total[name] for total in totals if name in total]
            nodes = {
                node: {
                    state: sum(
                        r["service"] == name and r["node"] == node and r["state"] == state for r in rows
                    )
                    for state in STATES.values()
                }
                for node in services.nodes
            }
            sums = {key: sum(each[key] for each in mine) for key in (mine[0] if mine else ())}
            found.append({"service": name, "nodes": nodes, "requests": sums})
        return {
            "services": found,
        }
