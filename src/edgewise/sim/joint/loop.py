"""The clock of a joint run: from one moment at which nodes change hands to the next.

At each moment: data planes go on up to it; nodes fail and come back; the cores are told what is due, by rank
and part; their commands go to the parts, which carry them out. Forbidden here: rules about who gets what,
and how long anything takes.

`Holders` reads off the ledgers as a run goes on who holds what of which node and link, from when to when.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgewise.core.defer import SlotBegan
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.orchestrate.events import FrameBegan
from edgewise.core.place import PlacementDue
from edgewise.core.place.core import PlaceCore
from edgewise.core.plane import NodesChanged, Plane, PlaneCommand, PlaneEvent
from edgewise.model.topology import Change, Node, NodeChange, Resources
from edgewise.sim.joint.parts import Rank, WorkPart

# Kinds of "work": a node is not there, as far as the ledger has heard; what a node or link has in all.
GONE, TOTAL = "gone", "total"


class Held(NamedTuple):
    """What somebody holds of a node or a link."""

    place: str
    owner: str
    work: str
    cores: float = 0.0
    memory_bytes: float = 0.0
    bps: float = 0.0


def totals(nodes: Sequence[Node]) -> list[Held]:
    """What nodes have in all."""
    return [Held(node.name, "", TOTAL, *figures(node.resources)) for node in nodes]


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
        place: reserves rates of links, if anybody does.
        on_net: pairs of nodes whose link is one of those that messages share, which are counted there.
    """

    def __init__(
        self, ledger: NodeLedger, nodes: Sequence[Node], work_of: Callable[[Reservation], str]
    ) -> None:
        self._ledger, self._nodes, self._work_of = ledger, tuple(nodes), work_of
        self._changes, self._flows = -1, dict[int, Any]()
        self._since: dict[Any, tuple[float, Held]] = {}
        self.spans: list[tuple[float, float, Held]] = []
        self.place: PlaceCore | None = None
        self.on_net: Container[tuple[str, str]] = ()

    def look(self, now_s: float) -> None:
        """Note what has changed."""
        flows = {} if self.place is None else self.place.links.held
        same = len(flows) == len(self._flows) and all(self._flows.get(n) is f for n, f in flows.items())
        if self._ledger.changes == self._changes and same:
            return
        self._changes, self._flows = self._ledger.changes, dict(flows)
        held = self._held()
        for key in [key for key, (_, was) in self._since.items() if held.get(key) != was]:
            since_s, was = self._since.pop(key)
            self.spans += [(since_s, now_s, was)] if now_s > since_s else []
        for key, what in held.items():
            self._since.setdefault(key, (now_s, what))

    def finish(self, end_s: float) -> None:
        """The run is over, and what is held then is held to its end."""
        total = totals(self._nodes)
        if self.place is not None:
            bandwidth_bps = self.place.whole_bps
            total += [
                Held(name, "", TOTAL, bps=float(bandwidth_bps[link])) for link, name in self._links.items()
            ]
        end_s = max([end_s, *(since_s for since_s, _ in self._since.values())])
        self.spans += [(since_s, end_s, what) for since_s, what in self._since.values() if since_s < end_s]
        self.spans = [(0.0, end_s, what) for what in total] + self.spans
        self._since.clear()

    def _held(self) -> dict[Any, Held]:
        there = {node.name for node in self._ledger.there}
        found: dict[Any, Held] = {
            node.name: Held(node.name, "", GONE, *figures(node.resources))
            for node in self._nodes
            if node.name not in there
        }
        for each in self._ledger.reservations:
            if any(has := figures(each.resources)):
                found["owner", each.owner] = Held(each.node, each.owner, self._work_of(each), *has)
        if self.place is not None:
            links = self._links
            for number, flows in self._flows.items():
                bps, who = (
                    np.bincount(flows.links, np.repeat(flows.bps, np.diff(flows.start))),
                    f"pipeline {number}",
                )
                for link in np.flatnonzero(bps).tolist():
                    if link in links:
                        found[who, link] = Held(links[link], who, "pipelines", bps=float(bps[link]))
        return found

    @property
    def _links(self) -> dict[int, str]:
        """Links of which only flows have rates, by number."""
        assert self.place is not None, "who asks has looked"
        network = self.place.network
        ends = [(network.names[one], network.names[other]) for one, other in network.ends.tolist()]
        return {
            k: f"{one} – {other}" for k, (one, other) in enumerate(ends) if (one, other) not in self.on_net
        }


