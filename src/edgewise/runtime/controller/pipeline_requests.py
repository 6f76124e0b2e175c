"""What the controller answers about pipelines; a token guards it, for their tasks are programs.

GET    /v1/admin/pipelines         every pipeline, oldest first
POST   /v1/admin/pipelines         {"key", "live"}: run one; the same `key` is the same pipeline
DELETE /v1/admin/pipelines/{id}    end it
"""

from __future__ import annotations

from typing import Any

import msgspec

from edgewise.errors import ProtocolError, ScenarioError
from edgewise.runtime import http
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.protocol.openapi import unanswered
from edgewise.runtime.protocol.stated import stated_in, text


def answer(pipelines: LivePipelines, request: http.HttpRequest) -> http.Response:
    """Answer a request about pipelines.

    Raises:
        ProtocolError: it cannot be done; says why.
    """
    match request.method, request.parts[3:]:
        case "GET", []:
            return http.as_json([kept.row() for kept in pipelines.book.listed()])
        case "POST", []:
            return http.as_json(_submit(pipelines, request.body))
        case "DELETE", [number]:
            known = number.isascii() and number.isdigit() and len(number) < 19
            if not known or pipelines.book.get(int(number)) is None:
                raise ProtocolError(f"no pipeline {number[:80]!r}; edgewise pipelines lists them", status=404)
            pipelines.book.cancel(int(number))
            return http.as_json({"id": int(number), "ending": True})
    return unanswered(request, "controller")


def _submit(pipelines: LivePipelines, body: bytes) -> dict[str, Any]:
    given = stated_in(body, "key and live")
    key = text(given.get("key"), "key")
    if not pipelines.there:
        raise ProtocolError("pipelines: the scenario holds none; add a section of them", status=404)
    try:
        live = msgspec.convert(given.get("live"), LivePipeline)
        pipelines.check(live)
    except (msgspec.ValidationError, ScenarioError, ValueError) as error:
        raise ProtocolError(f"live: {error}") from None
    return pipelines.book.submit(key, live).row()
