"""The YAML form of a scenario: every key, its unit, its limits.

These pydantic models are what `edgewise schema` prints. They check one value at a time;
references between parts (a worker's variant, a link's cluster) are checked in
`edgewise.model.build`. Forbidden here: I/O.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
BYTES = {
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}
BITS_PER_SECOND = {"bps": 1.0, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}
PLAIN: dict[str, float] = {}

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)\s*")


def quantity(value: Any, units: dict[str, float]) -> float:
    """A number, or a string with one of `units`, in SI.

    Raises:
        ValueError: neither; the message names the value and the units.
    """
    hint = f", or a string with a unit: {', '.join(units)}" if units else ""
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        number, unit = match.groups()
        if not unit or unit in units:
            value = float(number) * units.get(unit, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"is not a number; write a number{hint}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("is not finite; write a finite number")
    return number


def _bound(number: float, zero: bool) -> float:
    if number < 0 or (number == 0 and not zero):
        raise ValueError(f"is too small; use a number {'>=' if zero else '>'} 0")
    return number


def _schema(units: dict[str, float], zero: bool) -> dict[str, Any]:
    # YAML 1.1 reads "1e9" as a string, so plain numbers are allowed there too.
    pattern = r"^\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*(" + "|".join(units) + r")?\s*$"
    return {
        "anyOf": [
            {"type": "number", "minimum" if zero else "exclusiveMinimum": 0},
            {"type": "string", "pattern": pattern},
        ]
    }


def _number(units: dict[str, float], zero: bool) -> tuple[BeforeValidator, WithJsonSchema]:
    def validate(value: Any) -> float:
        return _bound(quantity(value, units), zero)

    return BeforeValidator(validate), WithJsonSchema(_schema(units, zero))


def _range(units: dict[str, float]) -> tuple[BeforeValidator, WithJsonSchema]:
    def validate(value: Any) -> tuple[float, float]:
        ends = list(value) if isinstance(value, list | tuple) else [value, value]
        if len(ends) != 2:
            raise ValueError("is not a range; write one number x, or [lowest, highest]")
        low, high = (_bound(quantity(end, units), zero=False) for end in ends)
        if low > high:
            raise ValueError(f"is upside down; write [{high:g}, {low:g}]")
        return low, high

    one = _schema(units, zero=False)
    pair = {"type": "array", "prefixItems": [one, one], "minItems": 2, "maxItems": 2}
    return BeforeValidator(validate), WithJsonSchema({"anyOf": [*one["anyOf"], pair]})


def _integer(least: int, word: str | None = None) -> tuple[BeforeValidator, WithJsonSchema]:
    def validate(value: Any) -> int | str:
        if word is not None and value == word:
            return word
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"is not allowed; use an integer >= {least}" + (f" or {word!r}" if word else ""))
        return value

    whole: dict[str, Any] = {"type": "integer", "minimum": least}
    return BeforeValidator(validate), WithJsonSchema(
        whole if word is None else {"anyOf": [whole, {"type": "string", "const": word}]}
    )


def _plain_to_steps(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [{"at_s": 0.0, "rate": value}]


Positive = Annotated[float, *_number(PLAIN, zero=False)]
NotNegative = Annotated[float, *_number(PLAIN, zero=True)]
Seconds = Annotated[float, *_number(SECONDS, zero=False)]
SecondsOrZero = Annotated[float, *_number(SECONDS, zero=True)]
Bytes = Annotated[float, *_number(BYTES, zero=False)]
BytesOrZero = Annotated[float, *_number(BYTES, zero=True)]
BitsPerSecond = Annotated[float, *_number(BITS_PER_SECOND, zero=False)]
RateRange = Annotated[tuple[float, float], *_range(PLAIN)]
SecondsRange = Annotated[tuple[float, float], *_range(SECONDS)]
Count = Annotated[int, *_integer(1)]
Index = Annotated[int, *_integer(0)]
CountOrFill = Annotated[int | str, *_integer(1, "fill")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Spec(BaseModel):
    """Base of every part: unknown keys are errors, values do not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ResourcesSpec(Spec):
    """Amounts of each resource kind; what is left out is 0."""

    cpu_cores: NotNegative = Field(default=0.0, description="Processor cores, fractions allowed.")
    memory_bytes: BytesOrZero = Field(default=0.0, description="Main memory in bytes.")
    accelerator_memory_bytes: BytesOrZero = Field(default=0.0, description="Memory of GPUs or TPUs in bytes.")
    storage_bytes: BytesOrZero = Field(default=0.0, description="Disk in bytes.")


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
    source: str = Field(
        default="", description="'measured on …', or the publication the figures are scaled from."
    )


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
    servers: Count = Field(default=1, description="Batches processed at once.")
    file: str | None = Field(default=None, description="ONNX file of the network, for live workers.")


class CatalogSpec(Spec):
    """All models and variants."""

    models: tuple[ModelSpec, ...] = Field(min_length=1, description="Trained networks.")
    variants: tuple[VariantSpec, ...] = Field(min_length=1, description="Models made ready for devices.")


class NodeSpec(Spec):
    """One machine, or `count` equal ones."""

    name: Name = Field(description="Unique among all nodes; with `count` the nodes are name-0, name-1, …")
    count: Count | None = Field(
        default=None, description="Number of equal nodes; left out: one, called `name`."
    )
    resources: ResourcesSpec = Field(description="What each node has.")


