"""What the controller answers about nodes: who holds what of each, and which of them an operator fails.

GET    /v1/nodes           the ledger
PUT    /v1/nodes/{name}    {"up": bool}: false fails it with all that runs there, true repairs it
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from edgewise.errors import ProtocolError
from edgewise.runtime import http
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.protocol.openapi import unanswered
from edgewise.runtime.protocol.stated import flag, stated_in

log = logging.getLogger("edgewise.nodes")


def answer(plane: LivePlane, request: http.HttpRequest, end: Callable[[], None]) -> http.Response:
    """Answer a request about nodes.

    Args:
        end: ends what runs on nodes that are down.
    Raises:
        ProtocolError: there is no such node.
    """
    match request.method, request.parts[2:]:
        case "GET", []:
            return http.as_json(report(plane))
        case "PUT", [name]:
            return http.as_json(_change(plane, name, request.body, end))
    return unanswered(request, "controller")


def report(plane: LivePlane) -> list[dict[str, Any]]:
    """The ledger as it is now; nothing before there is a scenario."""
    if plane.has_scenario:
        plane.listen(time.time())
        return plane.report()
    return []


def _change(plane: LivePlane, name: str, body: bytes, end: Callable[[], None]) -> dict[str, Any]:
    names = [row["node"] for row in report(plane)]
    if name not in names:
        raise ProtocolError(f"no node {name[:80]!r}; there are {', '.join(names) or 'none'}", status=404)
    up = flag(stated_in(body, "up").get("up"), "up")
    if up == (name in plane.store.nodes_down()):
        plane.store.change_node(name, up)
        log.warning("node repaired" if up else "node failed", extra={"who": name})
        end()  # before anybody decides about it
        plane.listen(time.time())
    return {"node": name, "up": up}
