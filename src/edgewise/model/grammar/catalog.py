"""The catalog in YAML: models, and variants of them that run on a device. Forbidden here: I/O."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from edgewise.model.values import (
    Bytes,
    Count,
    Name,
    NotNegative,
    Positive,
    ResourcesSpec,
    Seconds,
    SecondsOrZero,
    Spec,
)


class ProfileSpec(Spec):
    """Processing delay: (fixed_s + per_byte_s * size) * (1 + batch_slope * (batch - 1))."""

    fixed_s: Seconds = Field(description="Delay of an empty payload, batch of one, in s.")
    per_byte_s: NotNegative = Field(
        default=0.0, description="Growth of the delay with the payload in s/byte."
    )
    batch_slope: NotNegative = Field(
        default=1.0,
        description="Growth per further item of a batch, as a fraction; 1 means batching gains nothing.",
    )
    deviation: NotNegative = Field(
        default=0.0, description="Standard deviation of the delay as a fraction of its mean."
    )
    distribution: Literal["normal", "exponential"] = Field(
        default="normal",
        description="Law of the delay: 'normal' (cut off at 0) or 'exponential' (its deviation is its mean).",
    )
    source: str = Field(
        default="", description="'measured on …', or the publication the figures are scaled from."
    )

    @model_validator(mode="after")
    def _one_deviation(self) -> ProfileSpec:
        if self.distribution == "exponential" and self.deviation not in (0.0, 1.0):
            raise ValueError(
                f"deviation {self.deviation:g} contradicts distribution 'exponential', whose deviation is 1; "
                "remove deviation or use 'normal'"
            )
        return self


class ModelSpec(Spec):
    """A trained network for one task."""

    name: Name = Field(description="Unique among the models.")
    task: Name = Field(description="What it does; applications ask for a task.")
    accuracy: NotNegative = Field(description="Accuracy in the task's metric (mAP in % for detection).")


class VariantSpec(Spec):
    """A model made ready for a device."""

    name: Name = Field(description="Unique among the variants.")
    model: Name = Field(description="Name of its model.")
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What one worker reserves on its node."
    )
    profile: ProfileSpec = Field(description="Processing delay.")
    capacity_qps: Positive | None = Field(
        default=None,
        description="Queries/s at its largest payload; when left out, what full batches give.",
    )
    largest_bytes: Bytes = Field(description="Largest payload in bytes, at which capacity is stated.")
    max_batch: Count = Field(default=1, description="Most queries in one batch.")
    batch_timeout_s: SecondsOrZero = Field(
        default=0.0,
        description="How long a free worker waits for a batch to fill, in s; 0 starts at once.",
    )
    servers: Count = Field(default=1, description="Batches processed at once.")
    file: str | None = Field(
        default=None,
        description="ONNX file of the network, for live workers; relative to the folder of this file.",
    )


class CatalogSpec(Spec):
    """All models and variants."""

    models: tuple[ModelSpec, ...] = Field(min_length=1, description="Trained networks.")
    variants: tuple[VariantSpec, ...] = Field(min_length=1, description="Models made ready for devices.")


class CatalogUseSpec(Spec):
    """A catalog from a file, with models and variants of the same name replaced and others added."""

    use: str = Field(
        min_length=1, description="Name of a shipped catalog, or a file, relative to the scenario's folder."
    )
    models: tuple[ModelSpec, ...] = Field(default=(), description="Added, or in place of the same name.")
    variants: tuple[VariantSpec, ...] = Field(default=(), description="Added, or in place of the same name.")
