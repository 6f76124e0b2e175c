"""`edgewise reproduce | looks | freeze`: claims on test seeds, the log of looks, frozen scenarios."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from edgewise.cli.output import app, check_file, check_folder, command, err, out, show
from edgewise.reproduce.frozen import LOOKS, results_folder
from edgewise.reproduce.seeds import TEST, parse_seeds

if TYPE_CHECKING:
    from edgewise.reproduce.claims import Report

# What measures and draws is slow to import; each command imports what it needs.

_COLOURS = {"holds": "green", "fails": "red", "inconclusive": "yellow", "not_in_quick": "dim"}


@app.command(epilog="Example: edgewise reproduce queues --quick --json claims.json")
def reproduce(
    name: Annotated[str | None, typer.Argument(help="What to reproduce; without it, all are listed.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds and claims, a fixed amount of work: about a minute.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the claims here.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds A:B instead of the test seeds, for example 2000000:2000020.")
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            envvar="EDGEWISE_EVIDENCE",
            help="docs/results of a checkout: training runs, which a wheel leaves out.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(help="So many processes, where a case takes several; by default a core each.", min=1),
    ] = min(os.cpu_count() or 1, 8),
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the figures; runs/reproduce-NAME by default.")
    ] = None,
) -> None:
    """Measure the claims of a paper, each with its interval and status."""
    from edgewise.reproduce import (
        cases as cases,  # registers what ships
        run as runs,
    )

    if name is None:
        _print_known()
        return
    place = folder or Path("runs") / f"reproduce-{runs.find(name).name}"
    chosen = None if seeds is None else parse_seeds(seeds)
    check_folder("--out", place)
    check_file("--json", json_file or place / "claims.json")
    with err.status(f"{name}: starting") as status:
        report = runs.carry_out(
            name,
            place,
            results_folder(),
            evidence=evidence,
            quick=quick,
            seeds=chosen,
            jobs=jobs,
            step=lambda text: status.update(f"{name}: {escape(text)}"),
        )
    report = replace(report, command=command())
    _print_report(report)
    left_out = [claim.id for claim in report.claims if claim.detail == runs.NEEDS_TRAINING]
    if left_out:
        out.print(f"{', '.join(left_out)}: {runs.NEEDS_TRAINING}")
    report.write(json_file or place / "claims.json")
    out.print(f"claims and figures: [bold]{escape(str(place))}[/bold]")
    if any(seed in TEST for seed in report.seeds):
        out.print(f"look noted in {escape(str(results_folder() / LOOKS))}")


@app.command(epilog="Example: edgewise looks")
def looks() -> None:
    """List every use of test seeds so far."""
    from edgewise.reproduce.frozen import read_looks

    found = read_looks(results_folder())
    if not found:
        out.print(f"no looks yet: {results_folder() / LOOKS} does not exist or is empty")
        return
    show(("time", "what", "commit", "version", "seeds", "claims"), map(_look_row, found))


@app.command(epilog="Example: edgewise freeze three-tier")
def freeze(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file, the name of a shipped one, or a reproduction.")
    ],
) -> None:
    """Fix a scenario, or the setting of a reproduction, for good, before anything is tuned on it."""
    from edgewise.reproduce import (
        cases as cases,  # registers what ships
        frozen,
        run as runs,
    )

    what = runs.registered().get(scenario)
    if what is not None and what.setting is not None:
        digest = frozen.freeze_setting(what.frozen_as, what.setting(), results_folder())
        out.print(f"frozen: {what.frozen_as} [dim]sha256 {digest}[/dim]", soft_wrap=True)
        return
    name, digest = frozen.freeze(scenario, results_folder())
    out.print(f"frozen: {name} [dim]sha256 {digest}[/dim]", soft_wrap=True)


def _print_known() -> None:
    from edgewise.reproduce import run as runs

    known = runs.registered().values()
    rows = ((w.name, len(w.claims), f"{w.seeds[0]} ({w.seeds[1]})", w.paper) for w in known)
    show(("name", "claims", "seeds (quick)", "paper"), rows)


def _print_report(report: Report) -> None:
    rows = []
    for claim in report.claims:
        estimate = "–" if claim.estimate is None else f"{claim.estimate:.5g}"
        interval = "–" if claim.ci is None else f"{claim.ci[0]:.5g} … {claim.ci[1]:.5g}"
        status = Text(claim.status, _COLOURS[claim.status])
        rows.append((claim.id, claim.statement, claim.method, estimate, interval, claim.n, status))
    show(("claim", "statement", "method", "estimate", "95 % interval", "n", "status"), rows, report.paper)
    counts = [
        f"{count} {status}"
        for status in _COLOURS
        if (count := sum(c.status == status for c in report.claims))
    ]
    out.print(f"{', '.join(counts)}; {len(report.seeds)} seeds, {report.elapsed_s:.1f} s")


def _look_row(look: dict[str, Any]) -> list[str]:
    commit = str(look["commit"] or "–")[:10] + ("*" if look["dirty"] else "")
    marks = (" quick" if look["quick"] else "") + ("" if look["finished"] else " (ended early)")
    seeds = look["seeds"]
    span = (
        f"{seeds[0]}:{seeds[-1] + 1}"
        if seeds == list(range(seeds[0], seeds[-1] + 1))
        else f"{len(seeds)} seeds"
    )
    statuses = [claim["status"] for claim in look["claims"]]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in _COLOURS if status in statuses)
    return [look["time"], look["paper"] + marks, commit, look["version"], span, counts or "–"]