def figures(resources: Resources) -> tuple[float, float]:
    """Cores and memory."""
    return resources.cpu_cores, resources.memory_bytes


DECIDED_BY: Mapping[type, str] = {PlacementDue: "place", FrameBegan: "orchestrate", SlotBegan: "defer"}


class JointClock:
    """A joint run.

    Args:
        parts: kinds of work, in the order in which they are told at equal times.
        plane: decides.
        nodes: there are while none has failed.
        timeline: failures and repairs of nodes, in order of time.
        lag_s: after which the plane hears of them.
        check: validate the plane after every moment.
        holders: notes who holds what after every moment, if it is to be known.
    Attributes:
        now_s: the moment.
        log: every command so far, and when it was given.
    """

    def __init__(
        self,
        parts: Sequence[WorkPart],
        plane: Plane,
        nodes: Sequence[Node],
        timeline: Sequence[Change] = (),
        lag_s: float = 0.0,
        check: bool = False,
        holders: Holders | None = None,
    ) -> None:
        self.holders = holders
        self.parts, self.plane, self.now_s, self._check = tuple(parts), plane, 0.0, check
        self.log: list[tuple[float, PlaneCommand]] = []
        self._took_s: dict[str, list[float]] = {}  # sum and number
        self._nodes = {node.name: node for node in nodes}
        self._there = set(self._nodes)  # as far as the plane has heard
        self._changes = deque(change for change in timeline if isinstance(change, NodeChange))
        self._news = deque((change.at_s + lag_s, change) for change in self._changes)
        kinds = {kind for part in self.parts for kind in part.commands}
        self._takers = {kind: [part for part in self.parts if kind in part.commands] for kind in kinds}

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        if self.holders is not None:
            self.holders.look(self.now_s)
        while (next_s := self.next_s()) < math.inf:
            assert next_s >= self.now_s, f"time goes back from {self.now_s} to {next_s}"
            self.step(next_s)
        for part in self.parts:
            part.finish()

    def next_s(self) -> float:
        """The next moment."""
        changes_s = [self._changes[0].at_s] if self._changes else []
        changes_s += [self._news[0][0]] if self._news else []
        return min([part.next_s() for part in self.parts] + changes_s, default=math.inf)

    def step(self, now_s: float) -> None:
        """All that happens at one moment."""
        self.now_s = now_s
        for part in self.parts:
            part.advance(now_s)
        while self._changes and self._changes[0].at_s <= now_s:
            change = self._changes.popleft()
            for part in self.parts:
                part.change_node(change.node, change.up, now_s)
        due = [each for part in self.parts for each in part.due(now_s)]
        if self._news and self._news[0][0] <= now_s:
            due.append((Rank.FAILED, self._heard(now_s)))
        for _, event in sorted(due, key=lambda each: each[0]):  # stable: by part, then as told
            self._tell(event)
        if self.holders is not None:
            self.holders.look(now_s)
        if self._check:
            self.plane.validate()

    def decision_s(self) -> Mapping[str, float]:
        """Mean time of a decision on this machine, with what follows of it, by its name."""
        return {decision: sum_s / number for decision, (sum_s, number) in self._took_s.items()}

    def _heard(self, now_s: float) -> NodesChanged:
        """Which nodes there are, by all that was heard until now."""
        while self._news and self._news[0][0] <= now_s:
            _, change = self._news.popleft()
            (self._there.add if change.up else self._there.discard)(change.node)
        return NodesChanged(tuple(node for node in self._nodes.values() if node.name in self._there))

    def _tell(self, event: PlaneEvent) -> None:
        began_s = time.perf_counter()
        commands = self.plane.handle(event, self.now_s)
        if type(event) in DECIDED_BY:
            took = self._took_s.setdefault(DECIDED_BY[type(event)], [0.0, 0.0])
            took[0], took[1] = took[0] + time.perf_counter() - began_s, took[1] + 1.0
        for command in commands:
            self.log.append((self.now_s, command))
            taker = next(part for part in self._takers[type(command)] if part.takes(command))
            for answer in taker.take(command, self.now_s):
                self._tell(answer)
