"""Clients that leave, messages out of place, large ones and many at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from picker_conformance.cases.bodies import LARGEST, pieces
from picker_conformance.compare import changed
from picker_conformance.conversation import Closed, Silence
from picker_conformance.messages import FULL_DUPLEX
from picker_conformance.suite import EXT_PROC, GRPC, MODES, PROTOCOL, Bench, Level, at_once, case, require

EACH = "For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints"
REPLY = (
    "Unless ``observability_mode`` is true, the server must send back a ``BodyResponse`` message, an"
    " ``ImmediateResponse`` message, or close the stream."
)
AT_ONCE = 256
LARGE_BYTES = 32 * 2**20
MESSAGE_BYTES = 4 * 2**20  # what gRPC takes in one message unless it is told otherwise
STREAMS, SIDE_BY_SIDE = 2000, 16


@case("robustness.client-leaves", Level.MUST, PROTOCOL, EACH)
async def client_leaves(bench: Bench) -> None:
    """Clients that leave after the headers, in the body, and before the response."""
    assert bench.request.body is not None
    for _ in range(8):
        async with bench.talk() as talk:
            await talk.send_headers(bench.request)
        async with bench.talk() as talk:
            await talk.send_headers(bench.request)
            await talk.send_body([bench.request.body[:9]], ends=False)
        async with bench.talk() as talk:
            await talk.ask(bench.request)
    await bench.lives()


@case("robustness.slow-client", Level.MUST, PROTOCOL, EACH)
async def slow_client(bench: Bench) -> None:
    """Thirty-two clients that stop in the middle of their body hold nobody else up."""
    waiting = [bench.talk() for _ in range(32)]
    try:
        for talk in waiting:
            await talk.send_headers(bench.request)
        await bench.lives()
    finally:
        for talk in waiting:
            talk.leave()


@case("robustness.many-at-once", Level.MUST, PROTOCOL, EACH)
async def many_at_once(bench: Bench) -> str:
    """Many streams side by side, each with a hint of its own: answers must not be mixed up."""
    found = await bench.endpoints(least=2)
    all_there = asyncio.Barrier(AT_ONCE)

    wanted = [found[number % len(found)] for number in range(AT_ONCE)]

    async def one(number: int) -> list[str]:
        async with bench.talk(patience_s=4 * bench.patience_s, beside=number) as talk:
            request = replace(bench.request, subset=[wanted[number]])
            await talk.send_headers(request)
            await all_there.wait()  # all headers are sent before any body is
            assert request.body is not None
            await talk.send_body([request.body])
            await talk.hear_until(lambda a: a.endpoints)
            return talk.answer.endpoints

    got = await at_once(one, range(AT_ONCE))
    wrong = sum(answer != [endpoint] for answer, endpoint in zip(got, wanted, strict=True))
    require(not wrong, f"{wrong} of {AT_ONCE} were not sent where their own hint said")
    return f"{AT_ONCE} streams"


@case("robustness.malformed-body", Level.MUST, EXT_PROC, REPLY)
async def malformed_body(bench: Bench) -> str:
    """Bodies that are no JSON, or JSON of another shape: an answer or the end of the stream, never silence."""
    said = []
    for body in (b"{", b"\xff\xfe\x00", b"[1, 2]", b'{"model": 7}', b"[" * 10_000):
        async with bench.talk() as talk:
            try:
                answer = await talk.ask(replace(bench.request, body=body))
                said.append("picked" if answer.endpoints else str(answer.status))
            except Closed as closed:
                said.append(f"closed {closed.code.name if closed.code else ''}".strip())
    await bench.lives()
    return ", ".join(said)


@case("robustness.large-body", Level.MUST, MODES, LARGEST)
async def large_body(bench: Bench) -> str:
    """A body of 32 MiB: taken piece by piece, or refused by an answer or by closing the stream."""
    request = bench.request.saying("large " * (LARGE_BYTES // 6))
    body = request.body or b""
    async with bench.talk(patience_s=6 * bench.patience_s) as talk:
        try:
            answer = await talk.ask(request, pieces(body, 65536), whole=True)
        except Closed as closed:
            answer, said = talk.answer, str(closed)
        else:
            said = f"status {answer.status}" if answer.status is not None else "picked"
    largest = answer.request.largest_bytes
    require(
        largest <= MESSAGE_BYTES, f"one answer holds {largest} bytes, gRPC takes {MESSAGE_BYTES} by default"
    )
    if said == "picked":
        wrong = changed(body, answer.request.body)
        require(wrong is None, f"the request's body: {wrong}")
    await bench.lives()
    return said


@case("robustness.many-headers", Level.MUST, PROTOCOL, EACH)
async def many_headers(bench: Bench) -> None:
    """A hundred headers of half a kilobyte."""
    headers = {f"x-extra-{number}": "v" * 512 for number in range(100)}
    async with bench.talk() as talk:
        answer = await talk.ask(replace(bench.request, headers=headers))
    require(bool(answer.endpoints), f"no destination, status {answer.status}")


@case(
    "robustness.half-close", Level.MUST, GRPC,
    "Response → (Response-Headers *Length-Prefixed-Message Trailers) / Trailers-Only … Status must be sent in"
    " Trailers even if the status code is OK.",
)  # fmt: skip
async def half_close(bench: Bench) -> None:
    """A data plane that has said all it has to say: the picker ends the stream, whose place is then free."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
        if answer.endpoints:
            await talk.send_response_headers(answer.endpoints[0], ends=True)
        await talk.half_close()
    async with bench.talk() as talk:  # the client left before its body ended
        await talk.send_headers(bench.request)
        await talk.half_close()


