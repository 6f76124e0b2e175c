"""What commands share: the application, what they print, and what they say before any work.

Answers go to standard output, what is said beside them to standard error.
"""

import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from edgewise.errors import EdgewiseError, RunError

out = Console()
err = Console(stderr=True)
PANELS = {
    "Simulate": "scenarios explain policies simulate compare sweep size replay report schema",
    "Train and reproduce": "train reproduce looks freeze",
    "Run live": "up down status load record policy shadow streams workers drain resume pipelines nodes fail "
    "repair token",
    "Deferrable jobs, live": "submit jobs job",
    "Try on this machine": "demo run clean profile catalog kernels",
    "Parts of a live system": "worker gateway openapi",
}
"""Commands in the order of `--help`."""


class Commands(TyperGroup):
    """Commands in panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of `PANELS`."""
        listed = " ".join(PANELS.values()).split()
        return sorted(super().list_commands(ctx), key=listed.index)

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


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports that `what` needs the extra `name` for.

    Raises:
        EdgewiseError: one of them is missing; says what to install.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("edgewise"):
            raise  # a fault of ours, which no installing mends
        raise EdgewiseError(f"{what} cannot import {error.name}: pip install 'edgewise[{name}]'") from error


def check_file(flag: str, file: Path) -> None:
    """Make a file's folder, and see that the file may be written.

    Raises:
        RunError: it is a folder, or its own cannot be made or written.
    """
    if file.is_dir():
        raise RunError(f"{flag} {file}: is a folder; name a file")
    check_folder(flag, file.parent)


def check_folder(flag: str, folder: Path) -> None:
    """Make a folder, and see that it may be written.

    Raises:
        RunError: it is a file, or cannot be made or written.
    """
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
            (`core.shadow`).
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
