"""Where a request goes, and the two ways in which a picker says so."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace

from picker_conformance.messages import DESTINATION, LB
from picker_conformance.suite import BASE, PROTOCOL, Bench, Level, NotRun, case, require

ENDPOINT = re.compile(r"(?P<v4>[0-9.]+|\[(?P<v6>[0-9a-fA-F:.]+)\]):(?P<port>[0-9]{1,5})")
SELECTED = (
    "For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints"
    " via: 1. Setting the `x-gateway-destination-endpoint` HTTP header to one or more selected endpoints."
)
ONE_VALUE = "The EPP MUST not set two different values in the header and the inner response metadata value."


def wrong_with(endpoint: str) -> str | None:
    """Why no connection can be opened to an endpoint; None where one can."""
    found = ENDPOINT.fullmatch(endpoint)
    if found is None:
        return "is not ip:port"
    try:
        address = ipaddress.ip_address(found["v6"] or found["v4"])
    except ValueError:
        return "has an address that is none"
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        return "has an address that is of no server"
    return None if 1 <= int(found["port"]) <= 65535 else "has a port that is none"


@case(
    "destination.header", Level.MUST, PROTOCOL, SELECTED,
)  # fmt: skip
async def header(bench: Bench) -> None:
    """A request with a body."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
    require(answer.status is None, f"an immediate response of {answer.status}; an endpoint must be ready")
    require(answer.in_header is not None, f"no header {DESTINATION}; headers set: {answer.request.set}")
    require(answer.in_header != "", f"{DESTINATION} has no raw_value, which is what the data plane reads")


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
    ONE_VALUE,
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
            wrong = wrong_with(each.strip())
            require(wrong is None, f"{each!r} {wrong}")
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


@case("destination.stays", Level.MUST, PROTOCOL, ONE_VALUE)
async def stays(bench: Bench) -> str:
    """No later message of the request or its response names another endpoint than the first did.

    The hint, where there is one, comes with each of them.
    """
    named = 0
    for subset in (None, await bench.endpoints()) * 2:  # what picks anew may come to the same endpoint once
        async with bench.talk() as talk:
            answer = await talk.ask(replace(bench.request, subset=subset))
            await talk.pause(lambda a: a.request.ended)
            if answer.endpoints:
                await talk.send_response_headers(answer.endpoints[0])
                await talk.pause(lambda a: "response_headers" in a.order)
                await talk.send_response_body(b"{}", ends=True)
                await talk.pause(lambda a: a.response.ended)
        others = sorted(set(answer.named) - set(answer.named[:1]))
        require(not others, f"first {answer.named[:1]}, then {others}")
        named += len(answer.named)
    return f"named {named} times for 4 requests"


FORGED = "203.0.113.9:9"


@case("destination.client-header", Level.MUST, PROTOCOL, SELECTED)
async def client_header(bench: Bench) -> None:
    """A client that writes the header itself: what the data plane then has is what the picker selected."""
    async with bench.talk() as talk:
        answer = await talk.ask(replace(bench.request, headers={DESTINATION: FORGED}))
    require(bool(answer.in_header), f"the client's {DESTINATION} was left in place")
    require(FORGED not in answer.endpoints, f"the client's own {FORGED} is in it: {answer.in_header}")


@case(
    "destination.overwrites", Level.SHOULD, BASE,
    "Describes the action taken to append/overwrite the given value for an existing header or to only add this"
    " header if it's absent. Value defaults to APPEND_IF_EXISTS_OR_ADD.",
)  # fmt: skip
async def overwrites(bench: Bench) -> None:
    """Envoy's filter overwrites by default, another data plane may go by the action."""
    async with bench.talk() as talk:
        answer = await talk.ask(bench.request)
    require(not answer.appends, "the header is set with APPEND_IF_EXISTS_OR_ADD, or without an action")


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