async def out_of_place(bench: Bench, *messages: pb.ProcessingRequest) -> str:
    """Send what no data plane sends; anything but silence is right, and the picker must live."""
    async with bench.talk(FULL_DUPLEX) as talk:
        try:
            for message in messages:
                await talk.say(message)
            await talk.hear()
            said = f"answered {talk.answer.order[-1]}"
        except Closed as closed:
            said = str(closed)
    await bench.lives()
    return said


@case("robustness.body-first", Level.SHOULD, EXT_PROC, REPLY)
async def body_first(bench: Bench) -> str:
    """A body before its headers."""
    return await out_of_place(
        bench, pb.ProcessingRequest(request_body=pb.HttpBody(body=b"{}", end_of_stream=True))
    )


@case(
    "robustness.empty-message",
    Level.SHOULD,
    EXT_PROC,
    "Each request message will include one of the following sub-messages.",
)
async def empty_message(bench: Bench) -> str:
    """A message that holds nothing."""
    return await out_of_place(bench, pb.ProcessingRequest())


@case(
    "robustness.observability", Level.SHOULD, EXT_PROC,
    "A value of ``true`` indicates that the server should not respond to this message, as any responses will be"
    " ignored. However, it may still close the stream to indicate that no more messages are needed.",
)  # fmt: skip
async def observability(bench: Bench) -> str:
    """A data plane that only lets the picker watch."""
    async with bench.talk(patience_s=min(bench.patience_s, 1.0)) as talk:
        said = pb.ProcessingRequest(
            request_headers=pb.HttpHeaders(headers=bench.request.header_map(), end_of_stream=True),
            observability_mode=True,
        )
        await talk.say(said)
        try:
            await talk.hear()
        except (Silence, Closed) as nothing:
            return str(nothing)
    require(False, f"answered {talk.answer.order}")
    return ""


# Last of its area: a picker that leaks answers nothing afterwards.
@case("robustness.many-streams", Level.MUST, PROTOCOL, EACH)
async def many_streams(bench: Bench) -> str:
    """Two thousand streams, a few at a time, every fourth with one beside it that is broken off.

    What keeps something of each stream ends or slows down after enough of them.
    """
    before_s = await decision_s(bench)
    number = iter(range(STREAMS))

    async def some(_: int) -> None:
        for each in number:
            async with bench.talk(patience_s=2 * bench.patience_s) as talk:
                answer = await talk.ask(bench.request)
                require(bool(answer.endpoints), f"stream {each}: no destination, status {answer.status}")
                await talk.send_response_headers(answer.endpoints[0], ends=True)
                await talk.hear_until(lambda a: "response_headers" in a.order, may_close=True)
                await talk.half_close()
            if each % 4 == 0:
                async with bench.talk() as talk:
                    await talk.send_headers(bench.request)

    await at_once(some, range(SIDE_BY_SIDE))
    after_s = await decision_s(bench)
    require(
        after_s < 3 * before_s + 0.01,
        f"a decision took {1000 * before_s:.1f} ms before and {1000 * after_s:.1f} ms after {STREAMS} streams",
    )
    return f"{1000 * before_s:.1f} ms a decision before, {1000 * after_s:.1f} ms after"


async def decision_s(bench: Bench) -> float:
    """The shortest time of some decisions, one after another."""
    took_s = []
    for _ in range(10):
        began_s = time.perf_counter()
        async with bench.talk() as talk:
            await talk.ask(bench.request)
            took_s.append(time.perf_counter() - began_s)
    return min(took_s)
