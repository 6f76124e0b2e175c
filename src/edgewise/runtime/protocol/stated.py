"""What clients state in JSON and in headers, checked; and the names of our headers.

Every error names the field, what it holds and what it should.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from edgewise.errors import ProtocolError

MOST = 1e15


def stated_in(body: bytes, what: str) -> dict[str, Any]:
    """The JSON object that a body holds.

    Args:
        what: it should have, for the message.
    Raises:
        ProtocolError: it holds none.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProtocolError(f"body: a JSON object with {what} is needed")
    return found


def number(value: Any, name: str, least: float = 0.0, most: float = MOST) -> float:
    """A finite number.

    Raises:
        ProtocolError: it is none from `least` to `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ProtocolError(f"{name}: {str(value)[:80]!r} is not a number from {least:g} to {most:g}")
    return float(value)


def text(value: Any, name: str, least: int = 1, most: int = 1_000_000) -> str:
    """A text that everyone can write down; JSON may hold halves of characters, and zeros that end a path.

    Raises:
        ProtocolError: it is none, or of fewer than `least` or more than `most` characters.
    """
    if (
        isinstance(value, str)
        and least <= len(value) <= most
        and not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
    ):
        return value
    raise ProtocolError(f"{name}: {str(value)[:80]!r}; a text of {least} to {most} characters is needed")


def flag(value: Any, name: str) -> bool:
    """True or false.

    Raises:
        ProtocolError: it is neither.
    """
    if not isinstance(value, bool):
        raise ProtocolError(f"{name}: {str(value)[:80]!r}; true or false is needed")
    return value


STREAM = "edgewise-stream"  # a query's stream, by number
REMAINING = "edgewise-remaining-s"  # time left for a query
PRIORITY = "edgewise-priority"  # of a query at a worker; larger goes first
AGE = "edgewise-age-s"  # time since a query came to its gateway; workers of split variants take the oldest
WORKER, VARIANT = "edgewise-worker", "edgewise-variant"  # who answered
TOOK = "edgewise-worker-s"  # time an answered query spent at its worker
QUEUED = "edgewise-queued"  # queries that wait or run at a worker
DEADLINE = "edgewise-deadline-s"  # tolerated delay of a query
PLAN, SERVERS, SENT = "edgewise-plan", "edgewise-servers", "edgewise-sent-bytes"  # of a split query
TRACE = ("traceparent", "tracestate")  # W3C trace context, passed on


def in_header(headers: Mapping[str, str], name: str, default: float) -> float:
    """A header's number.

    Raises:
        ProtocolError: it is none.
    """
    text = headers.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise ProtocolError(f"{name}: {text!r} is not a number")
    return value


def remaining_s(headers: Mapping[str, str]) -> float:
    """Time left for a query; inf when its header is missing.

    Raises:
        ProtocolError: the header is no number.
    """
    return in_header(headers, REMAINING, math.inf)


def age_s(headers: Mapping[str, str]) -> float:
    """Time that a query has been under way; 0 when its header is missing.

    Raises:
        ProtocolError: the header is no number.
    """
    return max(in_header(headers, AGE, 0.0), 0.0)


def priority(headers: Mapping[str, str]) -> int:
    """Priority of a query; 0 when its header is missing.

    Raises:
        ProtocolError: the header is no whole number.
    """
    value = in_header(headers, PRIORITY, 0.0)
    if not value.is_integer() or abs(value) > 2**31:
        raise ProtocolError(f"{PRIORITY}: {headers[PRIORITY]!r} is not a whole number")
    return int(value)
