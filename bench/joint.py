"""Runs with all kinds of work: days of `campus`, what a kind costs that has nothing to do, and shared links.

python -m bench.joint ROUNDS [quick]
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import edgewise as ew
from edgewise import policies
from edgewise.model.scenario import Scenario
from edgewise.run import assigning
from edgewise.run.joint import JointRun
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.tables import Outcome

TARGETS = {"times_real": 4000.0, "idle": 1.02, "shared": 1.5}
SEED = 500_100  # of validation
DISPATCH = "load-balancing"  # does not look at links
SLICE: dict[str, Any] = {"duration_s": 7200, "streams.arrivals.clients_per_min": 15, "timeline": []}
# A kind of work that is there and has (next to) nothing to do.
IDLE: Mapping[str, Mapping[str, Any]] = {
    "streams": {"streams.arrivals.clients_per_min": 1e-3},
    "services": {"services.requests.rate_qps": 1e-6},
    "pipelines": {"pipelines.0.count": 1, "pipelines.0.length_s": 1, "pipelines.0.rate_qps": 0.1},
    "graphs": {"graphs.0.rate_qps": 1e-6},
    "jobs": {"jobs.drawn.per_slot": 1e-9},
}
FEW: dict[str, Any] = {"pipelines.0.count": 10}
MANY: dict[str, Any] = {"services.requests.rate_qps": 50}  # 4.3 million requests a day
CONGESTED = 0.04  # of the bandwidth that ways have; with less, streams find no room


def run(rounds: int, quick: bool) -> dict[str, Any]:
    """All three, in this process."""
    return {
        "targets": TARGETS,
        "day": _day({}, quick, rounds),
        "idle": _idle(SLICE | FEW if quick else {}, rounds if quick else min(rounds, 5)),
        "shared": [_shared(name, scenario, rounds) for name, scenario in full_edges().items()],
    }


def requests(rounds: int, quick: bool) -> dict[str, Any]:
    """A day with many requests, in this process."""
    return {"target": TARGETS["times_real"], "day": _day(MANY, quick, rounds)}


def _day(settings: Mapping[str, Any], quick: bool, rounds: int) -> dict[str, Any]:
    """Seconds of a whole run with the policies that the scenario names, and of each kind of work."""
    short = {"duration_s": 7200, "timeline": [], **FEW} if quick else {}
    scenario = ew.load_scenario("campus", {**settings, **short})
    _timed(ew.load_scenario("campus", SLICE | FEW))
    timed = [_timed(scenario) for _ in range(1 if quick else min(rounds, 2))]
    return {
        "simulated_s": scenario.duration_s,
        "queries": timed[0]["queries"],
        "requests": timed[0]["requests"],
        "times_real": scenario.duration_s / statistics.median(each["cpu_s"] for each in timed),
        "cpu_s": [each["cpu_s"] for each in timed],
        "wall_s": [each["wall_s"] for each in timed],
        "parts_s": {
            work: statistics.median(each["parts_s"][work] for each in timed) for work in timed[0]["parts_s"]
        },
    }


def _timed(scenario: Scenario) -> dict[str, Any]:
    works, chosen = scenario.holds, {}
    for work in works:
        for decision, name in assigning.defaults(scenario, work).items():
            chosen[decision] = assigning.maker(decision, name)[1]
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run = JointRun(scenario, works, chosen, SEED)
    parts_s = dict.fromkeys(works, 0.0)
    for work, part in run.parts.items():
        for method in ("advance", "finish", "change_node", "due", "take"):
            setattr(part, method, partial(_counted, getattr(part, method), parts_s, work))
    tables = run.run()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    queries = sum(tables["streams"].items["queries"])
    counts = {"queries": queries, "requests": len(tables["services"].items["request"])}
    return {"cpu_s": cpu_s, "wall_s": wall_s, "parts_s": parts_s, **counts}


def _counted(method: Any, parts_s: dict[str, float], work: str, *arguments: Any) -> Any:
    started_s = time.process_time()
    found = list(method(*arguments) or ())
    parts_s[work] += time.process_time() - started_s
    return found


def _idle(settings: Mapping[str, Any], rounds: int) -> list[dict[str, Any]]:
    """CPU seconds of `campus` with one kind of work idle, over those without it."""
    rows = []
    for work, idle in IDLE.items():
        others = {path: value for path, value in settings.items() if not path.startswith(f"{work}.")}
        both = [
            ew.load_scenario("campus", {**others, work: None}),
            ew.load_scenario("campus", {**settings, **idle}),
        ]
        rows.append(
            {"name": work} | _ratio([partial(ew.simulate, each, seeds=(SEED,)) for each in both], rounds)
        )
    return rows


def full_edges() -> dict[str, Scenario]:
    """`full-edge` as it ships, and with links so slow that queries wait for each other."""
    shipped = ew.load_scenario("full-edge")
    topology = shipped.topology
    slow = tuple(replace(way, bandwidth_bps=CONGESTED * way.bandwidth_bps) for way in topology.ways)
    congested = replace(shipped, topology=replace(topology, ways=slow))
    return {"full-edge": shipped, "full-edge, congested": congested}


def _shared(name: str, scenario: Scenario, rounds: int) -> dict[str, Any]:
    """CPU seconds with `sharing: fifo` over those with `none`; every stream is bound to the same worker."""
    outcomes: dict[str, Outcome] = {}

    def one(sharing: str) -> None:
        policy = policies.load("dispatch", DISPATCH)
        outcomes[sharing] = Simulation(replace(scenario, sharing=sharing), policy, SEED).run()

    row = {"name": name} | _ratio([partial(one, "none"), partial(one, "fifo")], rounds)
    none, fifo = (outcomes[sharing].streams for sharing in ("none", "fifo"))
    assert none["worker"] == fifo["worker"], "a stream is bound elsewhere"
    waited_s = [
        a - b
        for a, b in zip(fifo["delay_mean_s"], none["delay_mean_s"], strict=True)
        if a is not None and b is not None
    ]
    return row | {"queries": sum(none["queries"]), "waited_s": statistics.fmean(waited_s)}


def _ratio(pair: Sequence[Callable[[], object]], rounds: int) -> dict[str, Any]:
    """Seconds of both, in turn, and the median over rounds of the second over the first."""
    for work in pair:
        work()
    cpu_s: list[list[float]] = [[], []]
    for _ in range(rounds):
        for work, spent in zip(pair, cpu_s, strict=True):
            gc.collect()  # what the other has left behind
            started_s = time.process_time()
            work()
            spent.append(time.process_time() - started_s)
    each = [b / a for a, b in zip(*cpu_s, strict=True)]
    return {"cpu_s": cpu_s, "ratio": statistics.median(each), "ratio_spread": [min(each), max(each)]}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), "quick" in sys.argv)))
