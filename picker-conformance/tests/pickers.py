"""A sound picker in few lines, and eight that each break one sentence of the protocol.

Every fault is one that a picker may well have: they are planted here so that the suite can be shown to
find them, each by the case that is about it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as service
from envoy.type.v3 import http_status_pb2
from google.protobuf.struct_pb2 import Struct
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

KEY = "x-gateway-destination-endpoint"
POOL = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]
NAMES = ["liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"]


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


class Picker(service.ExternalProcessorServicer):
    """Round robin, two fall-backs; answers as the body mode asks."""

    def __init__(self) -> None:
        self.turn = itertools.count()
        self.ready = list(POOL)
        self.shedding = False

    def allowed(self, hint: list[Any] | None) -> list[str]:
        return self.ready if hint is None else [each for each in self.ready if each in hint]

    def refuses(self, hint: list[Any] | None) -> int | None:
        if not self.allowed(hint):
            return 503
        return 429 if self.shedding else None

    def pick(self, hint: list[Any] | None) -> tuple[str, str]:
        """What the header says, and what the metadata say."""
        found = self.allowed(hint)
        first = next(self.turn) % len(found)
        named = ",".join(found[first:] + found[:first])
        return named, named

    def decided(self, hint: list[Any] | None) -> pb.ProcessingResponse:
        status = self.refuses(hint)
        if status is not None:
            return refusal(status)
        in_header, in_metadata = self.pick(hint)
        set_header = base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=KEY, raw_value=in_header.encode()),
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        inner = Struct()
        inner.update({"envoy.lb": {KEY: in_metadata}})
        common = pb.CommonResponse(header_mutation=pb.HeaderMutation(set_headers=[set_header]))
        return pb.ProcessingResponse(
            request_headers=pb.HeadersResponse(response=common), dynamic_metadata=inner
        )

    def body(self, kind: str, body: pb.HttpBody, duplex: bool) -> pb.ProcessingResponse | None:
        said = pb.CommonResponse()
        if duplex:
            said.body_mutation.streamed_response.body = body.body
            said.body_mutation.streamed_response.end_of_stream = body.end_of_stream
        return pb.ProcessingResponse(**{kind: pb.BodyResponse(response=said)})

    def trailers(self, kind: str) -> pb.ProcessingResponse | None:
        return pb.ProcessingResponse(**{kind: pb.TrailersResponse()})

    async def Process(
        self, messages: AsyncIterator[pb.ProcessingRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ProcessingResponse]:
        duplex = False
        async for message in messages:
            if message.HasField("protocol_config"):
                duplex = message.protocol_config.request_body_mode == 4
            answer = None if message.observability_mode else await self.answer(message, duplex, context)
            if answer is not None:
                yield answer

    async def answer(
        self, message: pb.ProcessingRequest, duplex: bool, context: grpc.aio.ServicerContext
    ) -> pb.ProcessingResponse | None:
        kind = message.WhichOneof("request")
        if kind is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an empty message")
        if kind == "request_headers":
            return self.decided(subset_of(message))
        if kind == "response_headers":
            return pb.ProcessingResponse(response_headers=pb.HeadersResponse())
        if kind.endswith("body"):
            return self.body(kind, getattr(message, kind), duplex)
        return self.trailers(kind)


class Disagrees(Picker):
    """Header and metadata name different endpoints: each is picked by itself."""

    def pick(self, hint: list[Any] | None) -> tuple[str, str]:
        return super().pick(hint)[0], super().pick(hint)[0]


class IgnoresHint(Picker):
    """Picks from the whole pool whatever the hint says."""

    def allowed(self, hint: list[Any] | None) -> list[str]:
        return self.ready


class EmptyIsNone(Picker):
    """Takes an empty list for no list."""

    def allowed(self, hint: list[Any] | None) -> list[str]:
        return super().allowed(hint or None)


class DropsBody(Picker):
    """Answers the body as in the other modes, so that in full duplex nothing of it is left."""

    def body(self, kind: str, body: pb.HttpBody, duplex: bool) -> pb.ProcessingResponse | None:
        return super().body(kind, body, False)


class HoldsResponse(Picker):
    """Gathers the response and sends it back at its end: no token by token."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[Any, bytes] = {}

    def body(self, kind: str, body: pb.HttpBody, duplex: bool) -> pb.ProcessingResponse | None:
        if kind != "response_body":
            return super().body(kind, body, duplex)
        task = asyncio.current_task()
        self.held[task] = self.held.get(task, b"") + body.body
        if not body.end_of_stream:
            return None
        return super().body(kind, pb.HttpBody(body=self.held.pop(task), end_of_stream=True), duplex)


class ForgetsTrailers(Picker):
    """Says nothing to trailers."""

    def trailers(self, kind: str) -> pb.ProcessingResponse | None:
        return None


class SharesState(Picker):
    """Keeps the request under way in one place for all streams, and decides when the body comes."""

    hint: list[Any] | None = None

    async def answer(
        self, message: pb.ProcessingRequest, duplex: bool, context: grpc.aio.ServicerContext
    ) -> pb.ProcessingResponse | None:
        if message.WhichOneof("request") == "request_headers":
            self.hint = subset_of(message)
            await asyncio.sleep(0.001)  # as a look into a store takes
            return self.decided(self.hint)
        return await super().answer(message, duplex, context)


class NotReady500(Picker):
    """Fails the stream where it has no endpoint: the client gets 500, as if the picker were broken."""

    async def answer(
        self, message: pb.ProcessingRequest, duplex: bool, context: grpc.aio.ServicerContext
    ) -> pb.ProcessingResponse | None:
        said = await super().answer(message, duplex, context)
        if said is not None and said.immediate_response.status.code == 503:
            await context.abort(grpc.StatusCode.INTERNAL, "no endpoint")
        return said


class Waits(Picker):
    """Waits for a body before it answers headers, in every mode: in most, no body comes before."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[Any, pb.ProcessingResponse] = {}

    async def answer(
        self, message: pb.ProcessingRequest, duplex: bool, context: grpc.aio.ServicerContext
    ) -> pb.ProcessingResponse | None:
        said = await super().answer(message, duplex, context)
        if message.WhichOneof("request") == "request_headers" and not duplex:
            return None
        return said


FAULTY = [
    Disagrees, IgnoresHint, EmptyIsNone, DropsBody, HoldsResponse, ForgetsTrailers, SharesState,
    NotReady500, Waits,
]  # fmt: skip


async def start(picker: Picker) -> tuple[grpc.aio.Server, int]:
    """Serve a picker and its health on a free port."""
    server = grpc.aio.server()
    service.add_ExternalProcessorServicer_to_server(picker, server)
    states = health.aio.HealthServicer()
    for name in NAMES:
        await states.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(states, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def serve(name: str, state_file: str) -> None:
    """Serve one by its name until ended; a file says in which state its world is."""
    picker = {each.__name__: each for each in [Picker, *FAULTY]}[name]()
    _server, port = await start(picker)
    print(json.dumps({"port": port}), flush=True)
    while True:
        await asyncio.sleep(0.01)
        with open(state_file) as file:
            state = file.read().strip()
        picker.ready = [] if state == "none-ready" else list(POOL)
        picker.shedding = state == "overloaded"


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:3]))
