"""Batched worlds: one slot after the other, on one thread and on two.

Runs in a process of its own that may use two CPUs:  python -m bench.worlds THREADS WORLDS SLOTS
"""

from __future__ import annotations

import json
import sys
import time

from bench.graphs import TASKS, diamond, diamond_network, sent_s
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.worlds import Worlds

SLOT_S = 1.0
JOBS_PER_SLOT = 10


def run(threads: int, count: int, slots: int) -> dict[str, float]:
    """Step `count` worlds of diamonds (see `bench.graphs`) through `slots` slots.

    Returns:
        events: that the worlds handled, all together; wall_s and cpu_s of the stepping.
    """
    network, graph = diamond_network(), diamond()
    times = sent_s(TASKS * JOBS_PER_SLOT * slots)
    engines = [GraphEngine(network, [graph], times, placement=[[0, 1, 2, 3]], seed=b) for b in range(count)]
    worlds = Worlds(engines, threads=threads)
    worlds.advance(SLOT_S)  # compiles, or loads what was compiled
    before = int(worlds.world.clock.steps.sum())
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for slot in range(2, slots + 1):
        worlds.advance(slot * SLOT_S)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    events = int(worlds.world.clock.steps.sum()) - before
    return {
        "threads": threads,
        "worlds": count,
        "slots": slots,
        "events": events,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
    }


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:4]))))
