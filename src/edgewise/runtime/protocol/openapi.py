"""What gateway and worker answer alike, the OpenAPI documents, and what they refuse.

Paths are a table (`openapi.yaml`), schemas come from the types that handlers read and write
(`bodies`, `controller_bodies`, `shown_bodies`).
"""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import yaml
from prometheus_client import CollectorRegistry

from edgewise.runtime import http
from edgewise.runtime.http.messages import HttpRequest, Response, failure, not_allowed
from edgewise.runtime.protocol.bodies import SAID, Alive, Ready, ServerMetadata
from edgewise.runtime.protocol.controller_bodies import SAID_BY_CONTROLLER
from edgewise.runtime.protocol.shown_bodies import SHOWN_BODIES
from edgewise.runtime.watch.metrics import page

SCHEMAS = "#/components/schemas/"
NAMES = ("gateway", "worker", "controller")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is there


@cache
def document(name: str) -> dict[str, Any]:
    """The document of a "gateway", a "worker" or the "controller"; JSON values."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, _LOADER)[name]
    found["info"]["version"] = version("edgewise")
    types = (*SAID, *SAID_BY_CONTROLLER, *SHOWN_BODIES)
    schemas = msgspec.json.schema_components(types, ref_template=f"{SCHEMAS}{{name}}")[1]
    named, seen = set(_named(found["paths"])), set[str]()
    while named := named - seen:  # what they are made of as well
        seen |= named
        named = {each for name in named for each in _named(schemas[name])}
    found["components"]["schemas"] = {name: schemas[name] for name in sorted(seen)}
    return found


def _named(part: Any) -> Iterator[str]:
    """Schemas that a part of a document refers to."""
    if isinstance(part, dict):
        if isinstance(where := part.get("$ref"), str):
            yield where.removeprefix(SCHEMAS)
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _named(each)


def unanswered(request: HttpRequest, name: str) -> Response:
    """The answer to what nobody answers: 405 where the path takes other methods, else 404.

    Args:
        name: of the document that says so.
    """
    parts = request.parts
    if parts[3:5] == ["versions", "1"]:
        del parts[3:5]  # of a model: the one that there is
    for path, operations in document(name)["paths"].items():
        pattern = path.strip("/").split("/")
        if len(pattern) == len(parts) and all(
            each.startswith("{") or each == part for each, part in zip(pattern, parts, strict=True)
        ):
            methods = [method.upper() for method in operations]
            return not_allowed(f"{request.path} takes {' and '.join(methods)}", *methods)
    return failure(404, f"no {request.path}")


def answer_about(
    request: http.HttpRequest,
    name: str,
    extensions: tuple[str, ...],
    draining: bool,
    registry: CollectorRegistry,
) -> http.Response:
    """GET /v2, /v2/health/live, /v2/health/ready, /metrics and /openapi.json; everything else is refused.

    Args:
        name: "gateway" or "worker".
    """
    match request.method, request.parts:
        case "GET", ["v2"]:
            return http.as_json(ServerMetadata(f"edgewise-{name}", "1", list(extensions)))
        case "GET", ["v2", "health", "live"]:
            return http.as_json(Alive(True))
        case "GET", ["v2", "health", "ready"]:
            return http.as_json(Ready(not draining), 503 if draining else 200)
        case "GET", ["metrics"]:
            return page(registry)
        case "GET", ["openapi.json"]:
            return http.as_json(document(name))
    return unanswered(request, name)
