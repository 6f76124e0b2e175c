"""The shipped scenario full-edge, from its name to a table of records, in a process of its own.

python -m bench.scenario ANTENNAS ROUNDS
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import edgewise as ew

POLICY = "load-balancing"


def run(antennas: int, rounds: int) -> dict[str, Any]:
    """Load, generate, simulate and tabulate `full-edge`; kernels are compiled before.

    Returns:
        simulated_s, queries, success, streams, workers; wall_s and cpu_s of each round;
        peak_bytes: the most memory the process ever held, all included.
    """
    ew.simulate("tiny", POLICY)
    scenario = ew.load_scenario("full-edge", {"topology.antennas": antennas})
    wall_s, cpu_s = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        result = ew.simulate(ew.load_scenario("full-edge", {"topology.antennas": antennas}), POLICY)
        cpu_s.append(time.process_time() - cpu)
        wall_s.append(time.perf_counter() - wall)
    queries = sum(result.items["queries"].to_pylist())
    return {
        "antennas": antennas,
        "simulated_s": scenario.duration_s,
        "workers": len(scenario.topology.workers),
        "streams": result.items.num_rows,
        "queries": queries,
        "success": sum(result.items["ok"].to_pylist()) / max(queries, 1),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:3]))))
