"""Measures shares in time of services and streams, and finished work of jobs, as published and as live.

    python docs/results/as-live/measure.py [SCENARIO ...] [--steps STEP ...]     writes table.csv beside it

Each step towards the live setting changes one rule. Seeds are validation seeds.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

import edgewise as ew
from edgewise import policies
from edgewise.config import load_scenario
from edgewise.errors import EdgewiseError

SEEDS = range(500_000, 500_005)
SERVICES = ("kais-demo", "scarce", "edge-cloud")
COMPLEX = ("scarce-complex", "edge-cloud-complex")  # take long: without the steps in between
STREAMS = ("dc-cloud", "co-dc-cloud", "full-edge", "full-edge-scarce", "full-edge-burst")
MEASURES = {"services": "success", "streams": "success", "jobs": "finished_core_s"}
FINER = 10  # times as many slots
UNKNOWN = "the wait for the cloud's link unknown"
OUT = Path(__file__).with_name("table.csv")


class Unknowing:
    """A policy of requests that is told the mean delay to the cloud in place of what it is now."""

    decision, batched = "requests", True

    def __init__(self, name):
        self.name, self._asked = name, policies.load("requests", name)

    def reset(self, world, key):
        """Begin."""
        self._delay_s = float(world.delay_s[:, 0].mean())
        self._asked.reset(world, key)

    def decide(self, view):
        """As the policy, by what it is told."""
        world = view.world.copy()
        world["cloud_delay_s"] = self._delay_s
        return self._asked.decide(view._replace(world=world.view(np.recarray)))


def steps_of(name):
    """By step, what a scenario changes, from the published setting to the live one."""
    if name == "deferrable":
        return {"published": {"jobs.room": "pooled"}, "live": {}}
    if name in STREAMS:
        return {"published": {"streams.gateways": "one"}, "live": {}}
    if name in COMPLEX:
        return {"published": {"services.gateways": "one"}, "live": {}}
    slot_s = load_scenario(name).served.slot_s
    fine = {"services.slot_s": slot_s / FINER}
    at_once = {"telemetry.period_s": slot_s / FINER, "telemetry.lag_s": 0}
    return {
        "published": {"services.gateways": "one"},
        "every request decided at once": {"services.gateways": "one", **fine},
        UNKNOWN: {"services.gateways": "one", **fine},
        "a gateway at each site, news at once": {"services.gateways": "per_site", **fine, **at_once},
        "live": {"services.gateways": "per_site"},
    }


def figures(scenario, chosen, about):
    """(mean, least, most) over the seeds; or why there are none."""
    try:
        result = ew.simulate(scenario, chosen, SEEDS)
        result = {result.work: result, **result.beside}[about]
    except EdgewiseError as error:
        return [str(error).splitlines()[0]]
    found = [row[MEASURES[about]] for row in result.summary()]
    return [f"{value:.6g}" for value in (sum(found) / len(found), min(found), max(found))]


def chosen_for(name):
    """What is compared: policies by decision."""
    if name == "deferrable":
        return [{"defer": each} for each in policies.names("defer")]
    if name in STREAMS:  # `lookahead` takes a hundred times as long
        fits = ("chooser-any", f"chooser-{name}")
        known = [each for each in policies.names("dispatch") if each not in ("chooser", "lookahead")]
        return [{"dispatch": each} for each in known if not each.startswith("chooser-") or each in fits]
    found = [{"requests": each, "orchestrate": "none"} for each in policies.names("requests")]
    found += [
        {"requests": "deadline-queue", "orchestrate": each}
        for each in policies.names("orchestrate")
        if each != "none"
    ]
    return [*found, {"requests": "kais-scarce", "orchestrate": "kais-scarce"}]


def rows_of(name, steps):
    """One for each policy and step of those that are asked for."""
    about = "jobs" if name == "deferrable" else "streams" if name in STREAMS else "services"
    for step, changes in ((each, steps_of(name)[each]) for each in steps or steps_of(name)):
        scenario = load_scenario(name, changes)
        for chosen in chosen_for(name):
            asked = chosen
            if step == UNKNOWN:
                asked = {**chosen, "requests": Unknowing(chosen["requests"])}
            found = figures(scenario, asked, about)
            yield [name, step, "+".join(chosen.values()), *found]
            print(name, step, "+".join(chosen.values()), *found, sep=",", flush=True)


def main():
    """Measure what is asked for; rows of other scenarios and steps stay."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenarios", nargs="*", default=[*SERVICES, *COMPLEX, *STREAMS, "deferrable"])
    parser.add_argument("--steps", nargs="+", default=[])
    asked = parser.parse_args()
    rows = [row for name in asked.scenarios for row in rows_of(name, asked.steps)]
    anew = {(name, step) for name, step, *_ in rows}
    before = []
    if OUT.is_file():
        before = [row for row in csv.reader(OUT.open()) if (row[0], row[1]) not in anew]
        before = [row for row in before if row[0] != "scenario"]
    with OUT.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["scenario", "setting", "policies", "mean", "least", "most"], *sorted(before + rows)]
        )


if __name__ == "__main__":
    main()
