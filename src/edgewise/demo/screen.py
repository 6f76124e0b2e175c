"""What the demo shows: tables, bars, and one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from edgewise.model.work import Stream
from edgewise.report.figures import new_axes, png
from edgewise.runtime.clients.traffic import StreamSeen

if TYPE_CHECKING:
    from edgewise.demo.live import PolicyShares

KINDS = ("ok", "failed", "rejected")
COLOURS = {"ok": "green", "failed": "red", "rejected": "yellow"}
FILLS = {"ok": "#4c9f70", "failed": "#c8553d", "rejected": "#e0b34c"}
BAR = 40
BUSY = 1.2


def explain(out: Console, costs: Any, factor: float, streams: Sequence[Stream], world: Any) -> None:
    """Say what is real, what is emulated, and how rates were scaled."""
    rate = sum(stream.rate_qps for stream in streams)
    out.print(
        f"[bold]Live:[/bold] {len(streams)} streams of the ten reference applications, with their deadlines "
        f"and mix, on {len(world.WORKERS)} workers at two access sites, a central office and a cloud."
    )
    out.print(
        f"Real: text detection ({1e3 * costs.find_s:.1f} ms here) and recognition "
        f"({1e3 * costs.read_s:.1f} ms) on pictures drawn here; processes, HTTP, decisions. "
        "Emulated: links, and the delays and accuracies of the devices."
    )
    if costs.busy > BUSY:
        out.print(
            f"[yellow]Other programs use this machine: work takes {costs.busy:.1f} times its CPU time. "
            "Expect answers later than simulated.[/yellow]"
        )
    out.print(
        f"Rates and capacities are [bold]× {factor:.2f}[/bold] so that this machine carries them: "
        f"{rate:.0f} queries/s when all streams are open."
    )


def line(policy: str, seen: Sequence[StreamSeen]) -> str:
    """One policy's result as text."""
    bound = sum(s.worker is not None for s in seen)
    counts = ", ".join(f"{sum(getattr(s, kind) for s in seen)} {kind}" for kind in KINDS)
    return f"{policy}: {bound} of {len(seen)} streams bound; queries: {counts}"


def streams(policy: str, seen: Sequence[StreamSeen], workers: Sequence[str], now_s: float) -> RenderableType:
    """The live view: applications with their queries so far, workers with their streams."""
    running = [s for s in seen if s.number is not None and not s.closed]
    head = Text(f"policy {policy}, {now_s:.0f} s, {len(running)} streams open", style="bold")
    table = Table("application", "streams", "refused", "queries: ok, failed, rejected", box=SIMPLE_HEAD)
    for name in dict.fromkeys(s.stream.application for s in seen):
        mine = [s for s in seen if s.stream.application == name]
        opened = [s for s in mine if s.number is not None]
        refused = sum(s.worker is None for s in opened)
        table.add_row(name, str(len(opened)), str(refused), _bar([_total(mine, kind) for kind in KINDS]))
    load = Table("worker", "streams", "queries/s", box=SIMPLE_HEAD)
    for worker in workers:
        on = [s for s in running if s.worker == worker]
        load.add_row(worker, str(len(on)), f"{sum(s.stream.rate_qps for s in on):.1f}")
    return Group(head, table, load)


def answers(rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """What came back from the networks."""
    table = Table("application", "picture of", "worker", "answer", title="answers", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    return table


def compare(
    out: Console,
    live: Sequence[PolicyShares],
    simulated: Sequence[PolicyShares],
    tolerance: float,
    busy: Mapping[str, str],
) -> bool:
    """Print measured beside simulated; returns whether all differences are within the tolerance.

    Args:
        busy: policies during whose run the machine was too busy, and why: these are not judged.
    """
    title = f"measured beside simulated; tolerance {100 * tolerance:.0f} points"
    table = Table(
        "policy",
        "queries",
        *(f"{kind} %" for kind in KINDS),
        "largest difference",
        box=SIMPLE_HEAD,
        title=title,
    )
    fine = True
    for real, model in zip(live, simulated, strict=True):
        gaps = [abs(getattr(real, kind) - getattr(model, kind)) for kind in KINDS]
        within = max(gaps) <= tolerance
        fine = fine and (within or real.policy in busy)
        cells = [f"{100 * getattr(real, k):.1f} | {100 * getattr(model, k):.1f}" for k in KINDS]
        verdict = "[green]within[/green]" if within else "[red]beyond[/red]"
        verdict = "[yellow]not judged[/yellow]" if real.policy in busy else verdict
        table.add_row(
            real.policy,
            f"{real.queries} | {model.queries}",
            *cells,
            f"{100 * max(gaps):.1f} points, {verdict}",
        )
    out.print(table)
    for policy, why in busy.items():
        out.print(f"[yellow]{policy} is not judged:[/yellow] {why}. End other programs and try again.")
    return fine


def figure(live: Sequence[PolicyShares], simulated: Sequence[PolicyShares], file: Path) -> None:
    """Bars of measured and simulated shares, side by side, for each policy."""
    drawing, axes = new_axes(7.0, 3.6, "Queries of the demo: measured (left) and simulated (right)")
    at, width = np.arange(len(live)), 0.36
    for shares, shift, hatch in ((live, -0.2, ""), (simulated, 0.2, "//")):
        base = np.zeros(len(live))
        for kind in KINDS:
            height = np.array([100 * getattr(s, kind) for s in shares])
            axes.bar(at + shift, height, width, base, color=FILLS[kind],
                     hatch=hatch, edgecolor="white", label=kind if not hatch else None)  # fmt: skip
            base += height
    axes.set_xticks(at, [s.policy for s in live])
    axes.set_ylabel("share of the queries, %")
    axes.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, -0.32))
    png(drawing, file)


def _bar(counts: Sequence[int]) -> Text:
    total, text = max(sum(counts), 1), Text()
    for kind, count in zip(KINDS, counts, strict=True):
        text.append("█" * round(BAR * count / total), style=COLOURS[kind])
    return text.append("  " + ", ".join(map(str, counts)))


def _total(seen: Sequence[StreamSeen], kind: str) -> int:
    return sum(getattr(s, kind) for s in seen)
