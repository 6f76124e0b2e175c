"""The least loop that is like the queries of `campus`: what a query would cost if a run did nothing else.

python -m bench.floor

Streams send in order, with two normal draws for the network and one for the service; two links and a worker
are first come first served; answers are judged by a deadline. Nothing moves, fails, is dropped or decided.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from edgewise.core.keyed import normal_of, normal_pair_of
from edgewise.kernels.compiled import kernel
from edgewise.sim.heap import sink

QUERIES, STREAMS, WORKERS, LINKS = 4_000_000, 186, 40, 3
EVENT = np.dtype([("at_s", "f8"), ("order", "i8")])


@kernel(cache=False)
def least(queries: int, events: Any, gap_s: Any, seed: np.uint64, workers: int, links: int) -> int:
    """Queries in time, of so many that streams send in order; `events` says when each sends next."""
    link_s, worker_s, number = np.zeros(links + 1), np.zeros(workers), np.zeros(gap_s.size, dtype=np.int64)
    cells, in_time = np.zeros(2000, dtype=np.int64), 0
    for _ in range(queries):
        i, sent_s = events[0].order, events[0].at_s
        up, down = normal_pair_of(seed, 3, i, number[i])
        own, core, at = i % links, links, i % workers
        link_s[own] = max(link_s[own], sent_s + 0.001) + 0.0012
        link_s[core] = max(link_s[core], link_s[own]) + 0.001
        came_s = link_s[core] + max(0.025 + 0.003 * up, 0.0)
        took_s = 0.0248 * max(1.0 + 0.012 * normal_of(seed, 4, i, number[i]), 0.0)
        worker_s[at] = max(worker_s[at], came_s) + took_s
        delay_s = worker_s[at] + max(0.025 + 0.003 * down, 0.0) - sent_s
        cells[min(int(delay_s * 1000.0), cells.size - 1)] += 1
        in_time += delay_s <= 0.1
        number[i] += 1
        sink(events, gap_s.size, sent_s + gap_s[i], i)
    return in_time


def least_s() -> float:
    """CPU seconds of a query in the least loop."""
    rate_qps = np.linspace(2.0, 8.0, STREAMS)
    for queries in (10, QUERIES):
        events: Any = np.zeros(STREAMS, dtype=EVENT).view(np.recarray)
        events.order, events.at_s = np.arange(STREAMS), np.sort(np.arange(STREAMS) % 37 / 37.0 / rate_qps)
        began_s = time.process_time()
        least(queries, events, 1.0 / rate_qps, np.uint64(1), WORKERS, LINKS)
    return (time.process_time() - began_s) / QUERIES


if __name__ == "__main__":
    print(f"the least loop: {1e6 * least_s():.3f} µs for a query")
