"""A plain endpoint picker: round robin over its servers, in every body mode. The baseline for better ones."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator

import grpc
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb, external_processor_pb2_grpc as service
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.struct_pb2 import Struct

KEY = "x-gateway-destination-endpoint"
FULL_DUPLEX = 4


class Picker(service.ExternalProcessorServicer):
    """Each request to the next server; the others follow as fall-backs."""

    def __init__(self, servers: list[str]) -> None:
        self.servers, self.turn = servers, itertools.count()

    def pick(self, message: pb.ProcessingRequest) -> pb.ProcessingResponse:
        """Decide; 503 where the hint leaves nothing."""
        hint = message.metadata_context.filter_metadata.get("envoy.lb.subset_hint", {})
        allowed = [
            each for each in self.servers if f"{KEY}-subset" not in hint or each in hint[f"{KEY}-subset"]
        ]
        if not allowed:
            return pb.ProcessingResponse(immediate_response=pb.ImmediateResponse(status=HttpStatus(code=503)))
        first = next(self.turn) % len(allowed)
        named = ",".join(allowed[first:] + allowed[:first])
        option = HeaderValueOption(header=HeaderValue(key=KEY, raw_value=named.encode()), append_action=2)
        said = pb.CommonResponse(header_mutation=pb.HeaderMutation(set_headers=[option]))
        metadata = Struct()
        metadata.update({"envoy.lb": {KEY: named}})
        return pb.ProcessingResponse(
            request_headers=pb.HeadersResponse(response=said), dynamic_metadata=metadata
        )

    async def Process(
        self, messages: AsyncIterator[pb.ProcessingRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ProcessingResponse]:
        """Answer one message by one; bodies go back as they came."""
        duplex = False
        async for message in messages:
            kind = message.WhichOneof("request")
            if kind == "request_headers":
                duplex = message.protocol_config.request_body_mode == FULL_DUPLEX
                yield self.pick(message)
            elif kind == "response_headers":
                yield pb.ProcessingResponse(response_headers=pb.HeadersResponse())
            elif kind in ("request_body", "response_body"):
                answer, body = pb.BodyResponse(), getattr(message, kind)
                if duplex:
                    answer.response.body_mutation.streamed_response.body = body.body
                    answer.response.body_mutation.streamed_response.end_of_stream = body.end_of_stream
                yield pb.ProcessingResponse(**{kind: answer})
            elif kind is not None:
                yield pb.ProcessingResponse(**{kind: pb.TrailersResponse()})


async def serve(port: int, servers: list[str]) -> None:
    """Serve until ended."""
    server = grpc.aio.server()
    service.add_ExternalProcessorServicer_to_server(Picker(servers), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2].split(",")))
