"""Logs as one JSON object a line: time, level, logger, message, and whatever `extra` carried.

Files of logs are begun anew when they are large, by whoever keeps the folder: see `upkeep`. What processes
say when they end stands there, too: one line for whoever runs the system; details of a fault lie beside.
"""

import json
import logging
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from edgewise.errors import EdgewiseError
from edgewise.runtime import disk
from edgewise.runtime.process.places import log_file

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Writes a record and its extras as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class SaidOnce:
    """Goes on where something fails that may do better the next time; the same error again is not logged.

    Args:
        log, what: where, and under which message.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log, self._what, self._last = log, what, ""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Errors for users, and of files, end what is within."""
        try:
            yield
            self._last = ""
        except (EdgewiseError, OSError) as error:
            if str(error) != self._last:
                self._log.error(self._what, extra={"why": str(error)})
            self._last = str(error)


def begin_anew(file: Path, most_bytes: int, kept: int) -> bool:
    """Empty a file that is larger than `most_bytes`, once its end is in FILE.1, what was there in FILE.2 …

    Args:
        file: whoever writes it has opened it for appending, and goes on at its new end.
        kept: files in all, at least 2.
    Returns:
        whether it was.
    """
    size = file.stat().st_size
    if size <= most_bytes:
        return False
    names = [file, *(file.with_name(f"{file.name}.{k}") for k in range(1, kept))]
    for older, newer in zip(names[:1:-1], names[-2:0:-1], strict=True):
        if newer.exists():
            disk.move(newer, older)
    with disk.open_file(file, "r+b") as source, disk.open_file(names[1], "wb") as target:
        os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode & 0o777)
        source.seek(max(size - most_bytes, 0))
        shutil.copyfileobj(source, target, 2**20)
        source.truncate(0)
    return True


def end_of(file: Path, most_bytes: int) -> tuple[int, bytes]:
    """Size and end of a file that may have been begun anew; 0 and nothing where there is none."""
    size, ends = 0, b""
    for name in (file, file.with_name(f"{file.name}.1")):
        with suppress(OSError), name.open("rb") as part:
            here = part.seek(0, os.SEEK_END)
            part.seek(max(here - (most_bytes - len(ends)), 0))
            size, ends = size + here, part.read() + ends
    return size, ends[-most_bytes:]


def log_json(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send edgewise's logs to `stream` (standard error by default) as JSON lines, and others' warnings."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("edgewise")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    logging.lastResort = handler  # of whoever has no other: asyncio, the exporter of traces


ERROR = "error: "


@contextmanager
def last_words(folder: Path, name: str) -> Iterator[None]:
    """Say in one line why a process ends that cannot go on.

    Raises:
        SystemExit: it has said so; status 1.
    """
    try:
        yield
    except Exception as error:  # a fault of ours: nobody may be left with a bare traceback, or with nothing
        said = error if isinstance(error, EdgewiseError) else fault(folder, name, error)
        print(f"{ERROR}{said}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None


def fault(folder: Path, name: str, error: Exception) -> str:
    """A line about a fault of ours, once its details are in a file beside the process's log."""
    file = log_file(folder, f"{name}.crash")
    where = f"what helps to mend it is in {file}: report it with that"
    try:
        with disk.open_file(file, "a") as details:
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
