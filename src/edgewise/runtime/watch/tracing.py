"""Traces of queries, off unless asked for (`watch.collector`): `watch.otel` records them, `Tracing` itself
records nothing.

    gateway   infer ─┬─ decide
                     └─ forward ─▶ worker   infer ─┬─ queue
                                                   └─ run

A client's W3C trace context (`traceparent`) is the root; without one the gateway begins a trace.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

NOTHING: AbstractContextManager[None] = nullcontext()


class Tracing:
    """Records nothing.

    Attributes:
        on: whether spans are recorded.
    """

    on = False

    def serve(self, name: str, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """A request that is answered here, child of the span that its headers name."""
        return NOTHING

    def span(self, name: str) -> AbstractContextManager[None]:
        """A part of what this task does now."""
        return NOTHING

    def note(self, **attributes: Any) -> None:
        """Say more of the present span; names get the prefix "edgewise."."""

    def pass_on(self, headers: dict[str, str]) -> None:
        """Write the present span into the headers of a request to another process."""

    def here(self) -> Any:
        """The present span, for `past`."""
        return None

    def past(self, name: str, parent: Any, began_s: float, ended_s: float) -> None:
        """A part that is over; times as `runtime.clock.monotonic_s` tells them."""

    def close(self) -> None:
        """Send what is left."""


OFF = Tracing()
