"""The workers behind a gateway as it sees them, and queries on their way there and back."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
from msgspec import Raw

from edgewise.core.dispatch.views import REASONS, Violation
from edgewise.core.keyed import Purpose, normal_pair_of
from edgewise.core.sojourns import DELAY_BINS, Sojourns
from edgewise.core.world import World
from edgewise.errors import ProtocolError
from edgewise.runtime import clock, http
from edgewise.runtime.protocol.messages import (
    BEGAN,
    BUSY,
    JSON_LENGTH,
    QUEUED,
    REMAINING,
    TOOK,
    TRACE,
    VARIANT,
    WORKER,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from edgewise.runtime.watch.tracing import Tracing

log = logging.getLogger("edgewise.upstream")
REFUSALS = (401, 403)  # what a server answers to a token that is not its own
REFUSES = "refuses our token"
UNKNOWN = (404, 405, 501)  # what a server answers to a path that it does not know


class Upstream:
    """A worker: any server of the Open Inference Protocol.

    Args:
        client: connections to it.
        model: name of its model in its own URLs.
    Attributes:
        up: whether it is thought to answer.
        wanted: whether new streams may go there; False: it is to go once it has none.
        silent: its last health check had no answer at all, and nobody refused the connection either: what
            is under way there may never be answered.
        refuses: whether it answers, and does not take our token.
        queued: queries that wait or run there, as it last said; None when it does not.
        worked: when it began, Unix time, and how long it has worked since, as it last said; None as well.
    """

    def __init__(self, client: http.Client, model: str) -> None:
        self.client, self.model = client, model
        self.up, self.silent, self.refuses = True, False, False
        self.wanted = True
        self.queued: int | None = None
        self.worked: tuple[float, float] | None = None
        self._misses = 0
        self._path = f"{http.QUERIES}{quote(model, safe='')}"
        self._infer = f"{self._path}/infer"
        self._binary: bool | None = None  # not yet known
        self._counts = True  # whether it may say what it counts

    async def infer(self, headers: dict[str, str], body: bytes, timeout_s: float) -> http.Response:
        """Send a query; where the server takes no binary tensors, they are rewritten as JSON.

        Raises:
            ConnectionError: the worker is lost.
            TimeoutError: no answer within `timeout_s`.
            ProtocolError: the tensors cannot be rewritten.
        """
        if self._binary is None:
            until_s = clock.monotonic_s() + timeout_s
            self._binary = await self._takes_binary(timeout_s)
            timeout_s = max(until_s - clock.monotonic_s(), 0.0)
        path = self._infer
        if self._binary or JSON_LENGTH not in headers:
            return self._taken(await self.client.request("POST", path, headers, body, timeout_s))
        asked = decode_request(headers, body)
        plain = replace(asked, binary=False, binary_outputs=dict.fromkeys(asked.binary_outputs, False))
        more, text = encode_request(plain, json_inputs=plain.inputs)
        kept = {name: value for name, value in headers.items() if name != JSON_LENGTH}
        answer = self._taken(await self.client.request("POST", path, kept | more, text, timeout_s))
        if answer.status == 200:
            try:
                found = decode_response(answer.headers, answer.body)
            except ProtocolError as error:
                raise ProtocolError(f"the worker's answer: {error}", status=502) from error
            more, body = encode_response(found, asked.binary, asked.binary_outputs)
            answer = http.Response(200, body, more)
        return answer

    def moved(self, client: http.Client, model: str) -> "Upstream":
        """The worker at another address, or with another name of its model."""
        fresh = Upstream(client, model)
        fresh.wanted = self.wanted
        return fresh

    async def _takes_binary(self, timeout_s: float) -> bool:
        """Whether the server lists the extension; one that lists none at all is believed to."""
        answer = await self._get("/v2", timeout_s)
        try:
            extensions = json.loads(answer.body).get("extensions")
        except (ValueError, AttributeError):
            return True
        return not isinstance(extensions, list) or "binary_tensor_data" in extensions

    async def about(self, what: str = "", timeout_s: float = 5.0) -> dict[str, Any] | None:
        """Its model's metadata, "/config" or "/stats" (see `triton`); None when it gives none."""
        try:
            answer = await self._get(self._path + what, timeout_s)
            found = json.loads(answer.body) if answer.status == 200 else None
        except (ConnectionError, TimeoutError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    async def counts(self, timeout_s: float) -> Sojourns | None:
        """What the worker counts of itself; None when it does not say."""
        if not self.up or not self._counts:
            return None
        try:
            answer = await self._get("/v1/telemetry", timeout_s)
            found = _COUNTS.decode(answer.body) if answer.status == 200 else None
        except (ConnectionError, TimeoutError):
            return None
        except ValueError:  # another server may say anything there
            found = None
        sound = found is not None and len(found.bins) == DELAY_BINS and math.isfinite(found.sum_s)
        self._counts = sound or answer.status not in (200, *UNKNOWN)
        return found if sound else None

    def heard(self, answer: http.Response) -> None:
        """Note what an answer says of the queue."""
        text = answer.headers.get(QUEUED, "")
        self.queued = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    def moved_bytes(self, answer: http.Response) -> int:
        """What went between its workers for an answer, by way of this gateway."""
        return 0

    async def check(self, timeout_s: float, failures: int) -> bool:
        """Ask whether its model is ready; `failures` misses in a row, or a refused connection, mean down.

        Returns:
            whether it is up now.
        """
        try:
            answer = await self._get(f"{self._path}/ready", timeout_s)
            ready = answer.status == 200
            self.heard(answer)
            self.worked = _worked(answer)
            self._misses, self.silent = 0 if ready else failures, False
        except ConnectionError as error:
            self._misses, self.silent = failures, not isinstance(error, ConnectionRefusedError)
        except TimeoutError:
            self._misses, self.silent = self._misses + 1, True
        return self._misses < failures

    async def _get(self, path: str, timeout_s: float) -> http.Response:
        return self._taken(await self.client.request("GET", path, timeout_s=timeout_s))

    def _taken(self, answer: http.Response) -> http.Response:
        """An answer; a worker that does not take our token is as good as lost, and is told apart."""
        refuses = answer.status in REFUSALS
        if refuses and not self.refuses:
            log.warning("worker refuses our token", extra={"url": self.client.url, "status": answer.status})
        self.refuses = refuses
        if refuses:
            raise ConnectionRefusedError(REFUSES)
        return answer


def explain(reason: str, targets: Sequence[Upstream]) -> str:
    """Why a stream is refused, with the workers that are up and do not take our token."""
    refusing = ", ".join(target.client.url for target in targets if target.refuses)
    return f"{reason}; {REFUSES}: {refusing}" if refusing and reason == REASONS[Violation.DOWN] else reason


PASSED = ("content-type", "inference-header-content-length", *TRACE)
DROPPED = ("content-length", "connection", "transfer-encoding", "keep-alive")
LONGEST_S = 600.0  # nobody is waited for longer
LOST = (502, 503)  # answers of a worker that cannot serve; its queries go elsewhere
LARGE_JSON_BYTES = 64 * 2**10  # parameters are not written into larger JSON
_COUNTS = msgspec.json.Decoder(Sojourns)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])  # all but the names stays as it was written
_PARAMETERS = msgspec.json.Decoder(dict[str, Raw] | None)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a gateway waits for what.

    Attributes:
        idle_stream_s: before a stream opened by headers is closed that nobody uses.
        lease_s: the same of a stream that was opened by itself.
        health_period_s, health_timeout_s: between health checks, and for one.
        health_spread: share of the period over which its checks begin, one after the other.
        health_misses: checks without an answer before a worker is down; a refused connection is enough.
    """

    idle_stream_s: float = 30.0
    lease_s: float = 600.0
    health_period_s: float = 1.0
    health_timeout_s: float = 1.0
    health_spread: float = 0.8
    health_misses: int = 2


@dataclass(slots=True)
class LiveQuery:
    """A query of a stream, or a request, on its way; times on the monotonic clock.

    stream_id: -1 for a request.
    began_s: when its present way began; emulated time counts from there.
    reserve_s: of the time left, what its work and way back need: a worker need not begin it later.
    answer_bytes: how large its answer is, where ways are emulated.
    """

    body: bytes
    headers: dict[str, str]
    received_s: float
    size_bytes: float
    stream_id: int = -1
    expires_s: float = math.inf
    began_s: float = 0.0
    reserve_s: float = 0.0
    answer_bytes: float = 0.0

    def __post_init__(self) -> None:
        self.began_s = self.received_s


@dataclass(slots=True)  # frozen it would take three times as long to make
class Destination:
    """Where a query goes, and by which way."""

    target: Upstream
    name: str
    variant: str
    site: int
    cluster: int


async def forward(
    target: Upstream, worker: str, query: LiveQuery, tracing: Tracing
) -> tuple[http.Response, bool]:
    """The worker's answer, or ours in its place when the deadline comes; and whether the worker is lost."""
    left_s = query.expires_s - clock.monotonic_s()
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


