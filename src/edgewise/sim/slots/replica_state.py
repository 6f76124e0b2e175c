"""State of many worlds of requests and replicas: the truth that policies do not see, and the view they do.

Stations: 0 is the cloud, n + 1 is node n. All arrays have a leading axis of W worlds; K = N + 1 stations,
Q places in each queue (it grows), P replicas that may start at once on a node. Fields lie together in
records, since kernels that take many arrays compile and run slowly.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.core.ledger import TOLERANCE
from edgewise.core.orchestrate import ReplicaView, Requests, new_view
from edgewise.model.orchestration import System

# Where a request stands.
UNSEEN, AT_SITE, SENT, WORKED_ON, IN_TIME, LATE, DROPPED = range(7)
OUTCOMES = ("unseen", "waiting", "waiting", "waiting", "in_time", "late", "dropped")
# Columns of the tally.
(ARRIVED, DONE_IN_TIME, DONE_LATE, LOST, FORWARDED_BYTES, LOCAL_BYTES, IMAGE_BYTES, COLUMNS) = range(8)
PLACES = 16  # of a queue at first

_ASKED = ("arrival_s", "deadline_s", "service_s", "cpu_cores", "memory_bytes", "payload_bytes")
_WHOLE = ("site", "service", "order", "state", "station")
REQUEST = np.dtype(
    [(name, "f8") for name in (*_ASKED, "ready_s", "end_s")] + [(name, "i8") for name in _WHOLE]
)
LINKS = np.dtype([("seed", "u8"), ("up_free_s", "f8"), ("down_free_s", "f8"), ("imbalance", "f8")])
WAITING = np.dtype([("begin", "i8"), ("end", "i8"), ("last", "i8"), ("lan_free_s", "f8")])
STATION = np.dtype([("queued", "i8"), ("running", "i8"), ("starts", "i8")])
PLACE = np.dtype([("queue", "i8"), ("run", "i8"), ("end_s", "f8"), ("machine", "i8")])
START = np.dtype([("service", "i8"), ("ready_s", "f8")])


class Truth(NamedTuple):
    """Everything that changes and is not in the view.

    Attributes:
        request: (W, R) `REQUEST`: what was asked, then where it stands: state, station (-1 before it is
            sent), ready_s when it reached its station and end_s (nan before). `order` is no field of its
            row: read downwards, the column lists requests site by site, in order of arrival.
        links: (W,) `LINKS`: seed of delays and service times; when the ways to and from the cloud have sent
            what they were given; imbalance, see `SlotResult`.
        waiting: (W, B) `WAITING`: rows begin … end of `order` wait at the site, `last` ends those that ever
            will; when its link has sent all.
        station: (W, K) `STATION`: how many of the places are used.
        place: (W, K, Q) `PLACE`: queue: requests not begun, by deadline. run, end_s, machine: worked on.
        start: (W, K, P) `START`: replicas that start.
        tally: (W, F, COLUMNS) counts and bytes of each frame.
        ended: (W, 2) requests of this slot that ended in time, and that violated their deadline.
    """

    request: Records
    links: Records
    waiting: Records
    station: Records
    place: Records
    start: Records
    tally: Floats
    ended: Ints


class ReplicaBatch(NamedTuple):
    """All that a kernel needs of a batch."""

    seen: ReplicaView
    truth: Truth


def new_worlds(system: System, requests: Requests, frames: int, seeds: NDArray[np.uint64]) -> ReplicaBatch:
    """Worlds at slot 0, before anything arrived; initial replicas stand ready."""
    return ReplicaBatch(new_view(system, requests.worlds, seeds), _new_truth(system, requests, frames, seeds))


def _new_truth(system: System, requests: Requests, frames: int, seeds: NDArray[np.uint64]) -> Truth:
    worlds, stations = requests.worlds, system.stations
    truth = Truth(
        request_rows(system, requests),
        records((worlds,), LINKS),
        records((worlds, system.sites), WAITING),
        records((worlds, stations), STATION),
        records((worlds, stations, PLACES), PLACE),
        records((worlds, stations, _most_replicas(system)), START),
        np.zeros((worlds, frames, COLUMNS)),
        np.zeros((worlds, 2), dtype=np.int64),
    )
    truth.links["seed"] = seeds
    order, begin, last = _by_site(requests, system.sites)
    truth.request["order"] = order
    truth.waiting["begin"], truth.waiting["end"], truth.waiting["last"] = begin, begin, last
    return truth


def request_rows(system: System, requests: Requests) -> Records:
    """(W, R) `REQUEST` of requests that did not arrive yet."""
    rows = records(requests.arrival_s.shape, REQUEST)
    asked = ("arrival_s", "site", "service", "deadline_s", "cpu_cores", "memory_bytes", "payload_bytes")
    for name in asked:
        rows[name] = getattr(requests, name)
    rows["cpu_cores"] *= system.replica_cpu_cores[requests.service] == 0.0  # else its replica's
    rows["service_s"] = requests.service_s()
    rows["station"], rows["ready_s"], rows["end_s"] = -1, np.nan, np.nan
    return rows


def _most_replicas(system: System) -> int:
    """Replicas that fit on the largest node."""
    largest = float(system.memory_bytes[system.first_machine[1] :].max())
    return int(largest / system.service_memory_bytes.min() * (1 + TOLERANCE)) + 1


def _by_site(requests: Requests, sites: int) -> tuple[Ints, Ints, Ints]:
    """(W, R) requests sorted by site, then arrival; (W, B) where each site's rows begin and end."""
    real = np.arange(requests.site.shape[1]) < requests.count[:, None]
    site = np.where(real, requests.site, sites)
    order = np.argsort(site, axis=1, kind="stable").astype(np.int64)
    number = np.stack([(site == b).sum(axis=1) for b in range(sites)], axis=1)
    last = np.cumsum(number, axis=1)
    return order, (last - number).astype(np.int64), last.astype(np.int64)


def enlarged(truth: Truth) -> Truth:
    """The same truth with queues of twice as many places."""
    place = np.concatenate([truth.place, np.zeros_like(truth.place)], axis=2)
    return truth._replace(place=place.view(np.recarray))