class ClusterSpec(Spec):
    """Nodes in one place."""

    name: Name = Field(description="Unique among the clusters.")
    tier: Index = Field(description="0 is the access; higher tiers lie further from the clients.")
    nodes: tuple[NodeSpec, ...] = Field(min_length=1, description="Its machines.")


class SiteSpec(Spec):
    """An access site, or `count` equal ones."""

    name: Name = Field(description="Unique among the sites; with `count` the sites are name-0, name-1, …")
    count: Count | None = Field(
        default=None, description="Number of equal sites; left out: one, called `name`."
    )
    access_delay_s: SecondsOrZero = Field(
        default=0.0, description="One-way delay from the clients to the site in s."
    )
    uplink_bps: BitsPerSecond = Field(default=100e6, description="Rate of a client's uplink in bits/s.")


class LinkSpec(Spec):
    """The way from a site to a cluster; a link of one site goes before one of `*`."""

    site: Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]*)$")] = Field(
        description="Name of a site, or '*' for every site."
    )
    cluster: Name = Field(description="Name of a cluster.")
    delay_s: SecondsOrZero = Field(description="Mean one-way delay in s.")
    deviation_s: SecondsOrZero = Field(
        default=0.0, description="Standard deviation of the one-way delay in s."
    )
    bandwidth_bps: BitsPerSecond = Field(default=1e9, description="Bandwidth in bits/s.")


class WorkerSpec(Spec):
    """Workers of one variant, on a node or spread over a cluster (first fit)."""

    variant: Name = Field(description="Name of the variant.")
    node: Name | None = Field(default=None, description="Name of the node; or give `cluster`.")
    cluster: Name | None = Field(
        default=None, description="Name of the cluster whose nodes take the workers."
    )
    count: CountOrFill = Field(
        default=1, description="How many, or 'fill' for as many as the resources allow."
    )

    @model_validator(mode="after")
    def _one_place(self) -> WorkerSpec:
        if (self.node is None) == (self.cluster is None):
            raise ValueError("needs either 'node' or 'cluster'; give exactly one of them")
        return self


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
    priority: Annotated[int, *_integer(-1000)] = Field(default=0, description="Larger is more important.")
    arrivals: Literal["periodic", "poisson"] = Field(
        default="periodic", description="Queries of a stream: evenly spaced frames, or a Poisson process."
    )


class StepSpec(Spec):
    """From `at_s` on, clients come at `rate`."""

    at_s: SecondsOrZero = Field(description="Start of the step in s; the first one is 0.")
    rate: NotNegative = Field(description="Clients per minute at each site.")


class ArrivalsSpec(Spec):
    """When clients come: a Poisson process at each site."""

    clients_per_min: Annotated[
        tuple[StepSpec, ...],
        BeforeValidator(_plain_to_steps),
        WithJsonSchema(
            {
                "anyOf": [
                    *_schema(PLAIN, zero=True)["anyOf"],
                    {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["at_s", "rate"],
                            "properties": {
                                "at_s": _schema(SECONDS, zero=True) | {"description": "Start in s."},
                                "rate": _schema(PLAIN, zero=True) | {"description": "Clients/min."},
                            },
                        },
                    },
                ]
            }
        ),
    ] = Field(description="Clients per minute at each site: x, or steps [{at_s, rate}, …] in order.")

    @model_validator(mode="after")
    def _steps_in_order(self) -> ArrivalsSpec:
        starts = [step.at_s for step in self.clients_per_min]
        if not starts or starts[0] != 0.0:
            raise ValueError("clients_per_min: the first step must start at 0; add {at_s: 0, rate: …}")
        if any(a >= b for a, b in pairwise(starts)):
            raise ValueError(f"clients_per_min: at_s {starts} must increase; put the steps in order")
        return self


class TelemetrySpec(Spec):
    """How often and how late measurements reach the policy."""

    period_s: Seconds = Field(default=1.0, description="Time between measurements in s.")
    lag_s: SecondsOrZero = Field(default=0.0, description="Age of a measurement when it arrives, in s.")


class ScenarioSpec(Spec):
    """A scenario: what can be run, where, and who asks for it."""

    name: Name = Field(description="Name of the scenario.")
    description: str = Field(default="", description="What it shows, in a sentence.")
    duration_s: Seconds = Field(description="Duration of a run in s.")
    window_s: Seconds = Field(default=25.0, description="Length of a window in s (ASET's T).")
    retry_refused: bool = Field(default=False, description="Decide refused streams anew at each window.")
    telemetry: TelemetrySpec = Field(default=TelemetrySpec(), description="Measurements of the workers.")
    catalog: CatalogSpec = Field(description="Models and variants.")
    clusters: tuple[ClusterSpec, ...] = Field(min_length=1, description="Where workers run.")
    sites: tuple[SiteSpec, ...] = Field(min_length=1, description="Where streams enter.")
    links: tuple[LinkSpec, ...] = Field(min_length=1, description="From every site to every cluster.")
    workers: tuple[WorkerSpec, ...] = Field(min_length=1, description="Variants deployed on nodes.")
    applications: tuple[ApplicationSpec, ...] = Field(min_length=1, description="What clients run.")
    arrivals: ArrivalsSpec = Field(description="When clients come.")