def _worked(answer: http.Response) -> tuple[float, float] | None:
    """When a worker began, and how long it has worked since; None where it does not say so."""
    try:
        began_s, busy_s = (float(answer.headers[name]) for name in (BEGAN, BUSY))
    except (KeyError, ValueError):
        return None
    return (began_s, busy_s) if math.isfinite(began_s) and 0.0 <= busy_s < math.inf else None


def took_s(answer: http.Response) -> float:
    """Time at the worker, as it says; what really passed beyond it counts as part of the emulated ways."""
    try:
        stated_s = float(answer.headers.get(TOOK, 0.0))
    except ValueError:
        return 0.0
    return stated_s if 0.0 <= stated_s <= LONGEST_S else 0.0  # whatever a foreign server sent


@lru_cache(1024)
def _parameters(worker: str, variant: str) -> Raw:
    return Raw(msgspec.json.encode({"edgewise_worker": worker, "edgewise_variant": variant}))


def _joined(stated: dict[str, Raw], ours: Raw) -> Raw:
    return Raw(msgspec.json.encode({**stated, **_FIELDS.decode(ours)}))


def write_parameters(answer: http.Response, worker: str, variant: str) -> None:
    """Add worker and variant to the JSON part of an answer, unless that is large."""
    stated = answer.headers.get("inference-header-content-length")
    length = int(stated) if stated and stated.isdigit() else len(answer.body)
    if length > LARGE_JSON_BYTES:
        return
    body = memoryview(answer.body)
    try:
        head = _FIELDS.decode(body[:length])
        stated_parameters = _PARAMETERS.decode(head["parameters"]) if "parameters" in head else None
    except (ValueError, RecursionError):
        return  # whatever a foreign server sent: passed on as it is
    ours = _parameters(worker, variant)
    head["parameters"] = _joined(stated_parameters, ours) if stated_parameters else ours
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
        write_parameters(answer, worker, variant)
    return answer


