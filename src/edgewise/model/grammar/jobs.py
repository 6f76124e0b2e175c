"""Deferrable jobs in YAML: drawn from a pattern, or listed, beside on-demand work. Forbidden here: I/O."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgewise.model.values import (
    BytesOrZero,
    Count,
    Index,
    Name,
    NotNegative,
    Positive,
    Seconds,
    SecondsOrZero,
    Spec,
    integer,
)


class OnDemandSpec(Spec):
    """What other work holds of the platform: a daily wave and first-order autoregressive noise."""

    mean: NotNegative = Field(le=1.0, description="Share of the platform's cores that it holds on average.")
    swing: NotNegative = Field(default=0.0, description="Amplitude of the daily wave, as a share.")
    noise: NotNegative = Field(
        default=0.0, description="Standard deviation around the wave from slot to slot, as a share."
    )
    memory: NotNegative = Field(default=0.0, le=1.0, description="Correlation of the noise of two slots.")
    day_s: Seconds = Field(default=86400.0, description="Period of the wave in s.")


class DrawnJobsSpec(Spec):
    """Jobs that are drawn anew for each seed; times are in slots."""

    per_slot: NotNegative = Field(description="Mean number of jobs whose earliest start is in a slot.")
    cores: tuple[Positive, ...] = Field(min_length=1, description="Classes of cores.")
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


class JobSpec(Spec):
    """One job; `edgewise submit` hands in such jobs while a system runs."""

    name: Name = Field(description="Unique among the jobs.")
    cores: Positive = Field(description="Cores that it holds while it runs.")
    memory_bytes: BytesOrZero = Field(default=0.0, description="Memory that it holds, in bytes.")
    duration_s: Seconds = Field(description="How long it runs, in s; whole slots are counted.")
    submitted_s: SecondsOrZero = Field(default=0.0, description="When it is submitted, in s.")
    earliest_s: SecondsOrZero = Field(default=0.0, description="Earliest start in s.")
    latest_s: SecondsOrZero = Field(description="Latest start in s.")
    priority: Annotated[int, *integer(-100)] = Field(
        default=0, description="Larger is more important. Live only."
    )
    when_evicted: Literal["pause", "restart"] = Field(
        default="pause",
        description="Live, where other work needs its node: 'pause' keeps its memory, 'restart' nothing.",
    )

    @model_validator(mode="after")
    def _window(self) -> JobSpec:
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
    on_demand: OnDemandSpec = Field(
        default=OnDemandSpec(mean=0.0), description="What other work holds, where it is not simulated."
    )
    drawn: DrawnJobsSpec | None = Field(default=None, description="Jobs drawn from a pattern.")
    submitted: tuple[JobSpec, ...] = Field(default=(), description="Jobs by name.")

    @model_validator(mode="after")
    def _some_jobs(self) -> JobsSpec:
        if self.drawn is None and not self.submitted:
            raise ValueError("has no jobs; add 'drawn' or 'submitted'")
        return self
