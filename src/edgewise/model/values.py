"""Values of a scenario file: numbers with units, ranges, counts and names, as pydantic types.

Forbidden here: what a key means (`edgewise.model.grammar`), and I/O.
"""

import math
import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    WithJsonSchema,
    model_validator,
)

from edgewise.model.durations import SECONDS, seconds_of

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
# No run needs more; what is larger is a slip of the pen, and sums and counts made of it mean nothing. By
# what the names of fields end with; "" is all else.
BOUNDS = {
    "_s": 1e9,  # some 32 years
    "_bytes": 1e18,
    "_bytes_per_core": 1e18,
    "_bytes_per_share": 1e18,
    "_bps": 1e18,
    "_qps": 1e9,
    "_per_min": 1e9,
    "cores": 1e9,
    "_ops": 1e24,
    "cost": 1e15,
    "slack": 1e6,
    "": 1e12,
}

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
    elif isinstance(value, str) and units is SECONDS and (lasting := seconds_of(value)) is not None:
        value = lasting  # of several parts, as 1h30m
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"is not a number; write a number{hint}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("is not finite; write a finite number")
    return number


def most_of(name: str) -> float:
    """The most that a field of this name may say, by what it ends with."""
    return next(most for ending, most in BOUNDS.items() if name.endswith(ending))


def bound(number: float, zero: bool, most: float) -> float:
    """`number` itself; ValueError when it is negative, 0 without `zero`, or more than `most`."""
    if number < 0 or (number == 0 and not zero):
        raise ValueError(f"is too small; use a number {'>=' if zero else '>'} 0")
    if number > most:
        raise ValueError(f"is too large; use at most {most:g}")
    return number


def amount_schema(units: dict[str, float], zero: bool, most: float) -> dict[str, Any]:
    """JSON Schema of a number >= 0 (> 0 without `zero`) and at most `most`, or a string with a unit."""
    # YAML 1.1 reads "1e9" as a string, so plain numbers are allowed there too.
    one = r"[0-9.]+([eE][-+]?[0-9]+)?\s*(" + "|".join(units) + ")"
    pattern = rf"^\s*[-+]?{one}?\s*" + (rf"({one}\s*)*$" if units is SECONDS else "$")
    return {
        "anyOf": [
            {"type": "number", "minimum" if zero else "exclusiveMinimum": 0, "maximum": most},
            {"type": "string", "pattern": pattern},
        ]
    }


def amount(units: dict[str, float], zero: bool, most: float) -> tuple[BeforeValidator, WithJsonSchema]:
    """A type: one number with a unit, in SI, of at most `most`."""

    def validate(value: Any) -> float:
        return bound(quantity(value, units), zero, most)

    return BeforeValidator(validate), WithJsonSchema(amount_schema(units, zero, most))


def span(units: dict[str, float], most: float) -> tuple[BeforeValidator, WithJsonSchema]:
    """A type: x or [lowest, highest], both > 0 and at most `most`, as a pair."""

    def validate(value: Any) -> tuple[float, float]:
        ends = list(value) if isinstance(value, list | tuple) else [value, value]
        if len(ends) != 2:
            raise ValueError("is not a range; write one number x, or [lowest, highest]")
        low, high = (bound(quantity(end, units), False, most) for end in ends)
        if low > high:
            raise ValueError(f"is upside down; write [{high:g}, {low:g}]")
        return low, high

    one = amount_schema(units, False, most)
    pair = {"type": "array", "prefixItems": [one, one], "minItems": 2, "maxItems": 2}
    return BeforeValidator(validate), WithJsonSchema({"anyOf": [*one["anyOf"], pair]})


def integer(
    least: int, word: str | None = None, most: int | None = None
) -> tuple[BeforeValidator, WithJsonSchema]:
    """A type: an integer of at least `least` and at most `most`, or the one `word`."""

    def validate(value: Any) -> int | str:
        if word is not None and value == word:
            return word
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"is not allowed; use an integer >= {least}" + (f" or {word!r}" if word else ""))
        if most is not None and value > most:
            raise ValueError(f"is too large; use at most {most}")
        return value

    whole: dict[str, Any] = {"type": "integer", "minimum": least} | (
        {} if most is None else {"maximum": most}
    )
    return BeforeValidator(validate), WithJsonSchema(
        whole if word is None else {"anyOf": [whole, {"type": "string", "const": word}]}
    )


