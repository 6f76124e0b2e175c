"""What commands share: the application, what they print, and what they say before any work.

Answers go to standard output, what is said beside them to standard error.

Nothing here takes long to import.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from edgewise.errors import EdgewiseError, RunError

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
out = Console()
err = Console(stderr=True)
wrong = Console(stderr=True)  # errors, which are said however quiet a command is to be


def be_quiet(quiet: bool) -> bool:
    """Say nothing beside the answer but errors, or say it again."""
    err.quiet = quiet
    return quiet


def fail(message: str) -> None:
    """Print an error, in the one form that errors have."""
    wrong.print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)


def answer(found: Any, as_json: bool, shown: Callable[[], Any]) -> None:
    """Print what was asked for: as JSON, or as it is shown to people."""
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        shown()


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
    headings: Iterable[str],
    rows: Iterable[Sequence[Any]],
    title: str | None = None,
    console: Console = out,
    caption: str | None = None,
) -> None:
    """Print a table; cells are taken as they are, without markup, and no word of them is broken.

    Columns that have no room beside each other follow in a second table, which names its rows again.
    """
    names = list(headings)
    cells = [[cell if isinstance(cell, Text) else str(cell) for cell in row] for row in rows]
    columns = [_Column(name, [row[k] for row in cells]) for k, name in enumerate(names)]
    beside = _beside(columns, console.width)
    for k, chosen in enumerate(beside):
        first, last = k == 0, k == len(beside) - 1
        below = caption if first and last else None
        table = Table(box=None, title=title if first else None, caption=below)
        for column, width in zip(chosen, _widths(chosen, console.width), strict=True):
            table.add_column(escape(column.heading), width=width, overflow="fold", justify=column.side)
        for row in zip(*(column.cells for column in chosen), strict=True):
            table.add_row(*(cell if isinstance(cell, Text) else escape(cell) for cell in row))
        console.print(table)
    if caption and len(beside) > 1:  # a caption is as wide as its table, and the last may be narrow
        console.print(Text(caption, style="table.caption"))


_GAP = 2  # columns between two columns of a table, and around it
_FIGURE = re.compile(r"[-+–<≤>≥]?[\d.,]*(e[-+]\d+)?( ?[%×])?( … .*)?")


class _Column(NamedTuple):
    heading: str
    cells: list[Any]

    @property
    def texts(self) -> list[str]:
        return [self.heading, *(str(cell) for cell in self.cells)]

    @property
    def natural(self) -> int:
        return max(len(line) for text in self.texts for line in text.splitlines() or [""])

    @property
    def least(self) -> int:
        """So wide is its longest word, or its longest cell where cells are figures."""
        whole = self.texts[1:] if self.side == "right" else []
        return max(len(word) for text in self.texts for word in (*text.split(), "", *whole))

    @property
    def side(self) -> Literal["left", "right"]:
        figures = bool(self.cells) and all(_FIGURE.fullmatch(text) for text in self.texts[1:])
        return "right" if figures else "left"


def _beside(columns: Sequence[_Column], width: int) -> list[list[_Column]]:
    """Columns that have room beside each other; the first, which names the rows, in all."""
    found: list[list[_Column]] = [[]]
    for column in columns:
        taken = sum(each.least + _GAP for each in found[-1])
        if len(found[-1]) > 1 and taken + column.least + _GAP > width:
            found.append([columns[0]])
        found[-1].append(column)
    return found


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """The longest word of each, and what is left shared among those that have more to say."""
    least, natural = [each.least for each in columns], [each.natural for each in columns]
    left = width - sum(least) - _GAP * len(columns)
    more = [n - few for n, few in zip(natural, least, strict=True)]
    if left >= sum(more):
        return natural
    share = max(left, 0) / max(sum(more), 1)
    return [min(few + int(share * m), max(width - _GAP, 1)) for few, m in zip(least, more, strict=True)]


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
    from edgewise.report import records  # reads and writes tables, which takes long to import

    records.refuse_others(flag, folder, mine)
    _make_writable(flag, folder)


def _make_writable(flag: str, folder: Path) -> None:
    import tempfile  # brings random numbers and archives

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


@contextmanager
def stopping(kept: Callable[[], str]) -> Iterator[None]:
    """Whoever ends what is done here by Ctrl-C hears what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        say_stopped(kept())
        raise


_stopped: list[str] = []


def say_stopped(kept: str) -> None:
    """Say that Ctrl-C has ended a command, and what is kept; once."""
    if not _stopped:
        wrong.print("stopped" + (f": {kept}" if kept else ""), highlight=False, markup=False, soft_wrap=True)
        _stopped.append(kept)


def end_of(status: Any) -> int:
    """The exit status of a command; that it was ended is said by now."""
    if status == 130:
        say_stopped("")
    _stopped.clear()
    return status if isinstance(status, int) else 0
