"""Ranges of numbers as people write them; each form means the same wherever one is taken.

    A..B   both ends belong to it, as in a shell's {A..B}; A..B..STEP, or A..B/N for N values
    A:B    B does not, as in Python; A:B:STEP, A:B/N

So `--seeds 0:10` and `--seeds 0..9` are the same ten seeds, and `5..60..5` ends with 60, `5:60:5` with 55.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from edgewise.errors import EdgewiseError

FORMS = "A..B (both ends), A:B (without B), with a step A..B..STEP or A:B:STEP, or A..B/N for N values"
_NUMBER = r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)([A-Za-z]*)"
_RANGE = re.compile(rf"{_NUMBER}(\.\.|:){_NUMBER}(?:\3{_NUMBER}|/(\d+))?")
_MEANT = re.compile(r"[-+]?\d[\d.]*([A-Za-z]*(\.\.|:).*|-\d[\d.]*)")


class Range(NamedTuple):
    """Numbers between two ends.

    Attributes:
        low, high: the ends, low <= high.
        closed: the upper end belongs to it, where a step does not miss it.
        step: between two values; 0: not said.
        many: so many values; 0: not said.
        whole: they are whole numbers.
        unit: of all; "": none.
    """

    low: float
    high: float
    closed: bool
    step: float
    many: int
    whole: bool
    unit: str

    def values(self, most: int) -> list[float]:
        """All of them.

        Args:
            most: so many where neither a step nor a count is said; whole numbers that are not more are all
                taken.
        """
        step = self.step
        if not step and not self.many and self.whole and self.high - self.low < most + (not self.closed):
            step = 1.0
        if step:
            steps = (self.high - self.low) / step
            last = int(steps * (1 + 1e-12)) if self.closed else int(np.ceil(steps * (1 - 1e-12))) - 1
            found = self.low + step * np.arange(last + 1)
        else:
            found = np.linspace(self.low, self.high, self.many or most, endpoint=self.closed)
        rounded = [round(value) if self.whole else float(f"{value:.6g}") for value in found.tolist()]
        return list(dict.fromkeys(rounded))

    @property
    def with_its_end(self) -> str:
        """The same with its upper end; "" where that belongs to it."""
        if self.closed:
            return ""
        low, high, step = (f"{number:g}" for number in (*self[:2], self.step))
        more = f"..{step}{self.unit}" if self.step else f"/{self.many}" if self.many else ""
        return f"{low}{self.unit}..{high}{self.unit}{more}"


def range_of(text: str, units: Collection[str] = ()) -> Range | None:
    """The range that is written; None where none is meant, as in a list or a name.

    Args:
        units: that its numbers may have: one for all of them.
    Raises:
        EdgewiseError: what is meant for a range is none; says which forms there are.
    """
    if (match := _RANGE.fullmatch(text.strip())) is None:
        if _MEANT.fullmatch(text.strip()) and "," not in text:
            raise EdgewiseError(f"is no range; write {FORMS}")
        return None
    low, low_unit, form, high, high_unit, step, step_unit, count = match.groups()
    found = sorted({unit for unit in (low_unit, high_unit, step_unit) if unit})
    if len(found) > 1 or not set(found) <= set(units):
        allowed = "use one, known, in all" if units else "write numbers alone"
        raise EdgewiseError(f"has the unit{'s' * (len(found) > 1)} {', '.join(found)}; {allowed}")
    closed = form == ".."
    if float(low) > float(high) or float(step or 1) <= 0 or count == "0":
        raise EdgewiseError("is no range; write the lower end first, a step above 0")
    if not closed and float(low) == float(high):
        raise EdgewiseError(f"is empty, since its end does not belong to it; write {low}..{high}")
    whole = all(re.fullmatch(r"[-+]?\d+", part) for part in (low, high, step or "1"))
    return Range(float(low), float(high), closed, float(step or 0), int(count or 0), whole, "".join(found))


def seeds_of(text: str) -> range:
    """Seeds of "A:B" (B not included), "A..B" (B included) or "A".

    Raises:
        EdgewiseError: anything else, or a range of none.
    """
    form = "--seeds {!r}: {}; write A:B without B or A..B with it, for example 0:10 or 0..9"
    if re.fullmatch(r"\d+", text.strip()):
        return range(int(text), int(text) + 1)
    try:
        found = range_of(text)
    except EdgewiseError as error:
        raise EdgewiseError(form.format(text, str(error).partition(";")[0])) from None
    if found is None or not found.whole or found.step or found.many:
        raise EdgewiseError(form.format(text, "is no range of seeds"))
    if found.low < 0:
        raise EdgewiseError(form.format(text, "a seed is below 0"))
    return range(int(found.low), int(found.high) + found.closed)
