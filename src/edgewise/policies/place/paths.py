"""Candidate paths: the k shortest simple paths of each pair of nodes, by hops, found once and kept.

Yen's algorithm in Lawler's form, with A* for the spur paths: distances to the target without any node
removed are a lower bound, so a search hardly leaves the path it finds. Rows (all paths from one node)
are found on first need; equal lengths keep the order in which they are found, so the result is the same
on every run.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Ints
from edgewise.core.compiled import kernel
from edgewise.model.network import Network

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
        self.hops = _all_hops(self._graph)
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
        start, links = _row(self._graph, self.hops, source, self.k, width)
        while self._used + links.size > self.links.size:
            self.links = np.concatenate([self.links, np.zeros_like(self.links)])
        self.links[self._used : self._used + links.size] = links
        self.start[source] = start
        self.offset[source] = self._used
        self._used += links.size

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


@kernel
def _all_hops(graph: Adjacency) -> Ints:
    begin, node = graph.begin, graph.node
    count = begin.size - 1
    hops = np.full((count, count), FAR)
    queue = np.zeros(count, dtype=np.int64)
    for source in range(count):
        hops[source, source] = 0
        queue[0] = source
        first, last = 0, 1
        while first < last:
            at = queue[first]
            first += 1
            for i in range(begin[at], begin[at + 1]):
                if hops[source, node[i]] == FAR:
                    hops[source, node[i]] = hops[source, at] + 1
                    queue[last] = node[i]
                    last += 1
    return hops


@kernel
def _spur(
    graph: Adjacency,
    hops: Ints,
    root: Ints,
    target: int,
    banned: Bools,
    out: Ints,
) -> int:
    """Shortest way from the end of `root` to `target` that avoids the root and the `banned` first steps.

    Fills `out` with root and way (indices into the adjacency are not kept) and returns its number of nodes;
    0 when there is none or `out` is too short.
    """
    begin, node = graph.begin, graph.node
    count = begin.size - 1
    reached = np.full(count, FAR)
    parent = np.full(count, -1)
    for i in range(root.size):
        reached[root[i]] = -1
    spur = root[-1]
    reached[spur] = 0
    # Key: f = g + h, then larger g first, then node; all in one integer.
    heap = [(hops[spur, target] * FAR + FAR - 1) * FAR + spur]
    while len(heap) > 0:
        key = heapq.heappop(heap)
        at = key % FAR
        done = FAR - 1 - key // FAR % FAR
        if done > reached[at]:
            continue
        if at == target:
            break
        for i in range(begin[at], begin[at + 1]):
            to = node[i]
            if reached[to] <= done + 1 or hops[to, target] >= FAR or (at == spur and banned[to]):
                continue
            reached[to] = done + 1
            parent[to] = at
            total = done + 1 + hops[to, target]
            heapq.heappush(heap, (total * FAR + FAR - 1 - (done + 1)) * FAR + to)
    return _trace(parent, root, reached[target], target, out) if parent[target] >= 0 else 0


@kernel
def _trace(parent: Ints, root: Ints, steps: int, target: int, out: Ints) -> int:
    """Write root and the way found into `out`; its number of nodes, or 0 when `out` is too short."""
    length = int(root.size + steps)
    if length > out.size:
        return 0
    out[: root.size] = root
    at = target
    for i in range(length - 1, root.size - 1, -1):
        out[i] = at
        at = parent[at]
    return length


@kernel
def _pair(
    graph: Adjacency,
    hops: Ints,
    source: int,
    target: int,
    found: Ints,
    size: Ints,
    pool: Ints,
) -> int:
    """Fill `found` (k, width) with the nodes of the k shortest paths and `size` (k,); returns how many."""
    k = found.shape[0]
    deviates = np.zeros(k, dtype=np.int64)
    banned = np.zeros(graph.begin.size - 1, dtype=np.bool_)
    waiting = 0  # candidates in pool
    pool_size = np.zeros(pool.shape[0], dtype=np.int64)
    pool_deviates = np.zeros(pool.shape[0], dtype=np.int64)
    size[0] = _spur(graph, hops, np.full(1, source), target, banned, found[0])
    if size[0] == 0:
        return 0
    for last in range(k - 1):
        for i in range(deviates[last], size[last] - 1):
            banned[:] = False
            for other in range(last + 1):
                if size[other] > i + 1 and (found[other, : i + 1] == found[last, : i + 1]).all():
                    banned[found[other, i + 1]] = True
            length = _spur(graph, hops, found[last, : i + 1], target, banned, pool[waiting])
            if length > 0:
                pool_size[waiting] = length
                pool_deviates[waiting] = i
                waiting += 1
        some = pool_size[: waiting + 1]
        best = np.argmin(np.where(some > 0, some, FAR))  # the first of the shortest
        if some[best] == 0:
            return last + 1
        found[last + 1] = pool[best]
        size[last + 1] = pool_size[best]
        deviates[last + 1] = pool_deviates[best]
        pool_size[best] = 0
    return size.size


@kernel
def _row(
    graph: Adjacency, hops: Ints, source: int, k: int, width: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(N k + 1,) begins and the links of all paths from `source`."""
    begin, node, link = graph
    count = begin.size - 1
    start = np.zeros(count * k + 1, dtype=np.int32)
    links = np.zeros(count * k * 8, dtype=np.int32)
    found = np.zeros((k, width), dtype=np.int64)
    size = np.zeros(k, dtype=np.int64)
    pool = np.zeros((k * width, width), dtype=np.int64)
    used = 0
    for target in range(count):
        paths = 0
        if target != source and hops[source, target] < FAR:
            paths = _pair(graph, hops, source, target, found, size, pool)
        for i in range(k):
            start[target * k + i] = used
            if i >= paths:
                continue
            if used + width > links.size:
                links = np.concatenate((links, np.zeros(links.size + width, dtype=np.int32)))
            for h in range(size[i] - 1):
                at = found[i, h]
                for n in range(begin[at], begin[at + 1]):
                    if node[n] == found[i, h + 1]:
                        links[used] = link[n]
                        break
                used += 1
    start[count * k] = used
    return start, links[:used]
