"""Requests that get no endpoint, and the status that says why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from picker_conformance.cases.health import serving
from picker_conformance.suite import PROTOCOL, Bench, Level, case, require


@asynccontextmanager
async def within(bench: Bench, state: str) -> AsyncIterator[None]:
    """Be in a state of the picker's world, and come back from it."""
    await bench.state(state)
    try:
        yield
    finally:
        await bench.state("normal")


@case(
    "errors.none-ready", Level.MUST, PROTOCOL,
    "ImmediateResponse with 503 (Serivce Unavailable) HTTP status code if there are no ready endpoints.",
)  # fmt: skip
async def none_ready(bench: Bench) -> None:
    """State `none-ready`: the pool has no ready endpoint."""
    async with within(bench, "none-ready"), bench.talk() as talk:
        answer = await talk.ask(bench.request)
    require(answer.status == 503, f"status {answer.status}, destination {answer.endpoints}")


@case(
    "errors.alive", Level.MUST, PROTOCOL,
    "Returns `SERVING` if the EPP process can respond to gRPC requests. This check does not depend on datastore"
    " sync status or leader election state.",
)  # fmt: skip
async def alive(bench: Bench) -> None:
    """State `none-ready`: the process is alive; were it restarted, the pool would be as empty."""
    async with within(bench, "none-ready"):
        await serving(bench, "liveness")


@case(
    "errors.shed", Level.MUST, PROTOCOL,
    "ImmediateResponse with 429 (Too Many Requests) HTTP status code if the request should be dropped (e.g., a"
    " Sheddable request, and the servers under heavy load).",
)  # fmt: skip
async def shed(bench: Bench) -> None:
    """State `overloaded`: this request is to be dropped."""
    async with within(bench, "overloaded"), bench.talk() as talk:
        answer = await talk.ask(bench.request)
    require(answer.status == 429, f"status {answer.status}, destination {answer.endpoints}")


@case(
    "errors.recovers", Level.MUST, PROTOCOL,
    "For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints",
)  # fmt: skip
async def recovers(bench: Bench) -> None:
    """After the pool was empty for a while."""
    async with within(bench, "none-ready"):
        pass
    await bench.lives()
