"""`edgewise simulate SCENARIO --policy defer=NAME`: deferrable jobs in what other work leaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise import policies
from edgewise.cli.places import check_folder
from edgewise.config import dump_scenario
from edgewise.model.scenario import Scenario

if TYPE_CHECKING:
    from edgewise.arrays import Ints
    from edgewise.core.deferral import Trajectories

out = Console()


def simulate_jobs(scenario: Scenario, policy: str, seeds: range, folder: Path | None, command: str) -> None:
    """Simulate the jobs of a scenario under one policy, all seeds side by side, and write the run."""
    from edgewise.core.deferral import Objective
    from edgewise.report.tables import write_tables
    from edgewise.sim.slots.defer import simulate
    from edgewise.workloads.deferrable import generate, jobs_of

    jobs, chosen = jobs_of(scenario), policies.load("defer", policy)
    target = folder or Path("runs") / f"{scenario.name}-{policy}"
    check_folder("--out", target)
    worlds = generate(jobs.pattern, seeds, jobs.submitted)
    found = simulate(worlds, chosen, Objective(jobs.delay_weight, jobs.violation_weight), seeds[0])
    per_seed = {name: getattr(found, name).tolist() for name in found._fields if name != "start"}
    summary = {name: sum(values) / len(seeds) for name, values in per_seed.items()}
    table = Table(title=f"{scenario.name}: {policy}, {len(seeds)} seeds, means", box=None)
    for heading in ("total", "core-slots", "delay", "violation", "started", "lost", "jobs"):
        table.add_column(heading, justify="right")
    shown = ("reward", "revenue", "delay", "violation", "started", "lost", "jobs")
    table.add_row(*(f"{summary[name]:,.1f}" for name in shown))
    out.print(table)
    run = {"scenario": scenario.name, "policies": {"defer": policy}, "seeds": list(seeds), "command": command}
    tables = {"windows": {"seed": list(seeds), **per_seed}, "items": _items(worlds, found.start, seeds)}
    write_tables(target, dump_scenario(scenario), run | summary, tables)
    out.print(f"scenario, summary and records: [bold]{escape(str(target))}[/bold]")


def _items(worlds: Trajectories, start: Ints, seeds: range) -> dict[str, list[Any]]:
    """One row for each job of each seed, times in s; `started_s` is empty for one that never started."""
    rows = [(w, j) for w in range(worlds.worlds) for j in range(int(worlds.jobs[w]))]
    columns: dict[str, list[Any]] = {
        "seed": [seeds[w] for w, _ in rows],
        "job": [j for _, j in rows],
        "cores": [float(worlds.demand[row][0]) for row in rows],
        "started_s": [None if start[row] < 0 else float(start[row] * worlds.slot_s) for row in rows],
    }
    for name in ("submitted", "earliest", "latest", "duration"):
        columns[f"{name}_s"] = [float(getattr(worlds, name)[row] * worlds.slot_s) for row in rows]
    return columns
