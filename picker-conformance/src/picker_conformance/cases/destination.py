"""Where a request goes, and the two ways in which a picker says so."""

from __future__ import annotations

import re
from dataclasses import replace

from picker_conformance.conversation import DESTINATION, LB
from picker_conformance.suite import PROTOCOL, Bench, Level, NotRun, case, require

ENDPOINT = re.compile(r"(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.]+\]):\d{1,5}")


@case(
    "destination.header", Level.MUST, PROTOCOL,
    "For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints"
    " via: 1. Setting the `x-gateway-destination-endpoint` HTTP header to one or more selected endpoints.",
)  # fmt: skip
async def header(bench: Bench) -> None:
    """A request with a body."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
    require(answer.status is None, f"an immediate response of {answer.status}; an endpoint must be ready")
    require(answer.in_header is not None, f"no header {DESTINATION}; headers set: {sorted(answer.headers)}")


@case(
    "destination.metadata", Level.MUST, PROTOCOL,
    "Set an unstructured entry in the dynamic_metadata field of the ext-proc response. The metadata entry for the"
    " picked endpoints MUST be wrapped with an outer key (which represents the metadata namespace) with a default"
    " of `envoy.lb`.",
)  # fmt: skip
async def in_metadata(bench: Bench) -> None:
    """The same request."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
    require(answer.in_metadata is not None, f"no {LB}/{DESTINATION}; dynamic metadata: {answer.dynamic}")


@case(
    "destination.agree", Level.MUST, PROTOCOL,
    "The EPP MUST not set two different values in the header and the inner response metadata value.",
)  # fmt: skip
async def agree(bench: Bench) -> None:
    """Eight requests, so that a rotation cannot agree by luck."""
    for _ in range(8):
        async with bench.talk() as talk:
            answer = await talk.ask(bench.request)
        both = answer.in_header, answer.in_metadata
        require(None in both or both[0] == both[1], f"header {both[0]}, metadata {both[1]}")


@case(
    "destination.form", Level.MUST, PROTOCOL,
    "The value of the header or metadata entry MUST contain at least one endpoint in `<ip:port>` format or multiple"
    " endpoints in `<ip:port>,<ip:port>,...` format. Multiple endpoints are separated by commas.",
)  # fmt: skip
async def form(bench: Bench) -> None:
    """Every endpoint named, in either place."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
    for value in (answer.in_header, answer.in_metadata):
        for each in value.split(",") if value is not None else ():
            require(ENDPOINT.fullmatch(each.strip()) is not None, f"{each!r} is not ip:port")
    require(bool(answer.endpoints), "no endpoint is named")


@case(
    "destination.no-body", Level.MUST, PROTOCOL,
    "For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints",
)  # fmt: skip
async def no_body(bench: Bench) -> None:
    """A GET: the headers say that nothing follows."""
    async with bench.talk() as talk:
        answer = await talk.ask(replace(bench.request, body=None, path="/v1/models"))
    require(bool(answer.endpoints), f"answered {answer.order}, status {answer.status}, no destination")


@case(
    "destination.of-the-pool", Level.MUST, PROTOCOL,
    "If the key `x-gateway-destination-endpoint-subset` is not set, then the EPP MUST select from the set defined by"
    " the `InferencePool` selector.",
)  # fmt: skip
async def of_the_pool(bench: Bench) -> str:
    """Needs the pool's endpoints by name, since only its owner knows them."""
    if not bench.pool:
        raise NotRun("needs the pool's endpoints by --endpoints")
    for _ in range(16):
        async with bench.talk() as talk:
            for each in (await talk.ask(bench.request)).endpoints:
                require(each in bench.pool, f"{each} is none of {', '.join(bench.pool)}")
    return f"16 requests, pool of {len(bench.pool)}"


@case(
    "destination.client-header", Level.SHOULD, PROTOCOL,
    "For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints"
    " (a destination that the client wrote is none that the picker selected)",
)  # fmt: skip
async def client_header(bench: Bench) -> None:
    """A client that writes the header itself."""
    forged = "203.0.113.9:9"
    async with bench.talk() as talk:
        answer = await talk.ask(replace(bench.request, headers={DESTINATION: forged}))
    require(forged not in answer.endpoints, f"the client's own {forged} was taken over")
    require(bool(answer.in_header), f"the client's {DESTINATION} was left in place")


@case(
    "destination.fall-backs", Level.MAY, PROTOCOL,
    "If retry is configured, the proxy will go sequentially down the list until one valid endpoint is found.",
)  # fmt: skip
async def fall_backs(bench: Bench) -> str:
    """Whether further endpoints follow the first, each once."""
    await bench.endpoints(least=2)
    async with bench.talk() as talk:
        named = (await talk.ask(bench.request)).endpoints
    require(len(named) > 1, f"names {named} alone")
    require(len(set(named)) == len(named), f"names one twice: {named}")
    return f"{len(named)} endpoints"
