"""The clock of a joint run: from one moment at which nodes change hands to the next.

At each moment: data planes go on up to it; nodes fail and come back; the cores are told what is due, by rank
and part; their commands go to the parts, which carry them out. Forbidden here: rules about who gets what,
and how long anything takes.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence

from edgewise.core.defer import SlotBegan
from edgewise.core.holders import Holders
from edgewise.core.orchestrate.events import FrameBegan
from edgewise.core.place import PlacementDue
from edgewise.core.plane import NodesChanged, Plane, PlaneCommand, PlaneEvent
from edgewise.model.topology import Change, Node, NodeChange
from edgewise.sim.parts.part import Rank, WorkPart

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
