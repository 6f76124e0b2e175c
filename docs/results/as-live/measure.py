"""Measures shares in time of services, and finished work of jobs, in the published and in the live setting.

    python docs/results/as-live/measure.py [SCENARIO ...]        writes table.csv beside it

Each step towards the live setting changes one rule. Seeds are validation seeds.
"""

import csv
import sys
from pathlib import Path

import edgewise as ew
from edgewise.config import load_scenario
from edgewise.errors import EdgewiseError
from edgewise.policies import names

SEEDS = range(500_000, 500_005)
SERVICES = ("kais-demo", "scarce", "scarce-complex", "edge-cloud", "edge-cloud-complex", "kais-live")
FINER = 10  # times as many slots
OUT = Path(__file__).with_name("table.csv")


def steps_of(name):
    """By step, what a scenario changes, from the published setting to the live one."""
    if name == "deferrable":
        return {"published": {"jobs.room": "pool"}, "live": {}}
    slot_s = load_scenario(name).spec.services.slot_s
    fine = {"services.slot_s": slot_s / FINER}
    at_once = {"telemetry.period_s": slot_s / FINER, "telemetry.lag_s": 0}
    return {
        "published": {"services.gateways": "one"},
        "every request decided at once": {"services.gateways": "one", **fine},
        "queues of replicas": {"services.gateways": "per_site", **fine, **at_once},
        "live": {"services.gateways": "per_site"},
    }


def figures(scenario, policies, about):
    """(mean, least, most) over the seeds, and the fallback's share; or why there are none."""
    try:
        result = ew.simulate(scenario, policies, SEEDS)
        result = {result.work: result, **result.beside}[about]
    except EdgewiseError as error:
        return [str(error).splitlines()[0]]
    measure = "success" if about == "services" else "finished_core_s"
    found = [row[measure] for row in result.summary()]
    return [f"{value:.6g}" for value in (sum(found) / len(found), min(found), max(found))]


def rows_of(name):
    """One for each policy and step."""
    jobs = name == "deferrable"
    chosen = [{"defer": each} for each in names("defer")] if jobs else []
    if not jobs:
        chosen = [{"requests": each, "orchestrate": "none"} for each in names("requests")]
        chosen += [{"requests": "deadline-queue", "orchestrate": each} for each in names("orchestrate")]
        chosen.append({"requests": "kais-scarce", "orchestrate": "kais-scarce"})
    for step, changes in steps_of(name).items():
        scenario = load_scenario(name, changes)
        for policies in chosen:
            found = figures(scenario, policies, "jobs" if jobs else "services")
            who = "+".join(policies.values())
            yield [name, step, who, *found]
            print(name, step, who, *found, flush=True)


def main():
    wanted = sys.argv[1:] or [*SERVICES, "deferrable"]
    before = []
    if OUT.is_file():
        before = [row for row in csv.reader(OUT.open()) if row[0] not in (*wanted, "scenario")]
    rows = [row for name in wanted for row in rows_of(name)]
    with OUT.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["scenario", "setting", "policies", "mean", "least", "most"], *sorted(before + rows)]
        )


if __name__ == "__main__":
    main()
