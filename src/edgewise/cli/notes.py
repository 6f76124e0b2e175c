"""Notes of a command to its user, before the work and after it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

out = Console(stderr=True)


def note(lines: Sequence[str]) -> None:
    """Print one note of one or more lines; nothing where there is none."""
    for k, line in enumerate(lines):
        out.print("  " if k else "[yellow]note:[/yellow] ", end="")
        out.print(escape(line), highlight=False, soft_wrap=True)
