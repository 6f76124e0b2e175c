"""What is varied and what is to be reached, as people write them: `PATH=A..B`, `streams.ok=99%`."""

import re
from dataclasses import dataclass, field
from typing import Any

from edgewise.config import parse_setting
from edgewise.errors import EdgewiseError
from edgewise.model.durations import SECONDS
from edgewise.model.ranges import FORMS, range_of
from edgewise.model.values import BITS_PER_SECOND, BYTES, quantity
from edgewise.report.intervals import Interval
from edgewise.report.schema import WORK, Measure

UNITS = {**SECONDS, **BYTES, **BITS_PER_SECOND}
FINE = 1025  # values of a range that is bisected
LOAD = re.compile(
    r"streams\.(sources|applications)\b.*\.(count|rate_qps)|streams\.arrivals\.clients_per_min"
    r"|services\.requests\.rate_qps|jobs\.drawn\.per_slot|(graphs|pipelines)\b.*\.(count|rate_qps)"
)
_TARGET = re.compile(r"(?:(\w+)\.)?(\w+)\s*(>=|<=|=)\s*(.+)")


@dataclass(frozen=True, slots=True)
class Vary:
    """A key of a scenario and the values that it takes.

    Attributes:
        path: dotted, as for `--set`.
        values: as YAML gives them, so a number may be text with a unit.
        with_its_end: the range with its upper end, where it was written without; "": of all else.
    """

    path: str
    values: tuple[Any, ...]
    with_its_end: str = field(default="", compare=False)

    @property
    def numbers(self) -> list[float] | None:
        """The values in SI; None where one is no number."""
        try:
            return [quantity(value, UNITS) for value in self.values]
        except ValueError:
            return None

    @property
    def is_load(self) -> bool:
        """Whether more of it is more to be done, not more to do it with."""
        return LOAD.fullmatch(self.path) is not None

    @property
    def name(self) -> str:
        """The path's last part that is no number, for sentences and axes."""
        return next(part for part in reversed(self.path.split(".")) if not part.isdigit())


def parse_vary(text: str, most: int = 10) -> Vary:
    """What `PATH=RANGE` or `PATH=a,b,c` varies; ranges are written as `model.ranges` says.

    Args:
        most: values of a range where neither a step nor a number is given; whole numbers that are not more
            are all taken.
    Raises:
        EdgewiseError: it is none of these.
    """
    path, found, values = text.partition("=")
    if not found or not path.strip() or not values.strip():
        raise EdgewiseError(f"--vary {text}: write PATH=RANGE or PATH=a,b,c; a range is {FORMS}")
    try:
        between = range_of(values, UNITS)
    except EdgewiseError as error:
        raise EdgewiseError(f"--vary {text}: {error}") from None
    if between is None:
        _, listed = parse_setting(f"{path}=[{values}]")
        if len({str(value) for value in listed}) < len(listed):
            raise EdgewiseError(f"--vary {text}: a value is there twice; remove one")
        return Vary(path.strip(), tuple(listed))
    unit, numbers = between.unit, between.values(most)
    left_out = between._replace(closed=True).values(most)[-1] != numbers[-1]
    written = tuple(f"{value:g}{unit}" if unit else value for value in numbers)
    return Vary(path.strip(), written, between.with_its_end if left_out else "")


@dataclass(frozen=True, slots=True)
class Target:
    """What a measure is to reach.

    Attributes:
        work: whose measure it is, of `report.schema.WORK`.
        measure: which.
        at_least: the measure is to be at least `value`, or else at most.
        value: in SI; of shares 0 … 1.
    """

    work: str
    measure: Measure
    at_least: bool
    value: float

    def met(self, found: Interval) -> bool:
        """Surely: by the end of the interval that is worse; one seed has none and meets nothing."""
        if found.low is None or found.high is None:
            return False
        return found.low >= self.value if self.at_least else found.high <= self.value

    def missed(self, found: Interval) -> bool:
        """Surely: by the end of the interval that is better."""
        if found.low is None or found.high is None:
            return False
        return found.high < self.value if self.at_least else found.low > self.value

    def __str__(self) -> str:
        what, unit = named(self.measure)
        return f"{what} {'≥' if self.at_least else '≤'} {self.measure.shown(self.value)}{unit}"


def parse_target(text: str, work: str = "") -> Target:
    """What `[WORK.]MEASURE=VALUE` asks for; `>=` and `<=` say which way, `=` takes the measure's better side.

    Measures are those of a run's summary. The first one also goes by the count that it is the share of, so
    that `streams.ok` is `streams.success`.

    Args:
        work: whose measure it is where the text does not say.
    Raises:
        EdgewiseError: the form, the work, the measure or the value is unknown; names what is known.
    """
    match = _TARGET.fullmatch(text.strip())
    if match is None:
        raise EdgewiseError(f"--target {text}: write WORK.MEASURE=VALUE, for example streams.ok=99%")
    kind, key, sign, value = match.group(1) or work, *match.group(2, 3, 4)
    if kind not in WORK:
        raise EdgewiseError(f"--target {text}: unknown work {kind!r}; use one of {', '.join(WORK)}")
    first = WORK[kind].measures[0]
    known = {measure.key: measure for measure in WORK[kind].measures}
    also = {(WORK[kind].over_time or ("",))[0]: first, first.column: first}
    if key not in known | also:
        raise EdgewiseError(f"--target {text}: {kind} have no {key!r}; use one of {', '.join(known)}")
    measure = (known | also)[key]
    try:
        share = value.strip().endswith("%")
        number = quantity(value.strip().removesuffix("%"), UNITS) / (100.0 if share else 1.0)
    except ValueError as error:
        raise EdgewiseError(f"--target {text}: {value} {error}") from None
    if measure.share and not 0.0 <= number <= 1.0:
        raise EdgewiseError(f"--target {text}: a share lies in 0 … 1; write 0.99 or 99%")
    return Target(kind, measure, sign == ">=" or (sign == "=" and not measure.lower_is_better), number)


def named(measure: Measure) -> tuple[str, str]:
    """A measure's heading without its unit, and the unit."""
    what, found, unit = measure.heading.rpartition(" ")
    return (what, f" {unit}") if found and unit in ("%", "ms", "s", "MB") else (measure.heading, "")
