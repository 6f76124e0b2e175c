"""Who holds what of which node and link, from when to when: read off the ledgers as time goes on.

Simulation and controller look alike, each by its own clock. Forbidden here: clocks, I/O, and rules about who
gets what.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # whoever reads what was written down needs none of these
    from edgewise.core.ledger import NodeLedger, Reservation
    from edgewise.core.place.core import PlaceCore
    from edgewise.model.topology import Node, Resources

# Kinds of "work": a node is not there, as far as the ledger has heard; what a node or link has in all; and
# whose work is not known.
GONE, TOTAL, OTHER = "gone", "total", "other"
FLOWS = "flows"  # who holds, of a link that messages share
# Whose reservations a decision makes.
DECIDED = {"orchestrate": "services", "place": "pipelines", "defer": "jobs"}


class Held(NamedTuple):
    """What somebody holds of a node or a link."""

    place: str
    owner: str
    work: str
    cores: float = 0.0
    memory_bytes: float = 0.0
    bps: float = 0.0
    accelerator_memory_bytes: float = 0.0


def totals(nodes: Sequence[Node]) -> list[Held]:
    """What nodes have in all."""
    return [held_of(node.name, "", TOTAL, node.resources) for node in nodes]


def hold_records(spans: Sequence[tuple[float, float, Held]]) -> Mapping[str, Any]:
    """Columns of `edgewise.report.use.HOLDS`, from (start, end, what was held)."""
    ordered = sorted(spans, key=lambda span: (span[0], span[2].place, span[2].owner))
    if not ordered:
        return {}
    start_s, end_s, what = zip(*ordered, strict=True)
    columns = dict(zip(Held._fields, map(list, zip(*what, strict=True)), strict=True))
    return {"start_s": list(start_s), "end_s": list(end_s), **columns}


class Holders:
    """Spans of time in which owners held the same.

    Args:
        ledger: of nodes.
        nodes: while all are there.
        work_of: kind of work of a reservation.
    Attributes:
        spans: (start, end, what was held).
        changed: whether anything has since somebody said that nothing has.
        place: reserves rates of links, if anybody does.
        on_net: pairs of nodes whose link is one of those that messages share, which are counted there.
        flows: what else flows of pipelines hold.
    """

    def __init__(
        self, ledger: NodeLedger, nodes: Sequence[Node], work_of: Callable[[Reservation], str]
    ) -> None:
        self._ledger, self._nodes, self._work_of = ledger, tuple(nodes), work_of
        self._changes, self._flows = -1, dict[int, Any]()
        self._since: dict[tuple[str, str], tuple[float, Held]] = {}
        self.spans: list[tuple[float, float, Held]] = []
        self.changed = False
        self.place: PlaceCore | None = None
        self.on_net: Container[tuple[str, str]] = ()
        self.flows: Callable[[], Iterable[Held]] = tuple

    @property
    def open(self) -> list[tuple[float, Held]]:
        """What is held, and since when."""
        return list(self._since.values())

    def go_on(self, held: Iterable[tuple[float, Held]]) -> None:
        """Take what was held when somebody else looked last."""
        self._since = {(what.place, what.owner): (since_s, what) for since_s, what in held}
        self._changes = -1

    def look(self, now_s: float) -> None:
        """Note what has changed."""
        flows = {} if self.place is None else self.place.links.held
        same = len(flows) == len(self._flows) and all(self._flows.get(n) is f for n, f in flows.items())
        if self._ledger.changes == self._changes and same:
            return
        self._changes, self._flows = self._ledger.changes, dict(flows)
        held = {(what.place, what.owner): what for what in self._held()}
        over = [key for key, (_, was) in self._since.items() if held.get(key) != was]
        for key in over:
            since_s, was = self._since.pop(key)
            self.spans += [(since_s, now_s, was)] if now_s > since_s else []
        self.changed |= bool(over) or held.keys() != self._since.keys()
        for key, what in held.items():
            self._since.setdefault(key, (now_s, what))

    def finish(self, end_s: float) -> None:
        """The run is over, and what is held then is held to its end."""
        end_s = max([end_s, *(since_s for since_s, _ in self._since.values())])
        self.spans += [(since_s, end_s, what) for since_s, what in self._since.values() if since_s < end_s]
        self.spans = [(0.0, end_s, what) for what in self.totals()] + self.spans
        self._since.clear()

    def totals(self) -> list[Held]:
        """What nodes and links with reserved rates have in all."""
        total = totals(self._nodes)
        if self.place is not None:
            bandwidth_bps = self.place.whole_bps
            total += [
                Held(name, "", TOTAL, bps=float(bandwidth_bps[link])) for link, name in self._links.items()
            ]
        return total

    def _held(self) -> Iterator[Held]:
        there = {node.name for node in self._ledger.there}
        yield from (
            held_of(node.name, "", GONE, node.resources) for node in self._nodes if node.name not in there
        )
        for each in self._ledger.reservations:
            held = held_of(each.node, each.owner, self._work_of(each), each.resources)
            if held.cores or held.memory_bytes or held.accelerator_memory_bytes:
                yield held
        if self.place is None:
            return
        yield from self.flows()
        links = self._links
        for number, flows in self._flows.items():
            rates_bps: dict[int, float] = {}
            for flow, bps in enumerate(flows.bps.tolist()):
                for link in flows.links[flows.start[flow] : flows.start[flow + 1]].tolist():
                    rates_bps[link] = rates_bps.get(link, 0.0) + bps
            for link, bps in sorted(rates_bps.items()):
                if link in links and bps > 0.0:
                    yield Held(links[link], f"pipeline {number}", "pipelines", bps=bps)

    @property
    def _links(self) -> dict[int, str]:
        """Links of which only flows have rates, by number."""
        assert self.place is not None, "who asks has looked"
        network = self.place.network
        ends = [(network.names[one], network.names[other]) for one, other in network.ends.tolist()]
        return {
            k: f"{one} – {other}" for k, (one, other) in enumerate(ends) if (one, other) not in self.on_net
        }


def held_of(place: str, owner: str, work: str, resources: Resources) -> Held:
    """What somebody holds of a node."""
    cores, memory_bytes, accelerator_memory_bytes, _ = resources.as_tuple()
    return Held(place, owner, work, cores, memory_bytes, 0.0, accelerator_memory_bytes)
