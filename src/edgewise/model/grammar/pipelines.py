"""Graphs of tasks and jobs in YAML: pipelines, through which frames stream; split models; deferrable jobs.

Forbidden here: I/O.
"""

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from edgewise.model.grammar.sources import ByHour
from edgewise.model.values import (
    BytesOrZero,
    Cores,
    CoresOrZero,
    Count,
    Index,
    Name,
    NotNegative,
    OperationsOrZero,
    Positive,
    QueriesPerSecond,
    Seconds,
    SecondsOrZero,
    Spec,
    having,
    integer,
)


class OperatorSpec(Spec):
    """An operator: what a query makes it compute."""

    name: Name = Field(description="Unique in its graph.")
    work_ops: OperationsOrZero = Field(description="Operations of a query.")


class TensorSpec(Spec):
    """Data of a query from one operator to another."""

    source: Name = Field(description="Name of the operator that makes it.")
    target: Name = Field(description="Name of the operator that needs it.")
    size_bytes: BytesOrZero = Field(description="Its size in bytes.")
    tensor: str = Field(
        default="", description="Its name; a server needs data of one name from one operator only once."
    )


class GraphSpec(Spec):
    """Queries of one network: read from an ONNX file, or written out as operators and tensors."""

    ONE_OF = ("network", "operators")
    name: Name = Field(description="Unique among the graphs.")
    rate_qps: QueriesPerSecond = Field(description="Queries per second, a Poisson process.")
    network: str | None = Field(
        default=None,
        min_length=1,
        description="An ONNX file, relative to the scenario's folder, or gpt2, resnet50, inception-v1, …",
    )
    shapes: dict[str, tuple[Count, ...]] = Field(
        default={}, description="Shapes of the network's inputs with free axes, as x: [1, 3, 224, 224]."
    )
    operators: tuple[OperatorSpec, ...] = Field(
        default=(), description="Instead of a network: its operators."
    )
    tensors: tuple[TensorSpec, ...] = Field(default=(), description="Data between operators.")
    branches: Count | None = Field(
        default=None, description="Contract further, to so many branches of a sub-graph."
    )
    cpu_cores: CoresOrZero = Field(
        default=0.0, description="Simulated beside other work: cores that it holds of each server's node."
    )
    memory_bytes: BytesOrZero = Field(
        default=0.0, description="Simulated beside other work: memory that it holds of each server's node."
    )
    start_s: SecondsOrZero = Field(
        default=0.0,
        description="Simulated beside other work: from a node that is back to its server's first task, in s.",
    )


class PipelineTaskSpec(Spec):
    """One task. Of its node it holds memory, and the cores that it uses; its flows hold bits/s."""

    name: Name = Field(description="Unique among the tasks of its pipeline.")
    downstream: tuple[Name, ...] = Field(default=(), description="Tasks that get its output.")
    memory_bytes: BytesOrZero = Field(description="Memory that it holds, in bytes.")
    work_ops: OperationsOrZero | None = Field(
        default=None, description="Operations per frame; left out, it is profiled before it runs."
    )
    output_bytes: BytesOrZero | None = Field(
        default=None,
        description="Bytes per frame to each task downstream; left out, it is profiled before it runs.",
    )


class RunningSpec(Spec):
    """How a pipeline starts, and how long it runs."""

    ONE_OF = ("frames", "length_s")
    frames: Positive | None = Field(default=None, description="Length in frames; or give `length_s`.")
    length_s: Seconds | None = Field(default=None, description="Length in seconds of running.")
    image_bytes: BytesOrZero = Field(
        default=0.0,
        description="Simulated: a node fetches so much once, before its first task of this pipeline starts; "
        "with `sharing` over the links from the cluster that images come from.",
    )
    start_s: SecondsOrZero = Field(
        default=0.0,
        description="Simulated: from the last byte of its image, or a node that is back, to its first frame, "
        "in s.",
    )


