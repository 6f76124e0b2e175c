"""Measures which policy for streams loses least where it does worst, over all shipped scenarios, as live.

    python docs/results/defaults/measure.py [SCENARIO ...]

The gap of a policy in a scenario is how far its share of queries in time is below the best policy's, on
validation seeds. The default is the policy whose largest gap is smallest (`edgewise.policies.usual`). Writes
dispatch.csv beside it, and its short form into docs/concepts.md. With names only these scenarios are measured
anew; of the others what is there stays, and what is missing is measured.
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
PAGE = OUT.parents[2] / "concepts.md"
BEGIN, END = "<!-- defaults -->\n", "<!-- end of defaults -->"
LEFT_OUT = ("chooser", "lookahead")  # one needs a network, the other simulates ahead at every gateway


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


def read():
    """Success by scenario and policy, as it stands in the file."""
    with open(OUT, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in ("policy", "worst_gap")]
    return {(name, row["policy"]): float(row[name]) for name in names for row in rows}


def gaps(found):
    """Of each policy its largest gap and the scenario of that, the smallest first."""
    names, tried = (list(dict.fromkeys(key[k] for key in found)) for k in (0, 1))
    best = {name: max(found[name, policy] for policy in tried) for name in names}
    worst = {p: max((best[name] - found[name, p], name) for name in names) for p in tried}
    return dict(sorted(worst.items(), key=lambda item: item[1]))


def table(found):
    """The short form, for the documentation."""
    rows = [
        f"| `{policy}` | {100 * gap:.1f} | `{name}` | {100 * found[name, policy]:.1f} |"
        for policy, (gap, name) in gaps(found).items()
    ]
    head = ["| policy | worst gap, points | in | success there, % |", "| --- | ---: | --- | ---: |"]
    return "".join(f"{line}\n" for line in (*head, *rows))


def main(chosen):
    """Measure and write."""
    every = [n for n in shipped_scenarios() if "streams" in load_scenario(n).holds]
    known = {key: value for key, value in read().items() if chosen and key[0] not in chosen}
    found = {}
    for name in every:
        for policy in candidates():
            key = name, policy
            found[key] = known[key] if key in known else round(success(name, policy), 5)
            print(f"{name:24} {policy:24} {100 * found[key]:6.2f}", flush=True)
    with open(OUT, "w", newline="", encoding="utf-8") as file:
        write = csv.writer(file)
        write.writerow(["policy", "worst_gap", *every])
        for policy, (gap, _) in gaps(found).items():
            write.writerow([policy, f"{gap:.5f}", *(f"{found[n, policy]:.5f}" for n in every)])
    text = PAGE.read_text("utf-8")
    before_it, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before_it}{BEGIN}{table(found)}{END}{after}", encoding="utf-8")
    print(OUT.read_text("utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
