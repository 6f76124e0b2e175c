"""What processes say when they end: one line for whoever runs the system; details of a fault lie beside."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgewise.errors import EdgewiseError
from edgewise.runtime import private
from edgewise.runtime.backends.local import log_file

ERROR = "error: "


@contextmanager
def last_words(folder: Path, name: str) -> Iterator[None]:
    """Say in one line why a process ends that cannot go on.

    Raises:
        SystemExit: it has said so; status 1.
    """
    try:
        yield
    except EdgewiseError as error:
        print(f"{ERROR}{error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    except Exception as error:  # a fault of ours: nobody may be left with a bare traceback, or with nothing
        print(f"{ERROR}{fault(folder, name, error)}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None


def fault(folder: Path, name: str, error: Exception) -> str:
    """A line about a fault of ours, once its details are in a file beside the process's log."""
    file = log_file(folder, f"{name}.crash")
    where = f"what helps to mend it is in {file}: report it with that"
    try:
        with private.open_file(file, "a") as details:
            details.write(
                f"{time.strftime('%Y-%m-%d %H:%M:%S')} {''.join(traceback.format_exception(error))}\n"
            )
    except OSError as full:
        where = f"details could not be written: {full}"
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{name} ended by a fault of edgewise, {what}; its place is taken anew; {where}"


def said_last(folder: Path, name: str) -> str:
    """The error that a process ended with, as its log has it."""
    with suppress(OSError):
        lines = log_file(folder, name).read_text(errors="replace")[-8192:].splitlines()
        said = [line for line in lines if line and not line.startswith("{")]
        errors = [line.removeprefix(ERROR) for line in said if line.startswith(ERROR)]
        if said:
            return (errors or said)[-1]
    return "its log does not say why"
