"""How long something takes, as people write it: `90`, `90s`, `1.5min`, `2h`, `1h30m`. Read alike everywhere.

In scenario files and on the command line; a number alone is in seconds.
"""

import math
import re
from itertools import pairwise

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
FORMS = "90, 90s, 1.5min, 2h or 1h30m"
_PART = r"(\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)"
_WHOLE = re.compile(rf"\s*([-+]?)\s*((?:{_PART}\s*)+)")


def seconds_of(text: str) -> float | None:
    """Seconds of a duration in words; None where it is none.

    Parts follow each other from the greatest unit to the least, each once; without a unit there is one part.
    """
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    parts = re.findall(_PART, match[2])
    units = [SECONDS.get(unit or "s", math.nan) for _, unit in parts]
    falling = all(one > other for one, other in pairwise(units))
    named = all(unit for _, unit in parts)
    if any(math.isnan(unit) for unit in units) or (len(parts) > 1 and not (falling and named)):
        return None
    total = math.fsum(float(number) * unit for (number, _), unit in zip(parts, units, strict=True))
    return -total if match[1] == "-" else total
