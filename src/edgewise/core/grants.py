"""A worker's rate, and who has what of it: the worker grants, gateways bind by what they have heard.

Gateways do not wait for each other. Each binds a stream to where there is room as far as it knows, and asks
the worker, which knows what all have; where the worker refuses, the gateway has learned something and decides
again. Streams are granted before they count; the load of requests is what a gateway measured, and leaves that
much less to streams. Every `RENEW_S`, however long a period of telemetry is, a gateway tells each worker all
that it has there. One that was not heard for `LEASE_S` is forgotten, so nothing is leaked by one that dies; a
worker that starts again hears from its gateways what they had.

The rules are kernels (`core.grant_rules`), which the simulation calls for all workers in one compiled loop.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.grant_rules import (
    NOBODY,
    Granted,
    Told,
    averaged,
    expire,
    grant,
    hear,
    is_anew,
    is_over,
    others_qps,
    release,
    renew,
    to_tell,
)
from edgewise.kernels.compiled import plain

REQUESTS_S = 5.0  # over which the load of requests is averaged
LEASE_S = 5.0
RENEW_S = LEASE_S / 3.0  # so that two renewals may get lost before a gateway is forgotten


def share_of_period(period_s: float) -> float:
    """What a period counts in the mean of the load of requests."""
    return 1.0 - math.exp(-period_s / REQUESTS_S)


def averaged_qps(before_qps: Floats, sent_qps: Floats, period_s: float) -> Floats:
    """Load of requests at workers, see `averaged`."""
    return np.asarray(plain(averaged)(before_qps, sent_qps, share_of_period(period_s)))


class Grants:
    """The worker's side: the rules for one worker, with gateways and streams by name.

    Args:
        capacity_qps: normalised load that may be granted (ASET's C_v).
        lease_s: a gateway that was not heard for so long is forgotten.
    """

    def __init__(self, capacity_qps: float, lease_s: float = LEASE_S) -> None:
        self.capacity_qps, self.lease_s = capacity_qps, lease_s
        self._all = Granted.none(np.array([capacity_qps]), 2, 16, 16)
        self._gateways: dict[str, int] = {}
        self._streams: dict[str, dict[str, int]] = {}  # numbers, by gateway
        self._free = list(range(self._all.place.size))  # numbers

    def heard_s(self, gateway: str) -> float:
        """When a gateway that has something here was heard last."""
        return float(self._all.heard_s[0, self._gateways[gateway]])

    @property
    def loads(self) -> dict[str, dict[str, float]]:
        """By gateway and stream; `expire` first."""
        held = self._all.stream[0, : self._all.entries[0]].tolist()
        load = dict(zip(held, self._all.load_qps[0].tolist(), strict=False))
        return {
            gateway: {stream: load[number] for stream, number in streams.items()}
            for gateway, streams in self._streams.items()
        }

    @property
    def requests_qps(self) -> dict[str, float]:
        """By gateway; `expire` first."""
        return {gateway: float(self._all.requests_qps[0, g]) for gateway, g in self._gateways.items()}

    def grant(self, now_s: float, gateway: str, stream: str, load_qps: float) -> bool:
        """Reserve a stream's share; asking again for what is held is granted."""
        g = self._heard(now_s, gateway)
        number = self._number(gateway, stream)
        granted = grant(self._all, 0, g, number, load_qps)
        self._tidy()
        return bool(granted)

    def release(self, now_s: float, gateway: str, stream: str) -> None:
        """Give a stream's share back; one that is not held is no error."""
        g = self._heard(now_s, gateway)
        if (number := self._streams[gateway].pop(stream, None)) is not None:
            release(self._all, 0, g, number)
            self._free.append(number)

    def renew(
        self, now_s: float, gateway: str, loads: Mapping[str, float], requests_qps: float = 0.0
    ) -> list[str]:
        """Make `loads` all that a gateway has, beside its requests; returns the streams that do not fit."""
        g = self._heard(now_s, gateway)
        numbers = np.array([NOBODY, *(self._number(gateway, stream) for stream in loads)], dtype=np.int64)
        told = Told(
            numbers,
            np.zeros_like(numbers),
            np.array([requests_qps, *loads.values()], dtype=np.float64),
            np.zeros(numbers.size, dtype=np.bool_),
        )
        renew(self._all, 0, g, told, 0, numbers.size)
        self._tidy()
        return [stream for stream, refused in zip(loads, told.refused[1:].tolist(), strict=True) if refused]

    def total_qps(self, now_s: float) -> float:
        """Load that is granted to streams, and that of requests."""
        self.expire(now_s)
        return float(others_qps(self._all, 0, NOBODY))

    def others_qps(self, now_s: float, gateway: str) -> float:
        """Load of the other gateways."""
        self.expire(now_s)
        return float(others_qps(self._all, 0, self._gateways.get(gateway, NOBODY)))

    def of(self, now_s: float, gateway: str) -> dict[str, float]:
        """What a gateway has, by stream; it was heard now."""
        self._heard(now_s, gateway)
        return self.loads[gateway]

    def expire(self, now_s: float) -> None:
        """Forget gateways that have not renewed."""
        expire(self._all, 0, now_s, self.lease_s)
        self._tidy()

    def _heard(self, now_s: float, gateway: str) -> int:
        """Its number."""
        self.expire(now_s)
        if gateway not in self._gateways:
            free = sorted(set(range(self._all.heard_s.shape[1])) - set(self._gateways.values()))
            if not free:
                free, self._all = [self._all.heard_s.shape[1]], self._all.with_room(gateways=1)
            self._gateways[gateway], self._streams[gateway] = free[0], {}
        hear(self._all, 0, self._gateways[gateway], now_s, self.lease_s)
        return self._gateways[gateway]

    def _number(self, gateway: str, stream: str) -> int:
        """A stream's number, and room for one more entry than there are numbers."""
        names = self._streams[gateway]
        if stream not in names:
            if not self._free:
                more = self._all.place.size
                self._all = self._all.with_room(numbers=more, room=more)
                self._free.extend(range(more, 2 * more))
            names[stream] = self._free.pop()
        return names[stream]

    def _tidy(self) -> None:
        """Give names back of what is no longer held."""
        known = self._all
        held = set(known.stream[0, : known.entries[0]].tolist())
        for gateway, g in list(self._gateways.items()):
            names = self._streams[gateway]
            gone = [stream for stream, number in names.items() if number not in held]
            self._free.extend(names.pop(stream) for stream in gone)
            if known.heard_s[0, g] == -np.inf:
                del self._gateways[gateway], self._streams[gateway]


class Ask(NamedTuple):
    """Have a worker grant a stream that was bound to it."""

    stream_id: int
    worker: int


class GiveBack(NamedTuple):
    """Return what a worker granted to a stream."""

    stream_id: int
    worker: int


class Binds(Protocol):
    """What leases ask of the core that binds streams.

    Attributes:
        bindings: stream id → worker.
        refused: stream id → reason.
    """

    bindings: dict[int, int]
    refused: dict[int, str]

    def final(self, stream_id: int) -> bool:
        """Whether a stream is refused, and nobody will decide it anew."""


class Leases:
    """A gateway's side: what of its core's bindings the workers have granted.

    A stream that never had a worker, and whose refusal is final, is over (`over`): its client goes. One that
    had one stays open, and is refused.

    Args:
        core: read only.
    """

    def __init__(self, core: Binds) -> None:
        self._core, self._bindings, self._held = core, core.bindings, dict[int, int]()
        self._had = set[int]()  # open streams that had a worker

    @property
    def unsettled(self) -> list[int]:
        """Streams that are bound elsewhere than where they are granted, as they were bound, in order."""
        both = dict.fromkeys((*self._bindings, *self._held))
        return [s for s in both if self._bindings.get(s) != self._held.get(s)]

    def settle(self, stream_id: int) -> list[Ask | GiveBack]:
        """What is to be told to workers about a stream, in order."""
        bound, held = self._bindings.get(stream_id, NOBODY), self._held.get(stream_id, NOBODY)
        former, asked = to_tell(bound, held)
        told: list[Ask | GiveBack] = []
        if former >= 0:
            del self._held[stream_id]
            told.append(GiveBack(stream_id, former))
        if asked >= 0:
            told.append(Ask(stream_id, asked))
        return told

    def answered(self, stream_id: int, worker: int, granted: bool) -> bool:
        """A worker answered, or was lost, which counts as granted; whether the stream is to be decided anew.

        What was bound elsewhere in the meantime is held until `settle` gives it back.
        """
        if is_anew(granted, self._bindings.get(stream_id, NOBODY), worker):
            return True
        self._held[stream_id] = worker
        if stream_id in self._bindings or stream_id in self._core.refused:  # else it was closed meanwhile
            self._had.add(stream_id)
        return False

    def over(self, stream_id: int) -> bool:
        """Whether a stream that was not granted a worker yet will not be, and is to be closed."""
        return bool(is_over(stream_id in self._had, self._core.final(stream_id)))

    def closed(self, stream_id: int) -> None:
        """A stream is open no more; what it held `settle` gives back."""
        self._had.discard(stream_id)

    def bound_to(self, worker: int) -> list[int]:
        """Streams that are bound to a worker, granted or not: what a gateway renews."""
        return [stream for stream, bound in self._bindings.items() if bound == worker]


def rehearse(core: Binds, refused: int) -> None:
    """Use every rule once: else each worker compiles it when it is first asked.

    Args:
        core: is left as it is. refused: a stream that it has refused.
    """
    grants, leases = Grants(1.0), Leases(core)
    grants.grant(0.0, "gateway", "stream", 0.5)
    grants.renew(0.0, "gateway", {"stream": 0.5})
    grants.total_qps(0.0)
    grants.release(0.0, "gateway", "stream")
    leases.answered(refused, 0, False)
    leases.settle(refused)
    leases.over(refused)
