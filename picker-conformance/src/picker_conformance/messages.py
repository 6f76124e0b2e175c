"""What a data plane puts into its messages: an HTTP request, headers, metadata, and their names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode

DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
SUBSET = "x-gateway-destination-endpoint-subset"
LB = "envoy.lb"
SUBSET_HINT = "envoy.lb.subset_hint"

NONE = ProcessingMode.NONE
STREAMED = ProcessingMode.STREAMED
BUFFERED = ProcessingMode.BUFFERED
FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED


@dataclass(frozen=True)
class Request:
    """An HTTP request as a client sends it.

    Attributes:
        body: None for a request without one.
        subset: what the data plane puts under the subset hint; None leaves the hint out.
        headers: beside the usual ones.
    """

    body: bytes | None = b'{"model": "m", "prompt": "Hello", "max_tokens": 8}'
    path: str = "/v1/completions"
    subset: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def header_map(self) -> base_pb2.HeaderMap:
        """Header names in lower case, values as raw bytes: the form in which Envoy sends them."""
        usual = {
            ":method": "GET" if self.body is None else "POST",
            ":scheme": "http",
            ":authority": "models.example",
            ":path": self.path,
            "x-request-id": str(uuid.uuid4()),
            "content-type": "application/json",
        }
        if self.body is not None:
            usual["content-length"] = str(len(self.body))
        return header_map({**usual, **self.headers})

    def saying(self, text: str) -> Request:
        """The same request with another prompt; a body without a prompt stays as it is.

        So each client of a case has a body of its own, and the model is the one that the picker knows.
        """
        content = as_object(self.body or b"")
        if content is None:
            return self
        if isinstance(content.get("prompt"), str):
            content["prompt"] = text
        elif isinstance(content.get("messages"), list):
            content["messages"] = [*content["messages"], {"role": "user", "content": text}]
        else:
            return self
        return replace(self, body=json.dumps(content, ensure_ascii=False).encode())


def as_object(body: bytes | bytearray) -> dict[str, Any] | None:
    """The object that a body is in JSON; None where it is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def header_map(headers: Mapping[str, str]) -> base_pb2.HeaderMap:
    """Headers as the protocol carries them."""
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=k, raw_value=v.encode()) for k, v in headers.items()]
    )


def metadata(entries: Mapping[str, Mapping[str, Any]]) -> base_pb2.Metadata:
    """Filter metadata by namespace, without types of their own."""
    made = base_pb2.Metadata()
    for namespace, inner in entries.items():
        made.filter_metadata[namespace].update(inner)
    return made
