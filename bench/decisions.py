"""Dispatch decisions: view, feasibility, score and ledger, through `DispatchCore`.

All workers serve the task of every stream, so that each is a candidate in each decision: the worst
case. A decision includes the release of the stream's load when it closes.
"""

from __future__ import annotations

import numpy as np

from bench.measure import Case, Contender, Prepare, Work
from edgewise import policies
from edgewise.core.dispatch.events import StreamClosed, StreamOpened
from edgewise.core.dispatch.policy import CLOSE, OPEN, Batch
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import Items, Rows
from edgewise.core.keyed import Purpose, uniform
from edgewise.core.world import World
from edgewise.model.topology import (
    Catalog,
    Cluster,
    Model,
    Node,
    Profile,
    Resources,
    Site,
    Topology,
    Variant,
    Way,
    Worker,
)
from edgewise.model.work import Stream

STATIC = (
    "closest", "load-balancing", "farthest", "cheaper", "least-impedance", "random-by-latency",
    "random-by-load",
)  # fmt: skip
TARGETS = {10: 1e6, 1000: 1e5}  # workers → decisions/s
COUNT = {10: 200_000, 1000: 20_000}
CLUSTERS, SITES, OPEN_STREAMS = 10, 10, 50
INTERVAL_S = 0.1


def case() -> Case:
    """Every static policy on both worlds, and events one by one."""
    many = [
        Contender(f"{policy}, {size} workers", _played(policy, size), COUNT[size], target_rate=target)
        for size, target in TARGETS.items()
        for policy in STATIC
    ]
    many += [Contender("closest, 10 workers, 20 events a call", _played("closest", 10, each=20), 10_000)]
    single = [
        Contender(f"closest, {size} workers, one event at a time", _handled("closest", size), 2_000)
        for size in TARGETS
    ]
    return Case("decisions", "Dispatch decisions", "decisions", many + single, "share refused", peers=False)


def world_of(size: int) -> World:
    """`size` workers of ten variants of one task on ten clusters, each 1 ms further away."""
    models = (Model("model", "detect", 50.0),)
    variants = tuple(
        Variant(f"variant-{k}", "model", Resources(1.0), Profile(0.01 + 0.001 * k, 1e-8), 100.0 + k, 1e6)
        for k in range(10)
    )
    clusters = tuple(
        Cluster(f"cluster-{c}", 0, (Node(f"node-{c}", f"cluster-{c}", Resources(1e6)),))
        for c in range(CLUSTERS)
    )
    sites = tuple(Site(f"site-{s}", 0.001, 1e8) for s in range(SITES))
    links = tuple(
        Way(f"site-{s}", f"cluster-{c}", 0.002 + 0.001 * ((s + c) % CLUSTERS), 0.001)
        for s in range(SITES)
        for c in range(CLUSTERS)
    )
    workers = tuple(Worker(f"worker-{k}", f"variant-{k % 10}", f"node-{k % CLUSTERS}") for k in range(size))
    return World.build(Catalog(models, variants), Topology(sites, clusters, links, workers))


def streams_of(count: int) -> list[Stream]:
    """Streams that open one after the other; about `OPEN_STREAMS` are open at once."""
    draw = uniform(1, Purpose.STREAM, np.arange(count)[:, None], np.arange(3)[None, :])
    lasting_s = OPEN_STREAMS * INTERVAL_S
    opens = (INTERVAL_S * np.arange(count)).tolist()
    return [
        Stream(i, int(u[0] * SITES), "bench", "detect", at_s, at_s + 2 * lasting_s * u[1], 1.0 + 4.0 * u[2],
               1e5, 1.0, 0.0)
        for i, (u, at_s) in enumerate(zip(draw.tolist(), opens, strict=True))
    ]  # fmt: skip


def _played(policy: str, size: int, each: int | None = None) -> Prepare:
    """Many at once, as the simulator asks: `DispatchCore.play`, with `each` events a call or all."""
    world = world_of(size)

    def prepare(count: int) -> Work:
        streams = streams_of(count)
        times = np.array([s.open_s for s in streams] + [s.close_s for s in streams])
        kinds, rows = np.repeat([OPEN, CLOSE], count), np.tile(np.arange(count), 2)
        order = np.lexsort((kinds, times))
        batch = Batch(times[order], kinds[order], rows[order])
        needs = Rows.of(Items.of(world, streams).rows)
        core = DispatchCore(world, policies.load("dispatch", policy), seed=1)
        worker, reason = np.full(count, -1), np.zeros(count, dtype=np.int8)

        def work() -> float:
            for start in range(0, 2 * count, each or 2 * count):
                part = slice(start, start + (each or 2 * count))
                some = Batch(batch.time_s[part], batch.kind[part], batch.row[part])
                core.play(some, needs, worker, reason)
            return float((worker < 0).mean())

        return work

    return prepare


def _handled(policy: str, size: int) -> Prepare:
    """One event at a time, as the gateway asks: `DispatchCore.handle`."""
    world = world_of(size)

    def prepare(count: int) -> Work:
        streams = streams_of(count)
        events = [StreamOpened(s.open_s, s) for s in streams] + [
            StreamClosed(s.close_s, s.id) for s in streams
        ]
        events.sort(key=lambda event: event.time_s)
        core = DispatchCore(world, policies.load("dispatch", policy), seed=1)

        def work() -> float:
            refused = 0
            for event in events:
                core.handle(event)
                refused += isinstance(event, StreamOpened) and event.stream.id in core.refused
            return refused / count

        return work

    return prepare
