"""Where the spans of a process go: to a collector of OpenTelemetry, or nowhere."""

import importlib.util

from edgewise.errors import ScenarioError
from edgewise.runtime.watch.tracing import OFF, Tracing


def tracing_to(url: str | None, service: str) -> Tracing:
    """What records the spans of a process.

    Args:
        url: of a collector that takes OTLP over HTTP, such as http://localhost:4318; None for no traces.
        service: name of the process.
    Raises:
        ScenarioError: OpenTelemetry is not installed, or the address is none.
    """
    check_otlp(url)
    if url is None:
        return OFF
    from edgewise.runtime.watch.otel import exporting  # an extra

    return exporting(url, service)


def check_otlp(url: str | None) -> None:
    """See `tracing_to`, before any process is started."""
    if url is None:
        return
    if not url.startswith(("http://", "https://")):
        raise ScenarioError(f"otlp: {url!r} is not a collector's address, such as http://localhost:4318")
    if importlib.util.find_spec("opentelemetry") is None:
        raise ScenarioError("otlp: OpenTelemetry is not installed: pip install 'edgewise[otel]'")
