"""The plane: one ledger of nodes under all decisions that take of them; events go in, commands come out.

    plane = Plane(ledger := NodeLedger(nodes))
    plane.cores["orchestrate"] = OrchestrateCore(system, holds, policy, ledger, node_names)
    plane.cores["defer"] = DeferCore(Slots(1.0), ledger, policy)    # any core may be absent, or come later
    commands = plane.handle(FrameBegan(30.0), now_s=30.0)              # [StartReplica(…), SuspendJob(7)]

An event is for the core that knows its type, or for the plane: `NodesChanged` says which nodes there are,
`HoldsChanged` what workers and split servers hold for life; `CapacityChanged` from outside asks every core
whether it has anything to do, as when work has ended. In one call of `handle`, all at `now_s`:

1. The core that is addressed decides, and reserves in the ledger at once what its commands take of nodes, so
   the next decision sees it. Who must go for it (`NodeLedger.reserve`: preemptible work of lower priority on
   that node, as little as needed) holds nothing from then on.
2. The other cores hear of it once each, orchestrate before place before defer: `Evicted` where something of
   theirs was pushed out, else `CapacityChanged` where the ledger is another. Each answers with commands, and
   may reserve again what it needs; a later one sees what an earlier one did.
3. A core that lost something after its turn hears so in another round at the same instant, and so on. In each
   round only work of lower priority goes than what went in the round before (`NodeLedger.ceiling`), so there
   are not more rounds than priorities, whatever the cores do. Capacity that changed after a core's turn is
   not told to it again: it sees it in the ledger at its next event.

Commands come in the order in which they were decided. Whoever carries them out tells the core what became of
them by that core's own events (`ReplicaSeen`, `JobStands` …). Forbidden here: clocks, I/O, threads, and any
rule about who goes where.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, get_args

from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.defer import DeferCommand, DeferEvent
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.orchestrate.events import OrchestrateCommand, OrchestrateEvent
from edgewise.core.place import PlaceCommand, PlaceEvent
from edgewise.model.topology import Node

ORDER = ("orchestrate", "place", "defer")
EVENTS = {"orchestrate": OrchestrateEvent, "place": PlaceEvent, "defer": DeferEvent}
TOLD = (Evicted, CapacityChanged)  # to every core
DECISION_OF = {kind: each for each in ORDER for kind in get_args(EVENTS[each]) if kind not in TOLD}


class NodesChanged(NamedTuple):
    """These nodes there are now; one that is missing is gone, and nothing is held there."""

    nodes: tuple[Node, ...]


class HoldsChanged(NamedTuple):
    """Work that no core decides on holds this from now on, room or not; those in `gone` hold nothing.

    What its owner held before is replaced. Workers and split servers: `model.work.variant_holds`.
    """

    held: tuple[Reservation, ...]
    gone: tuple[str, ...] = ()


PlaneEvent = NodesChanged | HoldsChanged | CapacityChanged | OrchestrateEvent | PlaceEvent | DeferEvent
PlaneCommand = OrchestrateCommand | PlaceCommand | DeferCommand


class Core(Protocol):
    """What the plane asks of a core, which holds of the plane's ledger."""

    def handle(self, event: Any) -> Sequence[Any]:
        """Take an event in; what is to be done, in order. Hears `Evicted` and `CapacityChanged` too."""

    def validate(self) -> None:
        """Check that what it knows of itself is what the ledger holds."""


class Plane:
    """Hands events to cores, and tells each what others did to it; see the module.

    Args:
        ledger: of all nodes; the cores have it too.
        cores: by the name of their decision, those of `ORDER` that there are.
    """

    def __init__(self, ledger: NodeLedger, cores: dict[str, Core] | None = None) -> None:
        self.ledger = ledger
        self.cores: dict[str, Core] = cores or {}
        self._lost: dict[str, list[Reservation]] = {decision: [] for decision in ORDER}

    def handle(self, event: PlaneEvent, now_s: float) -> list[PlaneCommand]:
        """Take an event in; what all cores make of it, in order.

        Raises:
            KeyError: the event is for a core that there is not.
            PolicyError: as the core that decides.
        """
        ledger, before = self.ledger, self.ledger.changes
        commands: list[PlaneCommand] = []
        decision = DECISION_OF.get(type(event))
        match event:
            case NodesChanged(nodes):
                ledger.change_nodes(nodes)
            case HoldsChanged(held, gone):
                fresh = [each for each in held if ledger.needs(each.owner) != each]
                for owner in (*gone, *(each.owner for each in fresh)):
                    ledger.release(owner)
                for each in fresh:
                    ledger.hold(each)
            case CapacityChanged():
                before = -1  # for all to hear
            case _:
                commands += self.cores[str(decision)].handle(event)
        if ledger.changes == before:
            return commands
        self._note_lost()
        for other in ORDER:
            if other in self.cores and other != decision:
                commands += self._tell(other, now_s)
        try:
            while any(self._lost.values()):
                ledger.ceiling = max(each.priority for lost in self._lost.values() for each in lost)
                for other in ORDER:
                    if self._lost[other]:
                        commands += self._tell(other, now_s)
        finally:
            ledger.ceiling = None
        return commands

    def validate(self) -> None:
        """Check the ledger and all cores.

        Raises:
            AssertionError: something is wrong.
        """
        self.ledger.validate()
        assert not self.ledger.pushed_out and not any(self._lost.values()), "somebody was not told"
        for core in self.cores.values():
            core.validate()

    def _tell(self, decision: str, now_s: float) -> Sequence[PlaneCommand]:
        lost, self._lost[decision] = self._lost[decision], []
        event = Evicted(now_s, tuple(lost)) if lost else CapacityChanged(now_s)
        found: Sequence[PlaneCommand] = self.cores[decision].handle(event)
        self._note_lost()
        return found

    def _note_lost(self) -> None:
        """Keep for each core what of its own was pushed out; nobody hears of the rest."""
        for each in self.ledger.pushed_out:
            if each.decision in self.cores:
                self._lost[each.decision].append(each)
        self.ledger.pushed_out.clear()
