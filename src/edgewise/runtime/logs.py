"""Logs as one JSON object a line: time, level, logger, message, and whatever `extra` carried."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

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


def log_json(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send edgewise's logs to `stream` (standard error by default) as JSON lines, and others' warnings."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("edgewise")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    logging.lastResort = handler  # of whoever has no other: asyncio, the exporter of traces
