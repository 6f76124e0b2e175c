"""Grants and leases in dictionaries: what the kernels of `core.grant_rules` are held against."""

from collections.abc import Mapping

from edgewise.core.grants import Ask, Binds, GiveBack

LEASE_S = 5.0
RENEW_S = LEASE_S / 3.0  # so that two renewals may get lost before a gateway is forgotten
TOLERANCE = 1e-9  # relative; a sum of shares may miss the capacity by rounding


class Grants:
    """The worker's side.

    Args:
        capacity_qps: normalised load that may be granted (ASET's C_v).
        lease_s: a gateway that was not heard for so long is forgotten.
    Attributes:
        loads: by gateway and stream; requests_qps: by gateway. `expire` first.
    """

    def __init__(self, capacity_qps: float, lease_s: float = LEASE_S) -> None:
        self.capacity_qps, self.lease_s = capacity_qps, lease_s
        self.loads: dict[str, dict[str, float]] = {}
        self.requests_qps: dict[str, float] = {}
        self._heard_s: dict[str, float] = {}

    def grant(self, now_s: float, gateway: str, stream: str, load_qps: float) -> bool:
        """Reserve a stream's share; asking again for what is held is granted."""
        mine = self.of(now_s, gateway)
        used_qps = self.total_qps(now_s) - mine.get(stream, 0.0)
        if used_qps + load_qps > self.capacity_qps * (1.0 + TOLERANCE):
            return False
        mine[stream] = load_qps
        return True

    def release(self, now_s: float, gateway: str, stream: str) -> None:
        """Give a stream's share back; one that is not held is no error."""
        self.of(now_s, gateway).pop(stream, None)

    def renew(
        self, now_s: float, gateway: str, loads: Mapping[str, float], requests_qps: float = 0.0
    ) -> list[str]:
        """Make `loads` all that a gateway has, beside its requests; returns the streams that do not fit."""
        held, self.requests_qps[gateway] = self.of(now_s, gateway), requests_qps
        kept = {stream: load for stream, load in loads.items() if held.get(stream) == load}
        self.loads[gateway] = kept
        return [s for s, load in loads.items() if s not in kept and not self.grant(now_s, gateway, s, load)]

    def total_qps(self, now_s: float) -> float:
        """Load that is granted to streams, and that of requests."""
        self.expire(now_s)
        granted_qps = sum(sum(loads.values()) for loads in self.loads.values())
        return granted_qps + sum(self.requests_qps.values())

    def others_qps(self, now_s: float, gateway: str) -> float:
        """Load of the other gateways."""
        mine_qps = sum(self.loads.get(gateway, {}).values()) + self.requests_qps.get(gateway, 0.0)
        return max(self.total_qps(now_s) - mine_qps, 0.0)

    def of(self, now_s: float, gateway: str) -> dict[str, float]:
        """What a gateway has, by stream; it was heard now."""
        self.expire(now_s)
        self._heard_s[gateway] = now_s
        return self.loads.setdefault(gateway, {})

    def expire(self, now_s: float) -> None:
        """Forget gateways that have not renewed."""
        for gateway in [g for g, heard_s in self._heard_s.items() if now_s - heard_s > self.lease_s]:
            del self._heard_s[gateway], self.loads[gateway]
            self.requests_qps.pop(gateway, None)


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
        bound, held = self._bindings.get(stream_id), self._held.get(stream_id)
        if bound == held:
            return []
        told: list[Ask | GiveBack] = []
        if held is not None:
            del self._held[stream_id]
            told.append(GiveBack(stream_id, held))
        if bound is not None:
            told.append(Ask(stream_id, bound))
        return told

    def answered(self, stream_id: int, worker: int, granted: bool) -> bool:
        """A worker answered, or was lost, which counts as granted; whether the stream is to be decided anew.

        What was bound elsewhere in the meantime is held until `settle` gives it back.
        """
        if granted or self._bindings.get(stream_id) != worker:
            self._held[stream_id] = worker
            if stream_id in self._bindings or stream_id in self._core.refused:  # else it was closed meanwhile
                self._had.add(stream_id)
            return False
        return True

    def over(self, stream_id: int) -> bool:
        """Whether a stream that was not granted a worker yet will not be, and is to be closed."""
        return stream_id not in self._had and self._core.final(stream_id)

    def closed(self, stream_id: int) -> None:
        """A stream is open no more; what it held `settle` gives back."""
        self._had.discard(stream_id)

    def bound_to(self, worker: int) -> list[int]:
        """Streams that are bound to a worker, granted or not: what a gateway renews."""
        return [stream for stream, bound in self._bindings.items() if bound == worker]
