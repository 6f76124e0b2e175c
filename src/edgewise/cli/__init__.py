"""The command line; each command says with `--help` what it does, with an example."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from edgewise import api, config, policies
from edgewise.cli import jobs, live, switch
from edgewise.cli import reproduce as reproducing
from edgewise.cli import stream as streaming
from edgewise.cli.catalog import catalog
from edgewise.cli.deferral import simulate_jobs
from edgewise.cli.kernels import kernels, say_when_compiling
from edgewise.cli.load import load
from edgewise.cli.notes import note
from edgewise.cli.orchestrate import orchestrate
from edgewise.cli.placing import simulate_pipelines
from edgewise.cli.profile import profile
from edgewise.cli.split import split
from edgewise.cli.standalone import app as standalone
from edgewise.cli.train import app as training
from edgewise.errors import EdgewiseError
from edgewise.model.scenario import Scenario
from edgewise.model.sections import SIMULATED, not_run
from edgewise.policies.cards import shipped
from edgewise.report import links, records
from edgewise.reproduce import seeds as splits

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Schedule machine-learning inference over edge and cloud, in simulation and live.",
    epilog="Example: edgewise compare three-tier --policies closest,least-impedance --seeds 0:10",
)
out = Console()
err = Console(stderr=True)

ScenarioArgument = Annotated[str, typer.Argument(help="A scenario file, or the name of a shipped one.")]
SeedsOption = Annotated[str, typer.Option(help="Seeds A:B (B not included), or a single seed.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change the scenario, for example streams.arrivals.clients_per_min=80; repeatable."
    ),
]


@app.command(epilog="Example: edgewise simulate full-edge --set topology.antennas=2 --policy closest")
def simulate(
    scenario: ScenarioArgument,
    policy: Annotated[
        str | None, typer.Option(help="DECISION=NAME, as defer=horizon; a dispatch policy alone as NAME.")
    ] = None,
    seeds: SeedsOption = "0:3",
    changes: SetOption = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Output folder.")] = None,
) -> None:
    """Simulate a scenario under one policy and write records, figures and a report."""
    chosen = parse_seeds(seeds)
    _check_place(folder)
    loaded = _load(scenario, changes)
    decision, policy = decided(loaded, policy)
    if decision == "defer":
        note(not_run(loaded.spec, ("jobs",), "edgewise simulate --policy defer"))
        return simulate_jobs(loaded, policy, chosen, folder, _command())
    if decision == "place":
        note(not_run(loaded.spec, ("pipelines",), "edgewise simulate --policy place"))
        return simulate_pipelines(loaded, policy, chosen, folder, _command())
    note(not_run(loaded.spec, SIMULATED, "edgewise simulate"))
    note(links.beforehand(loaded))
    with _progress() as bar:
        task = bar.add_task(f"{policy}", total=len(chosen))
        result = api.simulate(loaded, policy, chosen, progress=lambda: bar.advance(task), command=_command())
    _print_summary(result)
    _save(result, folder or Path("runs") / f"{result.scenario.name}-{result.policies[0]}")


@app.command(
    epilog="Example: edgewise compare three-tier --policies closest,mine.py:Mine --rival closest --seeds 0:10"
)
def compare(
    scenario: ScenarioArgument,
    chosen: Annotated[
        str, typer.Option("--policies", help="Names or file.py:Class, comma-separated; 'all': every name.")
    ] = "all",
    seeds: SeedsOption = "0:10",
    rival: Annotated[
        str | None, typer.Option(help="Compare the others with this one; default: the first.")
    ] = None,
    changes: SetOption = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Output folder.")] = None,
) -> None:
    """Compare policies on the same arrivals and noise, paired by seed."""
    cards = shipped("dispatch", "streams")  # each fits one topology; aset takes the one that fits
    every = {"all": [name for name in policies.names("dispatch") if name not in cards]}
    named = (name.strip() for name in (chosen.strip() or "all").split(","))
    listed = [each for name in named if name for each in every.get(name, [name])]
    numbers = parse_seeds(seeds)
    _check_place(folder)
    loaded = _load(scenario, changes)
    note(not_run(loaded.spec, SIMULATED, "edgewise compare"))
    note(links.beforehand(loaded))
    with _progress() as bar:
        task = bar.add_task("runs", total=len(numbers) * len(listed))
        comparison = api.compare(
            loaded,
            listed,
            numbers,
            rival=rival,
            progress=lambda: bar.advance(task),
            command=_command(),
        )
    _print_summary(comparison.result)
    _print_comparison(comparison)
    _save(comparison.result, folder or Path("runs") / f"{comparison.result.scenario.name}-compare")


@app.command(epilog="Example: edgewise report runs/three-tier-compare")
def report(folder: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Write figures and report.html of a run folder anew."""
    from edgewise.report import figures, html  # slow to import, and only needed here

    run = records.read_run(folder)
    images = figures.drawn(run)
    figures.save_all(run, folder, images=images)
    html.write_html(run, folder / "report.html", images=images)
    out.print(f"{folder / 'report.html'}")


@app.command(epilog="Example: edgewise scenarios")
def scenarios() -> None:
    """List the shipped scenarios, by the work that they hold."""
    forms = [config.scenario_form(name) for name in config.shipped_scenarios()]
    table = Table("scenario", "holds", "what", box=None)
    for form in sorted(forms, key=lambda form: form.holds):
        table.add_row(form.name, ", ".join(form.holds), form.description)
    out.print(table)