Positive = Annotated[float, *amount(PLAIN, False, BOUNDS[""])]
NotNegative = Annotated[float, *amount(PLAIN, True, BOUNDS[""])]
Seconds = Annotated[float, *amount(SECONDS, False, BOUNDS["_s"])]
SecondsOrZero = Annotated[float, *amount(SECONDS, True, BOUNDS["_s"])]
Bytes = Annotated[float, *amount(BYTES, False, BOUNDS["_bytes"])]
BytesOrZero = Annotated[float, *amount(BYTES, True, BOUNDS["_bytes"])]
BitsPerSecond = Annotated[float, *amount(BITS_PER_SECOND, False, BOUNDS["_bps"])]
QueriesPerSecond = Annotated[float, *amount(PLAIN, False, BOUNDS["_qps"])]
PerMinuteOrZero = Annotated[float, *amount(PLAIN, True, BOUNDS["_per_min"])]
Cores = Annotated[float, *amount(PLAIN, False, BOUNDS["cores"])]
CoresOrZero = Annotated[float, *amount(PLAIN, True, BOUNDS["cores"])]
OperationsOrZero = Annotated[float, *amount(PLAIN, True, BOUNDS["_ops"])]
Cost = Annotated[float, *amount(PLAIN, True, BOUNDS["cost"])]
Slack = Annotated[float, *amount(PLAIN, False, BOUNDS["slack"])]
RateRange = Annotated[tuple[float, float], *span(PLAIN, BOUNDS["_qps"])]
SecondsRange = Annotated[tuple[float, float], *span(SECONDS, BOUNDS["_s"])]
SlackRange = Annotated[tuple[float, float], *span(PLAIN, BOUNDS["slack"])]
BytesRange = Annotated[tuple[float, float], *span(BYTES, BOUNDS["_bytes"])]
CoresRange = Annotated[tuple[float, float], *span(PLAIN, BOUNDS["cores"])]
Share = Annotated[NotNegative, Field(le=1.0)]
MOST = 1_000_000  # of anything that is counted: more is a slip of the pen, and fills the memory
Count = Annotated[int, *integer(1, most=MOST)]
CountOrZero = Annotated[int, *integer(0, most=MOST)]
Index = Annotated[int, *integer(0)]
CountOrFill = Annotated[int | str, *integer(1, "fill", MOST)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Spec(BaseModel):
    """Base of every part: unknown keys are errors, values do not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
    ONE_OF: ClassVar[tuple[str, ...]] = ()  # keys of which exactly one is given

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        given = [key for key in self.ONE_OF if getattr(self, key) not in (None, ())]
        if self.ONE_OF and len(given) != 1:
            *others, last = map(repr, self.ONE_OF)
            raise ValueError(f"needs either {', '.join(others)} or {last}; give exactly one of them")
        return self


def having(key: str) -> Discriminator:
    """Tells the two forms of a part apart: its tag is "(with)" where it has this key, else "(without)"."""

    def tag(value: Any) -> str:
        found = key in value if isinstance(value, dict) else hasattr(value, key)
        return "(with)" if found else "(without)"

    return Discriminator(tag)


class ResourcesSpec(Spec):
    """Amounts of each resource kind; what is left out is 0."""

    cpu_cores: CoresOrZero = Field(default=0.0, description="Processor cores, fractions allowed.")
    memory_bytes: BytesOrZero = Field(default=0.0, description="Main memory in bytes.")
    accelerator_memory_bytes: BytesOrZero = Field(default=0.0, description="Memory of GPUs or TPUs in bytes.")
    storage_bytes: BytesOrZero = Field(default=0.0, description="Disk in bytes.")
