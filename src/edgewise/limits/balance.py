"""The least load of links, nodes and workers under any policy: a linear program.

    min t   with  Σ_o x_o = d_j over the options o of each need j,   Σ_o a_ro x_o <= t C_r,   x >= 0

What is shared out so leaves the fullest resource as free as can be. The dual prices y_r name those that
cannot be relieved, and bound t at any other demand d from below: Σ_j d_j min_o Σ_r y_r a_ro. The next to
break are found so with these held at their load.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints

ROUNDS = 3
PRICED = 1e-7  # of a share: prices below it are rounding
SAME = 1e-6  # shares that differ by less are the same


class Options(NamedTuple):
    """Who may serve whom, and what that takes.

    Attributes:
        need: (O,) of each option.
        resource, option, amount: (U,) so much of a resource is taken by an option for each query per second.
        capacity: (R,) of each resource.
    """

    need: Ints
    resource: Ints
    option: Ints
    amount: Floats
    capacity: Floats


class Balance(NamedTuple):
    """Loads where work is shared out as evenly as can be.

    Attributes:
        share: (R,) of each capacity.
        rank: (R,) in which round it could not be relieved; -1: in none.
        price: (R,) of the first round, for each part of the capacity; they add up to 1.
    """

    share: Floats
    rank: Ints
    price: Floats

    def bound(self, options: Options, demand: Floats) -> Floats:
        """(T,) least share of the fullest resource at each of (J, T) demands, whoever decides."""
        cost = np.bincount(
            options.option,
            options.amount * (self.price / options.capacity)[options.resource],
            minlength=options.need.size,
        )
        least = np.full(demand.shape[0], np.inf)
        np.minimum.at(least, options.need, cost)
        found: Floats = np.where(np.isfinite(least), least, 0.0) @ demand
        return found


def balanced(options: Options, demand: Floats) -> Balance:
    """Share out (J,) queries per second; needs without an option are left out."""
    from edgewise.policies.programs import Sparse, minimum  # its solver is slow to import

    served, count = np.unique(options.need), options.need.size
    size = options.capacity.size
    taken = options.amount / options.capacity[options.resource]
    each: Ints = np.arange(count)
    rows = Sparse(options.resource, options.option, taken).below(
        Sparse(np.searchsorted(served, options.need), each, np.ones(count)), size
    )
    cost = np.append(np.zeros(count), 1.0)
    rank, price = np.full(size, -1, dtype=np.int64), np.zeros(size)
    held = np.zeros(size)
    share: Floats = np.zeros(size)
    for turn in range(ROUNDS):
        free = rank < 0
        level: Ints = np.flatnonzero(free)
        found = minimum(
            cost,
            rows.below(Sparse(level, np.full(level.size, count), np.full(level.size, -1.0)), 0),
            np.append(np.full(size, -np.inf), demand[served]),
            np.append(np.where(free, 0.0, held), demand[served]),
        )
        if found is None:
            break
        used = np.bincount(options.resource, taken * found.x[options.option], minlength=size)
        share = used.astype(np.float64)
        prices = np.where(free, -found.price[:size], 0.0)
        tight = prices > PRICED
        if turn == 0:
            price = np.maximum(-found.price[:size], 0.0)
        if not tight.any() or found.x[-1] <= SAME:
            break
        rank[tight], held[tight] = turn, found.x[-1] * (1.0 + SAME)
    return Balance(share, rank, price)


def fullest(balance: Balance) -> Ints:
    """Resources, those that cannot be relieved first, by their share."""
    order: Ints = np.lexsort((-balance.share, np.where(balance.rank < 0, ROUNDS, balance.rank)))
    return order
