"""Events that enter the decision core, and the commands that leave it.

Either driver builds the same events: the simulator from its clock, the gateway from its
sockets. Commands are plain data; carrying them out is the driver's part.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    measured_s: float
    queue: Floats
    throughput_qps: Floats
    delay_mean_s: Floats
    delay_p95_s: Floats


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
    """A worker was seen to go down or come up."""

    time_s: float
    worker: int
    up: bool


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
