"""What a picker has said of one request so far, and what a data plane makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.struct_pb2 import Struct

from picker_conformance.messages import DESTINATION, FULL_DUPLEX, LB


@dataclass
class Side:
    """The request, or the response, as the data plane passes it on.

    Attributes:
        headers: those of the client or the server, changed as the picker said.
        set: names of those that the picker set.
        body: what came back of it; None before the first answer to it.
        ended: an answer said that it is the last.
        largest_bytes: of one answer.
        sent: pieces that the picker has not answered yet, in the modes of one answer a message.
        all_sent: nothing more of the body follows.
        by_trailers: trailers end it.
    """

    headers: dict[str, list[str]] = field(default_factory=dict)
    set: list[str] = field(default_factory=list)
    body: bytearray | None = None
    ended: bool = False
    largest_bytes: int = 0
    sent: list[bytes] = field(default_factory=list)
    all_sent: bool = False
    by_trailers: bool = False


@dataclass
class Answer:
    """What the picker has said of one request so far.

    Attributes:
        mode: how bodies travel.
        dynamic: its dynamic metadata, by namespace.
        named: every value that it gave as destination, in headers or metadata of any message.
        status: HTTP status of an immediate response; None without one.
        order: kinds of answers in their order.
        wrong: what no data plane can go along with.
        appends: the destination is set with the action that appends.
    """

    mode: int = FULL_DUPLEX
    request: Side = field(default_factory=Side)
    response: Side = field(default_factory=Side)
    dynamic: dict[str, dict[str, Any]] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)
    status: int | None = None
    order: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    appends: bool = False

    @property
    def in_header(self) -> str | None:
        """The destination as the request's header says it; several values are one list."""
        if DESTINATION not in self.request.set:
            return None
        return ",".join(self.request.headers.get(DESTINATION, []))

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
                if namespace == LB and isinstance(value := dict(inner.items()).get(DESTINATION), str):
                    self.named.append(value)
        if kind == "immediate_response":
            self.status = message.immediate_response.status.code
            return
        side = self.request if kind.startswith("request") else self.response
        if kind.endswith("trailers"):
            self._trailers(kind, side)
        elif kind != "nothing":
            said = getattr(message, kind).response
            for each in said.header_mutation.remove_headers:
                side.headers.pop(each.lower(), None)
            for each in said.header_mutation.set_headers:
                self._set(side, each)
            if kind.endswith("body"):
                self._body(kind, side, said.body_mutation)

    def _set(self, side: Side, option: HeaderValueOption) -> None:
        """Set a header: the filter reads raw values alone, and takes the deprecated `append` for false."""
        name, value = option.header.key.lower(), option.header.raw_value.decode("utf-8", "replace")
        there = side.headers.get(name, [])
        if name == DESTINATION:
            self.named.append(value)
            self.appends |= not option.HasField("append") and not option.append_action
        side.set.append(name)
        if option.append.value:
            side.headers[name] = [*there, value]
        elif option.append_action == HeaderValueOption.ADD_IF_ABSENT:
            side.headers.setdefault(name, [value])
        elif there or option.append_action != HeaderValueOption.OVERWRITE_IF_EXISTS:
            side.headers[name] = [value]

    def _trailers(self, kind: str, side: Side) -> None:
        if side.ended:
            self.wrong.append(f"{kind} after a body that was said to have ended")
        side.ended = True

    def _body(self, kind: str, side: Side, mutation: pb.BodyMutation) -> None:
        if side.ended:
            self.wrong.append(f"{kind} after its end")
        how = mutation.WhichOneof("mutation")
        if self.mode == FULL_DUPLEX:
            if how != "streamed_response":
                return
            piece, ends = mutation.streamed_response.body, mutation.streamed_response.end_of_stream
            if ends and (side.by_trailers or not side.all_sent):
                self.wrong.append(f"{kind} ends before the end was sent")
        else:
            sent = side.sent.pop(0) if side.sent else b""
            piece = {"body": mutation.body, "clear_body": b""}.get(how or "", sent)
            ends = side.all_sent and not side.sent
            if how == "streamed_response":
                self.wrong.append(f"{kind} by streamed_response, which is for full duplex")
        side.body = bytearray() if side.body is None else side.body
        side.body += piece  # in place: a large body comes in hundreds of pieces
        side.ended |= ends
        side.largest_bytes = max(side.largest_bytes, len(piece))
