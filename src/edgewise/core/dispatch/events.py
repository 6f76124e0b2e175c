"""Events that enter the cores of streams and of requests, and the commands that leave them.

Either driver builds the same events: the simulator from its clock, the gateway from its
sockets. Commands are plain data; carrying them out is the driver's part.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from edgewise.arrays import Floats
from edgewise.model.work import Stream


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """What the workers measured over one telemetry period; arrays are (W,).

    Attributes:
        measured_s: time at which the period ended (the age of the figures counts from here).
        queue: queries waiting or in service.
        throughput_qps: responses per second.
        delay_mean_s, delay_p95_s: sojourn at the worker; 0 where nothing was answered.
        links: (2, L) bit/s that are left of each shared link, and bits that it has still to send; None where
            nobody measures links.
    """

    measured_s: float
    queue: Floats
    throughput_qps: Floats
    delay_mean_s: Floats
    delay_p95_s: Floats
    links: Floats | None = None


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A client asks for a stream to be served.

    Attributes:
        worker: where it was bound before its gateway began anew; kept where it still fits.
    """

    time_s: float
    stream: Stream
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """A stream ended; its worker's capacity returns."""

    time_s: float
    stream_id: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A window began: meta-policies choose here."""

    time_s: float


@dataclass(frozen=True, slots=True)
class WorkerChanged:
    """A worker was seen to go down or come up, or is to go.

    Attributes:
        up: new streams may be bound to it.
        drains: it is not up as it is to go: its streams move where others have room, and stay else.
        ready_s: it is not up and will be then, as far as is known; infinite: nobody knows.
    """

    time_s: float
    worker: int
    up: bool
    drains: bool = False
    ready_s: float = math.inf


@dataclass(frozen=True, slots=True)
class ReservedElsewhere:
    """A worker told how much of its capacity it has granted to others than this core.

    Attributes:
        load_qps: normalised load; replaces what was told before.
    """

    time_s: float
    worker: int
    load_qps: float


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """The way from a site to a cluster was seen to change; None leaves a figure as it is.

    Attributes:
        site, cluster: indices.
        delay_s: mean one-way delay; infinite when the way is down.
    """

    time_s: float
    site: int
    cluster: int
    delay_s: float | None = None
    deviation_s: float | None = None
    bandwidth_bps: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Telemetry arrived (possibly late: `time_s` is the arrival)."""

    time_s: float
    telemetry: Telemetry


Event = StreamOpened | StreamClosed | Tick | WorkerChanged | ReservedElsewhere | LinkChanged | Measured


@dataclass(frozen=True, slots=True)
class Bind:
    """Send the stream's queries to this worker."""

    stream_id: int
    worker: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not serve the stream; the reason is the first violated constraint."""

    stream_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Stop sending the stream's queries to this worker."""

    stream_id: int
    worker: int


Command = Bind | Refuse | Release


class RequestArrived(NamedTuple):
    """A request of a service came to the site; its number is new."""

    time_s: float
    request: int
    service: int
    deadline_s: float
    size_bytes: float


class RequestAgain(NamedTuple):
    """A request that was kept asks again."""

    time_s: float
    request: int


class RequestReturned(NamedTuple):
    """A replica's answer came back, or what there is in its place.

    Attributes:
        how: "answered"; "lost": nobody is there, the replica counts as down until it is seen up, and the
            request asks anew; "dropped": it was not worked on, for lack of time or room; "failed". But for
            "lost" the request is over.
        took_s: time at the replica, as that says; 0 where it does not.
    """

    time_s: float
    request: int
    how: str
    took_s: float = 0.0


class RequestEnded(NamedTuple):
    """Nobody waits any more for a request that is not at a replica."""

    time_s: float
    request: int


class ReplicaChanged(NamedTuple):
    """A replica is there, or was seen to change.

    Attributes:
        wanted: False: it gets no more requests.
        up: whether it answers.
        serves: requests that it works on at once; a replica on a node one, a cloud may have room for more.
    """

    time_s: float
    name: str
    service: int
    station: int
    wanted: bool
    up: bool
    serves: int = 1


class ReplicaTold(NamedTuple):
    """A replica said how many requests it has, of whomever."""

    time_s: float
    name: str
    queued: int


class ReplicaForgotten(NamedTuple):
    """A replica is listed no more: it gets no requests, and is forgotten once it has none of this site."""

    time_s: float
    name: str


RequestEvent: TypeAlias = (
    RequestArrived
    | RequestAgain
    | RequestReturned
    | RequestEnded
    | ReplicaChanged
    | ReplicaTold
    | ReplicaForgotten
)


class Send(NamedTuple):
    """Send the request to this replica."""

    request: int
    replica: str


class Wait(NamedTuple):
    """Keep the request until then, and have it ask again."""

    request: int
    until_s: float


class Drop(NamedTuple):
    """Do not serve the request, which is over; `late`: as it cannot end in time, else nobody is there."""

    request: int
    reason: str
    late: bool


RequestCommand: TypeAlias = Send | Wait | Drop
