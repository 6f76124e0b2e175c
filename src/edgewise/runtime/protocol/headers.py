"""Names of the headers that edgewise adds to the protocol, and how they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgewise.errors import ProtocolError

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


def number(headers: Mapping[str, str], name: str, default: float) -> float:
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
    return number(headers, REMAINING, math.inf)


def age_s(headers: Mapping[str, str]) -> float:
    """Time that a query has been under way; 0 when its header is missing.

    Raises:
        ProtocolError: the header is no number.
    """
    return max(number(headers, AGE, 0.0), 0.0)


def priority(headers: Mapping[str, str]) -> int:
    """Priority of a query; 0 when its header is missing.

    Raises:
        ProtocolError: the header is no whole number.
    """
    value = number(headers, PRIORITY, 0.0)
    if not value.is_integer() or abs(value) > 2**31:
        raise ProtocolError(f"{PRIORITY}: {headers[PRIORITY]!r} is not a whole number")
    return int(value)
