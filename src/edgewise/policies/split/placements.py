"""Placements of a sub-graph (Ω in Nona): which of its branches share a server with what.

A placement says who shares a server, not which server: parts are numbered 0 (the root's server), 1, 2, …
and the number of placements does not depend on the number of servers. Placements that put more parts
than there are servers are left out, and so are those that only exchange branches of one kind.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.errors import PolicyError
from edgewise.policies.split.subgraphs import SubGraph

LIMIT = 50_000
Counts = tuple[int, ...]


class Lines(NamedTuple):
    """All placements of a sub-graph and what each costs.

    The time from the end of the root to the start of the sink is max(0, max_i base_i + messages_i * φ),
    over the parts i and the direct messages (Nona eq. 10, before ν and μ are known):
    base_i = work_i / ν + bits_i / μ.

    Attributes:
        part: (K, B + 1) part of each branch and, last, of the sink; 0 is the root's.
        work_ops, bits, messages: (K, P) of each part; the last column stands for the direct messages.
        visits: (K, P) how often the part, and then the sink, wait for a server.
        sent_bits, sent_bits2: (K,) sum over the messages of their bits and of their squares.

    With `bursts` the messages that a task sends at the same moment are one customer of the link: they
    wait once, and all have passed before any receiver starts.
    """

    part: Ints
    work_ops: Floats
    bits: Floats
    messages: Floats
    visits: Floats
    sent_bits: Floats
    sent_bits2: Floats


def count_placements(branches: int) -> int:
    """Placements of a sub-graph with that many branches, all of different kinds, and servers enough.

    Σ_m S(branches, m) ((m + 1)² + 1) with Stirling numbers S of the second kind: a set partition into m
    parts, times the places of root and sink.
    """
    row = [1]
    for _ in range(branches):
        row = [a + m * b for m, (a, b) in enumerate(zip([0, *row], [*row, 0], strict=True))]
    return sum(count * ((m + 1) ** 2 + 1) for m, count in enumerate(row))


def placements(
    sub: SubGraph, servers: int, limit: int = LIMIT, name: str = "", bursts: bool = False
) -> Lines:
    """Every placement of `sub` on at most `servers` servers; the first has everything on one server.

    Args:
        sub: the sub-graph.
        servers: >= 1.
        limit: most placements.
        name: of the sub-graph, for the error.
        bursts: see `Lines`.
    Raises:
        PolicyError: there are more than `limit`.
    """
    kinds = [(kind, len(list(same))) for kind, same in itertools.groupby(b.kind for b in sub.branches)]
    total = count_placements(len(sub.branches))
    certain = len(kinds) == len(sub.branches) and servers >= len(kinds) + 2  # then none is left out
    counts = tuple(number for _, number in kinds)
    rows = [] if certain and total > limit else list(itertools.islice(_rows(counts, servers), limit + 1))
    if not 0 < len(rows) <= limit:
        most = _branches_within(limit)
        raise PolicyError(
            f"{name or 'the sub-graph'} has {len(sub.branches)} branches of {len(kinds)} kinds and therefore "
            f"up to {total:,} placements, more than the limit of {limit:,}; contract further with "
            f"limit_branches(…, most={most}), or graphs.branches {most}"
        )
    part = np.array(rows, dtype=np.int64).reshape(len(rows), len(sub.branches) + 1)
    return _lines(sub, part, bursts)


def _branches_within(limit: int) -> int:
    return max(n for n in range(1, 20) if n == 1 or count_placements(n) <= limit)


def _rows(counts: Counts, servers: int) -> Iterator[list[int]]:
    """Parts of each branch and of the sink. `counts`: branches of each kind."""
    for apart in (0, 1)[: min(servers, 2)]:
        with_root = itertools.product(*(range(n, -1, -1) for n in counts))
        for first in with_root:
            left = [n - a for n, a in zip(counts, first, strict=True)]
            with_sink = itertools.product(*(range(n + 1) if apart else (0,) for n in left))
            for second in with_sink:
                rest = tuple(n - a for n, a in zip(left, second, strict=True))
                for others in _multiset_partitions(rest, rest, servers - 1 - apart):
                    yield _row(counts, [first, *([second] if apart else []), *others], apart)


def _row(counts: Counts, parts: Sequence[Counts], sink: int) -> list[int]:
    """Branches of a kind are dealt to the parts in turn."""
    row = []
    for kind in range(len(counts)):
        for number, part in enumerate(parts):
            row += [number] * part[kind]
    return [*row, sink]


def _multiset_partitions(rest: Counts, largest: Counts, most: int) -> Iterator[list[Counts]]:
    """Ways to split `rest` into at most `most` non-empty parts, each not above the one before."""
    if not any(rest):
        yield []
        return
    if most <= 0:
        return
    for part in itertools.product(*(range(n, -1, -1) for n in rest)):
        if any(part) and part <= largest:
            left = tuple(n - a for n, a in zip(rest, part, strict=True))
            for others in _multiset_partitions(left, part, most - 1):
                yield [part, *others]


def _lines(sub: SubGraph, part: Ints, bursts: bool) -> Lines:
    count, columns = len(part), int(part.max()) + 2  # parts, and the direct messages
    work, bits, messages = (np.zeros((count, columns)) for _ in range(3))
    sent, sent2, from_root = np.zeros(count), np.zeros(count), np.zeros(count)
    rows = np.arange(count)
    sink = part[:, -1]
    last = np.full(count, columns - 1)

    def send(sizes_bytes: Sequence[float], cut: Bools, column: Ints, root: bool) -> None:
        """Messages on the line of `column` where `cut`; a burst of them waits once."""
        data = 8.0 * np.array(sizes_bytes)
        np.add.at(bits, (rows, column), cut * data.sum())
        sent[:] += cut * data.sum()
        if bursts and root:
            from_root[:] += cut * data.sum()
            messages[rows[cut], column[cut]] = 1.0 if len(data) else messages[rows[cut], column[cut]]
        else:
            np.add.at(messages, (rows, column), cut * float(min(len(data), 1) if bursts else len(data)))
            sent2[:] += cut * (data.sum() ** 2 if bursts else (data**2).sum())

    send(sub.direct_bytes, sink != 0, last, True)
    for branch, mine in zip(sub.branches, part.T, strict=False):
        send(branch.into_bytes, mine != 0, mine, True)
    if bursts:  # a part has its data when all that the root sends has passed
        bits[:] = np.where(messages > 0, from_root[:, None], 0.0)
        sent2 += from_root**2
    for branch, mine in zip(sub.branches, part.T, strict=False):
        np.add.at(work, (rows, mine), branch.work_ops)
        send(branch.out_bytes, mine != sink, mine, False)
    visits = np.zeros((count, columns))
    visits[:] = (sink != 0)[:, None]
    visits[:, 1:-1] += work[:, 1:-1] > 0
    return Lines(part, work, bits, messages, visits, sent, sent2)
