"""A sound picker in few lines; those that each break one sentence, and those that do what the texts allow.

Every fault is one that a picker may well have: they are planted here so that the suite can be shown to
find them, each by the case that is about it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as service
from envoy.type.v3 import http_status_pb2
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import BoolValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

KEY = "x-gateway-destination-endpoint"
POOL = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]
NAMES = ["liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"]
FULL_DUPLEX = 4
Answers = list[pb.ProcessingResponse]


def subset_of(message: pb.ProcessingRequest) -> list[Any] | None:
    """The hint's list; a text with commas is one too."""
    inner = message.metadata_context.filter_metadata.get("envoy.lb.subset_hint")
    if inner is None or KEY + "-subset" not in inner:
        return None
    value = inner[KEY + "-subset"]
    return value.split(",") if isinstance(value, str) else list(value)


def refusal(status: int) -> pb.ProcessingResponse:
    return pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(status=http_status_pb2.HttpStatus(code=status))
    )


@dataclass
class Stream:
    """What a picker knows of one stream."""

    duplex: bool = False
    json: bool = False
    hint: list[Any] | None = None
    held: dict[str, bytes] = field(default_factory=dict)
    ended: bool = False
    later: Answers = field(default_factory=list)

    def gather(self, kind: str, piece: bytes) -> bytes:
        self.held[kind] = self.held.get(kind, b"") + piece
        return self.held[kind]


def streamed(kind: str, piece: bytes, ends: bool) -> pb.ProcessingResponse:
    said = pb.CommonResponse()
    said.body_mutation.streamed_response.body = piece
    said.body_mutation.streamed_response.end_of_stream = ends
    return pb.ProcessingResponse(**{kind: pb.BodyResponse(response=said)})


def cut(kind: str, body: bytes, size: int = 65536) -> Answers:
    """A whole body in pieces of at most 64 KiB, the last with the end."""
    starts = range(0, max(len(body), 1), size)
    return [streamed(kind, body[at : at + size], at + size >= len(body)) for at in starts]


