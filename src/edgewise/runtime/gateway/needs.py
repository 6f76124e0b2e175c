"""What a stream needs, as clients state it: a JSON object, or headers of each query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgewise.core.world import World
from edgewise.errors import ProtocolError
from edgewise.model.work import Stream
from edgewise.runtime.protocol.stated import DEADLINE, number, text

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
LONGEST = 200


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
    task = text(needs.get("task"), "task", least=0, most=LONGEST)
    application = text(needs.get("application", ""), "application", least=0, most=LONGEST)
    priority = needs.get("priority", 0)
    if type(priority) is not int or abs(priority) > 2**31:
        raise ProtocolError("priority: a whole number is needed")
    figures = {name: number(needs.get(name, default), name) for name, default in FIGURES.items()}
    if figures["rate_qps"] == 0.0:
        raise ProtocolError("rate_qps: must be greater than 0")
    return Stream(
        id=stream_id,
        site=world.site_names.index(site),
        application=application,
        task=task,
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
