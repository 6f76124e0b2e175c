"""Sources in YAML: streams that stay, such as cameras. Forbidden here: I/O."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from edgewise.model.grammar.places import SiteOrAll
from edgewise.model.values import (
    Bytes,
    BytesOrZero,
    CountOrZero,
    Name,
    NotNegative,
    QueriesPerSecond,
    Seconds,
    Spec,
    integer,
    quantity,
)

DAY_H, HOURS = 24.0, 24
Span = tuple[float, float]


def _sites(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _hours(value: Any) -> tuple[Span, ...]:
    """[8, 18], or [[8, 12], [14, 18]], as spans."""
    spans = list(value) if isinstance(value, list | tuple) else [value]
    if len(spans) == 2 and not any(isinstance(each, list | tuple) for each in spans):
        spans = [spans]
    return tuple(_span(each) for each in spans)


def _span(value: Any) -> Span:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("are no hours; write [8, 18], or [[8, 12], [14, 18]]")
    begin, end = (quantity(each, {}) for each in value)
    if not (0.0 <= begin < DAY_H and 0.0 <= end <= DAY_H) or begin == end:
        raise ValueError(f"are no hours of a day: [{begin:g}, {end:g}]; use two that differ, from 0 to 24")
    return begin, end


def _some(value: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if value is not None and len(value) != HOURS:
        raise ValueError(f"has {len(value)} numbers; give one for each of the {HOURS} hours of the day")
    if value is not None and not sum(value) > 0.0:
        raise ValueError("nothing comes at any hour; give one of them a number above 0")
    return value


_HOUR = {"type": "number", "minimum": 0, "maximum": DAY_H}
_SPAN = {"type": "array", "prefixItems": [_HOUR, _HOUR], "minItems": 2, "maxItems": 2}
Hours = Annotated[
    tuple[Span, ...],
    BeforeValidator(_hours),
    WithJsonSchema({"anyOf": [_SPAN, {"type": "array", "items": _SPAN}]}),
]
ByHour = Annotated[
    tuple[NotNegative, ...] | None,
    Field(
        json_schema_extra={"minItems": HOURS, "maxItems": HOURS},
        description="How much comes in each hour of the day from midnight on, 24 numbers in proportion; the "
        "mean of a day stays. Left out: evenly. A run begins at `streams.begins_at_s`.",
    ),
    AfterValidator(_some),
]
Sites = Annotated[
    tuple[SiteOrAll, ...],
    Field(min_length=1),
    BeforeValidator(_sites),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
    ),
]


class SourceSpec(Spec):
    """Streams that stay: `count` equal ones at each of their sites, each with a phase of its own."""

    name: Name = Field(description="Unique among the sources and applications.")
    count: CountOrZero = Field(default=1, description="How many at each of its sites.")
    site: Sites = Field(default=("*",), description="Names of sites, or of kinds of them; '*' for every one.")
    task: Name = Field(description="Task it needs; a model must have it.")
    rate_qps: QueriesPerSecond = Field(description="Queries/s of each, evenly spaced from a random phase on.")
    size_bytes: Bytes = Field(description="Payload of a query in bytes.")
    answer_bytes: BytesOrZero = Field(
        default=0.0, description="Simulated: size of an answer in bytes; 0 takes no time to send."
    )
    deadline_s: Seconds = Field(description="Tolerated end-to-end delay in s.")
    min_accuracy: NotNegative = Field(
        default=0.0, description="Least accuracy of the model, in the task's metric."
    )
    priority: Annotated[int, *integer(-1000)] = Field(
        default=0, description="Larger is more important: it asks for a worker before others do."
    )
    hours: Hours = Field(
        default=(),
        description="Hours of the day in which it sends: [8, 18], over midnight [22, 6], or several such "
        "spans; left out: always.",
    )
