"""What commands print: answers on standard output, what is said beside them on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

out = Console()
err = Console(stderr=True)


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
