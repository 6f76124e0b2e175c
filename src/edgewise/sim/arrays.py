"""From streams, a world and a timeline to the arrays of `sim.streams`, and back to records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.core.views import REASONS, Violation
from edgewise.core.world import World
from edgewise.model.timeline import Change, NodeChange
from edgewise.model.work import Stream
from edgewise.sim.streams import Floats, Ints, Network, Streams, Tally, Workers
from edgewise.sim.telemetry import DELAY_BINS

ROOM = 16  # streams a worker's heap has room for at first


def stream_arrays(trace: Sequence[Stream]) -> Streams:
    """Streams before their first query."""

    def floats(name: str) -> Floats:
        return np.array([getattr(s, name) for s in trace], dtype=np.float64)

    n = len(trace)
    open_s = floats("open_s")
    return Streams(
        id=np.array([s.id for s in trace], dtype=np.int64),
        site=np.array([s.site for s in trace], dtype=np.int64),
        close_s=floats("close_s"),
        rate_qps=floats("rate_qps"),
        size_bytes=floats("size_bytes"),
        deadline_s=floats("deadline_s"),
        poisson=np.array([s.arrivals == "poisson" for s in trace], dtype=np.int64),
        from_s=open_s,
        state=_zeros(n),
        number=_zeros(n),
        sent_s=open_s.copy(),
        arrival_s=np.zeros(n),
        back_s=np.zeros(n),
        before_s=np.zeros(n),
        ok=_zeros(n),
        failed=_zeros(n),
        rejected=_zeros(n),
        delay_sum_s=np.zeros(n),
        delay_max_s=np.zeros(n),
    )


def worker_arrays(world: World) -> Workers:
    """Idle workers."""
    count = world.workers
    servers, batch = int(world.servers.max(initial=1)), int(world.max_batch.max(initial=1))
    return Workers(
        cluster=world.cluster.copy(),
        fixed_s=world.fixed_s.copy(),
        per_byte_s=world.per_byte_s.copy(),
        batch_slope=world.batch_slope.copy(),
        deviation=world.deviation.copy(),
        law=world.distribution.copy(),
        max_batch=world.max_batch.copy(),
        timeout_s=world.batch_timeout_s.copy(),
        servers=world.servers.copy(),
        down_s=np.full(count, np.inf),
        free_s=np.zeros((count, servers)),
        serving=np.zeros((count, servers), dtype=np.int64),
        held=_zeros(count),
        held_stream=np.zeros((count, batch), dtype=np.int64),
        held_number=np.zeros((count, batch), dtype=np.int64),
        held_sent_s=np.zeros((count, batch)),
        held_arrival_s=np.zeros((count, batch)),
        held_back_s=np.zeros((count, batch)),
        members=np.zeros((count, ROOM), dtype=np.int64),
        size=_zeros(count),
        answered=_zeros(count),
        delay_sum_s=np.zeros(count),
        histogram=np.zeros((count, DELAY_BINS), dtype=np.int64),
        batches=_zeros(count),
    )


def with_more_room(workers: Workers) -> Workers:
    """The same workers, with heaps for twice as many streams."""
    return workers._replace(members=np.concatenate([workers.members, np.zeros_like(workers.members)], axis=1))


def network_arrays(world: World) -> Network:
    """The network as the scenario describes it."""
    links = type(world.links)(*(array.copy() for array in world.links))
    return Network(links, world.access_delay_s.copy(), world.uplink_bps.copy())


def tally_arrays(duration_s: float, window_s: float) -> Tally:
    """A tally of as many windows as the run has."""
    windows = max(int(np.ceil(duration_s / window_s)), 1)
    return Tally(window_s, *(_zeros(windows) for _ in range(3)))


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
    means = (s.delay_sum_s / np.maximum(served, 1)).tolist()
    longest = s.delay_max_s.tolist()
    columns["delay_mean_s"] = [mean if most > 0 else None for mean, most in zip(means, longest, strict=True)]
    columns["delay_max_s"] = [most if most > 0 else None for most in longest]
    return columns


def _zeros(n: int) -> Ints:
    return np.zeros(n, dtype=np.int64)
