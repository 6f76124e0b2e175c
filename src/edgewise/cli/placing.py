"""`edgewise simulate SCENARIO --policy place=NAME`: pipelines on nodes, links and paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise import policies
from edgewise.cli.extras import extra
from edgewise.cli.places import check_folder
from edgewise.config import dump_scenario
from edgewise.model.network import network_of
from edgewise.model.scenario import Scenario

if TYPE_CHECKING:
    from edgewise.sim.pipelines import PipelineRun

SHOWN = {
    "frames/s": "mean_throughput_fps",
    "since submission": "mean_overall_fps",
    "waited s": "mean_waiting_s",
    "unserved": "unserved",
}
out = Console()


def simulate_pipelines(
    scenario: Scenario, policy: str, seeds: range, folder: Path | None, command: str
) -> None:
    """Simulate the pipelines of a scenario under one policy, seed by seed, and write the run."""
    with extra("place", "pipelines"):
        from edgewise.sim.pipelines import simulate_streaming
    from edgewise.report.tables import write_tables
    from edgewise.workloads.pipelines import pipelines_of

    network, chosen = network_of(scenario), policies.load("place", policy)
    target = folder or Path("runs") / f"{scenario.name}-{policy}"
    check_folder("--out", target)
    found = {s: simulate_streaming(network, pipelines_of(scenario, s), chosen, s) for s in seeds}
    per_seed = {name: [getattr(run, name) for run in found.values()] for name in SHOWN.values()}
    summary = {name: float(np.mean(values)) for name, values in per_seed.items()}
    table = Table(title=f"{scenario.name}: {policy}, {len(seeds)} seeds, means", box=None)
    for heading in (*SHOWN, "pipelines"):
        table.add_column(heading, justify="right")
    count = np.mean([len(run.jobs) for run in found.values()])
    table.add_row(*(f"{value:,.3f}" for value in summary.values()), f"{count:,.1f}")
    out.print(table)
    run = {"scenario": scenario.name, "policies": {"place": policy}, "seeds": list(seeds), "command": command}
    tables = {"windows": {"seed": list(seeds), **per_seed}, "items": _items(found)}
    write_tables(target, dump_scenario(scenario), run | summary, tables)
    out.print(f"scenario, summary and records: [bold]{escape(str(target))}[/bold]")


def _items(found: Mapping[int, PipelineRun]) -> dict[str, list[Any]]:
    """One row for each pipeline of each seed; times are empty where it never started or finished."""
    rows = [(seed, job) for seed, run in found.items() for job in run.jobs]
    names = ("arrival_s", "start_s", "finish_s", "frames", "migrations")
    columns: dict[str, list[Any]] = {name: [getattr(job, name) for _, job in rows] for name in names}
    return {"seed": [seed for seed, _ in rows], "pipeline": [job.name for _, job in rows], **columns}
