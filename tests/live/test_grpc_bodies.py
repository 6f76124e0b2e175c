"""Messages of gRPC count towards the bytes that a process holds at once, together with bodies of HTTP."""

import asyncio

import grpc
import numpy as np
import pytest

from edgewise.runtime import http
from edgewise.runtime.protocol import grpc_server
from edgewise.runtime.protocol.messages import InferResponse, encode_response

pytestmark = pytest.mark.live
SIZE = 100_000


def message():
    made = grpc_server.MESSAGES["ModelInferRequest"](model_name="any")
    made.inputs.add(name="x", datatype="UINT8", shape=[SIZE])
    made.raw_input_contents.append(bytes(SIZE))
    return made


def test_messages_beyond_what_may_be_held_at_once_are_turned_away_until_others_are_answered():
    async def go():
        held, answer = asyncio.Event(), asyncio.Event()

        async def handle(request):
            held.set()
            await answer.wait()
            headers, body = encode_response(InferResponse("any", {"y": np.zeros(1, np.uint8)}), True)
            return http.Response(200, body, headers)

        bodies = http.Bodies(2.5 * SIZE)
        server = await grpc_server.serve_grpc(handle, bodies=bodies)
        async with grpc.aio.insecure_channel(f"{server.host}:{server.port}") as channel:
            infer = channel.unary_unary(
                f"/{grpc_server.SERVICE}/ModelInfer",
                request_serializer=lambda made: made.SerializeToString(),
                response_deserializer=grpc_server.MESSAGES["ModelInferResponse"].FromString,
            )
            calls = [asyncio.ensure_future(infer(message())) for _ in range(3)]
            await held.wait()
            done, waiting = await asyncio.wait(calls, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            (turned_away,) = [call.exception() for call in done]
            assert turned_away.code() == grpc.StatusCode.UNAVAILABLE and "bodies" in turned_away.details()
            assert 2 * SIZE < bodies.held_bytes <= bodies.most_bytes
            answer.set()
            assert [(await call).model_name for call in waiting] == ["any", "any"]
            assert bodies.held_bytes == 0 and (await infer(message())).model_name == "any"
        await server.close(0.1)

    asyncio.run(asyncio.wait_for(go(), 60))
