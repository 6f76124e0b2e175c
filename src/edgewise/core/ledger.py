"""The node ledger: who holds what of which node, and the rules of it, on arrays of many worlds.

Workers, replicas and deferrable jobs all hold of nodes; what is left over (OSDEC's C_t) is read off, never
kept apart. Work of higher priority may push out preemptible work of lower priority, and who asks for it is
told whom. The rules are kernels on the rows of one world; `NodeLedger` gives names to the rows of one.
Indices are stable: what goes leaves a hole, which is filled by what comes next.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.errors import CapacityError
from edgewise.kernels.compiled import inner, kernel
from edgewise.model.topology import KINDS, TOLERANCE as TOLERANCE, Node, Resources

HOLE, ROWS_AT_FIRST = -1, 16
_EACH = (len(KINDS),)
NODE = np.dtype([("total", "f8", _EACH), ("reserved", "f8", _EACH)])
HOLD = np.dtype(
    [("node", "i8"), ("need", "f8", _EACH), ("priority", "i8"), ("preemptible", "i8"), ("number", "i8")]
)
"""A row of `holds`, (B, H) of B worlds: `node` is `HOLE` where nobody is; a larger `number` came later."""


@kernel(allocates=False)
def has_room(need: float, free: float, total: float) -> bool:
    """Whether so much of one resource is free, up to rounding; for every kind of work and every engine.

    On arrays it is `model.topology.have_room`.
    """
    return free >= need - TOLERANCE * max(total, 1.0)


@kernel(allocates=False)
def fits(nodes: Records, world: int, node: int, need: Floats, freed: Floats) -> bool:
    """Whether (K,) `need` is free on a node, or is once (K,) `freed` is given back there."""
    row = nodes[world, node]
    for kind in range(need.size):
        free = row.total[kind] - row.reserved[kind] + freed[kind]
        if not has_room(need[kind], free, row.total[kind]):
            return False
    return True


@inner
def book(machine: Records, cpu_cores: float, memory_bytes: float) -> None:
    """Take so much of a machine of a lens, which has what is free in place of who holds it (KaiS's frozen
    settings, where each request holds its own cores); less than 0 is given back.
    """
    machine.free_cpu_cores -= cpu_cores
    machine.free_memory_bytes -= memory_bytes


@inner
def goes_before(hold: Records, other: Records) -> bool:
    """Whether a hold is pushed out before another: lowest priority first, then the newest."""
    if hold.priority != other.priority:
        return bool(hold.priority < other.priority)
    return bool(hold.number > other.number)


@inner
def next_victim(holds: Records, world: int, node: int, priority: int, victims: Ints, count: int) -> int:
    """The hold that is pushed out after `count` victims, or -1."""
    found = -1
    for h in range(holds.shape[1]):
        hold = holds[world, h]
        if hold.node != node or hold.preemptible == 0 or hold.priority >= priority:
            continue
        if count > 0 and not goes_before(holds[world, victims[count - 1]], hold):
            continue  # one of them already
        if found < 0 or goes_before(hold, holds[world, found]):
            found = h
    return found


@inner
def find_victims(
    nodes: Records, holds: Records, world: int, new: int, need: Floats, freed: Floats, victims: Ints
) -> int:
    """Fill in as few holds as have to go before a new one fits; how many, or -1 where it does not even so.

    Args:
        new: its row, not reserved yet. need: (K,) of it.
        freed: (K,) for the kernel's own use.
        victims: (H,) receives rows, lowest priority and newest first.
    """
    count, node = 0, holds[world, new].node
    freed[:] = 0.0
    while not fits(nodes, world, node, need, freed):
        h = next_victim(holds, world, node, holds[world, new].priority, victims, count)
        if h < 0:
            return -1
        victims[count] = h
        count += 1
        for kind in range(freed.size):
            freed[kind] += holds[world, h].need[kind]
    kept = count
    for i in range(count - 2, -1, -1):  # spare, highest priority first, who turns out not to be needed
        h = victims[i]
        for kind in range(freed.size):
            freed[kind] -= holds[world, h].need[kind]
        if fits(nodes, world, node, need, freed):
            victims[i] = HOLE
            kept -= 1
        else:
            for kind in range(freed.size):
                freed[kind] += holds[world, h].need[kind]
    at = 0
    for i in range(count):
        if victims[i] != HOLE:
            victims[at] = victims[i]
            at += 1
    return kept


@inner
def sum_up(nodes: Records, holds: Records, world: int, node: int) -> None:
    """What a node's holds add up to: summed anew at every change, so that roundings do not pile up."""
    row = nodes[world, node]
    row.reserved[:] = 0.0
    for h in range(holds.shape[1]):
        if holds[world, h].node == node:
            for kind in range(row.reserved.size):
                row.reserved[kind] += holds[world, h].need[kind]