@app.command(name="policies", epilog="Example: edgewise policies")
def list_policies() -> None:
    """List every policy that can be named."""
    table = Table("policy", "what", box=None)
    for name in policies.names("dispatch"):
        table.add_row(name, (type(policies.load("dispatch", name)).__doc__ or "").strip().splitlines()[0])
    out.print(table)


@app.command(epilog="Example: edgewise schema > scenario.schema.json")
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    print(json.dumps(config.scenario_schema(), indent=2))


app.command(epilog="Example: edgewise profile tiny-yolov2-416 --threads 2 --out catalog.yaml")(profile)
app.command(epilog="Example: edgewise catalog detection")(catalog)
app.command(epilog="Example: edgewise split split-inception --simulate")(split)
app.command(epilog="Example: edgewise orchestrate kais-demo --dispatch closest")(orchestrate)
app.command(epilog="Example: edgewise kernels --into /opt/kernels")(kernels)
app.command(epilog="Example: edgewise load camera --rate-qps 60 --seconds 20")(load)
app.add_typer(reproducing.app)
app.add_typer(streaming.app, name="stream")
app.add_typer(live.app)
app.add_typer(standalone)
app.add_typer(switch.app)
app.add_typer(jobs.app)
app.add_typer(training, name="train")


# By the decisions that `simulate` knows.
DEFAULTS = {"dispatch": "least-impedance", "defer": "fifo", "place": "otfa"}
WORK = {"dispatch": "streams", "defer": "jobs", "place": "pipelines"}


def decided(scenario: Scenario, policy: str | None) -> tuple[str, str]:
    """Decision and policy of DECISION=NAME; without a decision that of the first work it holds.

    Raises:
        EdgewiseError: the decision is unknown.
    """
    stated, found, name = (policy or "").partition("=")
    if not found:
        held = [each for each, work in WORK.items() if work in scenario.spec.holds]
        stated, name = held[0] if held else "dispatch", policy or ""
    if stated not in WORK:
        raise EdgewiseError(f"--policy {policy}: unknown decision {stated!r}; use {' or '.join(WORK)}")
    return stated, name or DEFAULTS[stated]


def _load(scenario: str, changes: list[str] | None) -> Scenario:
    return config.load_scenario(scenario, dict(config.parse_setting(change) for change in changes or []))


def parse_seeds(text: str) -> range:
    """Seeds of "A:B" (B not included) or "A", test seeds excluded.

    Raises:
        EdgewiseError: anything else, an empty range, or a test seed.
    """
    seeds = splits.parse_seeds(text)
    splits.refuse_test_seeds(seeds)
    return seeds


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )


def _command() -> str:
    return shlex.join(["edgewise", *sys.argv[1:]])


def _print_summary(result: api.Result) -> None:
    summary = result.summary()
    note(links.warning(summary))
    table = Table(
        title=f"scenario {result.scenario.name}", caption="success: mean over queries, streams, applications"
    )
    table.add_column("policy", no_wrap=True)
    columns = {
        "success %": "success",
        "stream %": "success_by_stream",
        "app %": "success_by_application",
        "failed %": "failed",
        "rejected %": "rejected",
    }
    for heading in (*columns, "runs"):
        table.add_column(heading, justify="right")
    rows = [row for row in summary if row["queries"]]
    for policy in result.policies:
        mine = [row for row in rows if row["policy"] == policy]
        shares = [
            f"{100 * sum(row[key] for row in mine) / len(mine):.2f}" if mine else "–"
            for key in columns.values()
        ]
        table.add_row(escape(policy), *shares, str(len(mine)))
    out.print(table)
    for policy, faults in result.faults.items():
        why = ", ".join(f"{why} ({count} times)" for why, count in faults.items())
        what = f"the fallback decided in its place: {why}; edgewise.testing.check_policy says more"
        err.print(f"[yellow]note:[/yellow] {escape(policy)}: {escape(what)}", highlight=False, soft_wrap=True)


def _print_comparison(comparison: api.Comparison) -> None:
    table = Table("policy", "against", "difference (points)", "95 % interval", "p (Holm)", "verdict")
    for row in comparison.rows:
        interval = _interval(row.low, row.high)
        p = "–" if row.p_holm is None else f"{row.p_holm:.2g}"
        table.add_row(row.policy, row.rival, f"{100 * row.difference:+.2f}", interval, p, row.verdict)
    out.print(table)


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{100 * low:+.2f} … {100 * high:+.2f}"


def _check_place(folder: Path | None) -> None:
    """Say before the work that its folder cannot be written."""
    records.check_place(folder or Path("runs") / "any")


def _save(result: api.Result, folder: Path) -> None:
    out.print(f"records, figures and report: [bold]{result.save(folder)}[/bold]")


def _fail(message: str) -> NoReturn:
    err.print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)


def explain(error: OSError) -> str:
    """What happened: not every `OSError` is about a file, time-outs and broken connections are such too."""
    if isinstance(error, ConnectionError | TimeoutError):
        return f"{str(error) or type(error).__name__}: the other side did not answer, or hung up; see its log"
    why = error.strerror or str(error)
    if error.filename is None:
        return why
    path = isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError)
    return f"{error.filename}: {why}{'; check the path and its rights' if path else ''}"


def main() -> None:
    """Run the command line; errors meant for the user become one message and exit status 2."""
    say_when_compiling()
    try:
        app()
    except EdgewiseError as error:
        _fail(str(error))
    except OSError as error:  # nothing closer has explained it
        _fail(explain(error))
    except KeyboardInterrupt:
        sys.exit(130)
