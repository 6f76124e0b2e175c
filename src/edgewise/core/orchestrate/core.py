"""`OrchestrateCore`: what is known of replicas and nodes goes in, which come and go comes out.

The live controller drives it; the engine of many worlds carries commands out by the same rules, on counts
(`counting`). A replica that is to go gets no more requests and holds its part of the ledger until its process
has ended; until then, adding one of its service keeps it. No node is ever overbooked; what may be preempted
goes for a replica (`core.plane`). Forbidden here: clocks, I/O, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.guard import Guard, Shadow, begin
from edgewise.core.hooks import Rests
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import REFUSED, ReplicaPolicy, ReplicaView, broken, new_view
from edgewise.core.orchestrate.counting import (
    count,
    known,
    may_change,
)
from edgewise.core.orchestrate.draft import Fleet, ReplicaDraft
from edgewise.core.orchestrate.events import (
    NO_NODE,
    FrameBegan,
    OrchestrateCommand,
    OrchestrateEvent,
    ReplicaGone,
    ReplicaSeen,
    RequestsCounted,
    StartReplica,
    StreamsCounted,
)
from edgewise.model.orchestration import Pools, System, no_pools
from edgewise.model.pools import Orchestrated
from edgewise.model.topology import KINDS, Resources
from edgewise.model.work import INFERENCE

DECISION = "orchestrate"


def orchestrating(
    what: Orchestrated, policy: ReplicaPolicy, ledger: NodeLedger, guard: Guard | None = None
) -> OrchestrateCore:
    """The core that decides on services and pools of a scenario, on a ledger of all nodes.

    Raises:
        PolicyError: the policy cannot begin.
    """
    asked = begin(batched(policy), what.system, Key(0))
    return OrchestrateCore(
        what.system, what.holds, asked, ledger, what.nodes, guard, what.most_nodes, what.pools
    )


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(np.array_equal(now, before) for now, before in zip(one, other, strict=True))


def may_end(sites: Iterable[tuple[bool, int]]) -> bool:
    """Whether the process of a replica that is to go may end.

    Args:
        sites: of each gateway that knows the replica: whether it may send there, and its requests there.
    """
    return not any(wanted or held > 0 for wanted, held in sites)


class OrchestrateCore:
    """Decides which replicas come and go, by a policy that has begun.

    Args:
        system: services and stations.
        holds: (S,) what a replica holds while it lives; one is added where the memory is free, and the cores
            too unless they are each request's (`System.replica_cpu_cores`).
        policy: sees many worlds, of which there is one (`core.one_world.batched`).
        ledger: of all work.
        nodes: (N,) names of the system's nodes in the ledger.
        guard: asks it; nothing comes or goes without an answer.
        nodes_per_frame: most nodes that change in a frame; None: all.
        pools: of streams' workers that come and go, the last services of the system; None: none.
    Attributes:
        replicas: by name, oldest first, those of the cloud included.
        coming: node and service of those that are decided and were not seen yet, by owner in the ledger.
        shadow: watches, if there is one.
    """

    def __init__(
        self,
        system: System,
        holds: Sequence[Resources],
        policy: ReplicaPolicy,
        ledger: NodeLedger,
        nodes: Sequence[str],
        guard: Guard | None = None,
        nodes_per_frame: int | None = None,
        pools: Pools | None = None,
    ) -> None:
        self.system, self.holds = system, tuple(holds)
        self.pools = no_pools(system) if pools is None else pools
        self.ledger, self.nodes, self.rows = ledger, tuple(nodes), [ledger.row(name) for name in nodes]
        cores = system.replica_cpu_cores.tolist()
        self.needs = tuple(
            replace(each, cpu_cores=c, storage_bytes=0.0) for each, c in zip(holds, cores, strict=True)
        )
        self.nodes_per_frame = system.nodes if nodes_per_frame is None else nodes_per_frame
        self.policy, self.guard = policy, guard or Guard()
        self.shadow: Shadow[Ints] | None = None
        self.replicas: dict[str, ReplicaSeen] = {}
        self.coming: dict[str, tuple[int, int]] = {}
        self._stirred = True  # since the policy was asked
        self._empty = new_view(system, 1, np.zeros(1, dtype=np.uint64), self.pools)
        first, pools_ = self.pools.first, self.pools.least.size
        nothing: Ints = np.zeros(first, dtype=np.int64)
        delay_s = float(system.delay_s[:, 0].mean())
        self._counted = RequestsCounted(nothing, delay_s, np.ones(first), 0, nothing)
        none = np.zeros(pools_)
        refused = np.zeros((pools_, len(REFUSED)), dtype=np.int64)
        self._streams = StreamsCounted(np.zeros((system.nodes, pools_)), none, none, none + 1.0, refused)

    def handle(self, event: OrchestrateEvent) -> list[OrchestrateCommand]:
        """Take an event in; what is to be done, in order. Whoever does it says so by `ReplicaSeen`."""
        match event:
            case ReplicaSeen():
                self._stirred = True
                self._see(event)
            case ReplicaGone():
                self._stirred = True
                self.replicas.pop(event.replica, None)
                self._give_back(event.replica)
            case RequestsCounted():
                self._stirred |= not _same(event, self._counted)
                self._counted = event
            case StreamsCounted():
                self._stirred |= not _same(event, self._streams)
                self._streams = event
            case FrameBegan(_, None) if self.settled:
                return []
            case FrameBegan(time_s, changes):
                return self._frame(self.question(time_s)() if changes is None else changes)
        return []

    @property
    def settled(self) -> bool:
        """Whether the policy would say nothing once more, see `core.hooks.Rests`."""
        if self._stirred or self.shadow is not None or self.guard.fault or self.coming:
            return False
        own = "rests" in vars(type(self.policy))  # a subclass may decide by more than its base
        return bool(own and isinstance(self.policy, Rests) and self.policy.rests)

    def _see(self, replica: ReplicaSeen) -> None:
        """A replica holds its part from when it is wanted until its process has ended."""
        name, place = replica.replica, (replica.node, replica.service)
        if name not in self.replicas and (coming := [c for c, at in self.coming.items() if at == place]):
            self.ledger.rename(coming[0], name)
            del self.coming[coming[0]]
        self.replicas[name] = replica
        if not (replica.wanted or replica.started):
            self._give_back(name)
        elif replica.node != NO_NODE and self.ledger.needs(name) != (
            holds := self._reservation(name, *place)
        ):
            self.ledger.hold(holds)

    def _give_back(self, name: str) -> None:
        """A worker of the cloud holds its part by itself."""
        if (held := self.ledger.of(name)) is not None and held.decision == DECISION:
            self.ledger.release(name)

    def _reservation(self, name: str, n: int, s: int) -> Reservation:
        return Reservation(name, self.nodes[n], self.holds[s], INFERENCE, decision=DECISION)

    def question(self, time_s: float) -> Callable[[], Ints]:
        """What asks the policies about things as they are now; it may be called later, and in any thread."""
        policy, guard, shadow = self.policy, self.guard, self.shadow
        view, none = self.view(time_s), np.zeros((0, 2), dtype=np.int64)
        seen = view if shadow is None else self.view(time_s)

        def ask() -> Ints:
            check = partial(broken, self.system)
            changes = guard.ask(lambda: np.ascontiguousarray(policy.decide(view)[0]), lambda: none, check)
            if shadow is not None:
                other = shadow.policy
                shadow.watch(lambda: np.ascontiguousarray(other.decide(seen)[0]), changes, time_s, check)
            return changes

        return ask

    def _frame(self, changes: Ints) -> list[OrchestrateCommand]:
        for name in self.coming:  # whoever was to start them could not
            self.ledger.release(name)
        self.coming = {}
        draft = self._drafted(changes)
        commands = draft.commands
        for name in draft.gone:
            self.ledger.release(name)
        started = [command for command in commands if isinstance(command, StartReplica)]
        self.coming = {f"replica {i} to come": (c.node, c.service) for i, c in enumerate(started)}
        for name, place in self.coming.items():
            self.ledger.hold(self._reservation(name, *place))
        return commands

    def view(self, time_s: float) -> ReplicaView:
        """What a policy sees: of one world."""
        self._stirred = False
        parts: Any = [part.copy() for part in self._empty]
        view = ReplicaView(*parts)
        view.world["clock_s"], view.world["cloud_delay_s"] = time_s, self._counted.cloud_delay_s
        first = self.pools.first
        view.arrived[0, :first] = self._counted.arrived
        rows = [
            (r.node + 1, r.service, r.held if r.service < first else min(r.held, 1), r.state, r.serves)
            for r in self.replicas.values()
        ]
        service_s = np.concatenate([self._counted.service_s, np.ones(self.pools.least.size)])
        count(self.system, view, known(rows), service_s)
        self._show_streams(view)
        free_bytes = view.machine.free_memory_bytes[0, self.system.first_machine[1] :]
        left_bytes = self.ledger.left_over(INFERENCE)[self.rows, KINDS.index("memory_bytes")]
        np.minimum(free_bytes, left_bytes, out=free_bytes)  # nodes may have shrunk, or have other workers
        cores, rows = KINDS.index("cpu_cores"), self.ledger.nodes[0]
        idle = (rows.total - rows.reserved)[self.rows, cores]
        view.machine.idle_cpu_cores[0, self.system.first_machine[1] :] = idle
        return view

    def _show_streams(self, view: ReplicaView) -> None:
        seen, first = self._streams, self.pools.first
        nodes = view.replicas[0, 1:, first:]
        nodes["load"], nodes["busy"] = seen.load, np.minimum(nodes["ready"], np.ceil(seen.load - 1e-9))
        view.pools["load"][0] = seen.load.sum(axis=0)
        streams = [
            (each.service - first, each.held) for each in self.replicas.values() if each.service >= first
        ]
        pool, held = np.array(streams, dtype=np.int64).reshape(-1, 2).T
        np.add.at(view.pools["streams"][0], pool, held)
        for name in ("asked", "unserved", "in_time"):
            view.pools[name][0] = getattr(seen, name)
        self._show_requests(view)
        for k, why in enumerate(REFUSED):
            view.pools[f"refused_{why}"][0] = seen.refused[:, k]

    def _show_requests(self, view: ReplicaView) -> None:
        """Of requests that workers of pools serve, what came and what was dropped, in workers' worth."""
        counted, system, first = self._counted, self.system, self.pools.first
        for p, s in enumerate(self.pools.serves.tolist()):
            if s >= 0:
                worth = counted.service_s[s] / (system.slot_s * system.frame_slots)
                view.pools["asked"][0, p] += counted.arrived[s] * worth
                view.pools["unserved"][0, p] += counted.dropped[s] * worth
        view.replicas["waiting"][0, 0, first:] = np.ceil(view.pools["unserved"][0] - 1e-9)

    def carried_out(self, numbers: Ints) -> list[OrchestrateCommand]:
        """What commands come to, in order; what is not possible is left out.

        Args:
            numbers: (C, 2) of `core.orchestrate.commands_of`.
        """
        return self._drafted(numbers).commands

    def _drafted(self, numbers: Ints) -> ReplicaDraft:
        fleet = Fleet(self.ledger, self.nodes, self.rows, self.needs, self.pools)
        draft = ReplicaDraft(fleet, self.replicas, self._counted.most)
        done = np.zeros(len(numbers), dtype=np.bool_)
        for i, (n, change) in enumerate(numbers.tolist()):
            s = abs(change) - 1
            if change and 0 <= n < self.system.nodes and s < self.system.services:
                act = draft.add if change > 0 else draft.remove
                done[i] = may_change(numbers, done, i, self.nodes_per_frame) and act(n, s)
        return draft

    def validate(self) -> None:
        """Check that replicas are of nodes and services there are, and hold what the ledger says.

        Raises:
            AssertionError: one is not.
        """
        self.ledger.validate()
        held = {each.owner for each in self.ledger.reservations if each.decision == DECISION}
        assert held <= self.replicas.keys() | self.coming.keys(), "somebody holds who is no replica"
        for name, replica in self.replicas.items():
            assert name == replica.replica, f"{name} is known as {replica.replica}"
            assert NO_NODE <= replica.node < self.system.nodes, f"{name} is on no node"
            assert 0 <= replica.service < self.system.services, f"{name} is of no service"
