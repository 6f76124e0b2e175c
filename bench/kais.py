"""Requests and replicas: a random masked dispatch over many worlds, beside a plain loop of the same rules.

Runs in a process of its own:  python -m bench.kais THREADS WORLDS SLOTS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from edgewise import config
from edgewise.core.orchestrate import Requests
from edgewise.model.orchestration import System
from edgewise.policies.requests.rules import RandomStation
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise.workloads.services import simulated_services

ORACLE = Path(__file__).resolve().parents[1] / "tests" / "oracles"


def demo(worlds: int, slots: int) -> tuple[System, Requests]:
    """`kais-demo` with its own requests, one world for each seed from 0."""
    whole_s = {"services.frame_s": slots * 0.5, "duration_s": slots * 0.5}
    simulated = simulated_services(config.load_scenario("kais-demo", whole_s))
    return simulated.system, simulated.draw(range(worlds))


def run(threads: int, count: int, slots: int) -> dict[str, float]:
    """Pass `slots` slots of `count` worlds.

    Returns:
        slots passed, all worlds together; wall_s and cpu_s; in_time: share of requests.
    """
    system, requests = demo(count, slots)
    worlds = ReplicaWorlds(system, requests, slots, range(count), threads=threads)
    policy = RandomStation()
    worlds.run(policy.rule, policy.memory, 1)  # compiles, or loads what was compiled
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    worlds.run(policy.rule, policy.memory, slots)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {
        "threads": threads,
        "worlds": count,
        "slots": count * (slots - 1),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "in_time": float(worlds.outcome().throughput_rate.mean()),
    }


def interpreted(slots: int) -> dict[str, float]:
    """One world in the plain engine of the tests, with a random allowed station for each head."""
    sys.path.insert(0, str(ORACLE))
    from naive_replicas import NaiveWorld

    system, requests = demo(1, slots)
    world, rng = NaiveWorld(system, requests, 0, np.uint64(0)), np.random.default_rng(0)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(slots):
        heads = [bool(queue) for queue in world.sites]
        world.step([int(rng.choice(world.hosts(b))) if has else -1 for b, has in enumerate(heads)])
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    in_time = sum(r.status == "in time" for r in world.requests) / int(requests.count[0])
    return {"threads": 0, "worlds": 1, "slots": slots, "wall_s": wall_s, "cpu_s": cpu_s, "in_time": in_time}


if __name__ == "__main__":
    amount = list(map(int, sys.argv[1:4]))
    print(json.dumps(run(*amount) if amount[0] else interpreted(amount[2])))
