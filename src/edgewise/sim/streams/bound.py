"""An upper bound on success with hindsight: what no dispatch of a run can exceed.

It knows every query and every network delay that the run will draw, and relaxes three things:

1. each query, not each stream, is served where it suits that query best;
2. no query waits: workers, the ledger and batches have room without end;
3. every service is the fastest that its law can draw (normal noise is at least -6.75 deviations).

Proof: an answered query was on a worker that `core.dispatch.state` allows on an idle world (load only
takes workers away), and its delay was network there and back as drawn, plus access, transmission,
waiting >= 0 and a service >= the fastest. If that sum is within the deadline, so is the bound's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.arrays import Bools, Floats
from edgewise.core.compiled import kernel
from edgewise.core.dispatch.policy import assess
from edgewise.core.dispatch.state import way_arrays
from edgewise.core.dispatch.views import DispatchView, Items
from edgewise.core.keyed import LARGEST_NORMAL, normal_pair_of
from edgewise.core.world import LAWS, World
from edgewise.errors import RunError
from edgewise.model.scenario import Scenario
from edgewise.sim.streams import tables
from edgewise.sim.streams.queues import NETWORK, WAITING, make_query
from edgewise.workloads.generate import generate_streams


def hindsight_bound(scenario: Scenario, seed: int, world: World | None = None) -> float:
    """Largest share of the run's queries that any dispatch could answer in time; 1 without queries.

    Raises:
        RunError: the scenario has a timeline; links that change are not covered.
    """
    if scenario.timeline:
        raise RunError(f"scenario {scenario.name!r}: the bound does not cover a timeline; leave it out")
    world = world or World.build(scenario.catalog, scenario.topology, scenario.sharing)
    trace = generate_streams(scenario, seed)
    if not trace:
        return 1.0
    streams = tables.stream_arrays(trace, scenario.decision_delay_s)
    fastest = _fastest_s(world, Items.of(world, trace))
    ways = way_arrays(world, world.links)
    ok, total = _count(streams, fastest, ways, np.uint64(seed & 0xFFFFFFFFFFFFFFFF))
    return ok / max(total, 1)


def _fastest_s(world: World, items: Items) -> Floats:
    """(N, C) least service of a feasible worker in each cluster, infinite where none is."""
    zeros, nothing = np.zeros(world.workers), np.zeros(world.workers, dtype=np.int64)
    up: Bools = np.ones(world.workers, dtype=np.bool_)
    view = DispatchView(world, 0.0, 0, zeros, nothing, up, zeros, zeros, zeros, zeros, -np.inf)
    noise = np.maximum(1.0 - LARGEST_NORMAL * world.deviation, 0.0)
    noise[world.distribution == LAWS.index("exponential")] = 0.0
    known: dict[tuple[float, ...], Floats] = {}
    found = np.full((len(items), len(world.cluster_names)), np.inf)
    for i, item in enumerate(items):
        kind = (item.site, item.task, item.rate_qps, item.size_bytes, item.deadline_s, item.min_accuracy)
        if kind not in known:
            service = (world.fixed_s + world.per_byte_s * item.size_bytes) * noise
            row = np.full(len(world.cluster_names), np.inf)
            feasible = assess(view, item).feasible
            np.minimum.at(row, world.cluster[feasible], service[feasible])
            known[kind] = row
        found[i] = known[kind]
    return found


@kernel
def _count(streams: Any, fastest: Floats, ways: Any, seed: np.uint64) -> tuple[int, int]:
    """(could be in time, all) queries."""
    ok = total = 0
    for i in range(streams.size):
        q = streams[i]
        make_query(q, seed)
        while q.state == WAITING:
            up, down = normal_pair_of(seed, NETWORK, q.id, q.number - 1)
            held = max(q.sent_s, q.from_s) - q.sent_s
            total += 1
            for c in range(fastest.shape[1]):
                way = ways[q.site, c]
                if fastest[i, c] == np.inf or way.delay_s == np.inf:
                    continue
                travel = max(way.delay_s + way.deviation_s * up, 0.0)
                travel += max(way.delay_s + way.deviation_s * down, 0.0) + 2.0 * way.access_s
                if held + travel + q.size_bytes * 8.0 / way.bps + fastest[i, c] <= q.deadline_s + 1e-9:
                    ok += 1
                    break
            make_query(q, seed)
    return ok, total
