"""Replicas of services and workers of pools, live: every frame the policy says which come and go, and where.

What is wanted is in the store, one process for each, so the death of the controller at any moment loses
nothing. A replica that is no longer wanted gets no more requests, a worker no more streams, and those that it
has move where others have room; it ends when every gateway that runs says that it holds none there: who does
not answer may still send there, until it has been silent for too long. Until then adding one of its kind
keeps it. The memory of a node, less what workers that are there for good hold, is never
exceeded: each holds its part until its process has ended.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from functools import partial
from typing import Any, get_args

import numpy as np

from edgewise import policies
from edgewise.arrays import Ints
from edgewise.core.guard import Shadow, begin
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import ReplicaPolicy, ReplicaView
from edgewise.core.orchestrate.core import OrchestrateCore, may_end
from edgewise.core.orchestrate.counting import LEAVING, READY, REMOVING, STARTING
from edgewise.core.orchestrate.events import (
    NO_NODE,
    EndReplica,
    FrameBegan,
    KeepReplica,
    OrchestrateCommand,
    ReplicaSeen,
    RequestsCounted,
    StartReplica,
)
from edgewise.model.orchestration import System
from edgewise.model.pools import Orchestrated
from edgewise.model.services import Services
from edgewise.runtime import clock
from edgewise.runtime.apart import load
from edgewise.runtime.controller.heard import Heard
from edgewise.runtime.controller.live_plane import LiveDecision, LivePlane
from edgewise.runtime.controller.plan import MOST_PROCESSES
from edgewise.runtime.controller.planned_ports import PlannedPorts
from edgewise.runtime.controller.planned_replicas import replica
from edgewise.runtime.controller.pools_seen import PoolsSeen
from edgewise.runtime.store import SHADOWS, Running
from edgewise.runtime.testbeds.spaces import SPACES

log = logging.getLogger("edgewise.replicas")
FRAME, NEVER = "replicas_frame", -1  # the last in which it was decided, in the store; before the first
STATES = {STARTING: "starting", READY: "ready", REMOVING: "removing", LEAVING: "leaving"}
Ask = Callable[[str, str], Awaitable[list[dict[str, Any]]]]
DONE = {StartReplica: "replica added", KeepReplica: "replica kept", EndReplica: "replica removed"}


# Of a gateway without services.
NOTHING: dict[str, Any] = {"replicas": {}, "services": {}, "cloud_delay_s": 0.0}


class _Named:
    """A policy by its name, loaded when it is asked first: its guard knows of what is wrong with it."""

    def __init__(self, name: str, system: System, budget_s: float) -> None:
        self.name, self._system, self._budget_s = name, system, budget_s
        self.policy: ReplicaPolicy | None = None

    def reset(self, world: System, key: Key) -> None:
        """It begins when it is loaded."""

    def decide(self, view: ReplicaView) -> Ints:
        """What it says."""
        if self.policy is None:
            loaded = load("orchestrate", self.name, self._budget_s)
            self.policy = begin(batched(loaded), self._system, Key(0))
        return self.policy.decide(view)


class Replicas(LiveDecision):
    """Keeps the replicas of a live system.

    Args:
        plane: knows what other work leaves; its store says which are wanted.
        ask: answers of all gateways to a method and a path.
        ends: whether the process of a handle was told to end.
    """

    def __init__(self, plane: LivePlane, ask: Ask, ends: Callable[[str], bool]) -> None:
        super().__init__(plane, "orchestrate")
        self._ask, self._ends = ask, ends
        self._of: Orchestrated | None = None  # whose core it is
        self._pools = PoolsSeen()
        plane.replicas = self._told
        plane.carry_out |= dict.fromkeys(get_args(OrchestrateCommand), self._obey)
        self._seen: dict[str, dict[str, Any]] | None = None  # what gateways said last; None before they did
        self._heard = Heard()
        self._counts: dict[tuple[str, str], dict[str, int]] = {}  # totals of gateways when the frame began
        self.frame: int | None = None

    def in_use(self, name: str) -> bool:
        """Whether a gateway may still send to a replica or worker, or waits for its answers."""
        if self._seen is None or self._heard.misses(self._running().values(), clock.monotonic_s()):
            return True
        return not may_end((view["wanted"], view["held"]) for view in self._views(name))

    def _running(self) -> dict[str, str]:
        """Handles of the gateways that run, by name."""
        return {r.process.name: r.handle for r in self.store.processes("gateway") if r.handle is not None}

    async def step(self, now_s: float) -> None:
        """One pass: forget replicas that ended, ask the gateways, and in a new frame the policy."""
        services, rows, what = self.plane.services, self.store.processes("replica"), self.plane.orchestrated
        pooled = any(r.process.pooled and not r.away for r in self.store.processes("worker"))
        if what is None and not rows and not pooled:
            self._seen = None
            return
        for running in rows:
            if not running.process.wanted and running.handle is None:
                self.store.forget(running.process.name)
        fronts = self._running()
        silent = set[str]()  # names of those of which an answer is missing
        seen = await self._answers("/v1/admin/replicas", silent) if services or rows else {}
        pools = await self._answers("/v1/admin/pools", silent) if pooled or (what and what.workers) else {}
        self._heard.note({handle: name not in silent for name, handle in fronts.items()}, clock.monotonic_s())
        self._seen = {gateway: NOTHING | seen.get(gateway, {}) for gateway in seen | pools}
        self._pools.hear(pools)
        if what is None:
            return
        frame = int(now_s / what.frame_s)
        if self.frame is None and self._seen:
            self.frame = NEVER
            if self.store.get(FRAME) is not None:  # a controller that starts again does not repeat a frame,
                self.frame = frame  # nor count what came before
                self.counted(what)
                self._pools.counted(what)
        if frame != self.frame and self._seen:
            self.frame = frame
            self.store.put(FRAME, frame)
            self.plane.listen(now_s)
            for event in (self.counted(what), self._pools.counted(what)):
                self.plane.tell(event, now_s)
            core, frame_s = self._core_of(what), now_s - float(self.store.get("began_s", 0.0))
            changes = await asyncio.to_thread(core.question(frame_s))  # jobs go on meanwhile
            if self.plane.cores.get("orchestrate") is core:
                self.plane.tell(FrameBegan(frame_s, changes), now_s)

    async def _answers(self, path: str, silent: set[str]) -> dict[str, Any]:
        """What gateways that know of it say, by name; names of those that run and say nothing are added."""
        said = {row["gateway"]: row["answer"] for row in await self._ask("GET", path)}
        silent |= self._running().keys() - said.keys()
        return {gateway: answer for gateway, answer in said.items() if answer is not None}

    # the core

    async def take(self, name: str, what: str) -> None:
        """Take a policy from the next frame on, even if one of that name is in use.

        Who watches, the store says.
        """
        if self.core is not None and what != SHADOWS:
            self.core.policy, self.core.guard = self._named(name, self.core.system), self.guard(name)

    def _named(self, name: str, system: System) -> _Named:
        return _Named(name, system, self._budget_s())

    def _told(self) -> tuple[OrchestrateCore, list[ReplicaSeen]] | None:
        """The core, and what it should know of replicas; see `LivePlane.replicas`."""
        what, services = self.plane.orchestrated, self.plane.services
        if what is None:
            self.plane.cores.pop("orchestrate", None)
            return None
        replicas = [] if services is None else self._replicas(services)
        return self._core_of(what), [*replicas, *self._workers(what)]

    def _core_of(self, what: Orchestrated) -> OrchestrateCore:
        """The core in the plane, which asks the policies in use."""
        core: OrchestrateCore | None = self.core
        system = what.system
        name = self.store.policy("orchestrate") or policies.USUAL["orchestrate"]
        if core is None or self._of is not what:
            ledger, policy, guard = self.plane.ledger, self._named(name, system), self.guard(name)
            core = OrchestrateCore(
                system, what.holds, policy, ledger, what.nodes, guard, what.most_nodes, what.pools
            )
            self.core, self._of = core, what
        self.plane.cores["orchestrate"] = core
        if core.policy.name != name:
            core.policy, core.guard = self._named(name, system), self.guard(name)
        watching = self.store.policy("orchestrate", SHADOWS)
        if watching != (core.shadow.policy.name if core.shadow is not None else ""):
            guard, said = self.guard(watching, shadow=True), partial(_said, what, core)
            core.shadow = Shadow(self._named(watching, system), guard, said) if watching else None
        return core

    def _replicas(self, services: Services) -> Iterator[ReplicaSeen]:
        """All there are, workers in the cloud that are there for good included."""
        for each in services.workers:
            if each.of_cloud:
                up = self._is_up(each.name)
                yield ReplicaSeen(each.name, NO_NODE, each.service, up, up, up, held=self._held(each.name))
        for running in self._rows(services):
            place = services.place(running.process.settings)
            assert place is not None  # `_rows` leaves out the others
            yield self._known(running, *place)

    def _workers(self, what: Orchestrated) -> Iterator[ReplicaSeen]:
        """Those of pools that are wanted, or have a process still."""
        rows = {running.process.name: running for running in self.store.processes("worker")}
        for p, names in enumerate(what.workers):
            for running in (rows[name] for name in names if name in rows):
                if running.process.wanted or running.handle is not None:
                    n = what.nodes.index(running.process.settings["node"])
                    seen = self._known(running, n, what.pools.first + p)
                    yield seen._replace(held=self._pools.streams(running.process.name))

    def _known(self, running: Running, n: int, s: int) -> ReplicaSeen:
        name, handle = running.process.name, running.handle
        started = handle is not None
        return ReplicaSeen(
            name, n, s, running.process.wanted, started, started and self._is_up(name),
            started and self._ends(str(handle)), self._held(name),
        )  # fmt: skip

    def counted(self, what: Orchestrated) -> RequestsCounted:
        """What gateways counted of requests since the last frame."""
        services = self.plane.services
        wanted = sum(running.process.wanted for running in self.store.processes())
        delay_s = float(np.mean([each["cloud_delay_s"] for each in (self._seen or {}).values()]))
        service_s = np.zeros(0) if services is None else services.service_s
        arrived, dropped = (self._new(what, each) for each in ("arrived", "dropped"))
        return RequestsCounted(arrived, delay_s, service_s, MOST_PROCESSES - wanted, dropped)

    def _new(self, what: Orchestrated, counted: str) -> Ints:
        """(S,) requests that came, or were dropped, since the last frame, of all gateways."""
        names = what.names[: what.pools.first]
        found = np.zeros(len(names), dtype=np.int64)
        for gateway, seen in (self._seen or {}).items():
            totals = {name: row[counted] for name, row in seen["services"].items()}
            before = self._counts.get((gateway, counted), {})
            for s, name in enumerate(names):
                new, old = totals.get(name, 0), before.get(name, 0)
                found[s] += new - old if new >= old else new  # it counts from 0 after a restart
            self._counts[gateway, counted] = totals
        return found

    # its commands

    def _obey(self, command: OrchestrateCommand, now_s: float) -> None:
        """Want what is to come, and no longer what is to go."""
        match command:
            case StartReplica(n, s):
                assert self._of is not None  # whose core says so
                name = self._start(self._of, n, s)
                if not name:
                    return
            case KeepReplica(name) | EndReplica(name):
                self.store.set_wanted(name, isinstance(command, KeepReplica))
        log.info(DONE[type(command)], extra={"who": name})

    def _start(self, what: Orchestrated, n: int, s: int) -> str:
        if s >= what.pools.first:
            return self._want_worker(what, n, s - what.pools.first)
        services = self.plane.services
        assert services is not None  # whose it is
        with self.store.at_once():  # a change of the scenario writes down others, and finds these
            taken = {running.process.name for running in self.store.processes()}
            template = self.store.get("services")[services.names[s]]
            port = PlannedPorts(self.store).free()
            made = replica(services, n, s, taken, template, self.store.get(SPACES, {}), port)
            self.store.add(made)
        return made.name

    def _want_worker(self, what: Orchestrated, n: int, p: int) -> str:
        """A worker of a pool on a node, that is not there; "" where all have a process still."""
        rows = {running.process.name: running for running in self.store.processes("worker")}
        for name in what.workers[p]:
            running = rows.get(name)
            if running is not None and running.away and running.process.settings["node"] == what.nodes[n]:
                self.store.set_wanted(name, True)
                return name
        return ""

    # what is known

    def _rows(self, services: Services) -> list[Running]:
        """Replicas of these services."""
        return [r for r in self.store.processes("replica") if services.place(r.process.settings)]

    def _views(self, name: str) -> list[dict[str, Any]]:
        """A replica or worker as each gateway that knows it sees it."""
        seen = [each["replicas"] for each in (self._seen or {}).values()]
        return [rows[name] for rows in (*seen, *self._pools.workers) if name in rows]

    def _held(self, name: str) -> int:
        return sum(view["held"] for view in self._views(name))

    def _is_up(self, name: str) -> bool:
        return any(view.get("up", False) for view in self._views(name))

    def describe(self, running: Running) -> dict[str, Any]:
        """Service, node, state and requests of a replica."""
        settings, seen = running.process.settings, self._known(running, 0, 0)
        return {
            "service": settings["service"], "node": settings["node"], "held": seen.held,
            "state": STATES[seen.state],
        }  # fmt: skip

    @property
    def requests_fault(self) -> str:
        """Why requests go to the cloud where their policy does not say so; "" where none does."""
        return next((seen["fault"] for seen in (self._seen or {}).values() if seen.get("fault")), "")

    def report(self) -> dict[str, Any] | None:
        """Policies, totals and replicas of each service by node; None where there are no services."""
        services = self.plane.services
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
        return {"services": found}


def _said(what: Orchestrated, core: OrchestrateCore, numbers: Ints) -> dict[Hashable, str]:
    """What becomes of each replica; of those that are added alike, of the first, the second and so on."""
    found: dict[Hashable, str] = {}
    seen: Counter[OrchestrateCommand] = Counter()
    for command in core.carried_out(numbers):
        said = DONE[type(command)]
        if isinstance(command, StartReplica):
            said = f"{what.names[command.service]} added on {what.nodes[command.node]}"
        found[command, seen[command]] = said
        seen[command] += 1
    return found
