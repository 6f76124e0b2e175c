"""Bodies of requests, in full duplex and in the other body modes of the external processing filter."""

from __future__ import annotations

import asyncio
import re

from picker_conformance.answer import Answer
from picker_conformance.compare import changed
from picker_conformance.conversation import Closed
from picker_conformance.messages import BUFFERED, NONE, STREAMED, Request
from picker_conformance.suite import EXT_PROC, MODES, PROTOCOL, Bench, Level, NotRun, at_once, case, require

STREAMING = (
    "The EPP MUST support streaming mode for inference requests and responses. Streaming mode enables full-duplex"
    " communication between the Gateway (Envoy), EPP, and model servers, allowing real-time token-by-token response"
    " delivery for AI inference workloads."
)
ONE_EACH = (
    "If the corresponding ``BodySendMode`` in the processing_mode is not set to ``FULL_DUPLEX_STREAMED``, then for"
    " every received ``ProcessingRequest``, the server must send back exactly one ``ProcessingResponse`` message."
)
REFUSE = (
    "If the server does not support these protocol configurations, it may choose to close the gRPC stream. If the"
    " server supports these protocol configurations, it should respond based on the API specifications."
)
TRAILERS = (
    "Unless ``observability_mode`` is ``true``, the server must send back a ``TrailerResponse`` message or close"
    " the stream."
)
LAST = (
    "The server sets this flag to true if it has received a body request with end_of_stream set to true, and this"
    " is the last chunk of body responses."
)
LARGEST = (
    "The individual response chunk size is recommended to be no greater than 64K bytes, or"
    " max_receive_message_length if EnvoyGrpc is used."
)
PASSED_ON = (
    "The client will stream the body chunks in the responses from the server to the upstream/downstream as they"
    " arrive."
)
PIECE_BYTES = 64 * 1024
AT_ONCE = 32


def pieces(body: bytes, size: int) -> list[bytes]:
    """A body cut into pieces of `size` bytes."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def words(of: str) -> str:
    """A prompt in which every word says whose it is, and is there once."""
    return " ".join(f"{of}.{number}" for number in range(200))


def speakers(body: bytes | bytearray | None) -> set[str]:
    """Whose words are in a body."""
    return {each.decode() for each in re.findall(rb"\b((?:client|left)\d+)\.\d", body or b"")}


def content(request: Request) -> bytes:
    """The body of a request that has one."""
    assert request.body is not None
    return request.body


def came_back(answer: Answer, request: Request) -> str:
    """Fail unless the request's body came back whole; says whether it was rewritten."""
    require(answer.status is None, f"status {answer.status}, answers {answer.order[:8]}")
    require(bool(answer.endpoints), f"no destination, answers {answer.order[:8]}")
    wrong = changed(content(request), answer.request.body)
    require(wrong is None, f"the request's body: {wrong}")
    require(answer.request.ended, "the end of the request's body did not come back")
    return "unchanged" if answer.request.body == request.body else "rewritten by the picker"


@case("bodies.whole", Level.MUST, MODES, PASSED_ON)
async def whole(bench: Bench) -> str:
    """A body in pieces comes back to its end, none of them lost, doubled or in another place."""
    request = bench.request.saying(words("client"))
    async with bench.talk() as talk:
        answer = await talk.ask(request, pieces(content(request), 7), whole=True)
        await talk.pause(lambda a: a.wrong)  # what follows the end would be passed on, too
    return came_back(answer, request)


@case("bodies.single-bytes", Level.MUST, PROTOCOL, STREAMING)
async def single_bytes(bench: Bench) -> None:
    """Characters cut in their middle: every byte a message of its own."""
    request = bench.request.saying("Grüße, 世界")
    async with bench.talk() as talk:
        answer = await talk.ask(request, pieces(content(request), 1), whole=True)
    came_back(answer, request)


@case(
    "bodies.empty-end", Level.MUST, MODES,
    "In case there are no trailers, then the client will set end_of_stream to true as part of the last body chunk"
    " request to notify the server that no other data is to be sent.",
)  # fmt: skip
async def empty_end(bench: Bench) -> None:
    """The end comes in a message without bytes, as with HTTP/2."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request, [content(bench.request), b""], whole=True)
    came_back(answer, bench.request)


@case(
    "bodies.order", Level.MUST, MODES,
    "The server response has to maintain the headers-body-trailers ordering.",
)  # fmt: skip
async def order(bench: Bench) -> None:
    """No piece of the body comes back before the headers."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request, pieces(content(bench.request), 11))
        await talk.hear_until(lambda a: "request_body" in a.order)
    kinds = [kind for kind in answer.order if kind in ("request_headers", "request_body")]
    require(kinds[:1] == ["request_headers"], f"the first answer is {kinds[:1]}")
    require(kinds.count("request_headers") == 1, f"{kinds.count('request_headers')} answers to the headers")