class PipelineSpec(RunningSpec):
    """A pipeline: frames arise at a node and stream through its tasks."""

    name: Name = Field(description="Unique among the pipelines.")
    source: Name = Field(description="Node where its input arises.")
    input_bytes: BytesOrZero = Field(
        description="Input per frame in bytes; every task that is downstream of none gets it."
    )
    arrive_s: SecondsOrZero = Field(default=0.0, description="When it is submitted, in s.")
    tasks: tuple[PipelineTaskSpec, ...] = Field(min_length=1, description="What frames pass through.")
    code: str | None = Field(
        default=None,
        description="Python file with a function for each task, in their order, relative to the scenario's "
        "folder; it is run live.",
    )
    inputs: tuple[str, ...] = Field(
        default=(),
        description="Live: files that its source sends in turn, relative to the scenario's folder.",
    )
    image: str | None = Field(
        default=None, description="Container image with its code, for whoever reads it; no test bed uses it."
    )

    @model_validator(mode="after")
    def _work_is_known(self) -> "PipelineSpec":
        for i, task in enumerate(self.tasks):
            if self.code is None and None in (task.work_ops, task.output_bytes):
                missing = "work_ops" if task.work_ops is None else "output_bytes"
                raise ValueError(f"tasks[{i}].{missing}: is missing; add it, or 'code', which is profiled")
        return self


class GeneratedPipelinesSpec(RunningSpec):
    """Pipelines that a run draws by its seed: they come as a Poisson process, each at a random node."""

    generate: Literal["recognition", "random"] = Field(
        description="'recognition': ten tasks that recognise attributes of objects; 'random': 4 to 12 tasks."
    )
    name: Name = Field(default="pipeline", description="They are name-0, name-1, …")
    count: Count = Field(description="How many, at most: those that would come after duration_s do not.")
    rate_qps: QueriesPerSecond = Field(description="Mean number of pipelines that come in a second.")
    by_hour: ByHour = None


PipelinesSpec = Annotated[
    tuple[
        Annotated[
            Annotated[PipelineSpec, Tag("(without)")] | Annotated[GeneratedPipelinesSpec, Tag("(with)")],
            having("generate"),
        ],
        ...,
    ],
    Field(min_length=1),
]


class OnDemandSpec(Spec):
    """What other work holds of the platform: a daily wave and first-order autoregressive noise."""

    mean: NotNegative = Field(le=1.0, description="Share of the platform's cores that it holds on average.")
    swing: NotNegative = Field(default=0.0, description="Amplitude of the daily wave, as a share.")
    noise: NotNegative = Field(
        default=0.0, description="Standard deviation around the wave from slot to slot, as a share."
    )
    memory: NotNegative = Field(default=0.0, le=1.0, description="Correlation of the noise of two slots.")
    day_s: Seconds = Field(default=86400.0, description="Period of the wave in s.")


def _of_checkpoints(spec: "DrawnJobsSpec | JobSpec") -> None:
    if spec.checkpoint_bytes is not None and spec.checkpoint_s is None:
        raise ValueError(
            f"checkpoint_bytes: {spec.checkpoint_bytes:g} is of no checkpoint; add checkpoint_s, or remove it"
        )


class DrawnJobsSpec(Spec):
    """Jobs that are drawn anew for each seed; times are in slots."""

    per_slot: NotNegative = Field(description="Mean number of jobs whose earliest start is in a slot.")
    by_hour: ByHour = None
    cores: tuple[Cores, ...] = Field(min_length=1, description="Classes of cores.")
    core_shares: tuple[NotNegative, ...] = Field(min_length=1, description="Their probabilities.")
    durations: tuple[Count, ...] = Field(min_length=1, description="Classes of durations in slots.")
    duration_shares: tuple[NotNegative, ...] = Field(min_length=1, description="Their probabilities.")
    lead_most: Index = Field(default=0, description="From submission to the earliest start: 0 … lead_most.")
    window_most: Index = Field(
        default=0, description="From the earliest to the latest start: 0 … window_most."
    )
    memory_bytes_per_core: BytesOrZero = Field(
        default=0.0, description="Jobs need 0.5 to 1.5 times it for each core; 0 leaves memory out."
    )
    checkpoint_s: Seconds | None = Field(
        default=None, description="They write a checkpoint each time that they have run so long; in s."
    )
    checkpoint_bytes: BytesOrZero | None = Field(
        default=None, description="Size of each of these checkpoints in bytes; left out, they weigh nothing."
    )

    @model_validator(mode="after")
    def _some_checkpoints(self) -> "DrawnJobsSpec":
        _of_checkpoints(self)
        return self


