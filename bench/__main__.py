"""Run benchmarks and write their results."""

from __future__ import annotations

import argparse
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import (
    apart,
    breakdown,
    cold,
    figures,
    gateway,
    joint,
    machine,
    placing,
    processes,
    report,
    servers,
    split,
)
from bench.measure import pin, run_case

# Name → module with a `case()`; imported when it runs, so that the others do without its peers.
CASES = {"queue": "bench.queues", "graphs": "bench.graphs", "decisions": "bench.decisions"}
OTHERS = ("scenario", "joint", "requests", "startup", "cold", "slots", "kais", "breakdown")
OTHERS += ("split", "place", "apart", "gateway", "servers")
ROUNDS, QUICK = 5, 0.05
LIVE_ROUNDS = 3
JOINT_ROUNDS = 21


def main() -> None:
    """Command line of `python -m bench`."""
    names = (*CASES, *OTHERS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which ones, all by default: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the work, one round")
    parser.add_argument("--full", action="store_true", help="1,000 antennas as well; takes minutes")
    parser.add_argument("--out", type=Path, default=figures.RESULTS, help="folder of the results")
    for peer, name in servers.PEERS.items():
        what = f"interpreter of an environment with {name}, for servers"
        parser.add_argument(f"--{peer}-python", type=Path, default=servers.default_python(peer), help=what)
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.name) - set(names))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(names)}")
    pythons = {peer: getattr(chosen, f"{peer}_python") for peer in servers.PEERS}
    result = run(chosen.name or names, chosen.quick, chosen.full, pythons)
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / "bench.json"
    if path.exists() and chosen.name:  # the others keep what they had, with their own machine and date
        result = json.loads(path.read_text(encoding="utf-8")) | result
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (chosen.out / "bench.md").write_text(report.table(result), encoding="utf-8")
    report.chart(result, chosen.out / "ratios.png")
    if chosen.out.resolve() == figures.RESULTS:
        figures.insert(result)
    print(report.table(result))


def run(
    names: tuple[str, ...] | list[str],
    quick: bool = False,
    full: bool = False,
    pythons: dict[str, Path] | None = None,
) -> dict[str, Any]:
    """Run benchmarks in turn; each result says what it was measured on."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    cpu = pin()
    result: dict[str, Any] = {}
    for name in names:
        before = machine.describe(cpu)
        print(f"{name} …", flush=True)
        if name in ("gateway", "servers"):
            found = _run_live(name, quick, pythons or {}, cpus)
        else:
            found = _run_one(name, 1 if quick else ROUNDS, quick, full, cpus)
        result[name] = {"measured": before} | found
    return result


def _run_live(name: str, quick: bool, pythons: dict[str, Path], cpus: set[int]) -> dict[str, Any]:
    """Several processes at once, on every CPU there is."""
    rounds, seconds = (1, 0.1) if quick else (LIVE_ROUNDS, 1.0)
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        if mine:
            os.sched_setaffinity(0, cpus)
        if name == "gateway":
            return gateway.run(rounds, seconds)
        return servers.run(rounds, seconds, pythons)
    finally:
        if mine:
            os.sched_setaffinity(0, mine)


def _run_one(name: str, rounds: int, quick: bool, full: bool, cpus: set[int]) -> dict[str, Any]:
    if name in CASES:
        return run_case(import_module(CASES[name]).case(), rounds, QUICK if quick else 1.0)
    if name == "scenario":
        runs = [processes.full_edge(10, rounds)]
        return {"runs": runs + ([processes.full_edge(1000, 1)] if full else [])}
    if name == "joint":
        return joint.run(rounds if quick else JOINT_ROUNDS, quick)
    if name == "requests":
        return joint.requests(rounds, quick)
    if name == "split":
        return split.run(rounds)
    if name == "startup":
        return processes.startup(rounds)
    if name == "cold":
        return cold.run(quick)
    if name == "slots":
        return {"runs": processes.slots(rounds, 10 if quick else 200, 10 if quick else 200, cpus)}
    if name == "place":
        return {"runs": placing.run(quick)}
    if name == "apart":
        return apart.run(rounds, 50 if quick else 500)
    if name == "kais":
        return {"runs": processes.kais(rounds, 16 if quick else 256, 200 if quick else 5000, cpus)}
    return breakdown.run(20_000 if quick else 1_000_000, rounds)


if __name__ == "__main__":
    main()
