"""Candidate paths: the k shortest simple paths of each pair of nodes, by hops, found once and kept.

Yen's algorithm in Lawler's form, with A* for the spur paths: distances to the target without any node
removed are a lower bound, so a search hardly leaves the path it finds. Rows (all paths from one node)
are found on first need; equal lengths keep the order in which they are found, so the result is the same
on every run.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Ints
from edgewise.kernels.compiled import inner, kernel
from edgewise.model.pipelines import Network

FAR = 1 << 20  # hops to a node that cannot be reached
DETOUR = 32  # candidates may be this much longer than the longest shortest path


class PathRows(NamedTuple):
    """The part of a path table that kernels read; see `PathTable`."""

    start: NDArray[np.int32]
    offset: Ints
    links: NDArray[np.int32]
    k: int


class Adjacency(NamedTuple):
    """A graph by rows: (N + 1,) begins, (2 L,) neighbour and link, sorted by neighbour then link."""

    begin: Ints
    node: Ints
    link: Ints


class PathTable:
    """The k shortest simple paths between all nodes of a network.

    Attributes:
        k: paths of each pair at most.
        start: (N, N k + 1) where path i of (u, v) begins in its row: `start[u, v * k + i]`; paths beyond
            those that exist, and all of (u, u), are empty.
        offset: (N,) where row u begins in `links`; -1 when it is not yet known.
        links: link indices of all known rows.
        hops: (N, N) length of the shortest path.
    """

    def __init__(self, network: Network, k: int = 4) -> None:
        count = len(network.names)
        self.k = k
        self.network = network
        self._graph = neighbours(count, network.ends)
        self.hops = _all_hops(count, network.ends)
        self.start = np.zeros((count, count * k + 1), dtype=np.int32)
        self.offset = np.full(count, -1, dtype=np.int64)
        self.links = np.zeros(1 << 12, dtype=np.int32)
        self._used = 0

    def need(self, source: int) -> None:
        """Make sure that the paths from `source` are known."""
        if self.offset[source] >= 0:
            return
        reach = self.hops[source]
        width = min(len(self.hops), int(reach[reach < FAR].max()) + DETOUR) + 1
        most = len(self.hops) * self.k * width
        if self._used + most > self.links.size:
            more = np.zeros(max(self.links.size, most), dtype=np.int32)
            self.links = np.concatenate([self.links, more])
        self.offset[source] = self._used
        space = _space(self._graph, self.k, width)
        self._used += _row(
            self._graph, self.hops, source, space, self.start[source], self.links[self._used :]
        )

    def rows(self) -> PathRows:
        """What is known now, for kernels; rows found later are not in it."""
        return PathRows(self.start, self.offset, self.links, self.k)

    def warm(self) -> None:
        """Find all paths now."""
        for node in range(len(self.hops)):
            self.need(node)

    def paths(self, source: int, target: int) -> list[NDArray[np.int32]]:
        """Links of each candidate path, shortest first; none when unreachable or source = target."""
        self.need(source)
        begin = self.start[source, target * self.k : target * self.k + self.k + 1] + self.offset[source]
        return [self.links[a:b] for a, b in pairwise(begin) if b > a]


def neighbours(count: int, ends: Ints) -> Adjacency:
    """The adjacency of `count` nodes with links between `ends`, (L, 2)."""
    both = np.concatenate([ends, ends[:, ::-1]])
    link = np.tile(np.arange(len(ends)), 2)
    order = np.lexsort((link, both[:, 1], both[:, 0]))
    begin = np.searchsorted(both[order, 0], np.arange(count + 1))
    return Adjacency(begin.astype(np.int64), both[order, 1].astype(np.int64), link[order].astype(np.int64))


class PathSpace(NamedTuple):
    """What `_row` works in.

    Attributes:
        found, size: (k, W) nodes of the paths of a pair, and (k,) how many each has.
        deviates: (k,) where each leaves the one that it was found from.
        pool, pool_size, pool_deviates: the same of all that may come next; size 0: not there, or taken.
        reached, parent: (N,) steps to a node, and the node before it.
        banned: (N,) first steps that are taken.
        heap: (2 L + 1,) nodes to go on from; each is entered once over every link at most.
    """

    found: Ints
    size: Ints
    deviates: Ints
    pool: Ints
    pool_size: Ints
    pool_deviates: Ints
    reached: Ints
    parent: Ints
    banned: Ints
    heap: Ints


def _space(graph: Adjacency, k: int, width: int) -> PathSpace:
    """For `k` paths of so many nodes at most."""
    count, some = len(graph.begin) - 1, k * width
    shapes = [(k, width), k, k, (some, width), some, some, count, count, count, len(graph.node) + 1]
    return PathSpace(*(np.zeros(shape, dtype=np.int64) for shape in shapes))


def _all_hops(count: int, ends: Ints) -> Ints:
    """(N, N) steps between all nodes."""
    hops, steps = np.full((count, count), FAR), 0
    linked, near = np.zeros((count, count), dtype=np.float32), np.eye(count, dtype=np.bool_)
    linked[ends[:, 0], ends[:, 1]] = linked[ends[:, 1], ends[:, 0]] = 1.0
    while near.any():
        hops[near] = steps
        near, steps = (near @ linked > 0.0) & (hops == FAR), steps + 1
    return hops


@inner
def _push(heap: Ints, count: int, key: int) -> None:
    """Add to a heap of `count`, the smallest first.

    One integer is all of a key and all that is kept: no event of `sim.heap`, and policies do not know that.
    """
    at = count
    while at > 0 and heap[(at - 1) >> 1] > key:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = key


@inner
def _pop(heap: Ints, count: int) -> int:
    """Take the smallest out of a heap of `count`."""
    least, key = heap[0], heap[count - 1]
    at, below = 0, 1
    while below < count - 1:
        if below + 1 < count - 1 and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= key:
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = key
    return int(least)


@inner
def _spur(
    graph: Adjacency, hops: Ints, root: Ints, length: int, target: int, space: PathSpace, out: Ints
) -> int:
    """Shortest way from the end of `root` to `target` that avoids the root and the banned first steps.

    Fills `out` with the `length` nodes of the root and the way, and returns its number of nodes; 0 when there
    is none or `out` is too short.
    """
    reached, parent = space.reached, space.parent
    for n in range(reached.size):
        reached[n], parent[n] = FAR, -1
    for i in range(length):
        reached[root[i]] = -1
    spur = root[length - 1]
    reached[spur] = 0
    # Key: f = g + h, then larger g first, then node; all in one integer.
    space.heap[0] = (hops[spur, target] * FAR + FAR - 1) * FAR + spur
    waiting = 1
    while waiting > 0:
        key = _pop(space.heap, waiting)
        waiting -= 1
        at, done = key % FAR, FAR - 1 - key // FAR % FAR
        if done > reached[at]:
            continue
        if at == target:
            break
        for i in range(graph.begin[at], graph.begin[at + 1]):
            to = graph.node[i]
            if reached[to] <= done + 1 or hops[to, target] >= FAR or (at == spur and space.banned[to] > 0):
                continue
            reached[to], parent[to] = done + 1, at
            key = ((done + 1 + hops[to, target]) * FAR + FAR - 1 - (done + 1)) * FAR + to
            _push(space.heap, waiting, key)
            waiting += 1
    size = length + reached[target]
    if parent[target] < 0 or size > out.size:
        return 0
    at = target
    for i in range(size - 1, length - 1, -1):
        out[i] = at
        at = parent[at]
    for i in range(length):
        out[i] = root[i]
    return int(size)


@inner
def _deviations(graph: Adjacency, hops: Ints, target: int, space: PathSpace, last: int, waiting: int) -> int:
    """Add to the pool the ways that leave path `last` at each of its nodes; how many it then holds."""
    found, size, banned = space.found, space.size, space.banned
    for i in range(space.deviates[last], size[last] - 1):
        for n in range(banned.size):
            banned[n] = 0
        for other in range(last + 1):
            same = size[other] > i + 1
            for h in range(i + 1):
                same = same and found[other, h] == found[last, h]
            if same:
                banned[found[other, i + 1]] = 1
        length = _spur(graph, hops, found[last], i + 1, target, space, space.pool[waiting])
        if length > 0:
            space.pool_size[waiting], space.pool_deviates[waiting] = length, i
            waiting += 1
    return waiting


@inner
def _pair(graph: Adjacency, hops: Ints, source: int, target: int, space: PathSpace) -> int:
    """Fill `found` and `size` with the k shortest paths; returns how many there are."""
    found, pool, pool_size = space.found, space.pool, space.pool_size
    for n in range(space.banned.size):
        space.banned[n] = 0
    found[0, 0] = source
    pool_size[0] = _spur(graph, hops, found[0], 1, target, space, pool[0])
    space.pool_deviates[0], waiting = 0, 1
    for count in range(space.size.size):
        if count > 0:
            waiting = _deviations(graph, hops, target, space, count - 1, waiting)
        best = -1
        for i in range(waiting):  # the first of the shortest
            if pool_size[i] > 0 and (best < 0 or pool_size[i] < pool_size[best]):
                best = i
        if best < 0:
            return count
        for h in range(pool_size[best]):
            found[count, h] = pool[best, h]
        space.size[count], space.deviates[count] = pool_size[best], space.pool_deviates[best]
        pool_size[best] = 0
    return int(space.size.size)


@kernel(allocates=False)
def _row(
    graph: Adjacency,
    hops: Ints,
    source: int,
    space: PathSpace,
    start: NDArray[np.int32],
    links: NDArray[np.int32],
) -> int:
    """Fill in (N k + 1,) begins and the links of all paths from `source`; how many links they have."""
    k, used = space.size.size, 0
    for target in range(hops.shape[0]):
        paths = 0
        if target != source and hops[source, target] < FAR:
            paths = _pair(graph, hops, source, target, space)
        for i in range(k):
            start[target * k + i] = used
            if i >= paths:
                continue
            for h in range(space.size[i] - 1):
                n = graph.begin[space.found[i, h]]
                while graph.node[n] != space.found[i, h + 1]:
                    n += 1
                links[used] = graph.link[n]
                used += 1
    start[hops.shape[0] * k] = used
    return used