@dataclass(slots=True)
class Ways:
    """Emulated delays between access sites and clusters, drawn as in simulation.

    there = δ + max(N(d, σ), 0) + ζ/u,  back = δ + max(N(d, σ), 0) + ζ'/u

    Args:
        world: δ, d, σ and u of each site and cluster.
        seed: keys the draws, one pair for each (stream, query number).
        client_s: time that clients here take themselves; deducted from the ways.
        carried: links here are as fast as the scenario's, so that messages take their time there and wait for
            each other; what is passed is the rest. Else real time between a gateway and its workers counts as
            part of the emulated ways.
    """

    world: World
    seed: int = 0
    client_s: float = 0.0
    carried: bool = False

    def delays_s(
        self, site: int, cluster: int, sizes_bytes: tuple[float, float], stream: int, number: int
    ) -> tuple[float, float]:
        """Delay of a query there, and of its answer back, by the sizes of both."""
        world = self.world
        mean_s, deviation_s = world.delay_s[site, cluster], world.deviation_s[site, cluster]
        up, down = normal_pair_of(np.uint64(self.seed), int(Purpose.NETWORK), stream, number)
        link_bps, access_s = world.bandwidth_bps[site, cluster], world.access_delay_s[site]
        byte_s = 8.0 / min(world.uplink_bps[site], link_bps)
        if self.carried:
            byte_s -= 8.0 / link_bps
        there_s, back_s = (
            access_s + max(mean_s + deviation_s * noise, 0.0) + size * byte_s
            for noise, size in zip((up, down), sizes_bytes, strict=True)
        )
        return float(there_s), float(back_s)

    def rest_s(self, ways_s: tuple[float, float], passed_s: float, took_s: float) -> float:
        """What an answer has yet to travel.

        Args:
            ways_s: as `delays_s` says.
            passed_s: since the query began its way.
            took_s: of that, at the worker.
        """
        there_s, back_s = ways_s
        left_s = back_s if self.carried else there_s + back_s + took_s - passed_s
        return max(left_s - self.client_s, 0.0)


async def pass_time(delay_s: float) -> None:
    """Wait, where there is anything to wait for."""
    if delay_s > 0.0:
        await clock.sleep(delay_s)
