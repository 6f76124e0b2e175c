"""What gateway and worker answer alike: who they are, whether they live, their metrics and document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from edgewise.runtime import http
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.metrics import page


def answer_about(
    request: http.HttpRequest,
    name: str,
    extensions: tuple[str, ...],
    draining: bool,
    registry: CollectorRegistry,
    document: Callable[[], dict[str, Any]],
) -> http.Response:
    """GET /v2, /v2/health/live, /v2/health/ready, /metrics and /openapi.json; 404 for everything else."""
    match request.parts:
        case ["v2"]:
            answer = http.as_json({"name": name, "version": "1", "extensions": list(extensions)})
        case ["v2", "health", "live"]:
            answer = http.as_json({"live": True})
        case ["v2", "health", "ready"]:
            answer = http.as_json({"ready": not draining}, 503 if draining else 200)
        case ["metrics"]:
            answer = page(registry)
        case ["openapi.json"]:
            answer = http.as_json(document())
        case _:
            return http.failure(404, f"no {request.path}")
    return answer if request.method == "GET" else not_allowed(f"{request.path} needs GET", "GET")
