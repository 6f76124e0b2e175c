"""`edgewise sweep | size`: how much can it carry, and what hardware does it need?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from edgewise.cli.commands import verbs
from edgewise.cli.output import check_folder, command, note, out, show
from edgewise.cli.progress import SaidProgress
from edgewise.cli.results import refuse_undecided
from edgewise.cli.verbs import (
    CureOption,
    JobsOption,
    JsonOption,
    OutOption,
    PolicyOption,
    ScenarioArgument,
    SeedsOption,
    SetOption,
    by_decision,
    complete_policy,
    listing,
    parse_seeds,
    parsed,
)
from edgewise.errors import RunError
from edgewise.report import decided
from edgewise.run import assigning

if TYPE_CHECKING:
    from edgewise.sweeps import Answer, Points, Target


app = verbs()
VaryOption = Annotated[
    list[str],
    typer.Option(
        "--vary",
        help="PATH=A..B (both ends), A..B..STEP, A..B/N for N values, or a,b,c; A:B leaves B out, as in "
        "--seeds. Any key that --set knows. Repeatable: every combination.",
    ),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target", help="WORK.MEASURE=VALUE, as streams.ok=99%; also >= or <=. Repeatable: all of them."
    ),
]
OnOption = Annotated[
    str,
    typer.Option("--on", help="A cluster instead of --jobs: ray://HOST:10001 or dask://HOST:8786."),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Take over what ended before in the same folder.")
]


@app.command(
    epilog="Examples: edgewise sweep three-tier --vary streams.arrivals.clients_per_min=20..200 --jobs 2; "
    "edgewise sweep deferrable --vary jobs.drawn.per_slot=4..16..4 --policies defer=fifo,horizon"
)
def sweep(
    scenario: ScenarioArgument,
    vary: VaryOption,
    target: TargetOption = None,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--policies", help="DECISION=NAME,NAME,…: a curve for each.", autocompletion=complete_policy
        ),
    ] = None,
    policy: PolicyOption = None,
    seeds: SeedsOption = "0:10",
    changes: SetOption = None,
    jobs: JobsOption = 1,
    on: OnOption = "",
    resume: ResumeOption = False,
    cure: CureOption = False,
    folder: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario at many values of its keys, and say how far it carries."""
    from edgewise import sweeps

    place, targets = _place(scenario, "sweep", folder), list(map(sweeps.parse_target, target or ()))
    points = sweeps.Points(
        scenario, tuple(map(sweeps.parse_vary, vary)), () if chosen is None else dict([listing(chosen)]),
        by_decision(policy), targets[0].work if targets else "", tuple(parse_seeds(seeds)), parsed(changes),
        jobs, on, place, resume,
    )  # fmt: skip
    _answer(partial(sweeps.sweep, cure=cure), "sweep", points, targets, place, as_json)


@app.command(
    epilog="Example: edgewise size three-tier --vary clusters.cloud.nodes.count=1..8 "
    "--target streams.ok=80% --policy least-loaded-feasible"
)
def size(
    scenario: ScenarioArgument,
    vary: VaryOption,
    target: TargetOption = None,
    policy: PolicyOption = None,
    seeds: SeedsOption = "0:10",
    changes: SetOption = None,
    jobs: JobsOption = 1,
    on: OnOption = "",
    resume: ResumeOption = False,
    folder: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the cheapest hardware that surely meets targets: by bisection, or the frontier of two keys."""
    from edgewise import sweeps

    place, targets = _place(scenario, "size", folder), list(map(sweeps.parse_target, target or ()))
    points = sweeps.Points(
        scenario, tuple(sweeps.parse_vary(each, sweeps.FINE) for each in vary), (),
        by_decision(policy), targets[0].work if targets else "", tuple(parse_seeds(seeds)), parsed(changes),
        jobs, on, place, resume,
    )  # fmt: skip
    _answer(sweeps.size, "size", points, targets, place, as_json)


def _answer(
    verb: Callable[..., Answer],
    name: str,
    points: Points,
    targets: Sequence[Target],
    place: Path,
    as_json: bool,
) -> None:
    """Run what a verb asks for, and say what it found."""
    note(assigning.notes(points.base, points.work, f"edgewise {name}"))
    for each in points.vary:
        if each.with_its_end:
            note([f"--vary {each.path}: A:B leaves B out, as in --seeds; {each.with_its_end} has it"])
    with _watched(points):
        found = verb(points, targets, command())
    _show(found, place, as_json)


def _place(scenario: str, verb: str, folder: Path | None) -> Path:
    """The folder of what is found; it is made.

    Raises:
        RunError: it cannot be written, or holds what is no part of a sweep.
    """
    from edgewise.sweeps import FILES

    place = folder or Path("runs") / f"{Path(scenario).stem}-{verb}"
    check_folder("--out", place, "a sweep")
    if strange := sorted({entry.name for entry in place.iterdir()} - set(FILES)):
        raise RunError(f"--out {place}: holds {strange[0]}, no part of a sweep; choose another folder")
    return place


@contextmanager
def _watched(points: Points) -> Iterator[None]:
    """A bar while runs go on; whoever ends them early hears what is kept."""

    def kept() -> str:
        many = f"{len(points.kept())} runs ended and are kept in {points.folder}"
        return f"{many}; the same command with --resume goes on from there"

    with SaidProgress(kept=kept) as bar:
        task = bar.add_task("runs", total=0)

        def advance(asked: int, ended: int) -> None:
            bar.update(task, total=(bar.tasks[0].total or 0) + asked, advance=ended)

        points.progress = advance
        yield


def _show(found: Answer, place: Path, as_json: bool) -> None:
    found.save(place)
    stood_in = found.points.decided()
    for line in decided.lines(stood_in):
        note([line])
    for point, why in found.points.impossible.items():
        note([f"{', '.join(map(str, point))}: cannot be run: {why}"])
    if as_json:
        print(json.dumps(found.summary() | {"folder": str(place)}, indent=1))
        return refuse_undecided(decided.nothing(stood_in))
    headings, rows = found.shown()
    count = len(found.points.seeds)
    counted = f"{count} seed{'' if count == 1 else 's'}"
    show(headings, rows, f"scenario {found.points.base.name}, means over {counted}")
    for line in found.sentences:
        out.print(escape(line), highlight=False, soft_wrap=True)
    out.print(f"table, figure and report: [bold]{escape(str(place))}[/bold]", soft_wrap=True)
    refuse_undecided(decided.nothing(stood_in))
