"""The data plane's side of one HTTP request: messages out, answers in, each within a time limit.

A conversation sends what Envoy's external processing filter sends in the body mode it is in, and keeps
whatever the picker answers. It judges nothing; cases do.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub
from google.protobuf.struct_pb2 import Struct

DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
SUBSET = "x-gateway-destination-endpoint-subset"
LB = "envoy.lb"
SUBSET_HINT = "envoy.lb.subset_hint"

NONE = ProcessingMode.NONE
STREAMED = ProcessingMode.STREAMED
BUFFERED = ProcessingMode.BUFFERED
FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED


class Silence(Exception):
    """The picker neither answered nor closed the stream in the time it was given."""


class Closed(Exception):
    """The picker closed the stream; `code` is None where it did so cleanly."""

    def __init__(self, code: grpc.StatusCode | None, detail: str = "") -> None:
        super().__init__(f"closed the stream {code.name if code else 'without an error'} {detail}".strip())
        self.code = code


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


def header_map(headers: Mapping[str, str]) -> base_pb2.HeaderMap:
    """Headers as the protocol carries them."""
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=k, raw_value=v.encode()) for k, v in headers.items()]
    )


def metadata(namespace: str, key: str, value: Any) -> base_pb2.Metadata:
    """One entry of filter metadata, without a type of its own."""
    inner = Struct()
    inner.update({key: value})
    return base_pb2.Metadata(filter_metadata={namespace: inner})


@dataclass
class Answer:
    """What the picker has said of one request so far.

    Attributes:
        headers: HTTP headers it set on the request (on the response: `response_headers`).
        dynamic: its dynamic metadata, by namespace.
        status: HTTP status of an immediate response; None without one.
        body: request body that came back by streamed answers; None before the first of them.
        ended: the last of them said that it is the last.
        order: kinds of answers in their order.
    """

    headers: dict[str, list[str]] = field(default_factory=dict)
    response_headers: dict[str, list[str]] = field(default_factory=dict)
    dynamic: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: int | None = None
    body: bytes | None = None
    ended: bool = False
    response_body: bytes | None = None
    response_ended: bool = False
    order: list[str] = field(default_factory=list)

    @property
    def in_header(self) -> str | None:
        """The destination as the header says it."""
        values = self.headers.get(DESTINATION)
        return values[-1] if values else None

    @property
    def in_metadata(self) -> str | None:
        """The destination as the dynamic metadata say it."""
        value = self.dynamic.get(LB, {}).get(DESTINATION)
        return value if isinstance(value, str) else None

    @property
    def endpoints(self) -> list[str]:
        """The endpoints it names, first choice first."""
        named = self.in_header or self.in_metadata or ""
        return [each.strip() for each in named.split(",") if each.strip()]

    def take(self, message: pb.ProcessingResponse) -> None:
        """Add one message of the picker."""
        kind = message.WhichOneof("response") or "nothing"
        self.order.append(kind)
        for namespace, inner in message.dynamic_metadata.items():
            if isinstance(inner, Struct):
                self.dynamic.setdefault(namespace, {}).update(dict(inner.items()))
        if kind == "immediate_response":
            self.status = message.immediate_response.status.code
        elif kind in ("request_headers", "response_headers", "request_body", "response_body"):
            self._common(kind, getattr(message, kind).response)

    def _common(self, kind: str, said: pb.CommonResponse) -> None:
        headers = self.headers if kind.startswith("request") else self.response_headers
        for each in said.header_mutation.set_headers:
            value = each.header.raw_value or each.header.value.encode()
            headers.setdefault(each.header.key.lower(), []).append(value.decode("utf-8", "replace"))
        if said.body_mutation.WhichOneof("mutation") != "streamed_response":
            return
        part = said.body_mutation.streamed_response
        if kind == "request_body":
            self.body, self.ended = (self.body or b"") + part.body, part.end_of_stream
        elif kind == "response_body":
            self.response_body = (self.response_body or b"") + part.body
            self.response_ended = part.end_of_stream


class Conversation:
    """One stream of the external processing service.

    Args:
        channel: to the picker.
        mode: how bodies travel, in both directions.
        patience_s: most that one answer may take.
    """

    def __init__(self, channel: grpc.aio.Channel, mode: int = FULL_DUPLEX, patience_s: float = 5.0) -> None:
        self.answer = Answer()
        self._call = ExternalProcessorStub(channel).Process()
        self._mode, self._patience_s = mode, patience_s
        self._first = True

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Break off, as when the HTTP client has gone."""
        self._call.cancel()

    async def say(self, message: pb.ProcessingRequest) -> None:
        """Send one message.

        Raises:
            Closed: the picker has closed the stream.
            Silence: it does not take the message.
        """
        if self._first:
            self._first = False
            message.protocol_config.request_body_mode = self._mode
            message.protocol_config.response_body_mode = self._mode
        try:
            async with asyncio.timeout(self._patience_s):
                await self._call.write(message)
        except TimeoutError:
            raise Silence("did not take a message") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not self._call.done():
                raise
            raise await self._why() from None

    async def hear(self) -> pb.ProcessingResponse:
        """Wait for one answer, and take it into `answer`.

        Raises:
            Closed: the picker has closed the stream.
            Silence: it says nothing in time.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                message = await self._call.read()
        except TimeoutError:
            raise Silence(f"no answer within {self._patience_s:g} s") from None
        except grpc.aio.AioRpcError:
            raise await self._why() from None
        if message is grpc.aio.EOF:
            raise await self._why()
        self.answer.take(message)
        return message

    async def _why(self) -> Closed:
        code = await self._call.code()
        detail = await self._call.details() or ""
        return Closed(None if code is grpc.StatusCode.OK else code, detail[:200])

    async def hear_until(self, done: Any) -> None:
        """Hear answers until `done(answer)` or an immediate response."""
        while not done(self.answer) and self.answer.status is None:
            await self.hear()

    # what a data plane sends

    async def send_headers(self, request: Request) -> None:
        """The request's headers, with the subset hint where there is one."""
        said = pb.ProcessingRequest(
            request_headers=pb.HttpHeaders(headers=request.header_map(), end_of_stream=request.body is None)
        )
        if request.subset is not None:
            said.metadata_context.CopyFrom(metadata(SUBSET_HINT, SUBSET, request.subset))
        await self.say(said)

    async def send_body(self, chunks: Sequence[bytes], ends: bool = True) -> None:
        """The request's body in pieces; the last says that nothing follows unless trailers do."""
        for number, chunk in enumerate(chunks):
            last = ends and number == len(chunks) - 1
            await self.say(pb.ProcessingRequest(request_body=pb.HttpBody(body=chunk, end_of_stream=last)))

    async def send_response_headers(self, served: str | None, ends: bool = False) -> None:
        """The response's headers, and which endpoint served it."""
        headers = header_map({":status": "200", "content-type": "application/json"})
        said = pb.ProcessingRequest(response_headers=pb.HttpHeaders(headers=headers, end_of_stream=ends))
        if served is not None:
            said.metadata_context.CopyFrom(metadata(LB, SERVED, served))
        await self.say(said)

    async def send_response_body(self, chunk: bytes, ends: bool) -> None:
        """A piece of the response's body."""
        await self.say(pb.ProcessingRequest(response_body=pb.HttpBody(body=chunk, end_of_stream=ends)))

    async def ask(
        self, request: Request, chunks: Iterable[bytes] | None = None, whole: bool = False
    ) -> Answer:
        """A request in the mode of this conversation, up to its decision.

        With `whole`, up to the end of its body too: only cases about bodies ask for it, so that a picker
        that loses bodies fails those and no others. In the modes that wait (headers only, buffered,
        streamed) the body follows the answer to the headers, as with Envoy; in full duplex nothing waits.
        """
        await self.send_headers(request)
        if request.body is None:
            await self.hear_until(lambda a: "request_headers" in a.order)
            return self.answer
        pieces = list(chunks) if chunks is not None else [request.body]
        if self._mode == FULL_DUPLEX:
            await self.send_body(pieces)
            await self.hear_until(lambda a: a.endpoints and (a.ended or not whole))
            return self.answer
        await self.hear()
        if self._mode != NONE and self.answer.status is None:
            for number, piece in enumerate(pieces if self._mode == STREAMED else [request.body]):
                last = self._mode == BUFFERED or number == len(pieces) - 1
                await self.say(pb.ProcessingRequest(request_body=pb.HttpBody(body=piece, end_of_stream=last)))
                await self.hear()
        return self.answer
