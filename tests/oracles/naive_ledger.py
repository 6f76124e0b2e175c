"""The node ledger: who reserved what on which node.

Workers, replicas, streaming tasks and deferrable jobs all reserve here; what is left over
(OSDEC's C_t) is derived, never stored apart. A reservation of higher priority may push out
preemptible ones of lower priority, and the caller is told which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Floats
from edgewise.errors import CapacityError
from edgewise.model.topology import KINDS, Node, Resources

TOLERANCE = 1e-9  # relative; sums of floats may miss a full node by rounding


@dataclass(frozen=True, slots=True)
class Reservation:
    """One owner's share of one node."""

    owner: str
    node: str
    resources: Resources
    priority: int = 0
    preemptible: bool = False


class NodeLedger:
    """Reservations on a fixed set of nodes; exact by construction.

    Args:
        nodes: the machines; names must be unique.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        nodes = tuple(nodes)
        self._nodes = {node.name: i for i, node in enumerate(nodes)}
        if len(self._nodes) < len(nodes):
            raise ValueError("node names must be unique")
        self._total = np.array([n.resources.as_tuple() for n in nodes]).reshape(len(nodes), len(KINDS))
        self._used = np.zeros_like(self._total)
        self._held: dict[str, Reservation] = {}

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, oldest first."""
        return tuple(self._held.values())

    def free(self, node: str) -> Resources:
        """What nobody has reserved on `node`."""
        i = self._nodes[node]
        return Resources(*np.maximum(self._total[i] - self._used[i], 0.0).tolist())

    def left_over(self, priority: int = 0) -> Floats:
        """(N, 4) resources not held by work of at least `priority` (OSDEC's C_t, per node).

        Work of lower priority that may be preempted does not count as use.
        """
        left = self._total.copy()
        for held in self._held.values():
            if held.priority >= priority or not held.preemptible:
                left[self._nodes[held.node]] -= held.resources.as_tuple()
        found: Floats = np.maximum(left, 0.0)
        return found

    def fits(self, node: str, resources: Resources) -> bool:
        """Whether `resources` are free on `node` now."""
        return self._missing(self._nodes[node], resources) is None

    def reserve(self, reservation: Reservation) -> tuple[Reservation, ...]:
        """Reserve, preempting as few lower-priority owners as needed.

        Returns:
            The reservations pushed out, lowest priority and newest first; usually empty.
        Raises:
            CapacityError: it does not fit even so; nothing has changed then.
            ValueError: the owner already holds a reservation, or the node is unknown.
        """
        if reservation.owner in self._held:
            raise ValueError(f"{reservation.owner!r} already holds a reservation; release it first")
        if reservation.node not in self._nodes:
            raise ValueError(f"unknown node {reservation.node!r}; have {', '.join(self._nodes)}")
        victims = self._victims(reservation)
        for victim in victims:
            self.release(victim.owner)
        self._held[reservation.owner] = reservation
        self._used[self._nodes[reservation.node]] += reservation.resources.as_tuple()
        return victims

    def release(self, owner: str) -> Reservation:
        """Give an owner's resources back.

        Raises:
            KeyError: the owner holds nothing.
        """
        held = self._held.pop(owner)
        i = self._nodes[held.node]
        rest = [r.resources.as_tuple() for r in self._held.values() if r.node == held.node]
        self._used[i] = np.sum(rest, axis=0) if rest else 0.0  # summed anew: no drift by rounding
        return held

    def validate(self) -> None:
        """Check that no node is overbooked and that use is the sum of the reservations."""
        used = np.zeros_like(self._used)
        for held in self._held.values():
            used[self._nodes[held.node]] += held.resources.as_tuple()
        assert np.allclose(used, self._used), "ledger use differs from the sum of its reservations"
        assert (self._used <= self._total * (1 + TOLERANCE) + TOLERANCE).all(), "a node is overbooked"

    def _victims(self, new: Reservation) -> tuple[Reservation, ...]:
        i = self._nodes[new.node]
        missing = self._missing(i, new.resources)
        if missing is None:
            return ()
        newest = reversed(self._held.values())
        lower = [r for r in newest if r.node == new.node and r.preemptible and r.priority < new.priority]
        freed = np.zeros(len(KINDS))
        out: list[Reservation] = []
        for victim in sorted(lower, key=lambda r: r.priority):
            out.append(victim)
            freed += victim.resources.as_tuple()
            if self._missing(i, new.resources, freed) is None:
                return self._needed(i, new, out)
        raise CapacityError(f"{new.owner!r} does not fit on node {new.node!r}: {missing}")

    def _needed(self, i: int, new: Reservation, out: list[Reservation]) -> tuple[Reservation, ...]:
        """Spare every victim, highest priority first, whose resources turn out not to be needed."""
        for victim in reversed(out[:-1]):
            rest = np.sum([r.resources.as_tuple() for r in out if r is not victim], axis=0)
            if self._missing(i, new.resources, rest) is None:
                out = [r for r in out if r is not victim]
        return tuple(out)

    def _missing(self, i: int, resources: Resources, freed: Floats | float = 0.0) -> str | None:
        free = self._total[i] - self._used[i] + freed
        for kind, want, have, total in zip(KINDS, resources.as_tuple(), free, self._total[i], strict=True):
            if want > have + TOLERANCE * max(total, 1.0):
                return f"needs {want:g} {kind}, {max(have, 0.0):g} free of {total:g}"
        return None
