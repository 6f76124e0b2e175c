"""What gateways have reserved of a worker's capacity; the worker grants it.

    GET    /v1/reservations                       every gateway's load
    PUT    /v1/reservations/{gateway}/{stream}    {"load_qps": x} → 200, or 409 when it does not fit
    DELETE /v1/reservations/{gateway}/{stream}    give it back
    PUT    /v1/reservations/{gateway}             {"streams": {id: load_qps}, "requests_qps": x}: all it has,
                                                  to renew its lease; → streams that do not fit

Streams reserve before they send. Requests of services do not: their load is what the gateway measured, and
leaves that much less to streams. Answers carry `others_qps`, the load of the other gateways. A gateway that
does not renew is forgotten, so nothing is leaked by one that dies; a worker that starts again hears from its
gateways what they had.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from edgewise.errors import ProtocolError
from edgewise.runtime import http
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.protocol.stated import number, stated_in

TOLERANCE = 1e-9
MOST_STREAMS = 100_000  # of one gateway


class Reservations:
    """The worker's ledger.

    Args:
        capacity_qps: normalised load that may be granted (ASET's C_v).
        lease_s: a gateway that was not heard for so long is forgotten.
        clock: seconds.
    """

    def __init__(
        self, capacity_qps: float, lease_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.capacity_qps, self.lease_s, self._clock = capacity_qps, lease_s, clock
        self._loads: dict[str, dict[str, float]] = {}
        self._requests_qps: dict[str, float] = {}
        self._heard_s: dict[str, float] = {}

    def grant(self, gateway: str, stream: str, load_qps: float) -> bool:
        """Reserve a stream's share; asking again for what is held is granted.

        Raises:
            ProtocolError: the gateway has too many streams; status 429.
        """
        mine = self._of(gateway)
        used_qps = self.total_qps() - mine.get(stream, 0.0)
        if used_qps + load_qps > self.capacity_qps * (1.0 + TOLERANCE):
            return False
        if stream not in mine and len(mine) >= MOST_STREAMS:
            raise ProtocolError(f"{MOST_STREAMS} streams of {gateway[:80]!r} are granted", status=429)
        mine[stream] = load_qps
        return True

    def release(self, gateway: str, stream: str) -> None:
        """Give a stream's share back; one that is not held is no error."""
        self._of(gateway).pop(stream, None)

    def renew(self, gateway: str, loads: dict[str, float], requests_qps: float = 0.0) -> list[str]:
        """Make `loads` all that a gateway has, beside its requests; returns the streams that do not fit."""
        held, self._requests_qps[gateway] = self._of(gateway), requests_qps
        kept = {stream: load for stream, load in loads.items() if held.get(stream) == load}
        self._loads[gateway] = kept
        return [s for s, load in loads.items() if s not in kept and not self.grant(gateway, s, load)]

    def total_qps(self) -> float:
        """Load that is granted to streams, and that of requests."""
        self._expire()
        granted_qps = sum(sum(loads.values()) for loads in self._loads.values())
        return granted_qps + sum(self._requests_qps.values())

    def others_qps(self, gateway: str) -> float:
        """Load of the other gateways."""
        mine_qps = sum(self._loads.get(gateway, {}).values()) + self._requests_qps.get(gateway, 0.0)
        return max(self.total_qps() - mine_qps, 0.0)

    def handle(self, request: http.HttpRequest, rest: list[str]) -> http.Response:
        """Answer a request below /v1/reservations.

        Raises:
            ProtocolError: its body is wrong.
        """
        match request.method, rest:
            case "GET", []:
                self._expire()
                shown = {"gateways": self._loads, "requests_qps": self._requests_qps}
                return http.as_json({"capacity_qps": self.capacity_qps, **shown})
            case "PUT", [gateway, stream]:
                return self._asked(gateway, stream, request.body)
            case "DELETE", [gateway, stream]:
                self.release(gateway, stream)
                return http.as_json({"others_qps": self.others_qps(gateway)})
            case "PUT", [gateway]:
                refused = self.renew(gateway, *_all(request.body))
                return http.as_json({"refused": refused, "others_qps": self.others_qps(gateway)})
        methods = {0: ("GET",), 1: ("PUT",), 2: ("PUT", "DELETE")}.get(len(rest))
        if methods is None:
            return http.failure(404, f"no {request.path}")
        return not_allowed(f"{request.path} takes {' and '.join(methods)}", *methods)

    def _asked(self, gateway: str, stream: str, body: bytes) -> http.Response:
        load_qps = number(stated_in(body, "load_qps").get("load_qps"), "load_qps")
        granted, others_qps = self.grant(gateway, stream, load_qps), self.others_qps(gateway)
        if granted:
            return http.as_json({"others_qps": others_qps})
        reason = (
            f"load_qps: {load_qps:g} does not fit; {self.total_qps():g} of {self.capacity_qps:g} is granted"
        )
        return http.failure(409, reason, others_qps=others_qps)

    def _of(self, gateway: str) -> dict[str, float]:
        self._expire()
        self._heard_s[gateway] = self._clock()
        return self._loads.setdefault(gateway, {})

    def _expire(self) -> None:
        now_s = self._clock()
        for gateway in [g for g, heard_s in self._heard_s.items() if now_s - heard_s > self.lease_s]:
            del self._heard_s[gateway], self._loads[gateway]
            self._requests_qps.pop(gateway, None)


def _all(body: bytes) -> tuple[dict[str, float], float]:
    """Loads of a gateway's streams, and that of its requests."""
    stated = stated_in(body, "streams")
    streams = stated.get("streams")
    if not isinstance(streams, dict):
        raise ProtocolError("streams: an object of stream numbers and loads is needed")
    loads = {name: number(load, f"streams.{name[:20]}") for name, load in streams.items()}
    return loads, number(stated.get("requests_qps", 0.0), "requests_qps")