class Picker(service.ExternalProcessorServicer):
    """Round robin, two fall-backs; answers as the body mode asks."""

    options: tuple[tuple[str, int], ...] = ()

    def __init__(self) -> None:
        self.turn = itertools.count()
        self.state_file: Path | None = None

    @property
    def state(self) -> str:
        """In which state its world is."""
        return self.state_file.read_text().strip() if self.state_file is not None else "normal"

    def allowed(self, hint: list[Any] | None) -> list[str]:
        ready = [] if self.state == "none-ready" else POOL
        return [each for each in ready if hint is None or each in hint]

    def serves(self, name: str) -> bool:
        """What its health service says of a name."""
        return True

    def pick(self, hint: list[Any] | None) -> tuple[str, str]:
        """What the header says, and what the metadata say."""
        found = self.allowed(hint)
        first = next(self.turn) % len(found)
        named = ",".join(found[first:] + found[:first])
        return named, named

    def header(self, value: str) -> base_pb2.HeaderValueOption:
        return base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=KEY, raw_value=value.encode()),
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )

    def decided(self, hint: list[Any] | None) -> pb.ProcessingResponse:
        if not self.allowed(hint):
            return refusal(503)
        if self.state == "overloaded":
            return refusal(429)
        in_header, in_metadata = self.pick(hint)
        inner = Struct()
        inner.update({"envoy.lb": {KEY: in_metadata}})
        common = pb.CommonResponse(header_mutation=pb.HeaderMutation(set_headers=[self.header(in_header)]))
        return pb.ProcessingResponse(
            request_headers=pb.HeadersResponse(response=common), dynamic_metadata=inner
        )

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        if not stream.duplex:
            return [pb.ProcessingResponse(**{kind: pb.BodyResponse()})]
        return [streamed(kind, body.body, body.end_of_stream)]

    def response_headers(self, headers: pb.HttpHeaders, stream: Stream) -> Answers:
        return [pb.ProcessingResponse(response_headers=pb.HeadersResponse())]

    def trailers(self, kind: str, stream: Stream) -> Answers:
        return [pb.ProcessingResponse(**{kind: pb.TrailersResponse()})]

    async def Process(
        self, messages: AsyncIterator[pb.ProcessingRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ProcessingResponse]:
        stream = Stream()
        await self.opened(context)
        async for message in messages:
            if message.HasField("protocol_config"):
                stream.duplex = message.protocol_config.request_body_mode == FULL_DUPLEX
            if not message.observability_mode:
                for each in await self.answers(message, stream, context):
                    yield each
            if stream.ended:
                return
        await self.half_closed()

    async def opened(self, context: grpc.aio.ServicerContext) -> None: ...

    async def half_closed(self) -> None: ...

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        kind = message.WhichOneof("request")
        if kind is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an empty message")
        if kind == "request_headers":
            stream.hint = subset_of(message)
            return [self.decided(stream.hint)]
        if kind == "response_headers":
            stream.json = any(each.raw_value == b"application/json"
                              for each in message.response_headers.headers.headers)  # fmt: skip
            return self.response_headers(message.response_headers, stream)
        if kind.endswith("body"):
            return self.body(kind, getattr(message, kind), stream)
        return self.trailers(kind, stream)


# What breaks a sentence


class Disagrees(Picker):
    """Header and metadata name different endpoints: each is picked by itself."""

    def pick(self, hint: list[Any] | None) -> tuple[str, str]:
        return super().pick(hint)[0], super().pick(hint)[0]


class IgnoresHint(Picker):
    """Picks from the whole pool whatever the hint says."""

    def allowed(self, hint: list[Any] | None) -> list[str]:
        return super().allowed(None)


class EmptyIsNone(Picker):
    """Takes an empty list for no list."""

    def allowed(self, hint: list[Any] | None) -> list[str]:
        return super().allowed(hint or None)


class DropsBody(Picker):
    """Answers the body as in the other modes, so that in full duplex nothing of it is left."""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        return [pb.ProcessingResponse(**{kind: pb.BodyResponse()})]


class Loses(Picker):
    """Loses the third piece of a request."""

    of, times = "request_body", 0

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        came = super().body(kind, body, stream)
        stream.gather(f"{kind} pieces", b".")
        third = kind == self.of and stream.duplex and len(stream.held[f"{kind} pieces"]) == 3
        return came * self.times if third and not body.end_of_stream else came


class Doubles(Loses):
    """Sends the third piece of a request twice."""

    times = 2


class LosesOfResponse(Loses):
    """Loses the third piece of a response."""

    of = "response_body"


class DoublesOfResponse(LosesOfResponse):
    """Sends the third piece of a response twice."""

    times = 2


class MixesRequests(Picker):
    """Gathers the bodies of all clients in one place."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered = b""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        if kind == "response_body" or not stream.duplex:
            return super().body(kind, body, stream)
        self.gathered += body.body
        if not body.end_of_stream:
            return []
        whole, self.gathered = self.gathered, b""
        return cut(kind, whole)

    def trailers(self, kind: str, stream: Stream) -> Answers:
        whole, self.gathered = self.gathered, b""
        rest = [streamed(kind.replace("trailers", "body"), whole, False)] if whole else []
        return [*rest, *super().trailers(kind, stream)]


class MixesResponses(Picker):
    """Keeps the piece of a response under way in one place for all clients."""

    piece = b""

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        if message.WhichOneof("request") != "response_body":
            return await super().answers(message, stream, context)
        self.piece = message.response_body.body
        await asyncio.sleep(0.001)  # as a look into a store takes
        return [streamed("response_body", self.piece, message.response_body.end_of_stream)]


class EndsEarly(Picker):
    """Says the end as soon as the JSON is complete."""

    of = "request_body"

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        came = super().body(kind, body, stream)
        if kind == self.of and stream.duplex:
            so_far = stream.gather(kind, body.body)
            said = getattr(came[0], kind).response.body_mutation.streamed_response
            said.end_of_stream |= so_far.endswith(b"}")
        return came


class EndsResponseEarly(EndsEarly):
    """The same of responses."""

    of = "response_body"


class EndsBeforeTrailers(Picker):
    """Says the end where trailers end the body."""

    def trailers(self, kind: str, stream: Stream) -> Answers:
        end = streamed(kind.replace("trailers", "body"), b"", True)
        return [end, *super().trailers(kind, stream)] if stream.duplex else super().trailers(kind, stream)


class HoldsResponse(Picker):
    """Gathers the response and sends it back at its end: no token by token."""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        if kind != "response_body":
            return super().body(kind, body, stream)
        whole = stream.gather(kind, body.body)
        return cut(kind, whole) if body.end_of_stream else []

    def trailers(self, kind: str, stream: Stream) -> Answers:
        held = stream.held.get("response_body")
        rest = [streamed("response_body", held, False)] if held and kind == "response_trailers" else []
        return [*rest, *super().trailers(kind, stream)]


class ForgetsTrailers(Picker):
    """Says nothing to trailers."""

    def trailers(self, kind: str, stream: Stream) -> Answers:
        return []


class SilentWithoutBody(Picker):
    """Waits for the body of a response that has none."""

    def response_headers(self, headers: pb.HttpHeaders, stream: Stream) -> Answers:
        return [] if headers.end_of_stream else super().response_headers(headers, stream)


class Appends(Picker):
    """Adds its destination to the one that the client wrote."""

    def header(self, value: str) -> base_pb2.HeaderValueOption:
        return base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=KEY, raw_value=value.encode()), append=BoolValue(value=True)
        )


class LeavesAction(Picker):
    """Does not say what becomes of a header that is there."""

    def header(self, value: str) -> base_pb2.HeaderValueOption:
        return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=KEY, raw_value=value.encode()))


class WritesValue(Picker):
    """Writes the destination where the data plane does not read it."""

    def header(self, value: str) -> base_pb2.HeaderValueOption:
        return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=KEY, value=value), append_action=2)


class PicksAgain(Picker):
    """Picks anew for the response."""

    def response_headers(self, headers: pb.HttpHeaders, stream: Stream) -> Answers:
        (said,) = super().response_headers(headers, stream)
        said.dynamic_metadata.update({"envoy.lb": {KEY: self.pick(stream.hint)[1]}})
        return [said]


class PicksByEachHint(Picker):
    """Picks by the hint of each message: it comes with every one."""

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        came = await super().answers(message, stream, context)
        hint = subset_of(message)
        if came and hint is not None and message.WhichOneof("request") == "request_body":
            came[0].dynamic_metadata.update({"envoy.lb": {KEY: POOL[-1]}})
        return came


class BadPort(Picker):
    """Names a port that is none."""

    def pick(self, hint: list[Any] | None) -> tuple[str, str]:
        named = super().pick(hint)[0].replace(":8000", ":80000")
        return named, named


class BadAddress(BadPort):
    """Names an address that is none."""

    def pick(self, hint: list[Any] | None) -> tuple[str, str]:
        return "10.0.0.300:8000", "10.0.0.300:8000"


class DiesWithPool(Picker):
    """Not alive without endpoints: it would be restarted again and again."""

    def serves(self, name: str) -> bool:
        return self.state != "none-ready"


class Leaks(Picker):
    """Takes a place for each stream and never gives it back."""

    def __init__(self) -> None:
        super().__init__()
        self.places = 1500

    async def opened(self, context: grpc.aio.ServicerContext) -> None:
        self.places -= 1
        if self.places < 0:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no place")


class Slows(Picker):
    """Keeps every stream, and looks at all of them for each decision."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    async def opened(self, context: grpc.aio.ServicerContext) -> None:
        self.seen += 1
        await asyncio.sleep(self.seen * 2e-5)


class StaysOpen(Picker):
    """Leaves the stream open when the data plane has said all."""

    async def half_closed(self) -> None:
        await asyncio.Event().wait()


class OneLarge(Picker):
    """Gathers a request and sends it back in one piece."""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        if kind == "response_body" or not stream.duplex:
            return super().body(kind, body, stream)
        stream.later.append(streamed(kind, body.body, body.end_of_stream))
        if not body.end_of_stream:
            return []
        parts = [each.request_body.response.body_mutation.streamed_response.body for each in stream.later]
        return [streamed(kind, b"".join(parts), True)]

    def trailers(self, kind: str, stream: Stream) -> Answers:
        held = stream.later if kind == "request_trailers" else []
        return [*held, *super().trailers(kind, stream)]


class SharesState(Picker):
    """Keeps the request under way in one place for all streams, and decides when the body comes."""

    hint: list[Any] | None = None

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        if message.WhichOneof("request") == "request_headers":
            self.hint = subset_of(message)
            await asyncio.sleep(0.001)  # as a look into a store takes
            return [self.decided(self.hint)]
        return await super().answers(message, stream, context)


class NotReady500(Picker):
    """Fails the stream where it has no endpoint: the client gets 500, as if the picker were broken."""

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        said = await super().answers(message, stream, context)
        if said and said[0].immediate_response.status.code == 503:
            await context.abort(grpc.StatusCode.INTERNAL, "no endpoint")
        return said


class Waits(Picker):
    """Waits for a body before it answers headers, in every mode: in most, no body comes before."""

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        said = await super().answers(message, stream, context)
        return [] if message.WhichOneof("request") == "request_headers" and not stream.duplex else said


# What the texts allow


class HeadersWithFirstPiece(Picker):
    """Answers the headers of a response when the first piece of its body is there."""

    def response_headers(self, headers: pb.HttpHeaders, stream: Stream) -> Answers:
        came = super().response_headers(headers, stream)
        if headers.end_of_stream:
            return came
        stream.later = came
        return []

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        came = super().body(kind, body, stream)
        if kind == "response_body":
            came, stream.later = [*stream.later, *came], []
        return came


class GathersJson(Picker):
    """Gathers JSON of either side and writes it anew, with a model's own name; streams what is no JSON."""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        if not stream.duplex or (kind == "response_body" and not stream.json):
            return super().body(kind, body, stream)
        stream.later.append(streamed(kind, body.body, False))
        return self.written(kind, stream, True) if body.end_of_stream else []

    def written(self, kind: str, stream: Stream, ends: bool) -> Answers:
        parts = [getattr(each, kind).response.body_mutation.streamed_response.body for each in stream.later]
        stream.later = []
        try:
            content = json.loads(b"".join(parts)) | {"model": "model-of-the-pool"}
        except (ValueError, TypeError, RecursionError):
            return [refusal(400)]
        made = cut(kind, json.dumps(content, indent=1).encode())
        getattr(made[-1], kind).response.body_mutation.streamed_response.end_of_stream = ends
        return made

    def trailers(self, kind: str, stream: Stream) -> Answers:
        held = self.written(kind.replace("trailers", "body"), stream, False) if stream.later else []
        return [*held, *super().trailers(kind, stream)]


class ShortTokens(Picker):
    """Sends the tokens of a response back in fewer words."""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        if kind == "response_body" and not stream.json:
            text = (
                body.body.replace(b'"model": "m", ', b"").replace(b'"index": 0, ', b"").replace(b": ", b":")
            )
            return super().body(kind, pb.HttpBody(body=text, end_of_stream=body.end_of_stream), stream)
        return super().body(kind, body, stream)


class SplitTokens(Picker):
    """Sends each token of a response back in two pieces."""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        if kind != "response_body":
            return super().body(kind, body, stream)
        half = len(body.body) // 2
        return [streamed(kind, body.body[:half], False), streamed(kind, body.body[half:], body.end_of_stream)]


class ClosesAfterResponse(Picker):
    """Closes the stream when the response has ended."""

    def body(self, kind: str, body: pb.HttpBody, stream: Stream) -> Answers:
        stream.ended = kind == "response_body" and body.end_of_stream
        return super().body(kind, body, stream)


class ClosesAtResponse(Picker):
    """Closes the stream in place of an answer to the response: it has nothing to say of it."""

    def response_headers(self, headers: pb.HttpHeaders, stream: Stream) -> Answers:
        stream.ended = True
        return []


class ClosesAtTrailers(Picker):
    """Closes the stream in place of an answer to trailers."""

    def trailers(self, kind: str, stream: Stream) -> Answers:
        stream.ended = True
        return []


class FullDuplexAlone(Picker):
    """Offers no other body mode, and fails the stream."""

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        if not stream.duplex and message.HasField("protocol_config"):
            return await self.refused(stream, context)
        return await super().answers(message, stream, context)

    async def refused(self, stream: Stream, context: grpc.aio.ServicerContext) -> Answers:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "full duplex alone")
        return []


