"""The plane of a live system (`core.plane`), told what the store says of nodes, workers and replicas.

Whoever makes a decision here (`LiveDecision`) has a core in the plane, and carries out that core's commands:
`Replicas` which replicas come and go, `LiveJobs` which jobs run. What one decides may push out the other's
work, so both tell the plane what the store says before they ask it, and hand the commands to whoever carries
them out.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.guard import Guard
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.orchestrate.core import DECISION, OrchestrateCore
from edgewise.core.orchestrate.events import NO_NODE, ReplicaGone, ReplicaSeen
from edgewise.core.plane import HoldsChanged, NodesChanged, Plane, PlaneEvent
from edgewise.errors import PolicyError, RunError
from edgewise.model.grammar.scenario import BUDGETS_S
from edgewise.model.pools import Orchestrated, decided_on
from edgewise.model.scenario import Scenario
from edgewise.model.services import Services, services_of
from edgewise.model.topology import Node, Resources
from edgewise.model.work import INFERENCE, variant_holds
from edgewise.runtime import clock
from edgewise.runtime.apart import load
from edgewise.runtime.backends.contract import NodeSeen
from edgewise.runtime.controller.graphs import with_servers
from edgewise.runtime.store import SCENARIO, SHADOWS, Running, Store
from edgewise.runtime.watch.faults import Faults
from edgewise.runtime.watch.logs import SaidOnce

log = logging.getLogger("edgewise.deciding")
SHOWN = ("cpu_cores", "memory_bytes", "accelerator_memory_bytes")  # of resources


class LivePlane(Plane):
    """A plane that is told what is in a store, and has its commands carried out.

    Args:
        store: of the live system; its folder holds the scenario.
    Attributes:
        carry_out: of each kind of command, who does it.
        replicas: the core that decides on them and knows these; none where there are no services.
        faults: of the policies that decide here.
        seen: nodes as whoever manages them says, see `ServingBackend.nodes`.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(NodeLedger(()))
        self.store = store
        self.carry_out: dict[type, Callable[[Any, float], None]] = {}
        self.replicas: Callable[[], tuple[OrchestrateCore, list[ReplicaSeen]] | None] = lambda: None
        self.faults = Faults("controller")
        self.seen: Callable[[], Mapping[str, NodeSeen]] = dict
        self._content = b""
        self._scenario: Scenario | None = None
        self._services: Services | None = None
        self._orchestrated: Orchestrated | None = None

    @property
    def scenario(self) -> Scenario:
        """Nodes and workers of the live system, as its file says now.

        Raises:
            RunError: the file is missing.
        """
        file: Path = self.store.file.parent / SCENARIO
        if not file.is_file():
            raise RunError(f"jobs: no {file}; they need the nodes that `edgewise up` writes there")
        content = file.read_bytes()
        if self._scenario is None or content != self._content:
            scenario = with_servers(load_scenario(file))
            self._services, self._scenario, self._content = services_of(scenario), scenario, content
            self._orchestrated = decided_on(scenario, self._services)
        return self._scenario

    @property
    def services(self) -> Services | None:
        """The services of the scenario, as its file says now; None where it has none.

        Raises:
            ScenarioError: the file is wrong.
        """
        return self._services if self.has_scenario and self.scenario else None

    @property
    def orchestrated(self) -> Orchestrated | None:
        """What orchestration decides on, as the scenario's file says now; None: nothing.

        Raises:
            ScenarioError: the file is wrong.
        """
        return self._orchestrated if self.has_scenario and self.scenario else None

    @property
    def has_scenario(self) -> bool:
        """Whether there is a scenario; `edgewise up` writes it."""
        return (self.store.file.parent / SCENARIO).is_file()

    @property
    def has_pipelines(self) -> bool:
        """Whether the scenario holds pipelines."""
        return self.has_scenario and self.scenario.pipelines is not None

    def listen(self, now_s: float) -> None:
        """Tell the plane what it does not know yet of nodes, workers and replicas."""
        for event in self._news():
            self.tell(event, now_s)

    def tell(self, event: PlaneEvent, now_s: float) -> None:
        """Tell the plane what happened, and carry out what comes of it."""
        for command in self.handle(event, now_s):
            self.carry_out[type(command)](command, now_s)

    def report(self) -> list[dict[str, Any]]:
        """Who holds what of each node."""
        down, ledger = self._down(self.seen()), self.ledger
        found: list[dict[str, Any]] = []
        for node in self.scenario.topology.nodes:
            mine = [each for each in ledger.reservations if each.node == node.name]
            holders: list[dict[str, Any]] = [
                {"owner": each.owner, "decision": each.decision or None, "priority": each.priority}
                | _amounts(each.resources)
                for each in mine
            ]
            found.append(
                {
                    "node": node.name,
                    "up": node.name not in down,
                    "total": _amounts(node.resources),
                    "held": {kind: sum(each[kind] for each in holders) for kind in SHOWN},
                    "holders": holders,
                }
            )
        return found

    def _news(self) -> Iterator[PlaneEvent]:
        ledger, manager = self.ledger, self.seen()
        down = self._down(manager)
        nodes = tuple(node for node in self.scenario.topology.nodes if node.name not in down)
        if ledger.there != nodes:
            yield NodesChanged(nodes)
        known = self.replicas()
        seen = {} if known is None else {each.replica: each for each in known[1]}
        mine = {name for name, each in seen.items() if each.node != NO_NODE}
        wanted = [each for each in _holds(self.scenario, self.store.processes()) if each.owner not in mine]
        wanted += others(nodes, manager, ledger.reservations)
        if changed := tuple(each for each in wanted if ledger.needs(each.owner) != each):
            yield HoldsChanged(changed)
        if known is not None:
            core = known[0]
            yield from (replica for name, replica in seen.items() if core.replicas.get(name) != replica)
            yield from (ReplicaGone(name) for name in list(core.replicas) if name not in seen)
            mine |= core.coming.keys()
        here = mine | {each.owner for each in wanted}
        gone = [each.owner for each in ledger.reservations if each.decision in ("", DECISION)]
        if gone := [owner for owner in gone if owner not in here]:
            yield HoldsChanged((), tuple(gone))

    def _down(self, manager: Mapping[str, NodeSeen]) -> set[str]:
        """Nodes that were failed here, or that whoever manages them says are down."""
        return {*self.store.nodes_down(), *(name for name, node in manager.items() if not node.up)}


