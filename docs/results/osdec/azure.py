"""Measures rules and OSDEC on worlds of the Azure packing trace, with windows of 1, 4, 8 and 16 slots.

python docs/results/osdec/azure.py EXTRACT        writes azure.csv beside it; a stopped run goes on

EXTRACT is the published file or a CSV extract of it, see `edgewise.workloads.azure_packing`. Validation seeds
alone. Platform, load and number of jobs are those of the paper's pattern; jobs and the course of the load are
the trace's. All nodes are one pool, as published, so nothing is evicted: what jobs hold beyond what on-demand
work leaves is the violation.
"""

import sys
from dataclasses import replace

from edgewise import policies
from edgewise.seeds import VALIDATION
from edgewise.sim.slots.defer import simulate
from edgewise.workloads.azure_packing import read_azure_packing, worlds_of
from edgewise.workloads.deferrable import PAPER
from edgewise_studies.frozen import results_folder
from edgewise_studies.resuming import resumed

SEEDS = VALIDATION[:20]
WINDOWS = (1, 4, 8, 16)  # slots from the first to the last start that a job takes
POLICIES = ("fifo", "sjf", "tetris", "osdec", "osdec-skip")
FIGURES = ("reward", "revenue", "delay", "violation", "started", "lost", "jobs")
COLUMNS = ("window", "policy", "seed", *FIGURES)
OUT = results_folder() / "osdec" / "azure.csv"


def main(extract):
    """Measure what is missing."""
    trace = read_azure_packing(extract)
    with resumed(OUT, COLUMNS, keys=2) as (done, write):
        for window in WINDOWS:
            missing = [name for name in POLICIES if (str(window), name) not in done]
            if not missing:
                continue
            worlds = worlds_of(trace, replace(PAPER, window_most=window - 1), SEEDS)
            for name in missing:
                found = simulate(worlds, policies.load("defer", name))
                figures = zip(*(getattr(found, figure) for figure in FIGURES), strict=True)
                for seed, row in zip(SEEDS, figures, strict=True):
                    write([(window, name, seed, *(round(float(x), 3) for x in row))])


if __name__ == "__main__":
    main(sys.argv[1])
