"""Measures what load balancers of the field answer in time in ASET's worlds, as published.

python docs/results/aset/field.py        writes field.csv beside it; a stopped run goes on

On a validation seed that chose nothing: the threshold of `reproduce aset` is chosen on others.
"""

from pathlib import Path

from edgewise.seeds import VALIDATION
from edgewise_studies.papers.aset import run_one
from edgewise_studies.papers.field import FIELD
from edgewise_studies.resuming import resumed
from edgewise_studies.twins import as_published

SEEDS = VALIDATION[10:11]
SCENARIOS = ("full-edge", "co-dc-cloud")
BESIDE = ("random-by-load", "slack-aware")
COLUMNS = ("scenario", "seed", "policy", "success", "failed", "rejected")
OUT = Path(__file__).with_name("field.csv")


def main():
    """Measure what is missing."""
    with resumed(OUT, COLUMNS, keys=3) as (done, write):
        for name in SCENARIOS:
            scenario = as_published(name)
            for run in ((name, seed, policy) for seed in SEEDS for policy in (*FIELD, *BESIDE)):
                if tuple(map(str, run)) not in done:
                    found = run_one(scenario, run[2], run[1])
                    write([(*run, *(round(float(share), 6) for share in found.shares))])


if __name__ == "__main__":
    main()
