"""A query on its way through a gateway, and what is read from and written into its answer."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from edgewise.core.world import World
from edgewise.runtime import http
from edgewise.runtime.gateway.upstream import Upstream
from edgewise.runtime.protocol.headers import REMAINING, TOOK, TRACE, VARIANT, WORKER
from edgewise.runtime.tracing import Tracing

PASSED = ("content-type", "inference-header-content-length", *TRACE)
DROPPED = ("content-length", "connection", "transfer-encoding", "keep-alive")
LONGEST_S = 600.0  # nobody is waited for longer
OUTCOME = ("queries", "ok", "failed", "rejected", "excess", "delay_mean_s", "reason")
TRIES = 3  # workers that a query is sent to, each of them lost
LOST = (502, 503)  # answers of a worker that cannot serve; its queries go elsewhere
LARGE_JSON_BYTES = 64 * 2**10  # parameters are not written into larger JSON
_FIELDS = msgspec.json.Decoder(dict[str, Raw])  # all but the names stays as it was written
_PARAMETERS = msgspec.json.Decoder(dict[str, Raw] | None)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a gateway waits for what.

    Attributes:
        idle_stream_s: before a stream opened by headers is closed that nobody uses.
        lease_s: the same of a stream that was opened by itself.
        health_period_s, health_timeout_s: between health checks, and for one.
        health_misses: checks without an answer before a worker is down; a refused connection is enough.
    """

    idle_stream_s: float = 30.0
    lease_s: float = 600.0
    health_period_s: float = 1.0
    health_timeout_s: float = 1.0
    health_misses: int = 2


@dataclass(slots=True)
class LiveQuery:
    """A query on its way; `sent_s` on the session's clock, the others on the monotonic one.

    ways_s: emulated time of both ways together; home_s: when its answer may be given.
    reserve_s: of the time left, what its work and way back need: a worker need not begin it later.
    """

    stream_id: int
    body: bytes
    headers: dict[str, str]
    expires_s: float
    sent_s: float
    received_s: float
    ways_s: float | None = None
    home_s: float = 0.0
    reserve_s: float = 0.0


async def forward(
    target: Upstream, worker: str, query: LiveQuery, tracing: Tracing
) -> tuple[http.Response, bool]:
    """The worker's answer, or ours in its place when the deadline comes; and whether the worker is lost."""
    left_s = query.expires_s - time.monotonic()
    if left_s <= query.reserve_s:
        why = "cannot end in time" if left_s > 0 else "deadline passed"
        return http.failure(504, f"{why}; not sent to a worker"), False
    query.headers[REMAINING] = f"{left_s - query.reserve_s:.6f}"
    try:
        with tracing.span("forward"):
            tracing.note(stream=query.stream_id, worker=worker)
            tracing.pass_on(query.headers)
            answer = await target.infer(query.headers, query.body, min(left_s, LONGEST_S))
            tracing.note(status=answer.status)
        if answer.status == 500:
            return http.failure(502, f"worker {worker} failed: status 500"), False
        return answer, answer.status in LOST
    except ConnectionError as error:
        why = str(error) if target.refuses else f"did not answer: {error}"
        return http.failure(502, f"worker {worker} {why}"), True
    except TimeoutError as error:
        return http.failure(504, f"worker {worker}: {error}"), False


def took_s(answer: http.Response) -> float:
    """Time at the worker, as it says; what really passed beyond it counts as part of the emulated ways."""
    try:
        stated_s = float(answer.headers.get(TOOK, 0.0))
    except ValueError:
        return 0.0
    return stated_s if 0.0 <= stated_s <= LONGEST_S else 0.0  # whatever a foreign server sent


def write_parameters(answer: http.Response, parameters: dict[str, str]) -> None:
    """Add parameters to the JSON part of an answer, unless that is large."""
    stated = answer.headers.get("inference-header-content-length")
    length = int(stated) if stated and stated.isdigit() else len(answer.body)
    if length > LARGE_JSON_BYTES:
        return
    body = memoryview(answer.body)
    try:
        head = _FIELDS.decode(body[:length])
        stated_parameters = _PARAMETERS.decode(head.get("parameters", b"null")) or {}
    except (ValueError, RecursionError):
        return  # whatever a foreign server sent: passed on as it is
    head["parameters"] = Raw(msgspec.json.encode({**stated_parameters, **parameters}))
    text = msgspec.json.encode(head)
    answer.body = b"".join((text, body[length:]))
    if stated:
        answer.headers["inference-header-content-length"] = str(len(text))


def where_is(world: World, worker: int) -> dict[str, str]:
    """Names of a worker, its variant and its cluster."""
    return {
        "worker": world.worker_names[worker],
        "variant": world.variant_names[worker],
        "cluster": world.cluster_names[world.cluster[worker]],
    }


def reported(answer: http.Response, worker: str, variant: str) -> http.Response:
    """The answer with its worker and variant in its headers, and in its parameters unless it is large."""
    for name in DROPPED:
        answer.headers.pop(name, None)
    answer.headers[WORKER], answer.headers[VARIANT] = worker, variant
    if answer.status == 200:
        write_parameters(answer, {"edgewise_worker": worker, "edgewise_variant": variant})
    return answer
