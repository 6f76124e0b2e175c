"""Processes that share the port of a gateway: each answers what is its own, and passes on what is not.

    clients ──▶ shared port ──▶ any of the processes, and what it answers itself
                                        └──▶ private port of the sibling whose stream it is

Each is a whole gateway, with a name, streams, and a private port where siblings and the controller ask it.
Whose a stream is, its number says: the rest that the count of processes leaves of it. Queries that name no
stream and state the same needs make one stream, so their needs say whose it is. What comes to a private port
is never passed on, so nothing goes in circles. A sibling that is away is answered for with 503: clients ask
again, and it comes back with its streams.
"""

import asyncio
import hmac
import json
import zlib
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import quote

from prometheus_client import Counter

from edgewise.runtime import clock, http
from edgewise.runtime.gateway.forwarding import DROPPED, LONGEST_S
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import HEADERS
from edgewise.runtime.protocol.messages import STREAM
from edgewise.runtime.store import Process, sibling_name

PASSED_ON = "edgewise-passed-on"  # how long ago a request came, and from whom: who shows our token says so
OWN = (
    *DROPPED,
    "authorization",
    "host",
    "expect",
    "upgrade",
    "accept-encoding",
)  # of one connection, not passed on
PATIENCE_S = LONGEST_S + 10.0  # a sibling answers before that, whatever it waits for
ASK_S = 2.0  # for a sibling's share of what all of them know


