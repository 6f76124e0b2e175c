"""Feedback: which endpoint has served a request."""

from __future__ import annotations

from picker_conformance.suite import EXT_PROC, PROTOCOL, Bench, Level, case, require

ANSWERED = (
    "Information about the HTTP response headers, as well as peer info and additional properties. Unless"
    " ``observability_mode`` is ``true``, the server must send back a ``HeaderResponse`` message or close the"
    " stream."
)


async def respond(bench: Bench, served: str | None, first: bool = False) -> None:
    """An exchange whose response came from `served`, or from the first endpoint named."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
        require(bool(answer.endpoints), f"no destination, status {answer.status}")
        await talk.send_response_headers(answer.endpoints[0] if first else served)
        await talk.pause(lambda a: "response_headers" in a.order)
        await talk.send_response_body(b"{}", ends=True)
        await talk.hear_until(lambda a: "response_headers" in a.order, may_close=True)


@case("served.first", Level.MUST, EXT_PROC, ANSWERED)
async def first_choice(bench: Bench) -> None:
    """The endpoint that was picked first has served it."""
    await respond(bench, None, first=True)


@case(
    "served.fall-back", Level.MUST, PROTOCOL,
    "the data plane, according to retry configuration, will attempt each endpoint in order until the request is"
    " successful or no more endpoints are available.",
)  # fmt: skip
async def fall_back(bench: Bench) -> None:
    """Another ready endpoint than the first has served it."""
    found = await bench.endpoints(least=2)
    await respond(bench, found[-1])
    await bench.lives()


@case("served.unknown", Level.SHOULD, EXT_PROC, ANSWERED)
async def unknown(bench: Bench) -> None:
    """An endpoint that has left the pool meanwhile, and one that is no endpoint at all."""
    for served in ("203.0.113.9:9", "no endpoint"):
        await respond(bench, served)
    await bench.lives()


@case("served.missing", Level.SHOULD, EXT_PROC, ANSWERED)
async def missing(bench: Bench) -> None:
    """A data plane that does not say who served."""
    await respond(bench, None)
    await bench.lives()
