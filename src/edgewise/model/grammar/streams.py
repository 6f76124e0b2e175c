"""Streams in YAML: what clients run, when they come, and what gateways bound. Forbidden here: I/O."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from edgewise.model.values import (
    PLAIN,
    SECONDS,
    Bytes,
    Count,
    Name,
    NotNegative,
    RateRange,
    Seconds,
    SecondsOrZero,
    SecondsRange,
    Spec,
    amount_schema,
    integer,
    own_or_use,
)


def _plain_to_steps(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [{"at_s": 0.0, "rate": value}]


class ApplicationSpec(Spec):
    """What clients run: each client opens one stream of one application."""

    name: Name = Field(description="Unique among the applications.")
    task: Name = Field(description="Task it needs; a model must have it.")
    rate_qps: RateRange = Field(description="Queries/s of a stream: x, or drawn from [lowest, highest].")
    size_bytes: Bytes = Field(description="Payload of a query in bytes.")
    deadline_s: SecondsRange = Field(description="Tolerated end-to-end delay in s: x or [lowest, highest].")
    length_s: SecondsRange = Field(description="How long a stream lasts in s: x or [lowest, highest].")
    min_accuracy: NotNegative = Field(
        default=0.0, description="Least accuracy of the model, in the task's metric."
    )
    weight: NotNegative = Field(default=1.0, description="Relative share of the clients who run it.")
    priority: Annotated[int, *integer(-1000)] = Field(default=0, description="Larger is more important.")
    arrivals: Literal["periodic", "poisson"] = Field(
        default="periodic", description="Queries of a stream: evenly spaced frames, or a Poisson process."
    )


class ApplicationsSpec(Spec):
    """A file of applications."""

    applications: tuple[ApplicationSpec, ...] = Field(min_length=1, description="What clients run.")


class ApplicationsUseSpec(Spec):
    """Applications from a file, with those of the same name replaced and others added."""

    use: str = Field(min_length=1, description="'reference', or a file, relative to the scenario's folder.")
    weights: Literal["fitted", "uniform"] = Field(
        default="fitted", description="'fitted': the file's weights; 'uniform': the same for all."
    )
    applications: tuple[ApplicationSpec, ...] = Field(
        default=(), description="Added, or in place of the same name; they keep their weights."
    )


class StepSpec(Spec):
    """From `at_s` on, clients come at `rate`."""

    at_s: SecondsOrZero = Field(description="Start of the step in s; the first one is 0.")
    rate: NotNegative = Field(description="Clients per minute at each site.")


class ArrivalsSpec(Spec):
    """When clients come: a Poisson process at each site."""

    clients_per_min: (
        Annotated[
            tuple[StepSpec, ...],
            BeforeValidator(_plain_to_steps),
            WithJsonSchema(
                {
                    "anyOf": [
                        *amount_schema(PLAIN, zero=True)["anyOf"],
                        {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["at_s", "rate"],
                                "properties": {
                                    "at_s": amount_schema(SECONDS, zero=True)
                                    | {"description": "Start in s."},
                                    "rate": amount_schema(PLAIN, zero=True) | {"description": "Clients/min."},
                                },
                            },
                        },
                    ]
                }
            ),
        ]
        | None
    ) = Field(
        default=None, description="Clients per minute at each site: x, or steps [{at_s, rate}, …] in order."
    )
    pattern: Literal["burst", "steady"] | None = Field(
        default=None,
        description="Instead: 20, 60, 100 ('burst') or 60, 40, 20 ('steady') clients per minute, "
        "150 s each, over and over.",
    )

    @model_validator(mode="after")
    def _steps_in_order(self) -> ArrivalsSpec:
        if (self.clients_per_min is None) == (self.pattern is None):
            raise ValueError("needs either 'clients_per_min' or 'pattern'; give exactly one of them")
        if self.clients_per_min is None:
            return self
        starts = [step.at_s for step in self.clients_per_min]
        if not starts or starts[0] != 0.0:
            raise ValueError("clients_per_min: the first step must start at 0; add {at_s: 0, rate: …}")
        if any(a >= b for a, b in pairwise(starts)):
            raise ValueError(f"clients_per_min: at_s {starts} must increase; put the steps in order")
        return self


class StreamsSpec(Spec):
    """Streams of queries: what clients run, when they come, and what live gateways bound."""

    applications: Annotated[
        Annotated[tuple[ApplicationSpec, ...], Field(min_length=1), Tag("(own)")]
        | Annotated[ApplicationsUseSpec, Tag("(use)")],
        Discriminator(own_or_use),
    ] = Field(description="What clients run, written out or from a file.")
    arrivals: ArrivalsSpec = Field(description="When clients come.")
    lease_s: Seconds = Field(
        default=600.0,
        description="Live: a stream that is opened by itself and not used for so long is closed, s.",
    )
    burst: Count = Field(
        default=20,
        description="Live: queries of a stream that may come at once, or those that it declares for 1 s.",
    )
    gateways: Literal["one", "per_site"] = Field(
        default="one",
        description="Simulated: one gateway decides for all sites at once, or each site's own by what it has "
        "heard, and workers grant.",
    )
