"""Who has what of workers' rates, as arrays, and the rules of granting as kernels on them.

`Grants` and `Leases` (see `core.grants`) call them for one worker and one gateway, live; the simulation for
all of them, in one compiled loop.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.kernels.compiled import inner, kernel
from edgewise.model.topology import TOLERANCE

NOBODY = -1
LEAST_QPS = 1e-3  # of the load of requests; less is none


@inner
def averaged(before_qps: float, sent_qps: float, share: float) -> float:
    """Load of requests at a worker, as a gateway measures it after a period in which it sent so much.

    Args:
        share: what the period counts in the mean.
    """
    found_qps = before_qps + share * (sent_qps - before_qps)
    return found_qps * (found_qps >= LEAST_QPS)


class Granted(NamedTuple):
    """What W workers have granted to G gateways; kernels write to it.

    Attributes:
        capacity_qps: (W,) normalised load that may be granted (ASET's C_v).
        heard_s: (W, G) when a worker heard from a gateway; -inf: it knows nothing of it.
        requests_qps: (W, G) load of a gateway's requests.
        streams_qps, streams: (W, G) load of what is granted to it, and how many that are.
        entries: (W,) of each worker in the next three.
        stream, gateway, load_qps: (W, K) what is granted: which stream, to whom, and its load.
        place: (N,) of each stream number; room to look streams up, -1 between calls.
    """

    capacity_qps: Floats
    heard_s: Floats
    requests_qps: Floats
    streams_qps: Floats
    streams: Ints
    entries: Ints
    stream: Ints
    gateway: Ints
    load_qps: Floats
    place: Ints

    @classmethod
    def none(cls, capacity_qps: Floats, gateways: int, numbers: int, room: int) -> "Granted":
        """Nothing is granted yet.

        Args:
            numbers: streams are numbered from 0 to below this.
            room: entries of each worker.
        """
        all_, entries = (capacity_qps.size, gateways), (capacity_qps.size, room)
        whole = np.zeros(all_, dtype=np.int64)
        return cls(
            np.array(capacity_qps, dtype=np.float64), np.full(all_, -np.inf), np.zeros(all_), np.zeros(all_),
            whole, whole[:, 0].copy(), np.zeros(entries, dtype=np.int64), np.zeros(entries, dtype=np.int64),
            np.zeros(entries), np.full(numbers, NOBODY),
        )  # fmt: skip

    def with_room(self, gateways: int = 0, numbers: int = 0, room: int = 0) -> "Granted":
        """The same with so many more of each."""
        new = Granted.none(
            self.capacity_qps,
            self.heard_s.shape[1] + gateways,
            self.place.size + numbers,
            self.stream.shape[1] + room,
        )
        for old, array in zip(self[1:-1], new[1:-1], strict=True):
            array[tuple(slice(size) for size in old.shape)] = old
        return new


class Told(NamedTuple):
    """What gateways say that they have; (K,) each.

    Attributes:
        stream, worker: numbers; stream -1: requests, all together. load_qps: normalised load there.
        refused: written to: it does not fit.
    """

    stream: Ints
    worker: Ints
    load_qps: Floats
    refused: Bools


@kernel(allocates=False)
def forget(x: Granted, w: int, gateway: int) -> None:
    """Worker `w` knows nothing of a gateway any more."""
    kept = 0
    for k in range(x.entries[w]):
        if x.gateway[w, k] != gateway:
            x.stream[w, kept], x.gateway[w, kept] = x.stream[w, k], x.gateway[w, k]
            x.load_qps[w, kept] = x.load_qps[w, k]
            kept += 1
    x.entries[w], x.streams[w, gateway] = kept, 0
    x.streams_qps[w, gateway], x.requests_qps[w, gateway] = 0.0, 0.0
    x.heard_s[w, gateway] = -np.inf


@kernel(allocates=False)
def expire(x: Granted, w: int, now_s: float, lease_s: float) -> None:
    """Forget gateways that have not renewed."""
    for g in range(x.heard_s.shape[1]):
        if now_s - x.heard_s[w, g] > lease_s and x.heard_s[w, g] > -np.inf:
            forget(x, w, g)


@kernel(allocates=False)
def hear(x: Granted, w: int, gateway: int, now_s: float, lease_s: float) -> None:
    """Worker `w` hears from a gateway."""
    expire(x, w, now_s, lease_s)
    x.heard_s[w, gateway] = now_s


@kernel(allocates=False)
def others_qps(x: Granted, w: int, gateway: int) -> float:
    """Load at a worker of all gateways but one (-1: of all); streams and requests."""
    total_qps = 0.0
    for g in range(x.heard_s.shape[1]):
        if g != gateway:
            total_qps += x.streams_qps[w, g] + x.requests_qps[w, g]
    return total_qps


@kernel(allocates=False)
def entry_of(x: Granted, w: int, stream: int) -> int:
    """Where a worker has a stream; -1: nowhere."""
    for k in range(x.entries[w]):
        if x.stream[w, k] == stream:
            return k
    return NOBODY


@kernel(allocates=False)
def grant(x: Granted, w: int, gateway: int, stream: int, load_qps: float) -> bool:
    """Reserve a stream's share, if it fits; asking again for what is held is granted. Arrays have room."""
    k = entry_of(x, w, stream)
    held_qps = x.load_qps[w, k] if k >= 0 else 0.0
    if others_qps(x, w, NOBODY) - held_qps + load_qps > x.capacity_qps[w] * (1.0 + TOLERANCE):
        return False
    if k < 0:
        k = x.entries[w]
        x.entries[w] += 1
        x.streams[w, gateway] += 1
        x.stream[w, k], x.gateway[w, k] = stream, gateway
    x.load_qps[w, k] = load_qps
    if x.streams[w, gateway] == 1:
        x.streams_qps[w, gateway] = load_qps
    else:
        x.streams_qps[w, gateway] += load_qps - held_qps
    return True


@kernel(allocates=False)
def release(x: Granted, w: int, gateway: int, stream: int) -> None:
    """Give a stream's share back; one that is not held is no error."""
    k = entry_of(x, w, stream)
    if k < 0:
        return
    last = x.entries[w] - 1
    x.streams_qps[w, gateway] -= x.load_qps[w, k]
    x.stream[w, k], x.gateway[w, k] = x.stream[w, last], x.gateway[w, last]
    x.load_qps[w, k] = x.load_qps[w, last]
    x.entries[w] = last
    x.streams[w, gateway] -= 1
    if x.streams[w, gateway] == 0:  # rounding is forgotten
        x.streams_qps[w, gateway] = 0.0


@kernel(allocates=False)
def renew(x: Granted, w: int, gateway: int, told: Told, first: int, last: int) -> None:
    """Make what is told of worker `w` from `first` to below `last` all that a gateway has there.

    What it holds already, it keeps; then the rest is granted where it fits, in order, or `refused`. Requests
    are there, whether or not they fit.
    """
    x.requests_qps[w, gateway] = 0.0
    for k in range(first, last):
        if told.worker[k] == w and told.stream[k] == NOBODY:
            x.requests_qps[w, gateway] = told.load_qps[k]
        elif told.worker[k] == w:
            x.place[told.stream[k]] = k
    kept, kept_qps, mine = 0, 0.0, 0
    for k in range(x.entries[w]):
        stream, own = x.stream[w, k], x.gateway[w, k] == gateway
        at = x.place[stream] if own else NOBODY
        if own and (at < 0 or told.load_qps[at] != x.load_qps[w, k]):
            continue
        if own:
            told.refused[at], x.place[stream] = False, NOBODY
            kept_qps, mine = kept_qps + x.load_qps[w, k], mine + 1
        x.stream[w, kept], x.gateway[w, kept] = stream, x.gateway[w, k]
        x.load_qps[w, kept] = x.load_qps[w, k]
        kept += 1
    x.entries[w], x.streams[w, gateway], x.streams_qps[w, gateway] = kept, mine, kept_qps
    for k in range(first, last):
        if told.worker[k] == w and told.stream[k] != NOBODY and x.place[told.stream[k]] == k:
            x.place[told.stream[k]] = NOBODY
            told.refused[k] = not grant(x, w, gateway, told.stream[k], told.load_qps[k])


@kernel(allocates=False)
def to_tell(bound: int, held: int) -> tuple[int, int]:
    """Which worker gets a stream back, and which is asked for it; -1: none.

    Args:
        bound: its worker, held: who has granted it; -1: nobody.
    """
    if bound == held:
        return NOBODY, NOBODY
    return held, bound


@kernel(allocates=False)
def is_anew(granted: bool, bound: int, worker: int) -> bool:
    """Whether a stream is decided anew after an answer; what was bound elsewhere meanwhile is not."""
    return not granted and bound == worker


@kernel(allocates=False)
def is_over(had: bool, final: bool) -> bool:
    """Whether a stream is over, of which the refusal is `final`: it never had a worker."""
    return final and not had