@kernel(allocates=False)
def reserve(
    nodes: Records, holds: Records, world: int, new: int, need: Floats, freed: Floats, victims: Ints
) -> int:
    """Let a new hold count in place of those that have to go for it, see `find_victims`, or take it back."""
    node, count = holds[world, new].node, find_victims(nodes, holds, world, new, need, freed, victims)
    if count < 0:
        holds[world, new].node = HOLE
        return count
    for i in range(count):
        holds[world, victims[i]].node = HOLE
    sum_up(nodes, holds, world, node)
    return count


@kernel(allocates=False)
def release(nodes: Records, holds: Records, world: int, gone: int) -> None:
    """Leave a hole, and give back what was held there."""
    node = holds[world, gone].node
    holds[world, gone].node = HOLE
    sum_up(nodes, holds, world, node)


@kernel(allocates=False)
def leave_over(holds: Records, world: int, priority: int, left: Floats) -> None:
    """Leave of (N, K) totals what is not held by work of at least a priority, or that cannot be preempted."""
    for h in range(holds.shape[1]):
        hold = holds[world, h]
        if hold.node != HOLE and (hold.priority >= priority or hold.preemptible == 0):
            for kind in range(left.shape[1]):
                left[hold.node, kind] -= hold.need[kind]
    for n in range(left.shape[0]):
        for kind in range(left.shape[1]):
            left[n, kind] = max(left[n, kind], 0.0)


@dataclass(frozen=True, slots=True)
class Reservation:
    """One owner's share of one node; the core of `decision` hears when it is pushed out, see `core.plane`."""

    owner: str
    node: str
    resources: Resources
    priority: int = 0
    preemptible: bool = False
    decision: str = ""