def others(
    nodes: Iterable[Node], manager: Mapping[str, NodeSeen], held: Iterable[Reservation]
) -> Iterator[Reservation]:
    """What work of others holds of the nodes of a scenario, beyond what the scenario leaves to it.

    A scenario may count on a part of a node alone. A node that takes nothing new has no room left, and what
    stands there stays.

    Args:
        held: what the ledger has, of whomever.
    """
    for node in nodes:
        if (seen := manager.get(node.name)) is None:
            continue
        name, total = f"others on {node.name}", node.resources.as_tuple()
        amounts = zip(seen.others.as_tuple(), seen.has.as_tuple(), total, strict=True)
        taken = [min(max(theirs - (has - ours), 0.0), ours) if has else 0.0 for theirs, has, ours in amounts]
        if not seen.takes:
            mine = [
                each.resources.as_tuple() for each in held if each.node == node.name and each.owner != name
            ]
            left = [has - sum(column) for has, *column in zip(total, *mine, strict=True)]
            taken = [max(pair) for pair in zip(taken, left, strict=True)]
        if any(taken):
            yield Reservation(name, node.name, Resources(*taken), INFERENCE)


def _amounts(resources: Resources) -> dict[str, float]:
    return {kind: float(getattr(resources, kind)) for kind in SHOWN}


def _holds(scenario: Scenario, rows: Sequence[Running]) -> Iterator[Reservation]:
    """What workers and replicas hold of nodes that are wanted or still run.

    Args:
        rows: the processes of the live system.
    """
    topology, catalog = scenario.topology, scenario.catalog
    variants = {variant.name for variant in catalog.variants}
    gone = {r.process.name for r in rows if not r.process.wanted and r.handle is None}
    held = [(worker.name, worker.node, worker.variant) for worker in topology.workers]
    held += [
        (r.process.name, r.process.settings["node"], r.process.settings["service"])
        for r in rows
        if r.process.kind == "replica"
    ]
    for name, node, variant in held:
        if name not in gone and variant in variants:
            yield Reservation(name, node, *variant_holds(catalog.variant(variant)))