class LeavesOtherModes(FullDuplexAlone):
    """Offers no other body mode, and closes the stream cleanly."""

    async def refused(self, stream: Stream, context: grpc.aio.ServicerContext) -> Answers:
        stream.ended = True
        return []


class RefusesOtherModes(FullDuplexAlone):
    """Offers no other body mode, and says so to the client."""

    async def refused(self, stream: Stream, context: grpc.aio.ServicerContext) -> Answers:
        return [refusal(500)]


class HundredStreams(Picker):
    """Takes a hundred streams of one connection at a time."""

    options = (("grpc.max_concurrent_streams", 100),)


class KnowsOneModel(FullDuplexAlone):
    """Decides by the body, and knows one model alone."""

    model = "llama"

    async def answers(
        self, message: pb.ProcessingRequest, stream: Stream, context: grpc.aio.ServicerContext
    ) -> Answers:
        came = await super().answers(message, stream, context)
        kind = message.WhichOneof("request")
        if kind == "request_headers" and not message.request_headers.end_of_stream:
            stream.later = came
            return []
        if kind in ("request_body", "request_trailers") and stream.later:
            whole = stream.gather("body", message.request_body.body)
            stream.later += came
            if kind == "request_body" and not message.request_body.end_of_stream:
                return []
            came, stream.later = stream.later, []
            try:
                known = json.loads(whole)["model"] == self.model
            except (ValueError, TypeError, KeyError, RecursionError):
                known = False
            return came if known else [refusal(404)]
        return came


