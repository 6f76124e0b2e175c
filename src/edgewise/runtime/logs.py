"""Logs as one JSON object a line: time, level, logger, message, and whatever `extra` carried.

Files of logs are begun anew when they are large, by whoever keeps the folder: see `upkeep`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from edgewise.runtime import private

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
            newer.replace(older)
    with file.open("r+b") as source, private.open_file(names[1], "wb") as target:
        os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode & 0o777)
        source.seek(max(size - most_bytes, 0))
        shutil.copyfileobj(source, target, 2**20)
        source.truncate(0)
    return True


def end_of(file: Path, most_bytes: int) -> tuple[int, bytes]:
    """Size and end of a file that may have been begun anew; 0 and nothing where there is none."""
    size, ends = 0, b""
    for name in (file, file.with_name(f"{file.name}.1")):
        with contextlib.suppress(OSError), name.open("rb") as part:
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