class LiveDecision:
    """A decision that the controller makes: its core asks the policy that the store names, and a shadow.

    Args:
        plane: knows what other work leaves.
        decision: of `policies.DECISIONS`.
    Attributes:
        core: in the plane; None before there is anything to decide about.
        name: of the policy.
    """

    core: Any = None
    name = _watching = ""
    _waits = False  # the policy is named, and not loaded
    _loads: asyncio.Task[None] | None = None
    _loads_shadow: asyncio.Task[None] | None = None

    def __init__(self, plane: LivePlane, decision: str) -> None:
        self.plane, self.store, self.decision = plane, plane.store, decision
        self.going_on = SaidOnce(log, decision)

    async def go_on(self) -> None:
        """One pass, as far as it can be."""
        with self.going_on():
            await self.step(clock.unix_s())

    async def step(self, now_s: float) -> None:
        """One pass."""

    @property
    def fault(self) -> str:
        """Why the policy was not followed; "" when it was."""
        return self.core.guard.fault if self.core is not None and self.core.guard else ""

    async def take(self, name: str, what: str) -> None:
        """Take a policy that decides, or, of `SHADOWS`, that watches; all else goes on while it is loaded.

        Raises:
            PolicyError: there is none of that name, or it cannot begin.
        """
        if self.core is None:
            return
        policy = await asyncio.to_thread(self._loaded, name, *self.core.given) if name else None
        if what == SHADOWS:
            self.core.watch_with(policy, self.guard(name, shadow=True))
            self._watching = name
        else:
            self.core.use(policy, self.guard(name))
            self.name, self._waits = name, False

    def use(self, name: str) -> None:
        """Take a policy that decides, at once.

        Raises:
            PolicyError: there is none of that name, or it cannot begin.
        """
        self.core.use(self._loaded(name), self.guard(name))
        self.name, self._waits = name, False

    def _loaded(self, name: str, *given: Any) -> Any:
        return load(self.decision, name, self._budget_s(), *given)

    def begin_with(self, name: str) -> None:
        """Take the policy that is named; where it cannot be used another one decides, and it is said.

        One that does not ship may take a minute to load: see `loading`.
        """
        self.name, self._waits = name, not policies.ships(self.decision, name)
        if not self._waits:
            try:
                self.use(name)
            except PolicyError as error:
                self._blame(name, error)

    def loading(self) -> bool:
        """Whether the policy is still being loaded, in a thread: only its own decisions wait for that."""
        if self._waits and (self._loads is None or self._loads.done()):
            self._loads = asyncio.create_task(self.load_named())
        return self._waits

    async def load_named(self) -> None:
        """Take the policy that `begin_with` named, once it is loaded, unless another is named by then."""
        name, core = self.name, self.core
        try:
            policy = await asyncio.to_thread(self._loaded, name, *core.given)
            if self._awaits(name, core):
                core.use(policy, self.guard(name))
        except PolicyError as error:
            if self._awaits(name, core):
                self._blame(name, error)
        self._waits &= not self._awaits(name, core)

    def _awaits(self, name: str, core: Any) -> bool:
        return self._waits and self.name == name and self.core is core

    def _blame(self, name: str, error: PolicyError) -> None:
        self.core.guard = self.guard(name)
        self.core.guard.blame("cannot begin", str(error))

    def watch(self) -> None:
        """Have the second policy watch that is named by now, if any; one that does not ship: once loaded."""
        name = self.store.policy(self.decision, SHADOWS)
        if name == self._watching:
            return
        self._watching = name
        if name and not policies.ships(self.decision, name):
            self._loads_shadow = asyncio.create_task(self._watch_with(name))
            return
        try:
            self.core.watch_with(self._loaded(name) if name else None, self.guard(name, shadow=True))
        except PolicyError as error:
            self._say_shadow(name, error)

    async def _watch_with(self, name: str) -> None:
        core = self.core
        try:
            policy = await asyncio.to_thread(self._loaded, name, *core.given)
            if self._watching == name and self.core is core:
                core.watch_with(policy, self.guard(name, shadow=True))
        except PolicyError as error:
            self._say_shadow(name, error)

    def _say_shadow(self, name: str, error: PolicyError) -> None:
        more = {"decision": self.decision, "policy": name, "why": str(error)}
        log.error("policy in shadow cannot begin", extra=more)

    def watched(self) -> dict[str, Any]:
        """What the second policy would have decided; its name is "" where none watches."""
        if self.core is None or self.core.shadow is None or not self.store.policy(self.decision, SHADOWS):
            return {"policy": ""}
        found: dict[str, Any] = self.core.shadow.report()
        return found

    def guard(self, name: str, shadow: bool = False) -> Guard:
        """Who asks a policy of this decision."""
        apart = not policies.ships(self.decision, name)
        return self.plane.faults.guard(self.decision, name, self._budget_s(), shadow, apart)

    def _budget_s(self) -> float:
        budgets_s = self.plane.scenario.live.budgets_s if self.plane.has_scenario else BUDGETS_S
        return float(getattr(budgets_s, self.decision))