FAULTY = [
    Disagrees, IgnoresHint, EmptyIsNone, DropsBody, Loses, Doubles, LosesOfResponse, DoublesOfResponse,
    MixesRequests, MixesResponses, EndsEarly, EndsResponseEarly, EndsBeforeTrailers, HoldsResponse,
    ForgetsTrailers, SilentWithoutBody, Appends, LeavesAction, WritesValue, PicksAgain, PicksByEachHint,
    BadPort, BadAddress, DiesWithPool, Leaks, Slows, StaysOpen, OneLarge, SharesState, NotReady500, Waits,
]  # fmt: skip
ALLOWED = [
    HeadersWithFirstPiece, GathersJson, ShortTokens, SplitTokens, ClosesAfterResponse, ClosesAtResponse,
    ClosesAtTrailers, FullDuplexAlone, LeavesOtherModes, RefusesOtherModes, HundredStreams, KnowsOneModel,
]  # fmt: skip


class Health(health_pb2_grpc.HealthServicer):
    """Says what its picker says of itself."""

    def __init__(self, picker: Picker) -> None:
        self.picker = picker

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in NAMES:
            await context.abort(grpc.StatusCode.NOT_FOUND, request.service)
        status = health_pb2.HealthCheckResponse.ServingStatus
        said = status.SERVING if self.picker.serves(request.service) else status.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=said)


async def start(picker: Picker) -> tuple[grpc.aio.Server, int]:
    """Serve a picker and its health on a free port."""
    server = grpc.aio.server(options=picker.options)
    service.add_ExternalProcessorServicer_to_server(picker, server)
    health_pb2_grpc.add_HealthServicer_to_server(Health(picker), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def serve(name: str, state_file: str) -> None:
    """Serve one by its name until ended; a file says in which state its world is."""
    picker = {each.__name__: each for each in [Picker, *FAULTY, *ALLOWED]}[name]()
    picker.state_file = Path(state_file)
    server, port = await start(picker)
    print(json.dumps({"port": port}), flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:3]))
