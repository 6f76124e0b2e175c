"""Measures rules and OSDEC on `deferrable`, all nodes as one pool and as live, where jobs are moved and lost.

python docs/results/osdec/live.py        writes live.csv beside it; a stopped run goes on

Validation seeds. As live a job is on one node and makes way for on-demand work that comes there: `moves`
counts how often one had to, `redone_core_s` what it then did again, and `finished_core_s` is what was worth
something in the end. The reward of the paper exists in the pool alone.
"""

import edgewise as ew
from edgewise.config import load_scenario
from edgewise.seeds import VALIDATION
from edgewise_studies.frozen import results_folder
from edgewise_studies.resuming import resumed

SEEDS = VALIDATION[:10]
SETTINGS = {"published": {"jobs.room": "pooled"}, "as live": {}}
POLICIES = ("fifo", "sjf", "tetris", "osdec", "osdec-skip")
FIGURES = (
    "jobs",
    "started",
    "ended",
    "lost",
    "moves",
    "redone_core_s",
    "finished_core_s",
    "violation",
    "reward",
)
COLUMNS = ("setting", "policy", "seed", *FIGURES)
OUT = results_folder() / "osdec" / "live.csv"


def main():
    """Measure what is missing."""
    with resumed(OUT, COLUMNS, keys=2) as (done, write):
        for setting, changes in SETTINGS.items():
            scenario = load_scenario("deferrable", changes)
            for name in (each for each in POLICIES if (setting, each) not in done):
                found = ew.simulate(scenario, {"defer": name}, SEEDS).summary()
                write([(setting, name, row["seed"], *map(row.get, FIGURES)) for row in found])


if __name__ == "__main__":
    main()
