"""`edgewise orchestrate`: requests dispatched in slots, replicas scaled in frames, in simulation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from edgewise import config, policies
from edgewise.cli.notes import note
from edgewise.cli.places import check_folder
from edgewise.core.keyed import Key
from edgewise.model.sections import not_run
from edgewise.reproduce import seeds as splits

if TYPE_CHECKING:
    from edgewise.core.orchestration import ReplicaPolicy, RequestPolicy
    from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome

out = Console()
err = Console(stderr=True)


def orchestrate(
    scenario: Annotated[str, typer.Argument(help="A scenario file, or the name of a shipped one.")],
    dispatch: Annotated[
        str | None, typer.Option(help="Request policy: greedy, flow, … or a card; the scenario's by default.")
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option("--orchestrate", help="Replica policy: none, … or a card; the scenario's by default."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds A:B (B not included), or a single seed.")] = "0:3",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change the scenario, as services.requests.rate_qps=20; repeatable."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Output folder.")] = None,
) -> None:
    """Simulate the services of a scenario under two policies, all seeds side by side, and write the run."""
    from edgewise.report.tables import write_tables
    from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
    from edgewise.workloads.services import simulated_services

    chosen = splits.parse_seeds(seeds)
    splits.refuse_test_seeds(chosen)
    loaded = config.load_scenario(scenario, dict(config.parse_setting(change) for change in changes or []))
    note(not_run(loaded.spec, ("services",), "edgewise orchestrate"))
    simulated = simulated_services(loaded)
    if simulated.spec.nodes_per_frame is not None:
        note(["edgewise orchestrate leaves out services.nodes_per_frame: every node may change in a frame"])
    dispatch, scaling = dispatch or simulated.spec.dispatch, scaling or simulated.spec.orchestrate
    one, two = policies.load("dispatch", dispatch, "requests"), policies.load("orchestrate", scaling)
    system, slots, horizon_s = simulated.system, simulated.slots, simulated.horizon_s
    drawn = simulated.draw(chosen)
    for policy in (one, two):
        if hasattr(policy, "know"):
            policy.know(drawn, system, horizon_s)
    target = folder or Path("runs") / f"{loaded.name}-{Path(dispatch).stem}-{Path(scaling).stem}"
    check_folder("--out", target)
    with err.status(f"{dispatch} + {scaling}: {len(chosen)} worlds; the first run compiles, for a minute"):
        worlds = ReplicaWorlds(system, drawn, slots, chosen, threads=None)
        outcome = simulate(worlds, one, two)
        summary = _summary(outcome, _decision_s(worlds, one, two))
    _show(f"{loaded.name}: {dispatch} + {scaling}, seeds {seeds}", summary)
    run = {
        "scenario": loaded.name,
        "dispatch": dispatch,
        "orchestrate": scaling,
        "seeds": list(chosen),
    } | summary
    write_tables(target, config.dump_scenario(loaded), run, {"frames": _frames(chosen, outcome)})
    out.print(f"scenario, summary and frames: [bold]{target}[/bold]")


def _decision_s(worlds: ReplicaWorlds, one: RequestPolicy, two: ReplicaPolicy) -> tuple[float, float]:
    """Φ_d: seconds per dispatch of a site, and per orchestration of a world, over one frame."""
    view = worlds.reset()
    one.reset(worlds.system, Key(0))
    two.reset(worlds.system, Key(0))
    started = time.perf_counter()
    worlds.scale(two.scale(view).numbers())
    scale_s = (time.perf_counter() - started) / view.worlds
    used_s, heads = 0.0, 0
    for _ in range(worlds.system.frame_slots):
        started = time.perf_counter()
        stations = one.dispatch(view)
        used_s += time.perf_counter() - started
        heads += int((stations >= 0).sum())
        worlds.step(stations)
    return used_s / max(heads, 1), scale_s


def _summary(outcome: ServiceOutcome, decision_s: tuple[float, float]) -> dict[str, Any]:
    arrived = outcome.arrived.sum(axis=1)
    rate = outcome.throughput_rate
    return {
        "throughput_rate": float(rate.mean()),
        "throughput_rate_by_seed": rate.tolist(),
        "late": float((outcome.late.sum(axis=1) / np.maximum(arrived, 1)).mean()),
        "dropped": float((outcome.dropped.sum(axis=1) / np.maximum(arrived, 1)).mean()),
        "waiting": float((outcome.waiting / np.maximum(arrived, 1)).mean()),
        "forwarded_bytes": float(outcome.forwarded_bytes.sum(axis=1).mean()),
        "image_bytes": float(outcome.image_bytes.sum(axis=1).mean()),
        "cost_bytes": float(outcome.cost_bytes.sum(axis=1).mean()),
        "dispatch_s": decision_s[0],
        "orchestrate_s": decision_s[1],
    }


def _frames(seeds: range, outcome: ServiceOutcome) -> dict[str, list[Any]]:
    """One row for each seed and frame."""
    names = ("arrived", "in_time", "late", "dropped", "forwarded_bytes", "local_bytes", "image_bytes")
    frames = outcome.arrived.shape[1]
    columns: dict[str, list[Any]] = {
        "seed": np.repeat(np.array(seeds), frames).tolist(),
        "frame": np.tile(np.arange(frames), len(seeds)).tolist(),
    }
    return columns | {name: getattr(outcome, name).reshape(-1).tolist() for name in names}


def _show(title: str, summary: dict[str, Any]) -> None:
    table = Table(title=title, box=None)
    for heading in (
        "in time %",
        "late %",
        "dropped %",
        "waiting %",
        "forwarded MB",
        "images MB",
        "ms/dispatch",
    ):
        table.add_column(heading, justify="right")
    shares = [f"{100 * summary[key]:.2f}" for key in ("throughput_rate", "late", "dropped", "waiting")]
    volumes = [f"{summary[key] / 1e6:,.0f}" for key in ("forwarded_bytes", "image_bytes")]
    table.add_row(*shares, *volumes, f"{1e3 * summary['dispatch_s']:.3f}")
    out.print(table)
