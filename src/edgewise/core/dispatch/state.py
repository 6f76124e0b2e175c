"""What the core of streams knows, in four arrays, and the rules of a binding as kernels on them.

A kernel takes four arrays in about a microsecond, where twenty cost seven. `DispatchCore` calls the kernels
one decision at a time, with the score in plain Python; `play` decides many in compiled code, where the score
enters as a first-class function, so that one loop serves every policy. Both give the same answers.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.dispatch.views import (
    DECLARED,
    LEFT,
    UNSENT,
    Bound,
    DispatchView,
    Item,
    Rows,
    Violation,
    frozen,
)
from edgewise.core.keyed import Purpose, finalise_of, prefix_of, uniform_of, unit_of
from edgewise.core.ledger import TOLERANCE as TOLERANCE
from edgewise.core.world import (
    ACCURACY,
    CAPACITY,
    CLUSTER,
    FIXED,
    LARGEST,
    PER_BYTE,
    TASK,
    Links,
    World,
)
from edgewise.kernels.compiled import kernel

POLICY_DRAW, TIE = int(Purpose.POLICY), int(Purpose.TIE)
NONE, WRONG_TASK, INACCURATE, DOWN, LATE, FULL, NO_ROOM = (int(each) for each in list(Violation)[:7])
STARTING = int(Violation.STARTING)
NO_NUMBER = -2  # what `least` finds in place of a worker where a score is none
LOAD, ELSEWHERE, QUEUE, THROUGHPUT, DELAY_MEAN, DELAY_P95, READY = range(5, 12)  # after the rows of a world
TOLD = slice(QUEUE, DELAY_P95 + 1)
STREAMS = 3
NETWORK, PROCESSING, IMPEDANCE, SHARE, DRAW, WAIT, SENDING, LINK_LOAD = range(8)  # rows of `Weights.figures`

# The way from a site to a cluster; delay_s is infinite when it is down. access_s: from the client. bps: the
# slower of the client's uplink and the link to the cluster.
WAY = np.dtype([(name, np.float64) for name in ("delay_s", "deviation_s", "access_s", "bps")])
Ways: TypeAlias = Any  # (S, C) WAY


class State(NamedTuple):
    """Kernels write to its arrays.

    Attributes:
        real: (12, W) the world's rows; LOAD is all that is reserved, of which ELSEWHERE was granted to other
            cores; what telemetry said last; READY as `DispatchView.ready_s`.
        whole: (4, W) the world's rows; STREAMS bound.
        up: (W,)
        ways: (S, C) WAY.
        link: (3, L) shared links, see `DispatchView`.
        path: (S, C, K) of each way, see `World`.
        measured_s: when telemetry was; -inf when never.
        seed: of draws and ties.
    """

    real: Floats
    whole: Ints
    up: Bools
    ways: Ways
    link: Floats
    path: Ints
    measured_s: float
    seed: np.uint64

    @classmethod
    def of(cls, view: DispatchView, site: int | None = None) -> "State":
        """What a view shows; nothing is reserved elsewhere.

        Args:
            site: the ways of this one alone, as site 0; None: of all.
        """
        elsewhere = np.zeros_like(view.load_qps)
        told = (
            view.load_qps,
            elsewhere,
            view.queue,
            view.throughput_qps,
            view.delay_mean_s,
            view.delay_p95_s,
            view.ready_s,
        )
        here = slice(None) if site is None else slice(site, site + 1)
        return cls(
            np.concatenate([view.world.real, told]),
            np.concatenate([view.world.whole, view.streams[None]]),
            view.up.copy(),
            way_arrays(view.world, view.links, here),
            view.link.copy(),
            view.world.path[here],
            view.measured_s,
            np.uint64(view.seed & 0xFFFFFFFFFFFFFFFF),
        )

    def view(self, world: World, now_s: float, links: Links, bound: Bound | None) -> DispatchView:
        """What a policy may see; arrays are copies: a view never changes later."""
        return DispatchView(
            world=world,
            now_s=now_s,
            seed=int(self.seed),
            load_qps=frozen(self.real[LOAD]),
            streams=frozen(self.whole[STREAMS]),
            up=frozen(self.up),
            queue=frozen(self.real[QUEUE]),
            throughput_qps=frozen(self.real[THROUGHPUT]),
            delay_mean_s=frozen(self.real[DELAY_MEAN]),
            delay_p95_s=frozen(self.real[DELAY_P95]),
            measured_s=self.measured_s,
            links=links,
            link=frozen(self.link),
            bound=bound,
            ready_s=frozen(self.real[READY]),
        )

    def copy(self) -> "State":
        """The same, to go another way from here."""
        changes = {name: getattr(self, name).copy() for name in ("real", "whole", "up", "link")}
        return self._replace(**changes)


class Weights(NamedTuple):
    """What constraints and scores of one item need; `figures` (8, W), the others (W,), see `Candidates`."""

    figures: Floats
    violation: NDArray[np.int8]
    feasible: Bools

    @classmethod
    def of(cls, workers: int) -> "Weights":
        """Room for `weigh` to fill."""
        return cls(
            np.zeros((8, workers)), np.empty(workers, dtype=np.int8), np.empty(workers, dtype=np.bool_)
        )


def way_arrays(world: World, links: Links, sites: slice = slice(None)) -> Ways:
    """(S, C) WAY of a world whose links are as given."""
    ways: Any = np.zeros(links.delay_s[sites].shape, dtype=WAY).view(np.recarray)
    ways.delay_s, ways.deviation_s = links.delay_s[sites], links.deviation_s[sites]
    ways.access_s = world.access_delay_s[sites, None]
    ways.bps = np.minimum(world.uplink_bps[sites, None], links.bandwidth_bps[sites])
    return ways


@kernel(allocates=False)
def share_of(real: Floats, w: int, rate_qps: float, size_bytes: float) -> float:
    """η ρ: a rate, normalised by the cost of its queries relative to the worker's largest input.

    η = D_v(ζ) / D_v(ζ_max), at most 1                         (ASET, fractional load)
    """
    cost = real[FIXED, w] + real[PER_BYTE, w] * size_bytes
    return float(rate_qps * min(cost / real[LARGEST, w], 1.0))


@kernel(allocates=False)
def declare(x: State, site: int, w: int, bps: float) -> None:
    """Book so much more on all shared links from a site to worker `w`."""
    for k in range(x.path.shape[2]):
        link = x.path[site, x.whole[CLUSTER, w], k]
        if link >= 0:
            x.link[DECLARED, link] = max(x.link[DECLARED, link] + bps, 0.0)


@kernel(allocates=False)
def bind(x: State, site: int, w: int, rate_qps: float, size_bytes: float) -> None:
    """Book a stream from a site on worker `w`."""
    declare(x, site, w, rate_qps * size_bytes * 8.0)
    x.real[LOAD, w] += share_of(x.real, w, rate_qps, size_bytes)
    x.whole[STREAMS, w] += 1


@kernel(allocates=False)
def release(x: State, site: int, w: int, rate_qps: float, size_bytes: float) -> None:
    """Take a stream off worker `w`; one without streams of ours forgets rounding errors."""
    declare(x, site, w, -rate_qps * size_bytes * 8.0)
    x.whole[STREAMS, w] -= 1
    x.real[LOAD, w] -= share_of(x.real, w, rate_qps, size_bytes)
    if x.whole[STREAMS, w] == 0:
        x.real[LOAD, w] = x.real[ELSEWHERE, w]


@kernel(allocates=False)
def reserve_elsewhere(x: State, w: int, load_qps: float) -> None:
    """Worker `w` has granted so much to others than this core."""
    x.real[LOAD, w] += load_qps - x.real[ELSEWHERE, w]
    x.real[ELSEWHERE, w] = load_qps


@kernel(allocates=False)
def is_final(why: int, retry: bool) -> bool:
    """Whether a stream that was refused so will not be decided anew: it is when a worker comes up."""
    return why != DOWN and why != STARTING and not retry


@kernel(allocates=False)
def item_of(rows: Rows, i: int) -> Item:
    """What stream `i` needs."""
    return Item(
        rows.id[i], rows.site[i], rows.task[i], rows.rate_qps[i], rows.size_bytes[i],
        rows.deadline_s[i], rows.min_accuracy[i], rows.priority[i],
    )  # fmt: skip


@kernel(allocates=False)
def weigh(x: State, item: Item, found: Weights) -> int:
    """Figures of every worker for one item, with the first violated constraint of each.

    Feasible: the task matches; A_m >= A; the worker is up and reachable;
    2(δ + d + 2σ) + ζ/u + D_v(ζ) <= D; L_w + η ρ <= C_v               (ASET, feasibility 1-4);
    and where links are shared, ρ ζ more fits on each of the way there. A worker that is about to start is
    worth waiting for where it would be in time.

    Returns:
        0, or why the item cannot be served at all: the constraint that the best worker failed. Constraints
        are ordered from what can never change to what changes every moment, so the largest code is the
        nearest miss. No workers at all reads as "no worker implements the task".
    """
    key, count, served, nearest = prefix_of(x.seed, POLICY_DRAW, item.id), x.up.size, False, WRONG_TASK
    network, processing, impedance = (
        found.figures[NETWORK],
        found.figures[PROCESSING],
        found.figures[IMPEDANCE],
    )
    share, draw, load, capacity = found.figures[SHARE], found.figures[DRAW], x.real[LOAD], x.real[CAPACITY]
    sending, ready = found.figures[SENDING], x.real[READY]
    fixed, per_byte, largest, accuracy = x.real[FIXED], x.real[PER_BYTE], x.real[LARGEST], x.real[ACCURACY]
    task, cluster, bits = x.whole[TASK], x.whole[CLUSTER], item.size_bytes * 8.0
    # One loop for each column where it can be: the compiler turns those into vector instructions.
    for w in range(count):
        processing[w] = fixed[w] + per_byte[w] * item.size_bytes
    for w in range(count):
        share[w] = item.rate_qps * min(processing[w] / largest[w], 1.0)
    for w in range(count):
        draw[w] = unit_of(finalise_of(key, w))
    for w in range(count):
        way = x.ways[item.site, cluster[w]]
        network[w] = way.delay_s + 2.0 * way.deviation_s
        impedance[w] = 2.0 * network[w] + processing[w]
        sending[w] = 2.0 * way.access_s + bits / way.bps
        first = NONE  # tested last to first, so that the first violated one stays
        if load[w] + share[w] > capacity[w] * (1.0 + TOLERANCE):
            first = FULL
        if sending[w] + impedance[w] > item.deadline_s:
            first = LATE
        if not x.up[w] or not network[w] < np.inf:
            first = STARTING if first != LATE and ready[w] < np.inf and network[w] < np.inf else DOWN
        if accuracy[w] < item.min_accuracy:
            first = INACCURATE
        if task[w] != item.task:
            first = WRONG_TASK
        found.violation[w] = first
        found.feasible[w] = first == NONE
        served = served or first == NONE
        nearest = max(nearest, first)
    if x.link.shape[1] > 0 and not weigh_links(x, item.site, item.rate_qps * bits, found) and served:
        return NO_ROOM
    return NONE if served else nearest


@kernel(allocates=False)
def weigh_links(x: State, site: int, more_bps: float, found: Weights) -> bool:
    """Backlogs of the ways from a site, how full they would be, and who is out of reach for want of room.

    Returns:
        Whether anybody is left.
    """
    wait, full, served = found.figures[WAIT], found.figures[LINK_LOAD], False
    for w in range(x.up.size):
        wait[w] = full[w] = 0.0
        for k in range(x.path.shape[2]):
            link = x.path[site, x.whole[CLUSTER, w], k]
            if link >= 0:
                left_bps = x.link[LEFT, link]
                wait[w] = max(wait[w], x.link[UNSENT, link] / max(left_bps, 1.0))
                asked_bps = x.link[DECLARED, link] + more_bps
                full[w] = max(full[w], asked_bps / max(left_bps, 1.0))
                if found.feasible[w] and asked_bps > left_bps * (1.0 + TOLERANCE):
                    found.violation[w], found.feasible[w] = NO_ROOM, False
        served = served or found.feasible[w]
    return bool(served)


@kernel(allocates=False)
def least(scores: Floats, violation: NDArray[np.int8], seed: np.uint64, item: int) -> int:
    """The feasible worker of smallest score, ties broken at random, keyed by run and item.

    Returns:
        A worker, -1 when none is feasible, `NO_NUMBER` when a feasible worker's score is NaN.
    """
    best, ties = -1, 0
    for w in range(violation.size):
        if violation[w] == NONE:
            if np.isnan(scores[w]):
                return NO_NUMBER
            if best < 0 or scores[w] < scores[best]:
                best, ties = w, 1
            elif scores[w] == scores[best]:
                ties += 1
    if ties > 1:
        skip = int(uniform_of(seed, TIE, item, 0) * ties)
        for w in range(best, violation.size):
            if violation[w] == NONE and scores[w] == scores[best]:
                if skip == 0:
                    return w
                skip -= 1
    return best


@kernel
def _shares(real: Floats, worker: Ints, rate_qps: Floats, size_bytes: Floats) -> Floats:
    """(N,) share of each stream on its worker."""
    shares_qps = np.empty(worker.size)
    for i in range(worker.size):
        shares_qps[i] = share_of(real, worker[i], rate_qps[i], size_bytes[i])
    return shares_qps


def state_of(view: DispatchView, items: Rows, worker: Ints) -> State:
    """What a view shows; what its bound streams do not explain is reserved elsewhere.

    Args:
        items, worker: (N,) the bound streams, and where.
    """
    state = State.of(view)
    shares_qps = _shares(state.real, worker, items.rate_qps, items.size_bytes)
    rest_qps = view.load_qps - np.bincount(worker, shares_qps, view.load_qps.size)
    state.real[ELSEWHERE] = np.where(rest_qps > TOLERANCE * state.real[CAPACITY], rest_qps, 0.0)
    return state
