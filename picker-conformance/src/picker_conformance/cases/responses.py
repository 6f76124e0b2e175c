"""Responses on their way back: whole, token by token, each client's own, with trailers or without a body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial

from picker_conformance.answer import Answer
from picker_conformance.cases.bodies import LAST, PASSED_ON, STREAMING, TRAILERS, pieces, speakers
from picker_conformance.cases.served import ANSWERED
from picker_conformance.compare import changed, token, tokens
from picker_conformance.conversation import Conversation
from picker_conformance.suite import EXT_PROC, MODES, PROTOCOL, Bench, Level, at_once, case, require

EVENTS = {"content-type": "text/event-stream"}
AT_ONCE = 32


async def begin(talk: Conversation, bench: Bench, headers: dict[str, str] | None = None) -> None:
    """A request and the headers of its response.

    They may be answered at once or with the first piece of the body, and the picker may close the stream.
    """
    answer = await talk.ask(bench.request)
    require(bool(answer.endpoints), f"no destination, status {answer.status}")
    await talk.send_response_headers(answer.endpoints[0], headers=headers)
    await talk.pause(lambda a: "response_headers" in a.order)


async def send(talk: Conversation, body: Sequence[bytes]) -> bytes:
    """Send a response's body up to its end; what of it the picker was sent before it closed the stream."""
    sent = b""
    for number, piece in enumerate(body):
        if talk.closed is None:
            sent += piece
            await talk.send_response_body(piece, ends=number == len(body) - 1)
    await talk.hear_until(lambda a: a.response.ended, may_close=True)
    return sent


def holds(word: bytes, answer: Answer) -> bool:
    """Whether a word of the response has come back."""
    return word in (answer.response.body or b"")


def whole(talk: Conversation, sent: bytes) -> None:
    """Fail unless the response has come back as it was sent."""
    if sent:
        wrong = changed(sent, talk.answer.response.body)
        require(wrong is None, f"the response's body: {wrong}")
    kinds = [kind for kind in talk.answer.order if kind.startswith("response")]
    require(kinds[:1] in ([], ["response_headers"]), f"the first answer to the response is {kinds[:1]}")


@case("bodies.response-whole", Level.MUST, MODES, PASSED_ON)
async def completion(bench: Bench) -> None:
    """A completion in JSON comes back to its end; the picker may gather it."""
    body = json.dumps({"model": "m", "choices": [{"text": " ".join(map(str, range(200)))}]}).encode()
    async with bench.talk() as talk:
        await begin(talk, bench)
        sent = await send(talk, pieces(body, 7))
        await talk.pause(lambda a: a.wrong)
    whole(talk, sent)


@case("bodies.response-streams", Level.MUST, PROTOCOL, STREAMING)
async def stream(bench: Bench) -> None:
    """Each token of a response comes back before the next one is there; in other words, perhaps."""
    async with bench.talk() as talk:
        await begin(talk, bench, EVENTS)
        sent = []
        for number in range(8):
            if talk.closed is not None:
                break
            sent.append(f"token{number}.")
            await talk.send_response_body(token(sent[-1]), ends=number == 7)
            await talk.hear_until(partial(holds, sent[-1].encode()), may_close=True)
        if talk.closed is None:
            await talk.hear_until(lambda a: a.response.ended, may_close=True)
    came = tokens(talk.answer.response.body or b"")
    require(came == sent, f"{came} came back of {sent}")


@case("bodies.response-without-body", Level.MUST, EXT_PROC, ANSWERED)
async def no_body(bench: Bench) -> None:
    """Responses that end with their headers: to a request without content (204) and to HEAD."""
    for headers in ({":status": "204"}, {":status": "200", "content-length": "12"}):
        async with bench.talk() as talk:
            answer = await talk.ask(bench.request)
            require(bool(answer.endpoints), f"no destination, status {answer.status}")
            await talk.send_response_headers(answer.endpoints[0], ends=True, headers=headers)
            await talk.hear_until(lambda a: "response_headers" in a.order, may_close=True)


@case("bodies.response-end", Level.MUST, EXT_PROC, LAST)
async def end(bench: Bench) -> None:
    """The end is said when it was sent, and not where trailers follow; nothing comes after it."""
    for trailers in (False, True):
        async with bench.talk() as talk:
            await begin(talk, bench)
            await talk.send_response_body(b'{"choices": []', ends=False)
            await talk.send_response_body(b"}", ends=False)
            await talk.pause(lambda a: a.wrong)
            if trailers:
                await talk.send_response_trailers()
            else:
                await talk.send_response_body(b"", ends=True)
            await talk.pause(lambda a: a.wrong)
        require(not talk.answer.wrong, f"{talk.answer.wrong[:1]}")


@case("bodies.response-trailers", Level.MUST, EXT_PROC, TRAILERS)
async def trailers(bench: Bench) -> None:
    """Trailers end the response's body, which has come back before they are answered."""
    async with bench.talk() as talk:
        await begin(talk, bench)
        sent = b"" if talk.closed else b"{}"
        await talk.send_response_body(b"{}", ends=False)
        await talk.send_response_trailers()
        await talk.hear_until(lambda a: "response_trailers" in a.order, may_close=True)
    whole(talk, sent)


@case("bodies.responses-apart", Level.MUST, MODES, PASSED_ON)
async def apart(bench: Bench) -> str:
    """Responses that stream at once: no client gets words of another's."""
    together = asyncio.Barrier(AT_ONCE)

    async def one(number: int) -> set[str]:
        async with bench.talk(patience_s=4 * bench.patience_s) as talk:
            await begin(talk, bench, EVENTS)
            for count in range(4):
                await together.wait()  # every client is sent a token before any is sent the next
                await talk.send_response_body(token(f"client{number}.{count}"), ends=count == 3)
            await talk.hear_until(lambda a: a.response.ended, may_close=True)
            return speakers(talk.answer.response.body) - {f"client{number}"}

    foreign = [each for each in await at_once(one, range(AT_ONCE)) if each]
    require(not foreign, f"{len(foreign)} of {AT_ONCE} clients get words of others: {foreign[:1]}")
    return f"{AT_ONCE} clients"
