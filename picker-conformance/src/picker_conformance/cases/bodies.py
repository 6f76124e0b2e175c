"""Bodies and trailers, in the body modes of the external processing filter."""

from __future__ import annotations

from dataclasses import replace

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from picker_conformance.conversation import (
    BUFFERED,
    NONE,
    STREAMED,
    Closed,
    header_map,
)
from picker_conformance.suite import EXT_PROC, MODES, PROTOCOL, Bench, Level, case, require

STREAMING = (
    "The EPP MUST support streaming mode for inference requests and responses. Streaming mode enables full-duplex"
    " communication between the Gateway (Envoy), EPP, and model servers, allowing real-time token-by-token response"
    " delivery for AI inference workloads."
)
ONE_EACH = (
    "If the corresponding ``BodySendMode`` is not set to ``FULL_DUPLEX_STREAMED``, then for every received"
    " ``ProcessingRequest``, the server must send back exactly one ``ProcessingResponse`` message."
)
REFUSE = (
    "If the server does not support these protocol configurations, it may choose to close the gRPC stream. If the"
    " server supports these protocol configurations, it should respond based on the API specifications."
)
TRAILERS = "The server must send back a ``TrailerResponse`` message or close the stream."


def pieces(body: bytes, size: int) -> list[bytes]:
    """A body cut into pieces of `size` bytes."""
    return [body[at : at + size] for at in range(0, len(body), size)]


@case(
    "bodies.whole",
    Level.MUST,
    MODES,
    "The server needs to send StreamedBodyResponse to the client in the body response.",
)
async def whole(bench: Bench) -> str:
    """A body in pieces comes back to its end; a picker may rewrite it, so its words are not compared."""
    request = bench.request
    assert request.body is not None
    async with bench.talk() as talk:
        answer = await talk.ask(request, pieces(request.body, 7), whole=True)
    require(
        answer.status is None and answer.ended, f"the body's end did not come back; answers: {answer.order}"
    )
    require(bool(answer.body), "an empty body came back")
    return "unchanged" if answer.body == request.body else "rewritten by the picker"


@case("bodies.single-bytes", Level.MUST, PROTOCOL, STREAMING)
async def single_bytes(bench: Bench) -> None:
    """Characters cut in their middle: every byte a message of its own."""
    request = replace(bench.request, body='{"model": "m", "prompt": "Grüße, 世界", "max_tokens": 1}'.encode())
    assert request.body is not None
    async with bench.talk() as talk:
        answer = await talk.ask(request, pieces(request.body, 1), whole=True)
    require(bool(answer.endpoints) and answer.ended, f"status {answer.status}, answers {answer.order[:8]}")


@case(
    "bodies.empty-end",
    Level.MUST,
    MODES,
    "The client will set end_of_stream to true as part of the last body chunk request.",
)
async def empty_end(bench: Bench) -> None:
    """The end comes in a message without bytes, as with HTTP/2."""
    assert bench.request.body is not None
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request, [bench.request.body, b""], whole=True)
    require(bool(answer.endpoints) and answer.ended, f"status {answer.status}, answers {answer.order[:8]}")


@case(
    "bodies.order",
    Level.MUST,
    MODES,
    "The server response has to maintain the headers-body-trailers ordering.",
)
async def order(bench: Bench) -> None:
    """No piece of the body comes back before the headers."""
    assert bench.request.body is not None
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request, pieces(bench.request.body, 11))
        await talk.hear_until(lambda a: "request_body" in a.order)
    kinds = [kind for kind in answer.order if kind in ("request_headers", "request_body")]
    require(kinds[:1] == ["request_headers"], f"the first answer is {kinds[:1]}")
    require(kinds.count("request_headers") == 1, f"{kinds.count('request_headers')} answers to the headers")


