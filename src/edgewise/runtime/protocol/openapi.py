"""The OpenAPI documents of worker, gateway and controller, from `openapi.yaml`, and what they refuse."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from edgewise.runtime.http.messages import HttpRequest, Response, failure, not_allowed

NAMES = ("gateway", "worker", "controller")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is there


@cache
def document(name: str) -> dict[str, Any]:
    """The document of a "gateway", a "worker" or the "controller"; JSON values."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, _LOADER)[name]
    found["info"]["version"] = version("edgewise")
    return found


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
