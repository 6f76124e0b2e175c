"""`edgewise reproduce | looks | freeze`, and `edgewise train defer | kais`.

Claims on test seeds, the log of looks, settings that stay; trainers of the papers.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from edgewise.cli.output import Json, answer, check_file, check_folder, command, err, out, show
from edgewise.cli.train import NAME, TENSORBOARD, trained
from edgewise.model.ranges import seeds_of
from edgewise.seeds import TEST
from edgewise_studies.frozen import LOOKS, results_folder

if TYPE_CHECKING:
    from edgewise_studies.claims import Report


# What measures and draws is slow to import; each command imports what it needs.

RUNS = Path("runs")
app = typer.Typer()
training = typer.Typer()

_COLOURS = {"holds": "green", "fails": "red", "inconclusive": "yellow", "not_in_quick": "dim"}


@app.command(epilog="Example: edgewise reproduce queues --quick --json claims.json")
def reproduce(
    name: Annotated[str | None, typer.Argument(help="What to reproduce; without it, all are listed.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds and claims, a fixed amount of work: about a minute.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the claims here.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds A:B (without B) instead of the test seeds, for example 2000000:2000020."),
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
    looked: Annotated[
        Path,
        typer.Option(
            "--looks", help="Folder of the log of looks; docs/results of a checkout for published figures."
        ),
    ] = RUNS,
) -> None:
    """Measure the claims of a paper, each with its interval and status."""
    from edgewise_studies import (
        papers as papers,  # registers what ships
        run as runs,
    )

    if name is None:
        _print_known()
        return
    place = folder or RUNS / f"reproduce-{runs.find(name).name}"
    chosen = None if seeds is None else seeds_of(seeds)
    check_folder("--out", place, "a reproduction")
    check_file("--json", json_file or place / "claims.json")
    with err.status(f"{name}: starting") as status:
        report = runs.carry_out(
            name,
            place,
            results_folder(),
            looks=looked,
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
        out.print(f"look noted in {escape(str(looked / LOOKS))}")


@app.command(epilog="Example: edgewise dev looks")
def looks(as_json: Json = False) -> None:
    """List every use of test seeds so far, those that are published and those noted in runs."""
    from edgewise_studies.frozen import read_looks

    places = dict.fromkeys((results_folder(), RUNS))
    found = [look for place in places for look in read_looks(place)]
    if as_json:
        print(json.dumps(found, indent=1))
        return
    if not found:
        out.print(f"no looks yet: {' and '.join(str(place / LOOKS) for place in places)} do not exist")
        return
    show(("time", "what", "commit", "version", "seeds", "claims"), map(_look_row, found))


@app.command(epilog="Example: edgewise dev freeze three-tier")
def freeze(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file, the name of a shipped one, or a reproduction.")
    ],
    look: Annotated[
        bool, typer.Option("--look", help="Of a reproduction, what its next look will ask, and its seeds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fix a scenario, or the setting of a reproduction, for good, before anything is tuned on it."""
    from edgewise_studies import (
        frozen,
        looks as looks_of,
        papers as papers,  # registers what ships
        run as runs,
    )

    what = runs.find(scenario) if look else runs.registered().get(scenario)
    if what is not None and look:
        name = looks_of.frozen_as(what)
        digest = frozen.freeze_setting(name, looks_of.predicates(what), results_folder())
    elif what is not None and what.setting is not None:
        digest = frozen.freeze_setting(what.frozen_as, what.setting(), results_folder())
        name = what.frozen_as
    else:
        name, digest = frozen.freeze(scenario, results_folder())
    said = f"frozen: {name} [dim]sha256 {digest}[/dim]"
    answer({"frozen": name, "sha256": digest}, as_json, lambda: out.print(said, soft_wrap=True))


def _print_known() -> None:
    from edgewise_studies import run as runs

    known = runs.registered().values()
    rows = ((w.name, len(w.claims), f"{w.seeds[0]} ({w.seeds[1]})", w.paper) for w in known)
    show(("name", "claims", "seeds (quick)", "paper"), rows)


def _print_report(report: "Report") -> None:
    rows = []
    for claim in report.claims:
        estimate = "–" if claim.estimate is None else f"{claim.estimate:.5g}"
        interval = "–" if claim.ci is None else f"{claim.ci[0]:.5g} … {claim.ci[1]:.5g}"
        status = Text(claim.status, _COLOURS[claim.status])
        whose = claim.method, claim.setting
        rows.append((claim.id, claim.statement, *whose, estimate, interval, claim.n, status))
    titles = ("claim", "statement", "method", "setting", "estimate", "95 % interval", "n", "status")
    show(titles, rows, report.paper)
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


@training.command(epilog="Example: edgewise train defer osdec --seed 1 --out runs/defer")
def defer(
    method: Annotated[str, typer.Argument(help="reinforce, ppo-mlp, pointer-net, ppo-att, …, osdec.")],
    situation: Annotated[
        str, typer.Option(help="paper, core-1 … duration-3, utilisation or real-time.")
    ] = "paper",
    recipe: Annotated[str, typer.Option(help="'ours', or 'paper' for OSDEC's hyper-parameters.")] = "ours",
    seed: Annotated[int, typer.Option(min=0, max=19, help="Of the run.")] = 0,
    iterations: Annotated[int, typer.Option(min=1, max=1250, help="Of 2,048 slots.")] = 16,
    name: Annotated[str, NAME] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder of the files.")] = Path("runs/defer"),
    tensorboard: Annotated[bool, TENSORBOARD] = False,
    as_json: Json = False,
) -> None:
    """Train OSDEC, or a variant of it, to start deferrable jobs; a stopped training goes on."""
    trained(
        "defer",
        folder,
        name,
        tensorboard,
        as_json,
        method=method,
        situation=situation,
        recipe=recipe,
        seed=seed,
        iterations=iterations,
    )


@training.command(epilog="Example: edgewise train kais --scenario scarce-small --method paper")
def kais(
    scenario: Annotated[
        str, typer.Option(help="scarce or edge-cloud, or either with -complex or -small.")
    ] = "scarce",
    pattern: Annotated[str, typer.Option(help="Of arrivals: P1, P2, P3, P4, P1-P4 or sequences.")] = "P4",
    method: Annotated[
        str, typer.Option(help="'paper': cMMAC, GPG; 'stacked': no graph; 'improved' and 'evolved': ours.")
    ] = "improved",
    half: Annotated[str, typer.Option(help="What learns: both, requests or orchestrate.")] = "both",
    episodes: Annotated[int, typer.Option(min=1, help="Of training, or generations.")] = 20,
    worlds: Annotated[int, typer.Option(min=1, help="Of an episode, each with a seed of its own.")] = 32,
    frames: Annotated[int, typer.Option(min=1, help="Of an episode.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=19, help="Of weights and worlds.")] = 0,
    name: Annotated[str, NAME] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder of the files.")] = Path("runs/kais"),
    tensorboard: Annotated[bool, TENSORBOARD] = False,
    as_json: Json = False,
) -> None:
    """Train dispatch and orchestration of KaiS; a stopped training goes on where it was saved."""
    trained(
        "kais",
        folder,
        name,
        tensorboard,
        as_json,
        scenario=scenario,
        pattern=pattern,
        method=method,
        half=half,
        episodes=episodes,
        worlds=worlds,
        frames=frames,
        seed=seed,
    )
