"""Clients that leave, messages out of place, large ones and many at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from picker_conformance.conversation import FULL_DUPLEX, Closed, Silence
from picker_conformance.suite import EXT_PROC, PROTOCOL, Bench, Level, case, require

EACH = "For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints"
REPLY = (
    "Unless ``observability_mode`` is ``true``, the server must send back a ``BodyResponse`` message, an"
    " ``ImmediateResponse`` message, or close the stream."
)
AT_ONCE = 256
LARGE_BYTES = 32 * 2**20


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

    async def one(endpoint: str) -> list[str]:
        async with bench.talk(patience_s=4 * bench.patience_s) as talk:
            request = replace(bench.request, subset=[endpoint])
            await talk.send_headers(request)
            await all_there.wait()  # all headers are sent before any body is
            assert request.body is not None
            await talk.send_body([request.body])
            await talk.hear_until(lambda a: a.endpoints)
            return talk.answer.endpoints

    wanted = [found[number % len(found)] for number in range(AT_ONCE)]
    got = await asyncio.gather(*map(one, wanted))
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


@case("robustness.large-body", Level.MUST, EXT_PROC, REPLY)
async def large_body(bench: Bench) -> str:
    """A body of 32 MiB: taken, or refused by an answer or by closing the stream."""
    chunk = b" " * 65536
    async with bench.talk(patience_s=6 * bench.patience_s) as talk:
        heard = asyncio.ensure_future(talk.hear_until(lambda a: a.endpoints and a.ended))
        try:
            await talk.send_headers(replace(bench.request, body=chunk))
            for _ in range(LARGE_BYTES // len(chunk)):
                await talk.send_body([chunk], ends=False)
                if heard.done():
                    break
            else:
                await talk.send_body([b""])
            done, _ = await asyncio.wait([heard], timeout=bench.patience_s)
            for each in done:
                each.result()  # says that the stream was closed
            answer = talk.answer
            require(
                bool(answer.endpoints) or answer.status is not None,
                "neither an answer nor the end of the stream",
            )
            said = "picked" if answer.endpoints else f"status {answer.status}"
        except Closed as closed:
            said = str(closed)
        finally:
            heard.cancel()
            await asyncio.gather(heard, return_exceptions=True)
    await bench.lives()
    return said


@case("robustness.many-headers", Level.MUST, PROTOCOL, EACH)
async def many_headers(bench: Bench) -> None:
    """A hundred headers of half a kilobyte."""
    headers = {f"x-extra-{number}": "v" * 512 for number in range(100)}
    async with bench.talk() as talk:
        answer = await talk.ask(replace(bench.request, headers=headers))
    require(bool(answer.endpoints), f"no destination, status {answer.status}")


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
