"""What commands share: the application, what they print, and what they say before any work.

Answers go to standard output, what is said beside them to standard error.

What a result came to is shown as tables or JSON.
"""

import json
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from edgewise.cli.offered import Offered
from edgewise.errors import EdgewiseError, RunError
from edgewise.report import decided, records, summary as summaries
from edgewise.report.schema import WORK
from edgewise.result import Comparison, Result, said_alike

out = Console()
err = Console(stderr=True)
# Commands in the order of `--help`.
PANELS = {
    "Simulate": "scenarios check policies simulate compare sweep size replay report schema",
    "Train and reproduce": "train reproduce looks freeze",
    "Run live": "up down status load record policy shadow streams workers drain resume pipelines nodes fail "
    "repair token",
    "Deferrable jobs, live": "submit jobs job",
    "Try on this machine": "demo run clean profile catalog kernels",
    "Parts of a live system": "worker gateway openapi",
}


class Commands(Offered):
    """Commands in panels."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; that a connection broke is said: click would take it for its output's."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise EdgewiseError(explain(error)) from error

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of `PANELS`, others last."""
        places = {name: place for place, name in enumerate(" ".join(PANELS.values()).split())}
        return sorted(super().list_commands(ctx), key=lambda name: places.get(name, len(places)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command with its panel."""
        found: Any = super().get_command(ctx, cmd_name)
        for panel, names in PANELS.items():
            if found is not None and cmd_name in names.split():
                found.rich_help_panel = panel
        return found


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Schedule machine-learning inference over edge and cloud, in simulation and live.",
    epilog="Example: edgewise compare three-tier --policies closest,least-impedance --seeds 0:10",
)


def explain(error: OSError) -> str:
    """What happened: not every `OSError` is about a file, time-outs and broken connections are such too."""
    if isinstance(error, ConnectionError | TimeoutError):
        return f"{str(error) or type(error).__name__}: the other side did not answer, or hung up; see its log"
    why = error.strerror or str(error)
    if error.filename is None:
        return why
    path = isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError)
    return f"{error.filename}: {why}{'; check the path and its rights' if path else ''}"


def note(lines: Sequence[str]) -> None:
    """Print one note of one or more lines; nothing where there is none."""
    for k, line in enumerate(lines):
        err.print("  " if k else "[yellow]note:[/yellow] ", end="")
        err.print(escape(line), highlight=False, soft_wrap=True)


def show(
    headings: Iterable[str], rows: Iterable[Sequence[Any]], title: str | None = None, console: Console = out
) -> None:
    """Print a table; cells are taken as they are, without markup."""
    table = Table(box=None, title=title)
    for heading in headings:
        table.add_column(heading, overflow="fold")  # a name that is cut names nothing
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else escape(str(cell)) for cell in row))
    console.print(table)


def refuse_given(context: typer.Context, names: Iterable[str], why: str) -> None:
    """Refuse what was given and would be passed over.

    Args:
        names: of parameters that do not apply.
        why: not, and what to do; comes after the name as a user writes it.
    Raises:
        EdgewiseError: one of them was given.
    """
    for each in context.command.params:
        source = context.get_parameter_source(each.name or "")
        if each.name in names and source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
            named = each.opts[0] if each.param_type_name == "option" else str(each.name).upper()
            raise EdgewiseError(f"{named}: {why}")


def check_file(flag: str, file: Path) -> None:
    """Make a file's folder, and see that the file may be written.

    Raises:
        RunError: it is a folder, or its own cannot be made or written.
    """
    if file.is_dir():
        raise RunError(f"{flag} {file}: is a folder; name a file")
    _make_writable(flag, file.parent)


def check_folder(flag: str, folder: Path, mine: str = "") -> None:
    """Make a folder, and see that it may be written.

    Args:
        mine: whose it may be, of `records.OWNERS`.
    Raises:
        RunError: it is a file or something else's, or cannot be made or written.
    """
    records.refuse_others(flag, folder, mine)
    _make_writable(flag, folder)


def _make_writable(flag: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RunError(f"{flag} {folder}: {error.strerror or error}; check the path and its rights") from None


def show_shadows(found: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
    """Say what second policies would have decided.

    Args:
        found: of each its decision, where that is made ("" where there is but one place), and its report
            (`core.guard`).
    """
    for decision, where, report in found:
        rows = [
            ("policy in shadow", report["policy"]),
            *((name, _plain(report[name])) for name in ("decisions", "alike", "seconds")),
            *((f"items: {name.replace('_', ' ')}", count) for name, count in report["items"].items()),
            *((f"chose {name}", count) for name, count in report["chosen"].items()),
            *((name, _plain(beside)) for name, beside in report["figures"].items()),
            *((f"fault: {name}", count) for name, count in report["faults"].items()),
        ]
        show((f"{decision} at {where}" if where else decision, ""), rows)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_plain(each)}" for name, each in value.items())
    return f"{value:.3f}".rstrip("0").rstrip(".")


def command() -> str:
    """The command line, to be repeated."""
    return shlex.join(["edgewise", *sys.argv[1:]])


def progress(counted: bool = True) -> Progress:
    """A bar on standard error, on a terminal only; `counted` says how many of how many."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *([MofNCompleteColumn()] if counted else []),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )


def show_result(result: Result, comparison: Comparison | None, folder: Path, as_json: bool) -> None:
    """Save a result and say what it came to; exit status 1 where a policy decided nothing itself."""
    summary = result.summary()
    rows = () if comparison is None else comparison.rows
    result.save(folder)
    note(summaries.warning(summary))
    for line in result.said():
        note([line])
    if as_json:
        names = ("policy", "rival", "mean", "rival_mean", "difference", "low", "high", "p_holm", "verdict")
        found = {
            "scenario": result.scenario.name,
            "settings": result.settings,
            "work": result.work,
            "policies": result.policies,
            "fixed": result.fixed,
            "seeds": result.seeds,
            "summary": summary,
            "delays": {work: rows for work, rows in result.delays().items() if rows},
            "refusals": result.refusals(),
            "use": [one._asdict() for one in result.used()],
            "beside": {work: each.summary() for work, each in result.beside.items()},
            "decision_s": result.decision_s,
            "decided": decided.as_json(result.all_decided),
            "alike": result.alike,
            "comparison": [{name: getattr(row, name) for name in names} for row in rows],
            "folder": str(folder),
        }
        print(json.dumps(found, indent=1))
        return refuse_undecided(result.undecided())
    _print_summary(result, summary, result.fixed if len(result.policies) > 1 else {})
    for each in result.beside.values():
        _print_summary(each, each.summary(), {})
    if comparison is None:
        _print_delays(result)
    if refused := result.refusals():
        show(refused[0], [tuple(map(str, row.values())) for row in refused], "why streams were refused")
    if rows:
        _print_comparison(result, rows)
    for line in said_alike(result.alike):
        out.print(escape(line), highlight=False, soft_wrap=True)
    out.print(f"records, figures and report: [bold]{escape(str(folder))}[/bold]")
    refuse_undecided(result.undecided())


def refuse_undecided(found: Sequence[str]) -> None:
    """Say of which policies no decision is their own, and exit with status 1 where there is one.

    It is the last thing that a command says: all that it found is said and kept.
    """
    for line in found:
        err.print(f"[red]error:[/red] {escape(line)}", highlight=False, soft_wrap=True)
    if found:
        raise typer.Exit(1)


def _print_summary(result: Result, summary: Sequence[dict[str, Any]], fixed: Mapping[str, str]) -> None:
    caption = "; ".join([WORK[result.work].about, *(f"{one}: {name}" for one, name in fixed.items())])
    setting = result.settings[result.work]
    title = f"{result.work} of scenario {result.scenario.name}, {setting}; means over seeds"
    table = Table(title=title, caption=caption, box=None, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold")  # where room is scarce, before figures are cut
    shares = decided.column(result.decided, result.policies)
    more = [decided.HEADING] if shares else []
    for heading in (*(measure.heading for measure in result.measures), *more, "runs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row, policy in enumerate(result.policies):
        mine = [row for row in summary if row["policy"] == policy]
        cells = []
        for measure in result.measures:
            known = [row[measure.key] for row in mine if row[measure.key] is not None]
            cells.append(measure.shown(sum(known) / len(known) if known else None))
        table.add_row(escape(policy), *cells, *([shares[row]] if shares else []), str(len(mine)))
    out.print(table)


def _print_delays(result: Result) -> None:
    """Quantiles of delays of each kind of work that has some."""
    policy = ("policy",) if len(result.policies) > 1 else ()
    columns = ("of", *policy, "count", "p50_s", "p95_s", "p99_s")
    rows = [
        (work, *(f"{row[name]:.3f}" if name.endswith("_s") else str(row[name]) for name in columns))
        for work, found in result.delays().items()
        for row in found
    ]
    if rows:
        show(("delays", "of", *policy, "count", "p50 s", "p95 s", "p99 s"), rows)


def _print_comparison(result: Result, rows: Sequence[Any]) -> None:
    measure = result.measures[0]
    shown = []
    for row in rows:
        ends = (
            None if row.low is None or row.high is None else f"{100 * row.low:+.2f} … {100 * row.high:+.2f}"
        )
        p = "–" if row.p_holm is None else f"{row.p_holm:.2g}"
        shown.append((row.policy, row.rival, f"{100 * row.difference:+.2f}", ends or "–", p, row.verdict))
    show(
        ("policy", "against", f"difference ({measure.unit})", "95 % interval", "p (Holm)", "verdict"),
        shown,
        measure.heading.removesuffix(" %"),
    )