class JobSpec(Spec):
    """One job; `edgewise submit` hands in such jobs while a system runs."""

    name: Name = Field(description="Unique among the jobs.")
    cores: Cores = Field(description="Cores that it holds while it runs.")
    memory_bytes: BytesOrZero = Field(default=0.0, description="Memory that it holds, in bytes.")
    duration_s: Seconds = Field(description="How long it runs, in s; whole slots are counted.")
    submitted_s: SecondsOrZero = Field(default=0.0, description="When it is submitted, in s.")
    earliest_s: SecondsOrZero = Field(default=0.0, description="Earliest start in s.")
    latest_s: SecondsOrZero = Field(description="Latest start in s.")
    priority: Annotated[int, *integer(-100)] = Field(
        default=0, description="Larger is more important, live and where 'room' is 'nodes'."
    )
    when_evicted: Literal["pause", "restart"] = Field(
        default="pause",
        description="Where other work needs its node: 'pause' keeps its memory, 'restart' ends it.",
    )
    checkpoint_s: Seconds | None = Field(
        default=None,
        description="It writes a checkpoint each time that it has run so long, in s, and goes on from the "
        "last one where it was ended; left out, it never does, and begins anew.",
    )
    checkpoint_bytes: BytesOrZero | None = Field(
        default=None,
        description="Size of a checkpoint in bytes. With `sharing` it leaves over the links to the cluster "
        "that images come from, counts once it is there, and is fetched before the job goes on elsewhere; "
        "left out, checkpoints weigh nothing.",
    )

    @model_validator(mode="after")
    def _window(self) -> "JobSpec":
        _of_checkpoints(self)
        if not self.submitted_s <= self.earliest_s <= self.latest_s:
            raise ValueError(
                f"needs submitted_s <= earliest_s <= latest_s, got {self.submitted_s:g}, "
                f"{self.earliest_s:g} and {self.latest_s:g}; change one of them"
            )
        return self


class JobsSpec(Spec):
    """Jobs that may start anywhere in a window, in what other work leaves of all nodes (OSDEC)."""

    slot_s: Seconds = Field(default=900.0, description="Length of a slot in s; jobs start with a slot.")
    delay_weight: NotNegative = Field(default=2.0, description="Cost of a slot's delay (OSDEC's ω1).")
    violation_weight: NotNegative = Field(
        default=10.0, description="Cost of a core more than is left, for a slot (OSDEC's ω2)."
    )
    room: Literal["pooled", "nodes"] = Field(
        default="nodes",
        description="Where jobs find room: with 'nodes' each is on one node, by priority, and gives way to "
        "other work, as live; 'pooled', as OSDEC is published, takes all nodes for one.",
    )
    on_demand: OnDemandSpec = Field(
        default=OnDemandSpec(mean=0.0), description="What other work holds, where it is not simulated."
    )
    drawn: DrawnJobsSpec | None = Field(default=None, description="Jobs drawn from a pattern.")
    submitted: tuple[JobSpec, ...] = Field(default=(), description="Jobs by name.")

    @model_validator(mode="after")
    def _some_jobs(self) -> "JobsSpec":
        if self.drawn is None and not self.submitted:
            raise ValueError("has no jobs; add 'drawn' or 'submitted'")
        return self
