"""The ledger of links: which rates flows have reserved, and the rule of it, on arrays of many worlds.

A link carries its capacity, both directions together (`model.pipelines`). Where flows want more than that, as
when a link fails, they share it in step with what they want until there is room again: no link is ever
exceeded, and what is left over is read off. The rule is a kernel on one world's rows.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.kernels.compiled import kernel

TOLERANCE = 1e-6  # relative; linear programs meet their constraints to about 1e-7
NOWHERE, NOTHING = np.zeros(0, dtype=np.int64), np.zeros(0)
LINK = np.dtype([("capacity_bps", "f8"), ("reserved_bps", "f8"), ("share", "f8")])


class FlowRates(NamedTuple):
    """What the flows of one owner hold.

    Attributes:
        start: (F + 1,) where each flow's path begins in `links`.
        links: of all paths; a flow without any needs none.
        wanted_bps, bps: (F,) of each flow: what it asked for, and what it has.
    """

    start: Ints
    links: Ints
    wanted_bps: Floats
    bps: Floats


@kernel(allocates=False)
def grant(links: Records, world: int, start: Ints, path: Ints, wanted: Floats, granted: Floats) -> bool:
    """Fill in what each flow has, and what is reserved on links; returns whether all have what they want.

    b_f = w_f min over its links l of min(1, C_l / Σ_{flows on l} w)
    """
    for link in range(links.shape[1]):
        links[world, link].reserved_bps = 0.0
    for f in range(wanted.size):
        for i in range(start[f], start[f + 1]):
            links[world, path[i]].reserved_bps += wanted[f]
    enough = True
    for link in range(links.shape[1]):
        row = links[world, link]
        left_bps, row.share = row.capacity_bps - row.reserved_bps, 1.0
        if left_bps < 0.0 and -left_bps >= TOLERANCE * row.capacity_bps:
            row.share, enough = row.capacity_bps / (row.capacity_bps - left_bps), False
    for f in range(wanted.size):
        least = 1.0
        for i in range(start[f], start[f + 1]):
            least = min(least, links[world, path[i]].share)
        granted[f] = wanted[f] * least
    if enough:
        return True
    for link in range(links.shape[1]):
        links[world, link].reserved_bps = 0.0
    for f in range(wanted.size):
        for i in range(start[f], start[f + 1]):
            links[world, path[i]].reserved_bps += granted[f]
    return False


class LinkLedger:
    """Rates reserved on a fixed set of links, by owner, oldest first.

    An owner that asks for other rates keeps its place. Rates are granted when somebody looks.

    Args:
        capacity_bps: (L,) of each link.
    """

    def __init__(self, capacity_bps: Floats) -> None:
        self._links = records((1, len(capacity_bps)), LINK)
        # Columns of the rows: Python reads attributes of records slowly.
        self._capacity_bps, self._reserved_bps = (self._links[k][0] for k in ("capacity_bps", "reserved_bps"))
        self._capacity_bps[:] = capacity_bps
        self._held: dict[int, FlowRates] = {}
        self._granted = True

    @property
    def held(self) -> Mapping[int, FlowRates]:
        """What each owner has."""
        self._grant()
        return self._held

    @property
    def links(self) -> Records:
        """(1, L) `LINK`."""
        self._grant()
        return self._links

    def change(self, link: int, capacity_bps: float) -> None:
        """A link has another capacity; 0: it is down."""
        self._capacity_bps[link] = capacity_bps
        self._granted = False

    def reserve(self, wanted: Mapping[int, FlowRates]) -> None:
        """Owners want these rates from now on, in place of what they had."""
        self._held |= wanted
        self._granted = False

    def release(self, owner: int) -> None:
        """Give back what an owner holds, if anything."""
        self._held.pop(owner, None)
        self._granted = False

    def free_bps(self) -> Floats:
        """(L,) what nobody has; rounding is not free bandwidth."""
        self._grant()
        return unrounded(self._capacity_bps - self._reserved_bps, TOLERANCE * self._capacity_bps)

    def validate(self) -> None:
        """Check that no link is exceeded, and that what is reserved is the sum of what owners have.

        Raises:
            AssertionError: it is not.
        """
        used = np.zeros_like(self._capacity_bps)
        for each in self.held.values():
            np.add.at(used, each.links, np.repeat(each.bps, np.diff(each.start)))
            assert (each.bps <= each.wanted_bps).all(), "a flow has more than it wanted"
        assert np.allclose(used, self._reserved_bps), "reserved rates differ from the sum of the flows'"
        assert (used <= self._capacity_bps * (1 + TOLERANCE)).all(), "a link is exceeded"

    def _grant(self) -> None:
        """Give all owners what the links carry, if anything has changed."""
        if self._granted:
            return
        start, crossed = [np.zeros(1, dtype=np.int64)], 0
        for each in self._held.values():
            start.append(each.start[1:] + crossed)
            crossed += len(each.links)
        path = np.concatenate([NOWHERE, *(each.links for each in self._held.values())])
        wanted = np.concatenate([NOTHING, *(each.wanted_bps for each in self._held.values())])
        granted, first = np.empty_like(wanted), 0
        enough = grant(self._links, 0, np.concatenate(start), path, wanted, granted)
        for owner, each in self._held.items():
            last = first + len(each.wanted_bps)
            has = each.wanted_bps if enough else granted[first:last]
            if has is not each.bps:
                self._held[owner] = each._replace(bps=has)
            first = last
        self._granted = True


def unrounded(left: Floats, rounding: Floats) -> Floats:
    """What is left over, where what may be rounding counts as nothing."""
    return np.where(np.abs(left) < rounding, 0.0, left)