class NodeLedger:
    """Reservations on nodes, by name; exact by construction.

    Args:
        nodes: the machines; names must be unique.
    Attributes:
        nodes: (1, N) `NODE`; the row of a node that is gone has nothing, and is its own when it comes again.
        holds: (1, H) `HOLD`.
        there: the machines there are now.
        changes: how often anything was reserved, released or changed.
        pushed_out: all reservations that had to go for others, until somebody takes them from here.
        ceiling: work of at least this priority is not pushed out, whoever asks; None: whoever asks says.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._node: dict[str, int] = {}
        self.nodes, self.holds = records((1, 0), NODE), _holes(ROWS_AT_FIRST)
        self.there: tuple[Node, ...] = ()
        self.changes = 0
        self.ceiling: int | None = None
        self.pushed_out: list[Reservation] = []
        self._holes = list(range(ROWS_AT_FIRST - 1, -1, -1))
        self._held: dict[str, tuple[int, Reservation]] = {}  # by owner, oldest first: its row
        self._short: dict[str, Reservation] = {}  # what owners need that have less
        self._owner: dict[int, str] = {}
        self._taken = 0
        self.change_nodes(nodes)

    def change_nodes(self, nodes: Iterable[Node]) -> None:
        """Have these nodes and no others.

        Where one is smaller now, or gone, whoever may be preempted is pushed out, lowest priority and newest
        first, and others hold what there is.
        """
        self.there = tuple(nodes)
        total = {node.name: node.resources.as_tuple() for node in self.there}
        if len(total) < len(self.there):
            raise ValueError("node names must be unique")
        nothing = dict.fromkeys(self._node, Resources().as_tuple())
        for name, has in (nothing | total).items():
            row = self.row(name)  # may make room for it
            if tuple(self.nodes.total[0, row].tolist()) != has:
                self._change_node(name, has)

    def _change_node(self, name: str, total: tuple[float, ...]) -> None:
        """Give a node another size, and let those hold of it anew that did before, as far as it goes."""
        held = [(self._short.get(r.owner), r) for r in self.reservations if r.node == name]
        for _, reservation in held:
            self._drop(reservation.owner)
        self.nodes.total[0, self.row(name)] = total
        self.changes += 1
        for needs, reservation in sorted(held, key=lambda each: (each[1].preemptible, -each[1].priority)):
            if not reservation.preemptible:
                self.hold(needs or reservation)
            elif self.fits(name, reservation.resources):
                self.reserve(reservation)
            else:
                self.pushed_out.append(reservation)

    def row(self, node: str) -> int:
        """Where a node is in `nodes`; one that was never there gets a row that has nothing."""
        if node not in self._node:
            self._node[node] = len(self._node)
            self.nodes = np.concatenate([self.nodes, records((1, 1), NODE)], axis=1).view(np.recarray)
        return self._node[node]

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, oldest first."""
        return tuple(reservation for _, reservation in self._held.values())

    def free(self, node: str) -> Resources:
        """What nobody has reserved on `node`."""
        row = self.nodes[0, self._node[node]]
        return Resources(*np.maximum(row.total - row.reserved, 0.0).tolist())

    def left_over(self, priority: int = 0) -> Floats:
        """(N, 4) resources not held by work of at least `priority` (OSDEC's C_t, per node).

        Work of lower priority that may be preempted does not count as use.
        """
        left: Floats = self.nodes.total[0].copy()
        leave_over(self.holds, 0, priority, left)
        return left

    def gives_way(self, priority: int) -> Floats:
        """(N, 4) what is held by work that goes for work of `priority`."""
        rows = self.nodes[0]
        return np.asarray(self.left_over(priority) - (rows.total - rows.reserved))

    def fits(self, node: str, resources: Resources, freed: Floats | None = None) -> bool:
        """Whether `resources` are free on `node` now, or are once (N, 4) `freed` is given back."""
        need, h = np.array(resources.as_tuple()), self._node[node]
        return bool(fits(self.nodes, 0, h, need, np.zeros_like(need) if freed is None else freed[h]))

    def of(self, owner: str) -> Reservation | None:
        """What an owner holds, None for nothing; it may need more, see `hold`."""
        held = self._held.get(owner)
        return None if held is None else held[1]

    def needs(self, owner: str) -> Reservation | None:
        """What an owner would hold if there were enough."""
        return self._short.get(owner) or self.of(owner)

    def reserve(self, reservation: Reservation) -> tuple[Reservation, ...]:
        """Reserve, preempting as few lower-priority owners as needed.

        Returns:
            The reservations pushed out, lowest priority and newest first; usually empty. They are also
            appended to `pushed_out`.
        Raises:
            CapacityError: it does not fit even so; nothing has changed then.
            ValueError: the owner already holds a reservation, or the node is unknown.
        """
        if reservation.owner in self._held:
            raise ValueError(f"{reservation.owner!r} already holds a reservation; release it first")
        if reservation.node not in self._node:
            raise ValueError(f"unknown node {reservation.node!r}; have {', '.join(self._node)}")
        h, node, need = self._hole(), self._node[reservation.node], np.array(reservation.resources.as_tuple())
        self._taken += 1
        self.holds[0, h] = (node, need, self._pushes(reservation), reservation.preemptible, self._taken)
        victims = np.empty(self.holds.shape[1], dtype=np.int64)
        count = reserve(self.nodes, self.holds, 0, h, need, np.empty_like(need), victims)
        self.holds.priority[0, h] = reservation.priority
        if count < 0:
            self._holes.append(h)
            where = f"{reservation.owner!r} does not fit on node {reservation.node!r}"
            raise CapacityError(f"{where}: {self._missing(node, need)}")
        out = [self._forget(self._owner[v]) for v in victims[:count].tolist()]
        self.pushed_out += out
        self._held[reservation.owner], self._owner[h] = (h, reservation), reservation.owner
        self.changes += 1
        return tuple(out)

    def hold(self, reservation: Reservation) -> None:
        """Reserve for what is there whether or not it fits, in place of what its owner held.

        Where it does not fit even with others pushed out it holds all there is, and more as soon as there is.
        """
        before = self._drop(reservation.owner)
        self._hold(reservation)
        self._refill(before)

    def _hold(self, reservation: Reservation) -> None:
        h, need = self.row(reservation.node), np.array(reservation.resources.as_tuple())
        left = self.left_over(self._pushes(reservation))[h]
        total = self.nodes.total[0, h]
        short = np.array([not has_room(*each) for each in zip(need, left, total, strict=True)])
        there = Resources(*np.where(short, left, need).tolist())
        self.reserve(replace(reservation, resources=there))
        if short.any():
            self._short[reservation.owner] = reservation

    def rename(self, owner: str, name: str) -> None:
        """What an owner holds is another's from now on."""
        h, held = self._held.pop(owner)
        self._held[name], self._owner[h] = (h, replace(held, owner=name)), name
        if owner in self._short:
            self._short[name] = replace(self._short.pop(owner), owner=name)

    def release(self, owner: str) -> Reservation | None:
        """Give back what an owner holds, if anything, first to those that have less than they need there."""
        held = self._drop(owner)
        self._refill(held)
        return held

    def _refill(self, given: Reservation | None) -> None:
        """What is given back on a node is first for those that have less than they need there."""
        for short in [each for each in self._short.values() if given and each.node == given.node]:
            self._drop(short.owner)
            self._hold(short)

    def _pushes(self, reservation: Reservation) -> int:
        """Work of a lower priority than this goes for a reservation."""
        return reservation.priority if self.ceiling is None else min(reservation.priority, self.ceiling)

    def _drop(self, owner: str) -> Reservation | None:
        if owner not in self._held:
            return None
        release(self.nodes, self.holds, 0, self._held[owner][0])
        self.changes += 1
        return self._forget(owner)

    def validate(self) -> None:
        """Check that rows and names agree, no node is overbooked, and use is the sum of the reservations."""
        rows = {h for h, _ in self._held.values()}
        assert rows == set(np.flatnonzero(self.holds.node[0] != HOLE).tolist()), "a row without an owner"
        assert self._owner == {h: owner for owner, (h, _) in self._held.items()}, "a row of two owners"
        used = np.zeros_like(self.nodes.reserved[0])
        for _, held in self._held.values():
            used[self._node[held.node]] += held.resources.as_tuple()
        total, reserved = self.nodes.total[0], self.nodes.reserved[0]
        assert np.allclose(used, reserved), "ledger use differs from the sum of its reservations"
        assert (reserved <= total * (1 + TOLERANCE) + TOLERANCE).all(), "a node is overbooked"

    def _hole(self) -> int:
        """A row that is free; there are twice as many where none is."""
        if not self._holes:
            rows = self.holds.shape[1]
            self.holds = np.concatenate([self.holds, _holes(rows)], axis=1).view(np.recarray)
            self._holes = list(range(2 * rows - 1, rows - 1, -1))
        return self._holes.pop()

    def _forget(self, owner: str) -> Reservation:
        h, held = self._held.pop(owner)
        self._short.pop(owner, None)
        del self._owner[h]
        self._holes.append(h)
        return held

    def _missing(self, node: int, need: Floats) -> str:
        """What a node lacks first, for a message."""
        row = self.nodes[0, node]
        free = row.total - row.reserved
        kind = next(k for k, want in enumerate(need) if not has_room(want, free[k], row.total[k]))
        return f"needs {need[kind]:g} {KINDS[kind]}, {max(free[kind], 0.0):g} free of {row.total[kind]:g}"


def _holes(rows: int) -> Records:
    made = records((1, rows), HOLD)
    made["node"] = HOLE
    return made
