"""From streams, a world and a timeline to the arrays of `sim.streams.state`, and back to records.

`Outcome` is what one run left behind: records, and the conversation with the decision core.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.events import Bind, Command, Refuse, Release
from edgewise.core.dispatch.policy import OPEN
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import REASONS, Violation
from edgewise.core.sojourns import DELAY_BINS
from edgewise.core.world import World
from edgewise.model.topology import Change, NodeChange
from edgewise.model.work import Stream
from edgewise.sim.streams.state import (
    FAILED,
    HELD,
    LOST,
    MEMBER,
    OK,
    REJECTED,
    SERVER,
    STREAM,
    WORKER,
    Streams,
    Tally,
    Workers,
)
from edgewise.sim.streams.telemetry import CELL_ENDS_S, DELAY_CELLS

ROOM = 16  # streams a worker's heap has room for at first


def stream_arrays(trace: Sequence[Stream], delay_s: float = 0.0) -> Streams:
    """(N,) STREAM records before their first query.

    Args:
        delay_s: from a stream's opening until its queries may leave the site.
    """
    s = _zeros(len(trace), STREAM)
    for name in ("site", "close_s", "rate_qps", "size_bytes", "deadline_s", "answer_bytes"):
        s[name] = [getattr(stream, name) for stream in trace]
    s.id = [stream.key for stream in trace]
    number = {name: a for a, name in enumerate(applications_of(trace))}
    s.application = [number[stream.application] for stream in trace]
    s.poisson = [stream.arrivals == "poisson" for stream in trace]
    s.sent_s = [stream.open_s for stream in trace]
    s.from_s = s.sent_s + delay_s
    return s


def applications_of(trace: Sequence[Stream]) -> tuple[str, ...]:
    """(A,) names, sorted."""
    return tuple(sorted({stream.application for stream in trace}))


def worker_arrays(world: World) -> Workers:
    """Idle workers."""
    count = world.workers
    each = _zeros(count, WORKER)
    for name in ("cluster", "fixed_s", "per_byte_s", "batch_slope", "deviation", "max_batch", "servers"):
        each[name] = getattr(world, name)
    each.law, each.timeout_s = world.distribution, world.batch_timeout_s
    each.down_s = each.news_s = np.inf
    servers, largest = int(world.servers.max(initial=1)), int(world.max_batch.max(initial=1))
    return Workers(
        each=each,
        servers=_zeros((count, servers), SERVER),
        batch=_zeros((count, largest), HELD),
        members=_zeros((count, ROOM), MEMBER),
        histogram=np.zeros((count, DELAY_BINS), dtype=np.int64),
        sojourn_s=np.zeros((count, servers, largest)),
        lost=_zeros(max(ROOM, largest), LOST),
        many=np.zeros(1, dtype=np.int64),
    )


def with_more_room(workers: Workers) -> Workers:
    """The same workers, with heaps for twice as many streams."""
    count, room = workers.members.shape
    members = _zeros((count, 2 * room), MEMBER)
    members[:, :room] = workers.members
    return workers._replace(members=members)


def with_more_lost(workers: Workers, room: int = 0) -> Workers:
    """The same workers, with room for twice as many queries that are lost, or at least so many more."""
    lost = _zeros(max(2 * workers.lost.size, workers.lost.size + room), LOST)
    lost[: workers.lost.size] = workers.lost
    return workers._replace(lost=lost)


def new_tally(duration_s: float, window_s: float, trace: Sequence[Stream]) -> Tally:
    """A tally of as many windows as the run has, and of the applications of its streams."""
    windows = max(int(np.ceil(duration_s / window_s)), 1)
    counts = np.zeros((3, windows), dtype=np.int64)
    return Tally(
        window_s, counts, np.zeros((max(len(applications_of(trace)), 1), DELAY_CELLS), dtype=np.int64)
    )


def outages(world: World, timeline: Sequence[Change]) -> dict[int, list[float]]:
    """When each worker goes down, in order; workers that never do are left out."""
    nodes = {name: n for n, name in enumerate(world.node_names)}
    downs: dict[int, list[float]] = {}
    for change in timeline:
        if isinstance(change, NodeChange) and not change.up:
            for w in np.flatnonzero(world.node == nodes[change.node]):
                downs.setdefault(int(w), []).append(change.at_s)
    return downs


def stream_records(
    world: World, trace: Sequence[Stream], s: Streams, worker: Ints, reason: NDArray[np.int8]
) -> dict[str, Any]:
    """Columns of the streams table that a run determines, in the order of the streams.

    Args:
        worker: the last worker of each stream, -1 when it never had one.
        reason: why a stream was refused last; reported for streams that never had a worker.
    """
    served = s.ok + s.failed
    names = {int(v): text for v, text in REASONS.items()}
    never = names[int(Violation.POLICY)]
    bound = worker.tolist()
    columns: dict[str, Any] = {"stream": [t.id for t in trace]}
    columns["site"] = [world.site_names[t.site] for t in trace]
    for name in ("application", "task", "open_s", "close_s", "rate_qps", "size_bytes", "deadline_s",
                 "min_accuracy"):  # fmt: skip
        columns[name] = [getattr(t, name) for t in trace]
    columns["source"] = [t.source or None for t in trace]
    columns["worker"] = [None if w < 0 else world.worker_names[w] for w in bound]
    columns["variant"] = [None if w < 0 else world.variant_names[w] for w in bound]
    clusters = world.cluster.tolist()
    columns["cluster"] = [None if w < 0 else world.cluster_names[clusters[w]] for w in bound]
    columns["reason"] = [
        None if w >= 0 else names[r] or never for w, r in zip(bound, reason.tolist(), strict=True)
    ]
    columns["queries"] = (served + s.rejected).tolist()
    for name in ("ok", "failed", "rejected"):
        columns[name] = getattr(s, name).tolist()
    means = (s.delay_sum_s / np.maximum(s.answered, 1)).tolist()
    longest = s.delay_max_s.tolist()
    columns["delay_mean_s"] = [mean if most > 0 else None for mean, most in zip(means, longest, strict=True)]
    columns["delay_max_s"] = [most if most > 0 else None for most in longest]
    return columns


def delay_records(trace: Sequence[Stream], tally: Tally) -> dict[str, Any]:
    """Answers by application and delay, cell by cell."""
    application, cell = np.nonzero(tally.delays)
    names = np.array(applications_of(trace), dtype=object)
    return {
        "application": names[application].tolist(),
        "above_s": CELL_ENDS_S[cell].tolist(),
        "up_to_s": CELL_ENDS_S[cell + 1].tolist(),
        "answers": tally.delays[application, cell].tolist(),
    }


def busy_until(workers: Workers, end_s: float) -> Floats:
    """(W,) seconds in which servers worked, without what is done after `end_s` of what has begun before."""
    after_s = np.where(workers.servers.serving > 0, np.maximum(workers.servers.free_s - end_s, 0.0), 0.0)
    return np.asarray(workers.each.busy_s - after_s.sum(axis=1))


def worker_records(world: World, busy_s: Floats, duration_s: float) -> dict[str, Any]:
    """How long the servers of each worker were busy, of the time that they were there."""
    return {
        "work": ["streams"] * world.workers,
        "worker": list(world.worker_names),
        "node": [world.node_names[n] for n in world.node.tolist()],
        "busy_s": busy_s.tolist(),
        "there_s": (world.servers * duration_s).tolist(),
    }


def _zeros(shape: int | tuple[int, ...], kind: np.dtype[Any]) -> Any:
    return np.zeros(shape, dtype=kind).view(np.recarray)


@dataclass(slots=True)
class Outcome:
    """What one run left behind.

    Attributes:
        streams, windows: columns of the two record tables.
        core: the decision core as it stood at the end.
        log: the conversation with the core; `commands` spells it out.
        use: columns of the tables of `edgewise.report.use` that streams know of.
    """

    streams: dict[str, Any]
    windows: dict[str, Any]
    core: DispatchCore
    log: "list[Said]"
    use: dict[str, dict[str, Any]]

    @property
    def commands(self) -> list[tuple[float, Command]]:
        """(time, command) in order."""
        return [pair for said in self.log for pair in said.pairs()]


@dataclass(slots=True)
class Said:
    """Commands of the core: those of one event, or those of many streams played at once."""

    time_s: float
    commands: list[Command]
    played: tuple[NDArray[Any], ...] = ()  # time, kind, stream, worker, reason

    def pairs(self) -> Iterator[tuple[float, Command]]:
        """Each command with its time."""
        yield from ((self.time_s, command) for command in self.commands)
        for time_s, kind, i, w, why in zip(*(column.tolist() for column in self.played), strict=True):
            if kind == OPEN:
                yield time_s, Bind(i, w) if w >= 0 else Refuse(i, REASONS[Violation(why)])
            elif w >= 0:
                yield time_s, Release(i, w)


def window_records(tally: Tally, counts: Ints, active: Sequence[str], duration_s: float) -> dict[str, Any]:
    """Columns of one row for each of N windows.

    Args:
        counts: (3, N) streams opened, bound and refused in it.
        active: (N,) the policy that decides in it.
    """
    start_s = [k * tally.window_s for k in range(counts.shape[1])]
    opened, bound, refused = counts.tolist()
    return {
        "window": list(range(len(start_s))),
        "start_s": start_s,
        "end_s": [min(x + tally.window_s, duration_s) for x in start_s],
        "active": active,
        "streams_opened": opened,
        "streams_bound": bound,
        "streams_refused": refused,
        "queries": tally.queries.sum(axis=0).tolist(),
        "ok": tally.queries[OK].tolist(),
        "failed": tally.queries[FAILED].tolist(),
        "rejected": tally.queries[REJECTED].tolist(),
    }
