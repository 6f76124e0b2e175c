"""Run benchmarks and write their results."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import breakdown, decisions, graphs, machine, processes, queues, report
from bench.measure import Case, pin, run_case

CASES: dict[str, Callable[[], Case]] = {
    "queue": queues.case,
    "graphs": graphs.case,
    "decisions": decisions.case,
}
OTHERS = ("scenario", "startup", "slots", "kais", "breakdown")
ROUNDS, QUICK = 5, 0.05


def main() -> None:
    """Command line of `python -m bench`."""
    names = (*CASES, *OTHERS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which ones, all by default: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the work, one round")
    parser.add_argument("--full", action="store_true", help="1,000 antennas as well; takes minutes")
    parser.add_argument("--out", type=Path, default=Path("docs/results/bench"), help="folder of the results")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.name) - set(names))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(names)}")
    result = run(chosen.name or names, chosen.quick, chosen.full)
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / "bench.json"
    if path.exists() and chosen.name:  # the others keep what they had, with their own machine and date
        result = json.loads(path.read_text(encoding="utf-8")) | result
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (chosen.out / "bench.md").write_text(report.table(result), encoding="utf-8")
    report.chart(result, chosen.out / "ratios.png")
    print(report.table(result))


def run(names: tuple[str, ...] | list[str], quick: bool = False, full: bool = False) -> dict[str, Any]:
    """Run benchmarks in turn; each result says what it was measured on."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    cpu = pin()
    result: dict[str, Any] = {}
    for name in names:
        before = machine.describe(cpu)
        print(f"{name} …", flush=True)
        result[name] = {"measured": before} | _run_one(name, 1 if quick else ROUNDS, quick, full, cpus)
    return result


def _run_one(name: str, rounds: int, quick: bool, full: bool, cpus: set[int]) -> dict[str, Any]:
    if name in CASES:
        return run_case(CASES[name](), rounds, QUICK if quick else 1.0)
    if name == "scenario":
        runs = [processes.full_edge(10, rounds)]
        return {"runs": runs + ([processes.full_edge(1000, 1)] if full else [])}
    if name == "startup":
        return processes.startup(rounds)
    if name == "slots":
        return {"runs": processes.slots(rounds, 10 if quick else 200, 10 if quick else 200, cpus)}
    if name == "kais":
        return {"runs": processes.kais(rounds, 16 if quick else 256, 200 if quick else 5000, cpus)}
    return breakdown.run(20_000 if quick else 1_000_000, rounds)


if __name__ == "__main__":
    main()
