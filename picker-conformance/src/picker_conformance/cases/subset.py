"""The subset hint: endpoints among which the data plane lets the picker choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from picker_conformance.answer import Answer
from picker_conformance.suite import PROTOCOL, Bench, Level, case, require

NOWHERE = "203.0.113.9:9"  # of a block reserved for documentation: in no pool
ONLY = (
    "If the key `x-gateway-destination-endpoint-subset` is set, the EPP MUST only select endpoints from the"
    " specified list."
)
NONE_ELIGIBLE = (
    "If none of the endpoints in the list is eligible or the list is empty, then the EPP MUST return a"
    " ImmediateResponse with 503 (Service Unavailable) HTTP status code."
)


async def ask(bench: Bench, subset: Any) -> Answer:
    """A request with a hint."""
    async with bench.talk() as talk:
        return await talk.ask(replace(bench.request, subset=subset))


@case("subset.one", Level.MUST, PROTOCOL, ONLY)
async def one(bench: Bench) -> str:
    """Each ready endpoint alone, several times: a rotation would leave it."""
    found = await bench.endpoints(least=2)
    for endpoint in found[:4]:
        for _ in range(4):
            answer = await ask(bench, [endpoint])
            require(answer.endpoints == [endpoint], f"only {endpoint} was allowed, {answer.endpoints} named")
    return f"{min(len(found), 4)} endpoints"


@case("subset.some-unknown", Level.MUST, PROTOCOL, ONLY)
async def some_unknown(bench: Bench) -> None:
    """One that is ready and one that nobody has."""
    ready = (await bench.endpoints())[0]
    answer = await ask(bench, [NOWHERE, ready])
    require(answer.endpoints == [ready], f"{ready} alone is ready, {answer.endpoints or answer.status} came")


@case("subset.without-body", Level.MUST, PROTOCOL, ONLY)
async def without_body(bench: Bench) -> None:
    """A request without a body is bound by the hint too."""
    found = await bench.endpoints(least=2)
    for endpoint in found[:2] * 3:
        async with bench.talk() as talk:
            answer = await talk.ask(replace(bench.request, body=None, path="/v1/models", subset=[endpoint]))
        require(answer.endpoints == [endpoint], f"only {endpoint} was allowed, {answer.endpoints} named")


@case("subset.none-eligible", Level.MUST, PROTOCOL, NONE_ELIGIBLE)
async def none_eligible(bench: Bench) -> None:
    """Only endpoints that nobody has."""
    answer = await ask(bench, [NOWHERE, "203.0.113.10:9"])
    require(answer.status == 503, f"status {answer.status}, destination {answer.endpoints}")


@case("subset.empty", Level.MUST, PROTOCOL, NONE_ELIGIBLE)
async def empty(bench: Bench) -> None:
    """A list of nothing, which is not the same as no list."""
    answer = await ask(bench, [])
    require(answer.status == 503, f"status {answer.status}, destination {answer.endpoints}")


@case("subset.malformed", Level.SHOULD, PROTOCOL, ONLY)
async def malformed(bench: Bench) -> str:
    """Entries that are no endpoints must not open the whole pool."""
    answer = await ask(bench, [17, {"ip": NOWHERE}, True])
    require(not answer.endpoints, f"no endpoint was allowed, {answer.endpoints} named")
    return f"status {answer.status}"


@case("subset.text", Level.MAY, PROTOCOL, ONLY)
async def as_text(bench: Bench) -> None:
    """The list as one text with commas, as filters that copy a header write it."""
    ready = (await bench.endpoints())[0]
    answer = await ask(bench, f"{NOWHERE},{ready}")
    require(answer.endpoints == [ready], f"{ready} alone is ready, {answer.endpoints or answer.status} came")
