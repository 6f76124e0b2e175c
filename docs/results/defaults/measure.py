"""Measures which policy for streams loses least where it does worst, over all shipped scenarios, as live.

    python docs/results/defaults/measure.py [SCENARIO ...]        writes dispatch.csv beside it

The gap of a policy in a scenario is how far its share of queries in time is below the best policy's, on
validation seeds. The default is the policy whose largest gap is smallest (`edgewise.policies.usual`).
"""

import csv
import sys
from pathlib import Path

import numpy as np

import edgewise as ew
from edgewise import policies
from edgewise.config import load_scenario, shipped_scenarios
from edgewise.policies import cards

SEEDS = range(500_000, 500_003)
A_DAY_S = 86_400  # takes long; one seed of it has as many queries as a hundred of others
OUT = Path(__file__).with_name("dispatch.csv")
LEFT_OUT = ("aset", "lookahead")  # one needs a network, the other simulates ahead at every gateway


def candidates():
    """Policies that need no trained network."""
    trained = cards.shipped("dispatch")
    return [name for name in policies.names("dispatch") if name not in LEFT_OUT and name not in trained]


def success(name, policy):
    """Mean share of queries in time."""
    scenario = load_scenario(name)
    seeds = SEEDS if scenario.duration_s < A_DAY_S else SEEDS[:1]
    result = ew.simulate(scenario, {"dispatch": policy}, seeds)
    result = {result.work: result, **result.beside}["streams"]
    return float(np.mean([row["success"] for row in result.summary()]))


def main(chosen):
    """Measure and write."""
    chosen = chosen or [n for n in shipped_scenarios() if load_scenario(n).spec.streams is not None]
    found = {}
    for name in chosen:
        for policy in candidates():
            found[name, policy] = success(name, policy)
            print(f"{name:24} {policy:24} {100 * found[name, policy]:6.2f}", flush=True)
    best = {name: max(found[name, policy] for policy in candidates()) for name in chosen}
    worst = {p: max(best[name] - found[name, p] for name in chosen) for p in candidates()}
    with open(OUT, "w", newline="", encoding="utf-8") as file:
        write = csv.writer(file)
        write.writerow(["policy", "worst_gap", *chosen])
        for policy in sorted(worst, key=worst.__getitem__):
            write.writerow([policy, f"{worst[policy]:.5f}", *(f"{found[n, policy]:.5f}" for n in chosen)])
    print(OUT.read_text("utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
