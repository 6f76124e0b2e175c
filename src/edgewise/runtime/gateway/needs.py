"""What a stream needs, as clients state it: a JSON object, or headers of each query."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from edgewise.core.world import World
from edgewise.errors import ProtocolError
from edgewise.model.work import Stream
from edgewise.runtime.protocol.headers import DEADLINE
from edgewise.runtime.store import is_text

FIGURES: dict[str, float | None] = {
    "rate_qps": None, "size_bytes": None, "deadline_s": None, "min_accuracy": 0.0,
}  # fmt: skip
KNOWN = ("task", "application", "site", "priority", *FIGURES)
HEADERS = {
    "edgewise-rate-qps": "rate_qps",
    DEADLINE: "deadline_s",
    "edgewise-size-bytes": "size_bytes",
    "edgewise-min-accuracy": "min_accuracy",
    "edgewise-application": "application",
    "edgewise-site": "site",
    "edgewise-priority": "priority",
}
WORDS = ("application", "site")
MOST = 1e15


def from_json(body: bytes) -> dict[str, Any]:
    """Needs in the body of POST /v1/streams.

    Raises:
        ProtocolError: no JSON object.
    """
    try:
        needs = json.loads(body)
    except (ValueError, RecursionError):
        needs = None
    if not isinstance(needs, dict):
        raise ProtocolError("body: a JSON object with the stream's needs is needed")
    return needs


def from_headers(headers: Mapping[str, str], task: str, size_bytes: int) -> dict[str, Any]:
    """Needs in the headers of a query; the size is that of the query where no header says it.

    Raises:
        ProtocolError: a header is no number.
    """
    needs: dict[str, Any] = {"task": task, "size_bytes": size_bytes}
    for header, name in HEADERS.items():
        if header in headers:
            needs[name] = headers[header] if name in WORDS else _number(headers[header], header)
    return needs


def to_stream(needs: dict[str, Any], stream_id: int, world: World, now_s: float) -> Stream:
    """The stream that has these needs.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    if strange := sorted(set(needs) - set(KNOWN)):
        raise ProtocolError(f"{strange[0][:80]}: unknown; a stream has {', '.join(sorted(KNOWN))}")
    site = needs.get("site", world.site_names[0])
    if not isinstance(site, str) or site not in world.site_names:
        raise ProtocolError(f"site: {str(site)[:80]!r} is none of {', '.join(world.site_names)}")
    for name, default in (("task", None), ("application", "")):
        text = needs.get(name, default)
        if not isinstance(text, str) or len(text) > 200 or not is_text(text):
            raise ProtocolError(f"{name}: a string of at most 200 characters is needed")
    priority = needs.get("priority", 0)
    if type(priority) is not int or abs(priority) > 2**31:
        raise ProtocolError("priority: a whole number is needed")
    figures = {name: _figure(needs, name, default) for name, default in FIGURES.items()}
    return Stream(
        id=stream_id,
        site=world.site_names.index(site),
        application=needs.get("application", ""),
        task=needs["task"],
        open_s=now_s,
        close_s=math.inf,
        priority=priority,
        rate_qps=figures["rate_qps"],
        size_bytes=figures["size_bytes"],
        deadline_s=figures["deadline_s"],
        min_accuracy=figures["min_accuracy"],
    )


def _number(text: str, header: str) -> float | int:
    try:
        return int(text) if header == "edgewise-priority" else float(text)
    except ValueError:
        raise ProtocolError(f"{header}: {text!r} is not a number") from None


def _figure(needs: dict[str, Any], name: str, default: float | None) -> float:
    value = needs.get(name, default)
    if value is None:
        raise ProtocolError(f"{name}: missing; a number is needed")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise ProtocolError(f"{name}: {str(value)[:80]} is not a number from 0 to {MOST:g}")
    if name == "rate_qps" and value == 0:
        raise ProtocolError("rate_qps: must be greater than 0")
    return float(value)
