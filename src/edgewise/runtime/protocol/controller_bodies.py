"""What the controller and those who ask it say in JSON about workers, nodes, links, jobs and pipelines.

See `bodies`; what a type cannot say is said of its field here, and checked where it is used.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from edgewise.runtime.protocol.bodies import UnixTime
from edgewise.runtime.protocol.shown_bodies import RatesShown

WhenEvicted = Annotated[str, Meta(extra_json_schema={"enum": ["pause", "restart"]})]


class WorkerWanted(Struct):
    """Whether a worker is to run; else it is drained and ended."""

    wanted: bool


class WorkerNow(WorkerWanted):
    """The same of a worker by name."""

    worker: str


class Up(Struct):
    """Whether a node or link works; false fails or cuts it."""

    up: bool


class NodeNow(Up):
    """The same of a node by name."""

    node: str


class LinkNow(Up):
    """The same of a link, by the nodes at its ends."""

    ends: list[str]


class Ending(Struct):
    """Whether the whole system ends."""

    ending: bool


class JobWanted(Struct):
    """A deferrable job to be kept."""

    key: str
    command: Annotated[list[str], Meta(extra_json_schema={"minItems": 1})]
    folder: Annotated[str, Meta(extra_json_schema={"pattern": "^/"})]
    duration_s: Annotated[float, Meta(extra_json_schema={"minimum": 0.1, "maximum": 1.0e9})]
    cores: float = 1.0
    memory_bytes: float = 0.0
    earliest_s: (
        Annotated[float, Meta(description="seconds since 1970; at most a year (366 days) ahead")] | UnsetType
    ) = UNSET
    latest_s: Annotated[float, Meta(description="at most a year after earliest_s")] | UnsetType = UNSET
    priority: float = 0.0
    when_evicted: WhenEvicted = "pause"
    checkpoint_s: Annotated[float, Meta(description="it writes a checkpoint each time")] | None = None
    checkpoint_bytes: float = 0.0


class JobKept(Struct):
    """A job as it stands."""

    id: int
    state: str
    command: list[str]
    folder: str
    cores: float
    memory_bytes: float
    duration_s: float
    earliest_s: UnixTime
    latest_s: UnixTime
    priority: int
    when_evicted: WhenEvicted
    checkpoint_s: float | None
    checkpoint_bytes: float
    submitted_s: UnixTime
    node: str | None
    started_s: UnixTime | None
    ended_s: UnixTime | None
    suspended_s: float
    cancel: bool
    why: str | None
    attempt: int
    deaths: int
    redone_s: float
    saved_s: float
    ran_s: float | None


class JobOutput(Struct):
    """The last of what a job wrote, and how much that was in all."""

    id: int
    state: str
    bytes: int
    output: str


class PipelineWanted(Struct):
    """A pipeline to be run, as `edgewise.runtime.pipelines.LivePipeline` has it."""

    key: str
    live: dict[str, Any]


class PipelineKept(Struct):
    """A pipeline as it stands; of one alone also what its tasks and flows do beside the plan."""

    id: int
    name: str
    state: str
    nodes: dict[str, str]
    submitted_s: UnixTime
    why: str | None
    started_s: UnixTime | None
    ended_s: UnixTime | None
    frames: float
    ran_s: float
    moves: int
    rates: RatesShown | UnsetType | None = UNSET


class PipelineEnding(Struct):
    """A pipeline that is told to end."""

    id: int
    ending: bool


SAID_BY_CONTROLLER = (
    WorkerWanted,
    WorkerNow,
    Up,
    NodeNow,
    LinkNow,
    Ending,
    JobWanted,
    JobKept,
    JobOutput,
    PipelineWanted,
    PipelineKept,
    PipelineEnding,
)
"""All that the controller's document may name beside `bodies.SAID`."""
