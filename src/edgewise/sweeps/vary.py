"""What is varied, and what is to be reached: `PATH=A:B` and `streams.ok=99%` as people write them.

Forbidden here: running anything.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.config import parse_setting
from edgewise.errors import EdgewiseError
from edgewise.model.scenario import Scenario
from edgewise.model.values import BITS_PER_SECOND, BYTES, SECONDS, quantity
from edgewise.report.schema import WORK, Measure
from edgewise.report.statistics import Interval

UNITS = {**SECONDS, **BYTES, **BITS_PER_SECOND}
FINE = 1025  # values of a range that is bisected
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)([A-Za-z]*)"
_RANGE = re.compile(rf"{_NUMBER}:{_NUMBER}(?::{_NUMBER}|/(\d+))?")
_TARGET = re.compile(r"(?:(\w+)\.)?(\w+)\s*(>=|<=|=)\s*(.+)")


@dataclass(frozen=True, slots=True)
class Vary:
    """A key of a scenario and the values that it takes.

    Attributes:
        path: dotted, as for `--set`.
        values: as YAML gives them, so a number may be text with a unit.
    """

    path: str
    values: tuple[Any, ...]

    @property
    def numbers(self) -> list[float] | None:
        """The values in SI; None where one is no number."""
        try:
            return [quantity(value, UNITS) for value in self.values]
        except ValueError:
            return None

    @property
    def name(self) -> str:
        """The path's last part that is no number, for sentences and axes."""
        return next(part for part in reversed(self.path.split(".")) if not part.isdigit())


def parse_vary(text: str, most: int = 10) -> Vary:
    """What `PATH=A:Z`, `PATH=A:Z:STEP`, `PATH=A:Z/N` or `PATH=a,b,c` varies; both ends belong to a range.

    Args:
        most: values of a range A:Z where neither a step nor a number is given; whole numbers that are not
            more are all taken.
    Raises:
        EdgewiseError: it is none of these.
    """
    path, found, values = text.partition("=")
    if not found or not path.strip() or not values.strip():
        raise EdgewiseError(f"--vary {text}: write PATH=A:Z, PATH=A:Z:STEP, PATH=A:Z/N or PATH=a,b,c")
    if (match := _RANGE.fullmatch(values.strip())) is None:
        _, listed = parse_setting(f"{path}=[{values}]")
        if len({str(value) for value in listed}) < len(listed):
            raise EdgewiseError(f"--vary {text}: a value is there twice; remove one")
        return Vary(path.strip(), tuple(listed))
    low, low_unit, high, high_unit, step, step_unit, count = match.groups()
    units = {unit for unit in (low_unit, high_unit, step_unit) if unit}
    if len(units) > 1 or not units <= set(UNITS):
        raise EdgewiseError(
            f"--vary {text}: has the units {', '.join(sorted(units))}; use one, known, in all"
        )
    if float(low) > float(high) or float(step or 1) <= 0 or count == "0":
        raise EdgewiseError(f"--vary {text}: is no range; write the lower end first, a step above 0")
    whole = all(re.fullmatch(r"[-+]?\d+", part) for part in (low, high, step or "1"))
    found_values = _spread(float(low), float(high), float(step or 0), int(count or 0), whole, most)
    unit = "".join(units)
    return Vary(path.strip(), tuple(f"{value:g}{unit}" if unit else value for value in found_values))


def _spread(low: float, high: float, step: float, count: int, whole: bool, most: int) -> list[float]:
    """Values of a range, both ends among them unless a step misses the upper one."""
    if not step and not count and whole and high - low < most:
        step = 1.0
    if step:
        values = low + step * np.arange(int((high - low) / step * (1 + 1e-12)) + 1)
    else:
        values = np.linspace(low, high, count or most)
    rounded = [round(value) if whole else float(f"{value:.6g}") for value in values.tolist()]
    return list(dict.fromkeys(rounded))


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


def price(scenario: Scenario) -> tuple[float, str]:
    """What the hardware of a scenario costs, and in what: its nodes' `cost`, else their cores."""
    every = ((cluster, node) for cluster in scenario.spec.clusters or () for node in cluster.nodes)
    counted = [(node.cost, (cluster.count or 1) * (node.count or 1)) for cluster, node in every]
    if costs := [count * float(cost) for cost, count in counted if cost is not None]:
        return sum(costs), "cost"
    return sum(node.resources.cpu_cores for node in scenario.topology.nodes), "cores"