@case("bodies.end", Level.MUST, EXT_PROC, LAST)
async def end(bench: Bench) -> None:
    """The end is said when it was sent, once, and not where trailers follow; nothing comes after it."""
    body = content(bench.request)
    half = len(body) // 2
    for last in (body[half:], b""):  # with the end, or all of it before the end
        async with bench.talk() as talk:
            await talk.send_headers(bench.request)
            await talk.send_body([body[:half], body[half:]][: 1 if last else 2], ends=False)
            await talk.pause(lambda a: a.request.ended)
            await talk.send_body([last])
            await talk.pause(lambda a: a.wrong)
        require(not talk.answer.wrong, f"{talk.answer.wrong[:1]}")
    async with bench.talk() as talk:
        await talk.send_headers(bench.request)
        await talk.send_body([body], ends=False)
        await talk.pause(lambda a: a.request.ended)
        await talk.send_trailers()
        await talk.pause(lambda a: "request_trailers" in a.order)
    require(not talk.answer.wrong, f"{talk.answer.wrong[:1]}")


@case("bodies.request-trailers", Level.MUST, EXT_PROC, TRAILERS)
async def request_trailers(bench: Bench) -> None:
    """Trailers end the request's body; then no body message says that it is the last."""
    async with bench.talk() as talk:
        await talk.send_headers(bench.request)
        await talk.send_body([content(bench.request)], ends=False)
        await talk.send_trailers()
        await talk.hear_until(lambda a: "request_trailers" in a.order, may_close=True)
        answer = talk.answer
    require(bool(answer.endpoints), f"no destination, status {answer.status}")
    wrong = changed(content(bench.request), answer.request.body)
    require(wrong is None, f"the request's body: {wrong}")
    after = answer.order[answer.order.index("request_trailers") + 1 :] if talk.closed is None else []
    require(not after, f"after the trailers came {after}")


@case("bodies.requests-apart", Level.MUST, MODES, PASSED_ON)
async def requests_apart(bench: Bench) -> str:
    """Clients that send at once, and some that left in the middle: no request has words of another."""
    for number in range(4):
        async with bench.talk() as talk:
            left = bench.request.saying(words(f"left{number}"))
            await talk.send_headers(left)
            await talk.send_body([content(left)[:500]], ends=False)
            await talk.pause(lambda a: a.request.body)
    together = asyncio.Barrier(AT_ONCE)

    async def one(number: int) -> set[str]:
        request = bench.request.saying(words(f"client{number}"))
        parts = pieces(content(request), len(content(request)) // 4 + 1)
        async with bench.talk(patience_s=4 * bench.patience_s) as talk:
            await talk.send_headers(request)
            for count, part in enumerate(parts):
                await together.wait()  # every client sends a piece before any sends the next
                await talk.send_body([part], ends=count == len(parts) - 1)
            await talk.hear_until(lambda a: a.request.ended)
            return speakers(talk.answer.request.body) - {f"client{number}"}

    foreign = [each for each in await at_once(one, range(AT_ONCE)) if each]
    require(not foreign, f"{len(foreign)} of {AT_ONCE} requests have words of others: {foreign[:1]}")
    return f"{AT_ONCE} clients"


@case("bodies.answer-size", Level.SHOULD, MODES, LARGEST)
async def answer_size(bench: Bench) -> str:
    """A body of half a megabyte comes back in pieces of at most 64 KiB, as it was sent."""
    request = bench.request.saying("large " * (2**19 // 6))
    async with bench.talk(patience_s=2 * bench.patience_s) as talk:
        answer = await talk.ask(request, pieces(content(request), PIECE_BYTES), whole=True)
    if answer.status is not None:
        return f"status {answer.status}"
    largest = answer.request.largest_bytes
    require(largest <= PIECE_BYTES, f"one answer holds {largest} bytes")
    return came_back(answer, request)


async def in_mode(bench: Bench, mode: int, name: str) -> str:
    """A request in another body mode: decided, with one answer a message, and its body as it was."""
    request = bench.request
    try:
        async with bench.talk(mode) as talk:
            answer = await talk.ask(request, pieces(content(request), 16))
            await talk.pause(lambda a: a.wrong)
    except Closed as closed:
        raise NotRun(f"{name} is not offered: it {closed}") from None
    if answer.status is not None:
        raise NotRun(f"{name} is not offered: status {answer.status}")
    require(bool(answer.endpoints), f"{name}: no destination, answers {answer.order}")
    require(bool(answer.request.set), f"{name}: no header is set")
    require(not answer.wrong, f"{name}: {answer.wrong[:1]}")
    asked = {NONE: 1, BUFFERED: 2, STREAMED: 1 + len(pieces(content(request), 16))}[mode]
    require(len(answer.order) == asked, f"{name}: {len(answer.order)} answers to {asked} messages")
    if mode != NONE:
        came_back(answer, request)
    return f"{asked} answers"


@case("bodies.headers-only", Level.MUST, EXT_PROC, ONE_EACH)
async def headers_only(bench: Bench) -> str:
    """Mode NONE, where it is offered: the picker never sees the body."""
    return await in_mode(bench, NONE, "headers only")


@case("bodies.buffered", Level.MUST, EXT_PROC, ONE_EACH)
async def buffered(bench: Bench) -> str:
    """Mode BUFFERED, where it is offered: headers first, then the whole body in one message."""
    return await in_mode(bench, BUFFERED, "buffered")


@case("bodies.streamed", Level.MUST, EXT_PROC, ONE_EACH)
async def streamed(bench: Bench) -> str:
    """Mode STREAMED, where it is offered: piece by piece, each answered."""
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
