"""Checkpoints of jobs on their way: to the cluster that images come from, and from there to who goes on.

A checkpoint is a transfer with a reserved rate, as an image pull is, over the cables of its node's site. A
job writes one at a time: one that is due while the last one is on its way is left out. It counts once it is
there. Who stands still sends nothing: what was on its way then is sent anew when the job goes on, and is lost
where it has ended. On a node of that cluster checkpoints are there at once.
Forbidden here: who starts, where, and who gives way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.defer import ROUNDING
from edgewise.core.pulls import Pull, Pulls
from edgewise.model.work import DeferrableJob
from edgewise.sim.links.wires import Wires


class SavingWay(NamedTuple):
    """Routes from a node to where checkpoints are kept, and back: their numbers, and the links of each."""

    there: tuple[int, Ints]
    back: tuple[int, Ints]


def ways_of(wires: Wires, cluster: int, nodes: Sequence[str], site_of: Ints) -> dict[str, SavingWay]:
    """Of nodes outside a cluster, by name, over the ways of their (N,) sites."""
    found = {}
    for node, site in zip(nodes, site_of.tolist(), strict=True):
        there, back = (wires.way(site, cluster, back=back) for back in (False, True))
        found[node] = SavingWay((there, wires.links_of(there)), (back, wires.links_of(back)))
    return found


class Checkpoints:
    """Those of all jobs.

    Args:
        jobs: ids are 0, 1, …; checkpoints of those that say no size weigh nothing, and are not these.
        pulls: transfers of this run; None: nothing weighs anything.
        ways: of nodes, by name; those of the cluster where checkpoints are kept have none.
    Attributes:
        saved_s: (J,) work that the last one has that is there.
    """

    def __init__(
        self,
        jobs: Sequence[DeferrableJob],
        pulls: Pulls | None = None,
        ways: Mapping[str, SavingWay] | None = None,
    ) -> None:
        self._jobs, self._pulls, self._ways = jobs, pulls, ways or {}
        self.saved_s = np.zeros(len(jobs))
        self._mark_s: dict[int, float] = {}  # work that the next one has, of those that run
        self._due_s: dict[int, float] = {}  # and when that is
        self._going: dict[int, Pull] = {}
        self._sending_s: dict[int, float] = {}  # work that the one on its way has

    def weigh(self, number: int) -> bool:
        """Whether a job's checkpoints are transfers."""
        job = self._jobs[number]
        return self._pulls is not None and job.checkpoint_s is not None and job.checkpoint_bytes > 0.0

    def next_s(self) -> float:
        """When the next one is written; infinite: never."""
        return min(self._due_s.values(), default=math.inf)

    def fetch(self, number: int, node: str, now_s: float, done: Callable[[], None]) -> None:
        """Bring a job's last one to a node; `done` is called when it is there."""
        way = self._ways.get(node)
        if way is None:
            done()
        else:
            self._begin(number, way.back, now_s, done)

    def runs(self, number: int, node: str, now_s: float, done_s: float, length_s: float) -> None:
        """A job makes progress from now on, and has done so much of its length."""
        every_s = self._jobs[number].checkpoint_s
        assert every_s is not None, "who asks writes some"
        self._mark(number, (math.floor(done_s / every_s + ROUNDING) + 1) * every_s, now_s - done_s, length_s)
        if number in self._sending_s:
            self._send(number, node, now_s)

    def stops(self, number: int, now_s: float) -> None:
        """It makes no progress, and sends and fetches nothing."""
        self._due_s.pop(number, None)
        if (pull := self._going.pop(number, None)) is not None and self._pulls is not None:
            self._pulls.cancel(now_s, pull)

    def ends(self, number: int, now_s: float) -> None:
        """It has ended, for good or to begin anew: what was not there yet is lost."""
        self.stops(number, now_s)
        self._sending_s.pop(number, None)

    def write(self, now_s: float, node: Sequence[str], length_s: Floats) -> None:
        """Begin with those that are due, of jobs on these nodes, of (J,) these lengths."""
        for number in [n for n, due_s in self._due_s.items() if due_s <= now_s * (1.0 + ROUNDING)]:
            mark_s, began_s = self._mark_s[number], self._due_s[number] - self._mark_s[number]
            if number not in self._sending_s:
                self._sending_s[number] = mark_s
                self._send(number, node[number], now_s)
            every_s = self._jobs[number].checkpoint_s or math.inf
            self._mark(number, mark_s + every_s, began_s, float(length_s[number]))

    def _mark(self, number: int, mark_s: float, began_s: float, length_s: float) -> None:
        """The next one is due at so much work, unless the job is done by then."""
        self._due_s.pop(number, None)
        if mark_s < length_s * (1.0 - ROUNDING):
            self._mark_s[number], self._due_s[number] = mark_s, began_s + mark_s

    def _send(self, number: int, node: str, now_s: float) -> None:
        way = self._ways.get(node)
        if way is None:
            self._arrived(number)
        else:
            self._begin(number, way.there, now_s, lambda: self._arrived(number))

    def _arrived(self, number: int) -> None:
        self._going.pop(number, None)
        self.saved_s[number] = self._sending_s.pop(number)

    def _begin(self, number: int, way: tuple[int, Ints], now_s: float, done: Callable[[], None]) -> None:
        assert self._pulls is not None, "who begins has links"
        bits = 8.0 * self._jobs[number].checkpoint_bytes

        def there() -> None:
            self._going.pop(number, None)
            done()

        self._going[number] = self._pulls.begin(now_s, *way, bits, there)
