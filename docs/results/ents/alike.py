"""Measures at which bandwidth the ways to place pipelines are alike: the experiment behind E6 of ENTS.

    python docs/results/ents/alike.py        writes alike.csv beside it; a stopped run goes on

30 nodes and 50 pipelines, as in E6, on validation seeds, with links of up to 10 Gbit/s.
"""

import csv
from pathlib import Path

from edgewise.seeds import VALIDATION
from edgewise_studies.papers.ents import FigurePoint, outcomes_of

SEEDS = VALIDATION[:5]
MEGABITS = (20, 50, 100, 200, 1_000, 10_000)
POLICIES = ("lr", "br", "tp", "otfs", "otfa")
COLUMNS = ("megabits", "seed", "policy", "fps", "unserved")
OUT = Path(__file__).with_name("alike.csv")


def measured():
    """Points that the file has."""
    if not OUT.exists():
        return set()
    with OUT.open(newline="", encoding="utf-8") as file:
        return {(int(row["megabits"]), int(row["seed"])) for row in csv.DictReader(file)}


def main():
    """Measure what is missing."""
    done = measured()
    with OUT.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(COLUMNS)
        for seed in SEEDS:
            for megabits in MEGABITS:
                if (megabits, seed) in done:
                    continue
                for name, found in outcomes_of(FigurePoint(30, megabits, 50), seed, POLICIES).items():
                    writer.writerow((megabits, seed, name, round(found.fps, 4), round(found.unserved, 4)))
                file.flush()


if __name__ == "__main__":
    main()
