"""`PlaceCore` on the ledger of all nodes: tasks hold memory there, of what workers and replicas leave."""

from __future__ import annotations

from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.place.core import MemoryChanged, PlaceCommand, PlaceCore, PlaceEvent
from edgewise.model.catalog import Resources
from edgewise.model.work import INFERENCE

DECISION = "place"


class PlaceOnNodes:
    """What the plane knows of pipelines.

    Args:
        core: decides, on a network whose nodes are of the ledger.
        ledger: of all work.
    """

    def __init__(self, core: PlaceCore, ledger: NodeLedger) -> None:
        self.core, self.ledger = core, ledger
        self._held: dict[str, Reservation] = {}

    def handle(self, event: PlaceEvent | CapacityChanged | Evicted) -> list[PlaceCommand]:
        """Take an event in; commands as of `PlaceCore`. What others hold is looked up before it."""
        commands = self._look()
        if not isinstance(event, CapacityChanged | Evicted):
            commands += self.core.handle(event)
        self._hold()
        return commands

    def validate(self) -> None:
        """Check that tasks hold in the ledger what they hold by their placements."""
        self.core.validate()
        mine = {each.owner: each for each in self.ledger.reservations if each.decision == DECISION}
        assert mine == self._held == self._holds(), "the ledger knows of other tasks"

    def _look(self) -> list[PlaceCommand]:
        """Nodes have the memory that others leave whom no task pushes out; without it pipelines stop."""
        totals = {node.name: node.resources.memory_bytes for node in self.ledger.there}
        others: dict[str, float] = {}
        for each in self.ledger.reservations:
            if each.decision != DECISION and not (each.preemptible and each.priority < INFERENCE):
                others[each.node] = others.get(each.node, 0.0) + each.resources.memory_bytes
        commands: list[PlaceCommand] = []
        network = self.core.network
        for n, (name, was_bytes) in enumerate(zip(network.names, network.memory_bytes, strict=True)):
            left_bytes = max(totals.get(name, 0.0) - others.get(name, 0.0), 0.0)
            if left_bytes != was_bytes:
                commands += self.core.handle(MemoryChanged(n, left_bytes))
        return commands

    def _hold(self) -> None:
        """Write into the ledger what changed."""
        now = self._holds()
        for owner, reservation in self._held.items():
            if now.get(owner) != reservation:
                self.ledger.release(owner)
        for owner, reservation in now.items():
            if self._held.get(owner) != reservation:
                self.ledger.reserve(reservation)
        self._held = now

    def _holds(self) -> dict[str, Reservation]:
        """By owner, the memory of each pipeline on each node."""
        found: dict[str, Reservation] = {}
        for number, placed in self.core.running.items():
            bytes_on: dict[int, float] = {}
            for n, memory_bytes in zip(
                placed.node.tolist(), placed.pipeline.memory_bytes.tolist(), strict=True
            ):
                bytes_on[n] = bytes_on.get(n, 0.0) + memory_bytes
            for n, memory_bytes in bytes_on.items():
                node = self.core.network.names[n]
                owner = f"pipeline {number} on {node}"
                resources = Resources(memory_bytes=memory_bytes)
                found[owner] = Reservation(owner, node, resources, INFERENCE, decision=DECISION)
        return found
