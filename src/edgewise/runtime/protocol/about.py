"""What gateway and worker answer alike: who they are, whether they live, their metrics and document."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from edgewise.runtime import http
from edgewise.runtime.metrics import page
from edgewise.runtime.protocol.openapi import document, unanswered


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
            return http.as_json({"name": f"edgewise-{name}", "version": "1", "extensions": list(extensions)})
        case "GET", ["v2", "health", "live"]:
            return http.as_json({"live": True})
        case "GET", ["v2", "health", "ready"]:
            return http.as_json({"ready": not draining}, 503 if draining else 200)
        case "GET", ["metrics"]:
            return page(registry)
        case "GET", ["openapi.json"]:
            return http.as_json(document(name))
    return unanswered(request, name)
