"""Image pulls: transfers that have reserved rates on links, so that their ends are known.

A part of each link is kept for messages, which would stand still otherwise while a large image passes: no
flow of a pipeline gets it (`core.place.Reserving`), and no pull. Flows come first. What they leave of the
rest is for pulls, max-min fair by progressive filling: all rates grow alike, and those over a link that is
full stay as they are. A pull waits where flows have all that may be reserved. Rates change when a pull or a
flow comes, goes or changes, and are constant between. A pull whose way is down stands still, and its rate is
the others'.
Forbidden here: clocks, I/O.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.link_ledger import TOLERANCE


@dataclass(slots=True, eq=False)
class Pull:
    """A transfer over the links of a way; `left_bits` are those at `since_s`."""

    way: int
    links: Ints
    left_bits: float
    since_s: float
    done: Callable[[], None]
    rate_bps: float = 0.0

    @property
    def end_s(self) -> float:
        """When it ends at its present rate; infinite: never."""
        return self.since_s + self.left_bits / self.rate_bps if self.rate_bps > 0.0 else np.inf


class Pulls:
    """What is reserved of links, by flows and pulls.

    Args:
        capacity_bps: (L,) of each link.
        kept: part of each link that no pull gets.
        tell: called with (L,) rates that are reserved, and since when, whenever they change.
    Attributes:
        pulls: under way.
        down: ways on which nothing is pulled.
        reserved_bps: (L,) by flows and pulls.
    """

    def __init__(self, capacity_bps: Floats, kept: float, tell: Callable[[float, Floats], None]) -> None:
        self._capacity_bps, self.tell = capacity_bps, tell
        self._most_bps = capacity_bps * (1.0 - kept)
        self.flows_bps, self.reserved_bps = np.zeros((2, capacity_bps.size))
        self.pulls: list[Pull] = []
        self.down: set[int] = set()

    def set_flows(self, now_s: float, bps: Floats) -> None:
        """Flows of pipelines have (L,) rates from now on; what they leave by rounding is nothing."""
        bps = np.where(self._capacity_bps - bps < TOLERANCE * self._capacity_bps, self._capacity_bps, bps)
        if (bps != self.flows_bps).any():
            self.flows_bps = bps
            self._fill(now_s)

    def change(self, now_s: float, way: int, up: bool) -> None:
        """A way goes down or comes up."""
        (self.down.discard if up else self.down.add)(way)
        self._fill(now_s)

    def begin(self, now_s: float, way: int, links: Ints, bits: float, done: Callable[[], None]) -> Pull:
        """Transfer so many bits over the links of a way; `done` is called at the end."""
        pull = Pull(way, links, bits, now_s, done)
        self.pulls.append(pull)
        self._fill(now_s)
        return pull

    def cancel(self, now_s: float, pull: Pull) -> None:
        """A pull goes on no more, if it still does."""
        if pull in self.pulls:
            self.pulls.remove(pull)
            self._fill(now_s)

    def next_s(self) -> float:
        """When a pull ends next; infinite: never."""
        return min((pull.end_s for pull in self.pulls), default=np.inf)

    def end(self, now_s: float) -> None:
        """Those that end by now are done."""
        ended = [pull for pull in self.pulls if pull.end_s <= now_s]
        if ended:
            self.pulls = [pull for pull in self.pulls if pull not in ended]
            self._fill(now_s)
        for pull in ended:
            pull.done()

    def validate(self) -> None:
        """Check that no link is exceeded, and that pulls leave what is kept.

        Raises:
            AssertionError: one is.
        """
        used = self.flows_bps.copy()
        for pull in self.pulls:
            used[pull.links] += pull.rate_bps
        assert np.allclose(used, self.reserved_bps), "reserved rates differ from the sum of flows and pulls"
        assert (used <= self._capacity_bps * (1 + TOLERANCE)).all(), "a link is exceeded"
        most_bps = np.maximum(self._most_bps, self.flows_bps)
        assert (used <= most_bps * (1 + TOLERANCE)).all(), "pulls take what is kept"

    def _fill(self, now_s: float) -> None:
        free_bps = np.maximum(self._most_bps - self.flows_bps, 0.0)
        reserved_bps = self.flows_bps.copy()
        rates = np.zeros(len(self.pulls))
        going = [n for n, pull in enumerate(self.pulls) if pull.way not in self.down]
        rates[going] = max_min(free_bps, [self.pulls[n].links for n in going])
        for pull, rate_bps in zip(self.pulls, rates.tolist(), strict=True):
            reserved_bps[pull.links] += rate_bps
            if rate_bps != pull.rate_bps:  # untouched where nothing changes, to the last digit
                pull.left_bits = max(pull.left_bits - pull.rate_bps * (now_s - pull.since_s), 0.0)
                pull.since_s, pull.rate_bps = now_s, rate_bps
        if (reserved_bps != self.reserved_bps).any():
            self.reserved_bps = reserved_bps
            self.tell(now_s, reserved_bps)


def max_min(free_bps: Floats, paths: Sequence[Ints]) -> Floats:
    """(F,) max-min fair rates of transfers over links: nobody can have more but at the cost of who has less.

    Args:
        free_bps: (L,) of each link.
        paths: links of each transfer, at least one, each once.
    """
    over = np.zeros((len(paths), free_bps.size), dtype=np.bool_)
    for f, links in enumerate(paths):
        over[f, links] = True
    rate, left, grows = np.zeros(len(paths)), free_bps.astype(np.float64), np.ones(len(paths), dtype=np.bool_)
    while grows.any():
        count = over[grows].sum(axis=0)
        used = np.flatnonzero(count)
        shares = left[used] / count[used]
        step = shares.min()
        rate[grows] += step
        left[used] = np.maximum(left[used] - step * count[used], 0.0)
        full = used[shares == step]
        left[full] = 0.0
        grows &= ~over[:, full].any(axis=1)
    return rate