class Siblings:
    """One of the processes that share a port.

    Args:
        gateway: this process's own.
        local: answers what is its own.
        process: among its siblings.
        token: that shows one of them to another.
    """

    def __init__(self, gateway: Gateway, local: http.Handler, process: Process, token: str) -> None:
        self._gateway, self._local, self._name, self._token = gateway, local, process.name, token
        self._group, (self._mine, self._count) = process.group, process.share
        self._clients: dict[int, http.Client] = {}
        self._passed = Counter(
            "edgewise_passed_on", "Requests passed on to siblings.", registry=gateway.metrics.registry
        )

    def follow(self, gateways: Iterable[Process]) -> None:
        """Take over where siblings are, of all gateways."""
        for process in gateways:
            number, of = process.share
            if process.group != self._group or of != self._count or number == self._mine:
                continue
            known = self._clients.get(number)
            if known is None or known.url != process.url:
                self._clients[number] = http.Client.of_url(process.url, self._token)
                if known is not None:
                    known.close()

    def close(self) -> None:
        """Close the connections to siblings."""
        for client in self._clients.values():
            client.close()

    def handle(self, request: http.HttpRequest) -> Awaitable[http.Response]:
        """Answer a request that came to the shared port."""
        match request.method, request.parts:
            case "POST", ["v2", "models", task, *_, "infer"]:
                return self._by(self._of_query(request, task), request)
            case _, ["v1", "streams", number]:
                return self._by(self._of_stream(number), request)
            case "GET", ["v1", "streams"]:
                return self._all(request, _joined)
            case "GET", ["metrics"]:
                return self._all(request, self._merged)
            case _, ["v1", "admin", *_]:
                return self._not_here()
        return self._local(request)

    def taking(self, guarded: http.Handler) -> http.Handler:
        """The handler of the private port: what siblings pass on is answered here, whoever it came from."""
        expected = http.bearer(self._token)["authorization"].encode()

        def handle(request: http.HttpRequest) -> Awaitable[http.Response]:
            said = request.headers.get(PASSED_ON)
            shown = request.headers.get("authorization", "").encode()
            if said is None or not hmac.compare_digest(shown, expected):
                return guarded(request)
            came, _, request.client = said.partition(" ")
            request.received_s -= max(float(came), 0.0)  # their clocks may be those of two machines
            return self._local(request)

        return handle

    def _of_query(self, request: http.HttpRequest, task: str) -> int:
        """Which of the processes has the stream of a query."""
        services, headers = self._gateway.services, request.headers
        if (stated := headers.get(STREAM)) is not None:
            return self._of_stream(stated)
        needs = [headers.get(name) for name in HEADERS]
        if not any(needs) or (services is not None and task in services.names):
            return self._mine
        return zlib.crc32(json.dumps([task, *needs]).encode()) % self._count

    def _of_stream(self, number: str) -> int:
        """Which of them has a stream; what is no number is refused here."""
        sound = number.isascii() and number.isdigit() and len(number) < 19
        return int(number) % self._count if sound else self._mine

    def _by(self, owner: int, request: http.HttpRequest) -> Awaitable[http.Response]:
        return self._local(request) if owner == self._mine else self._pass_on(owner, request, PATIENCE_S)

    async def _pass_on(self, owner: int, request: http.HttpRequest, patience_s: float) -> http.Response:
        """A sibling's answer, or ours in its place."""
        if (client := self._clients.get(owner)) is None:
            return self._away("is not known yet")
        headers = {name: value for name, value in request.headers.items() if name not in OWN}
        headers[PASSED_ON] = f"{clock.monotonic_s() - request.received_s!r} {request.client}"
        path = "".join(f"/{quote(part, safe='')}" for part in request.parts)
        self._passed.inc()
        try:
            answer = await client.request(request.method, path, headers, request.body, patience_s)
        except ConnectionError as error:
            return self._away(f"is away: {error}")
        except TimeoutError as error:
            return http.failure(504, f"a process that shares this port: {error}")
        for name in DROPPED:
            answer.headers.pop(name, None)
        return answer

    def _away(self, why: str) -> http.Response:
        return http.failure(
            503, f"a process that shares this port {why}; it is started again, with its streams"
        )

    async def _all(
        self, request: http.HttpRequest, join: Callable[[dict[int, http.Response]], http.Response]
    ) -> http.Response:
        """What all of them answer, joined."""
        others = [k for k in range(self._count) if k != self._mine]
        answers = await asyncio.gather(
            self._local(request), *(self._pass_on(k, request, ASK_S) for k in others)
        )
        return join(dict(zip([self._mine, *others], answers, strict=True)))

    def _merged(self, answers: dict[int, http.Response]) -> http.Response:
        """Metrics of all that answer, told apart by a label."""
        told = {self._called(k): each.body.decode() for k, each in answers.items() if each.status == 200}
        found = answers[self._mine]
        return http.Response(found.status, merged(told).encode(), found.headers)

    def _called(self, number: int) -> str:
        return sibling_name(self._group, number)

    async def _not_here(self) -> http.Response:
        why = (
            f"administration: {self._count} processes share this port; ask the controller (edgewise policy, "
        )
        return http.failure(421, f"{why}edgewise drain), or each at its own (edgewise status)")


def _joined(answers: dict[int, http.Response]) -> http.Response:
    """Streams of all of them; where one does not answer there is no list."""
    failed = [each for each in answers.values() if each.status != 200]
    rows = [row for each in answers.values() if not failed for row in json.loads(each.body)]
    return failed[0] if failed else http.as_json(rows)


def merged(pages: dict[str, str]) -> str:
    """One page of metrics from those of several processes, each sample with its process's name as a label."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for name, page in pages.items():
        family = ""
        for line in page.splitlines():
            if not line.startswith("#"):
                samples[family].append(_labelled(line, name))
                continue
            if (found := line.split(" ", 3)[2]) != family:
                family = found
                heads.setdefault(family, [])
                samples.setdefault(family, [])
            if line not in heads[family]:
                heads[family].append(line)
    return "".join(f"{line}\n" for family in heads for line in (*heads[family], *samples[family]))


def _labelled(line: str, process: str) -> str:
    """A sample, such as `a{b="c"} 1.0` or `a 1.0`, with a label more."""
    name, brace, rest = line.partition("{")
    if brace:
        return f'{name}{{gateway="{process}",{rest}'
    name, _, value = line.partition(" ")
    return f'{name}{{gateway="{process}"}} {value}'
