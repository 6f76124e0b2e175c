"""Pipelines in YAML: graphs of tasks through which frames stream, written out or generated.

Forbidden here: I/O.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from edgewise.model.values import (
    BytesOrZero,
    Count,
    Name,
    NotNegative,
    Positive,
    Seconds,
    SecondsOrZero,
    Spec,
)


class PipelineTaskSpec(Spec):
    """One task. On its node it holds memory, and nothing else; its flows hold bits/s of their paths."""

    name: Name = Field(description="Unique among the tasks of its pipeline.")
    downstream: tuple[Name, ...] = Field(default=(), description="Tasks that get its output.")
    memory_bytes: BytesOrZero = Field(description="Memory that it holds, in bytes.")
    work_ops: NotNegative | None = Field(
        default=None, description="Operations per frame; left out, it is profiled before it runs."
    )
    output_bytes: BytesOrZero | None = Field(
        default=None,
        description="Bytes per frame to each task downstream; left out, it is profiled before it runs.",
    )


class LengthSpec(Spec):
    """How long a pipeline runs."""

    frames: Positive | None = Field(default=None, description="Length in frames; or give `length_s`.")
    length_s: Seconds | None = Field(default=None, description="Length in seconds of running.")

    @model_validator(mode="after")
    def _one_length(self) -> LengthSpec:
        if (self.frames is None) == (self.length_s is None):
            raise ValueError("needs either 'frames' or 'length_s'; give exactly one of them")
        return self


class PipelineSpec(LengthSpec):
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
    def _work_is_known(self) -> PipelineSpec:
        for i, task in enumerate(self.tasks):
            if self.code is None and None in (task.work_ops, task.output_bytes):
                missing = "work_ops" if task.work_ops is None else "output_bytes"
                raise ValueError(f"tasks[{i}].{missing}: is missing; add it, or 'code', which is profiled")
        return self


class GeneratedPipelinesSpec(LengthSpec):
    """Pipelines that a run draws by its seed: they come as a Poisson process, each at a random node."""

    generate: Literal["recognition", "random"] = Field(
        description="'recognition': ten tasks that recognise attributes of objects; 'random': 4 to 12 tasks."
    )
    name: Name = Field(default="pipeline", description="They are name-0, name-1, …")
    count: Count = Field(description="How many, at most: those that would come after duration_s do not.")
    rate_qps: Positive = Field(description="Mean number of pipelines that come in a second.")


def _written(value: Any) -> str:
    generated = "generate" in value if isinstance(value, dict) else hasattr(value, "generate")
    return "(generated)" if generated else "(written)"


PipelinesSpec = Annotated[
    tuple[
        Annotated[
            Annotated[PipelineSpec, Tag("(written)")] | Annotated[GeneratedPipelinesSpec, Tag("(generated)")],
            Discriminator(_written),
        ],
        ...,
    ],
    Field(min_length=1),
]