@case("bodies.response-streams", Level.MUST, PROTOCOL, STREAMING)
async def response_streams(bench: Bench) -> None:
    """Each token of a response comes back before the next one is there."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
        require(bool(answer.endpoints), f"no destination, status {answer.status}")
        await talk.send_response_headers(answer.endpoints[0])
        await talk.hear_until(lambda a: "response_headers" in a.order)
        sent = b""
        for number in range(4):
            token = f'data: {{"token": {number}}}\n\n'.encode()
            sent += token
            await talk.send_response_body(token, ends=number == 3)
            await talk.hear_until(lambda a, sent=sent: len(a.response_body or b"") >= len(sent))
        require(answer.response_body == sent, f"{answer.response_body!r} came back")
        require(answer.response_ended, "the end of the response's body did not come back")


@case("bodies.request-trailers", Level.MUST, EXT_PROC, TRAILERS)
async def request_trailers(bench: Bench) -> None:
    """Trailers end the request's body; then no body message says that it is the last."""
    assert bench.request.body is not None
    async with bench.talk() as talk:
        await talk.send_headers(bench.request)
        await talk.send_body([bench.request.body], ends=False)
        await talk.say(
            pb.ProcessingRequest(request_trailers=pb.HttpTrailers(trailers=header_map({"x-sum": "1"})))
        )
        await talk.hear_until(lambda a: "request_trailers" in a.order)
        answer = talk.answer
    require(answer.order[-1:] == ["request_trailers"], f"answers: {answer.order}")
    require(bool(answer.endpoints), f"no destination, status {answer.status}")


@case("bodies.response-trailers", Level.MUST, EXT_PROC, TRAILERS)
async def response_trailers(bench: Bench) -> None:
    """The same for the response."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
        require(bool(answer.endpoints), f"no destination, status {answer.status}")
        await talk.send_response_headers(answer.endpoints[0])
        await talk.send_response_body(b"{}", ends=False)
        await talk.say(
            pb.ProcessingRequest(response_trailers=pb.HttpTrailers(trailers=header_map({"x-sum": "1"})))
        )
        await talk.hear_until(lambda a: "response_trailers" in a.order)
    require(answer.response_body == b"{}", f"of the response's body came {answer.response_body!r}")


async def in_mode(bench: Bench, mode: int, name: str) -> str:
    """A request in another body mode: decided, with one answer a message."""
    assert bench.request.body is not None
    try:
        async with bench.talk(mode) as talk:
            answer = await talk.ask(bench.request, pieces(bench.request.body, 16))
    except Closed as closed:
        require(False, f"{name} is not offered: it {closed}")
        raise
    require(bool(answer.endpoints), f"{name}: no destination, status {answer.status}, answers {answer.order}")
    require(bool(answer.headers), f"{name}: no header is set")
    return f"{len(answer.order)} answers"


@case("bodies.headers-only", Level.MAY, EXT_PROC, ONE_EACH)
async def headers_only(bench: Bench) -> str:
    """Mode NONE: the picker never sees the body."""
    return await in_mode(bench, NONE, "headers only")


@case("bodies.buffered", Level.MAY, EXT_PROC, ONE_EACH)
async def buffered(bench: Bench) -> str:
    """Mode BUFFERED: headers first, then the whole body in one message."""
    return await in_mode(bench, BUFFERED, "buffered")


@case("bodies.streamed", Level.MAY, EXT_PROC, ONE_EACH)
async def streamed(bench: Bench) -> str:
    """Mode STREAMED: piece by piece, each answered."""
    return await in_mode(bench, STREAMED, "streamed")


@case("bodies.no-silence", Level.MUST, EXT_PROC, REFUSE)
async def no_silence(bench: Bench) -> str:
    """A body mode that is not offered is refused by closing the stream, not by leaving the proxy to wait."""
    said = []
    for mode, name in ((NONE, "headers only"), (BUFFERED, "buffered"), (STREAMED, "streamed")):
        try:
            async with bench.talk(mode) as talk:
                await talk.ask(bench.request)
            said.append(f"{name} answered")
        except Closed as closed:
            said.append(f"{name} {closed}")
    return "; ".join(said)
