"""Deferrable jobs: slots of worlds per second of processor time, one thread, rule and loop together.

python -m bench.deferring [WORLDS]
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from edgewise import policies
from edgewise.sim.slots.defer import simulate
from edgewise.workloads.deferrable import PAPER, generate

KINDS = {"cores": PAPER, "cores and memory": replace(PAPER, memory_bytes_per_core=4e9)}
RULES = ("fifo", "sjf", "earliest-deadline", "hrrn", "tetris", "best-fit")


def run(rule: str, kind: str, count: int) -> float:
    """Steps per second: one step is one slot of one of `count` worlds that go through it together."""
    pattern = KINDS[kind]
    simulate(
        generate(pattern, range(2)), policies.load("defer", rule)
    )  # compiles, or loads what was compiled
    worlds, policy = generate(pattern, range(count)), policies.load("defer", rule)
    began_s = time.process_time()
    simulate(worlds, policy)
    return count * worlds.slots / (time.process_time() - began_s)


if __name__ == "__main__":
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    for kind in KINDS:
        for rule in RULES:
            print(f"{kind:17} {rule:18} {run(rule, kind, worlds):>9,.0f} steps/s")
