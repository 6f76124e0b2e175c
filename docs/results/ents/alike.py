"""Measures at which bandwidth the ways to place pipelines are alike: the experiment behind E6 of ENTS.

    python docs/results/ents/alike.py        writes alike.csv beside it; a stopped run goes on

30 nodes and 50 pipelines, as in E6, on validation seeds, with links of up to 10 Gbit/s.
"""

from pathlib import Path

from edgewise.seeds import VALIDATION
from edgewise_studies.papers.ents import FigurePoint, outcomes_of
from edgewise_studies.resuming import resumed

SEEDS = VALIDATION[:5]
MEGABITS = (20, 50, 100, 200, 1_000, 10_000)
POLICIES = ("lr", "br", "tp", "otfs", "otfa")
COLUMNS = ("megabits", "seed", "policy", "fps", "unserved")
OUT = Path(__file__).with_name("alike.csv")


def main():
    """Measure what is missing."""
    with resumed(OUT, COLUMNS, keys=2) as (done, write):
        for seed in SEEDS:
            for megabits in MEGABITS:
                if (str(megabits), str(seed)) not in done:
                    found = outcomes_of(FigurePoint(30, megabits, 50), seed, POLICIES)
                    write(
                        [
                            (megabits, seed, name, round(each.fps, 4), round(each.unserved, 4))
                            for name, each in found.items()
                        ]
                    )


if __name__ == "__main__":
    main()
