"""What gateways have reserved of a server's rate, over HTTP; the rules are in `core.grants`."""

from collections.abc import Callable

from edgewise.core.grants import Grants
from edgewise.errors import ProtocolError
from edgewise.runtime import clock, http
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.protocol.messages import number, stated_in

MOST_STREAMS = 100_000  # of one gateway
MANY = f"{MOST_STREAMS} streams of {{!r}} are granted"


class Reservations:
    """What gateways have reserved of a worker's capacity, over HTTP; the rules are in `core.grants`.

        GET    /v1/reservations                       every gateway's load
        PUT    /v1/reservations/{gateway}/{stream}    {"load_qps": x} → 200, or 409 when it does not fit
        DELETE /v1/reservations/{gateway}/{stream}    give it back
        PUT    /v1/reservations/{gateway}             {"streams": {id: load_qps}, "requests_qps": x}: all it
                                                      has, to renew its lease; → streams that do not fit

    Answers carry `others_qps`, the load of the other gateways.

    Args:
        capacity_qps: normalised load that may be granted (ASET's C_v).
        now: seconds.
    """

    def __init__(self, capacity_qps: float, now: Callable[[], float] = clock.monotonic_s) -> None:
        self.grants, self._clock = Grants(capacity_qps), now

    @property
    def total_qps(self) -> float:
        """Load that is granted to streams, and that of requests."""
        return self.grants.total_qps(self._clock())

    def handle(self, request: http.HttpRequest, rest: list[str]) -> http.Response:
        """Answer a request below /v1/reservations.

        Raises:
            ProtocolError: its body is wrong.
        """
        grants, now_s = self.grants, self._clock()
        match request.method, rest:
            case "GET", []:
                grants.expire(now_s)
                shown = {"gateways": grants.loads, "requests_qps": grants.requests_qps}
                return http.as_json({"capacity_qps": grants.capacity_qps, **shown})
            case "PUT", [gateway, stream]:
                return self._asked(now_s, gateway, stream, request.body)
            case "DELETE", [gateway, stream]:
                grants.release(now_s, gateway, stream)
                return http.as_json({"others_qps": grants.others_qps(now_s, gateway)})
            case "PUT", [gateway]:
                loads, requests_qps = _all(request.body)
                refused = grants.renew(now_s, gateway, loads, requests_qps)
                return http.as_json({"refused": refused, "others_qps": grants.others_qps(now_s, gateway)})
        methods = {0: ("GET",), 1: ("PUT",), 2: ("PUT", "DELETE")}.get(len(rest))
        if methods is None:
            return http.failure(404, f"no {request.path}")
        return not_allowed(f"{request.path} takes {' and '.join(methods)}", *methods)

    def _asked(self, now_s: float, gateway: str, stream: str, body: bytes) -> http.Response:
        load_qps = number(stated_in(body, "load_qps").get("load_qps"), "load_qps")
        mine = self.grants.of(now_s, gateway)
        if stream not in mine and len(mine) >= MOST_STREAMS:
            raise ProtocolError(MANY.format(gateway[:80]), status=429)
        granted = self.grants.grant(now_s, gateway, stream, load_qps)
        others_qps = self.grants.others_qps(now_s, gateway)
        if granted:
            return http.as_json({"others_qps": others_qps})
        has = f"{self.total_qps:g} of {self.grants.capacity_qps:g} is granted"
        return http.failure(409, f"load_qps: {load_qps:g} does not fit; {has}", others_qps=others_qps)


def _all(body: bytes) -> tuple[dict[str, float], float]:
    """Loads of a gateway's streams, and that of its requests."""
    stated = stated_in(body, "streams")
    streams = stated.get("streams")
    if not isinstance(streams, dict):
        raise ProtocolError("streams: an object of stream numbers and loads is needed")
    if len(streams) > MOST_STREAMS:
        raise ProtocolError(MANY.format("one gateway"), status=429)
    loads = {name: number(load, f"streams.{name[:20]}") for name, load in streams.items()}
    return loads, number(stated.get("requests_qps", 0.0), "requests_qps")
