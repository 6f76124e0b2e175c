"""What happens to pipelines, links and nodes, and what is to be done; see `core.place.core.PlaceCore`."""

from collections.abc import Mapping
from typing import NamedTuple

from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.place import PipelineArrays, Placement


class PipelineSubmitted(NamedTuple):
    """A pipeline waits from now on; `pipeline.id` is not that of another."""

    pipeline: PipelineArrays


class PipelineEnded(NamedTuple):
    """A pipeline, by its id, neither waits nor runs any more."""

    pipeline: int


class BandwidthChanged(NamedTuple):
    """A link has another bandwidth; 0: it is down."""

    link: int
    bandwidth_bps: float


class MemoryChanged(NamedTuple):
    """A node has another amount of memory for tasks; 0: it is gone."""

    node: int
    memory_bytes: float


class TaskMeasured(NamedTuple):
    """A task took `time_s` for a frame on a node, the mean of so many frames since it was started there."""

    pipeline: int
    task: int
    node: int
    frames: int
    time_s: float


class PlacementDue(NamedTuple):
    """All that happened up to now was told.

    Attributes:
        decided: what the policy answered if a driver asked it apart, as it may take long
            (`PlaceCore.question`); nothing of it is done where it no longer fits. None: it is asked now.
    """

    time_s: float
    decided: Mapping[int, Placement] | None = None


class StartPipeline(NamedTuple):
    """A pipeline that waited runs from now on."""

    placement: Placement


class MovePipeline(NamedTuple):
    """Tasks of a running pipeline go to other nodes."""

    placement: Placement


class ReroutePipeline(NamedTuple):
    """Flows of a running pipeline take other paths or have other rates; its tasks stay."""

    placement: Placement


class StopPipeline(NamedTuple):
    """A running pipeline, by its id, waits again: a node lacks the memory that its tasks hold."""

    pipeline: int


PlaceEvent = (
    PipelineSubmitted
    | PipelineEnded
    | BandwidthChanged
    | MemoryChanged
    | TaskMeasured
    | PlacementDue
    | CapacityChanged
    | Evicted
)
PlaceCommand = StartPipeline | MovePipeline | ReroutePipeline | StopPipeline
