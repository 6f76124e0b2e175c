"""The links that ways go over: directed, each with its own rate, and routes as lists of them.

A lens on a topology, for runs in which messages share links. Every cable is two links, one each way, or one
for both directions. A way that runs over no cable has its own. In a generated topology every site has two to
its network, and every cluster two, as fast as the fastest way over them. Forbidden here: I/O.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.model.topology import Cable, Topology, WayTable

EACH, BOTH = ("up", "down"), ("both",)
"""Names of the links of a cable."""


class Routes(NamedTuple):
    """L links, and R routes: of W ways from each site to each cluster, then back, sites first; then others.

    Attributes:
        names: (L,) of links.
        rate_bps, buffer_bytes: (L,)
        link: (R, K) links of each route in order; -1 where it has fewer.
        before: (R, K) share of the route's delay that lies before each of its links.
        back: (L,) whether what goes back has it for itself.
        between: the routes from one node or cluster to another, where a link between them runs over cables.
    """

    names: tuple[str, ...]
    rate_bps: Floats
    buffer_bytes: Floats
    link: Ints
    before: Floats
    between: Mapping[tuple[str, str], int] = MappingProxyType({})
    back: Bools = np.zeros(0, dtype=np.bool_)


def routes_of(topology: Topology) -> Routes:
    """The links of a topology's ways, and the routes over them.

    From the first end of a link between nodes or clusters a message takes cables as payloads do, from the
    second one as answers.
    """
    cables, way, delay_s = _table(topology) if isinstance(topology.ways, WayTable) else _laid(topology)
    laid, count = [link for link in topology.links if link.over], len(way)
    number = {cable.name: n for n, cable in enumerate(cables)}
    over = _padded([[number[name] for name in link.over] for link in laid], -1).astype(np.int64)
    width = max(way.shape[1], over.shape[1])
    way, delay_s = (
        np.concatenate([_wide(a, width, fill), _wide(b, width, fill)])
        for a, b, fill in ((way, over, -1), (delay_s, np.zeros(over.shape), 0.0))
    )
    back = _turned(way)
    back_s = np.take_along_axis(delay_s, np.where(back >= 0, back, 0), axis=1)
    turned = np.where(back >= 0, np.take_along_axis(way, np.where(back >= 0, back, 0), axis=1), -1)
    links = np.array([1 if cable.shared else 2 for cable in cables], dtype=np.int64)
    last = np.cumsum(links) - 1  # of each cable: the link back
    there = np.where(way >= 0, (last - links + 1)[way], -1)
    home = np.where(turned >= 0, last[turned], -1)
    there_share, home_share = _before(delay_s), _before(np.where(turned >= 0, back_s, 0.0))
    between: dict[tuple[str, str], int] = {}
    for n, link in enumerate(laid):
        between[link.ends[::-1]] = 2 * count + len(laid) + n
        between[link.ends] = 2 * count + n
    return Routes(
        tuple(f"{cable.name}:{way}" for cable in cables for way in (BOTH if cable.shared else EACH)),
        np.repeat([cable.bandwidth_bps for cable in cables], links),
        np.repeat([cable.buffer_bytes for cable in cables], links),
        np.concatenate([there[:count], home[:count], there[count:], home[count:]]),
        np.concatenate([there_share[:count], home_share[:count], there_share[count:], home_share[count:]]),
        between,
        (np.repeat(links, links) == 2) & (np.arange(links.sum()) == np.repeat(last, links)),
    )


def levels(links: int, routes: Ints) -> tuple[Ints, Bools]:
    """Order links by "precedes on a route".

    Args:
        routes: (W, K) links of each route in order; -1 where it has fewer.
    Returns:
        (L,) level of each link, above those of all that precede it; links in a loop have one level together,
        and nobody else has it. (L,) whether it is in a loop.
    """
    from scipy.sparse import coo_array  # slow to import, and most processes share no links
    from scipy.sparse.csgraph import connected_components

    pairs = np.concatenate([routes[:, k : k + 2] for k in range(routes.shape[1] - 1)] or [routes[:0, :2]])
    pairs = np.unique(pairs[(pairs >= 0).all(axis=1)].reshape(-1, 2), axis=0)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(links, links))
    groups, group = connected_components(graph, connection="strong")
    loop = np.bincount(group, minlength=groups) > 1
    loop[group[pairs[pairs[:, 0] == pairs[:, 1], 0]]] = True
    ends = group[pairs]
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]].reshape(-1, 2), axis=0)
    level, at, left = np.full(groups, -1), 0, np.arange(groups)
    while left.size:
        waits = np.isin(left, ends[level[ends[:, 0]] < 0][:, 1])
        ready = left[~waits]
        here = ready[~loop[ready]] if not loop[ready].all() else ready[:1]
        level[here] = at
        left, at = np.setdiff1d(left, here), at + 1
    return level[group], loop[group]


def _table(topology: Topology) -> tuple[list[Cable], Ints, Floats]:
    """Cables of a generated topology, and for each way its cables in order with the delay of each."""
    assert isinstance(topology.ways, WayTable)
    bps, (sites, clusters) = topology.ways.bandwidth_bps, topology.ways.bandwidth_bps.shape
    cables = [Cable(name, float(bps[s].max())) for s, name in enumerate(topology.ways.sites)]
    cables += [Cable(name, float(bps[:, c].max())) for c, name in enumerate(topology.ways.clusters)]
    way = np.stack([np.repeat(np.arange(sites), clusters), sites + np.tile(np.arange(clusters), sites)], 1)
    delay_s = topology.ways.delay_s.ravel()
    return cables, way, np.stack([np.zeros_like(delay_s), delay_s], axis=1)


def _laid(topology: Topology) -> tuple[list[Cable], Ints, Floats]:
    """The same of ways given one by one; what a way has beside its cables lies at the last of them."""
    named = {cable.name: cable for cable in topology.cables}
    number: dict[str, int] = {}
    cables: list[Cable] = []
    ways, delays = [], []
    for way in topology.ways:
        over = way.over or (f"{way.site}-{way.cluster}",)
        for name in over:
            if name not in number:
                number[name] = len(cables)
                own = Cable(name, way.bandwidth_bps, buffer_bytes=way.buffer_bytes, shared=way.shared)
                cables.append(named.get(name, own))
        own_s = [named[name].delay_s if name in named else 0.0 for name in over]
        own_s[-1] = way.delay_s - math.fsum(own_s[:-1])
        ways.append([number[name] for name in over])
        delays.append(own_s)
    for link in topology.links:
        for name in link.over:
            if name not in number:
                number[name] = len(cables)
                cables.append(named[name])
    return cables, _padded(ways, -1).astype(np.int64), _padded(delays, 0.0)


def _padded(rows: Sequence[Sequence[float]], fill: float) -> Floats:
    most = max(map(len, rows), default=1)
    return np.array([[*row, *[fill] * (most - len(row))] for row in rows], dtype=np.float64).reshape(-1, most)


def _wide(rows: Any, width: int, fill: float) -> Any:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=fill)


def _turned(way: Ints) -> Ints:
    """(W, K) where each entry of a route counted from its other end is, -1 beyond it."""
    count = (way >= 0).sum(axis=1, keepdims=True)
    return np.asarray(np.maximum(count - 1 - np.arange(way.shape[1]), -1))


def _before(delay_s: Floats) -> Floats:
    """What a link itself takes lies behind it."""
    total = delay_s.sum(axis=1, keepdims=True)
    sums = np.cumsum(delay_s, axis=1) - delay_s
    return np.where(total > 0.0, sums / np.where(total > 0.0, total, 1.0), 0.0)
