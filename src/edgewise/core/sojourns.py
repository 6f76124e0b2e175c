"""What a worker counts of itself, and what a measured field of a view so means, in simulation and live.

A sojourn is the time from a query's arrival at its worker to its answer there: without the way, and of all
queries, whoever sent them. Counts only grow, so that any number of gateways can read them: each takes what
has come since it read last.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

DELAY_BINS = 160  # reach 1,000 s
BINS_PER_DECADE = 20.0
SHORTEST_S = 1e-5
# The longest sojourn of each bin, to 12 digits: beyond them machines' powers may differ.
LONGEST_S = [float(f"{SHORTEST_S * 10.0 ** (b / BINS_PER_DECADE):.12g}") for b in range(DELAY_BINS)]
# Delays of a whole run are counted in cells, 32 an octave: so many of a delay's 64 bits do not matter there.
FINE_BITS = 47


@dataclass(slots=True)
class Sojourns:
    """Counts of a worker since it began.

    Attributes:
        queue: queries waiting or in service now.
        answered: queries it has answered.
        sum_s: of their sojourns.
        bins: (DELAY_BINS,) queries by sojourn, each at most as long as `LONGEST_S` says.
    """

    queue: int
    answered: int
    sum_s: float
    bins: list[int]

    @classmethod
    def none(cls) -> Sojourns:
        """Those of a worker that begins."""
        return cls(0, 0, 0.0, [0] * DELAY_BINS)

    def note(self, sojourn_s: float) -> None:
        """A query was answered."""
        self.answered += 1
        self.sum_s += sojourn_s
        self.bins[min(bisect_left(LONGEST_S, sojourn_s), DELAY_BINS - 1)] += 1

    def since(self, before: Sojourns) -> Sojourns:
        """What came since; all there is when the worker began anew in the meantime."""
        bins = [now - then for now, then in zip(self.bins, before.bins, strict=True)]
        if self.answered < before.answered or min(bins) < 0:
            return self
        return Sojourns(self.queue, self.answered - before.answered, self.sum_s - before.sum_s, bins)

    def copy(self) -> Sojourns:
        """As it is now."""
        return Sojourns(self.queue, self.answered, self.sum_s, self.bins.copy())
