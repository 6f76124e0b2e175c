"""Traces through OpenTelemetry; the only module that imports it.

Which traces are kept is the SDK's affair: `OTEL_TRACES_SAMPLER` and its other variables work.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Any

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from edgewise.runtime.watch.tracing import Tracing

PATH = "/v1/traces"
PERIOD_S, TIMEOUT_S = 1.0, 2.0  # between exports, and for one


class OpenTelemetry(Tracing):
    """Records spans.

    Args:
        provider: where they go.
    """

    on = True

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("edgewise", version("edgewise"))
        self._format = TraceContextTextMapPropagator()
        self._wall_ns = time.time_ns() - time.monotonic_ns()

    @contextmanager
    def serve(self, name: str, headers: Mapping[str, str]) -> Iterator[None]:
        """See `Tracing`."""
        parent = self._format.extract(headers, context=context.Context())
        with self._tracer.start_as_current_span(name, parent, SpanKind.SERVER):
            yield

    def span(self, name: str) -> AbstractContextManager[Any]:
        """See `Tracing`."""
        kind = SpanKind.CLIENT if name == "forward" else SpanKind.INTERNAL
        return self._tracer.start_as_current_span(name, kind=kind)

    def note(self, **attributes: Any) -> None:
        """See `Tracing`; a `status` of 500 and more marks the span as failed."""
        span = trace.get_current_span()
        for name, value in attributes.items():
            span.set_attribute("http.response.status_code" if name == "status" else f"edgewise.{name}", value)
        if attributes.get("status", 0) >= 500:
            span.set_status(Status(StatusCode.ERROR))

    def pass_on(self, headers: dict[str, str]) -> None:
        """See `Tracing`."""
        self._format.inject(headers)

    def here(self) -> Any:
        """See `Tracing`."""
        return context.get_current()

    def past(self, name: str, parent: Any, began_s: float, ended_s: float) -> None:
        """See `Tracing`."""
        began_ns, ended_ns = (self._wall_ns + int(at_s * 1e9) for at_s in (began_s, ended_s))
        self._tracer.start_span(name, parent, start_time=began_ns).end(ended_ns)

    def close(self) -> None:
        """See `Tracing`."""
        self._provider.shutdown()


def exporting(url: str, service: str) -> OpenTelemetry:
    """Spans to a collector that takes OTLP over HTTP, sent in batches by a thread of their own."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    target = url if url.endswith(PATH) else url.rstrip("/") + PATH
    exporter = OTLPSpanExporter(endpoint=target, timeout=TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=PERIOD_S * 1e3))
    return OpenTelemetry(provider)
