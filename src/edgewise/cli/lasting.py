"""Options that are durations; all are read by `edgewise.model.durations`."""

import math
from functools import partial
from typing import Any

import typer

from edgewise.errors import EdgewiseError
from edgewise.model.durations import FORMS, seconds_of


def read_duration(text: str, name: str) -> float:
    """Seconds of a duration.

    Raises:
        EdgewiseError: it is none.
    """
    found = seconds_of(text)
    if found is None or found < 0:
        raise EdgewiseError(f"{name}: {text!r} is no duration; write it as {FORMS}")
    return found


def lasting(about: str, *names: str, least_s: float = 0.0, most_s: float = math.inf) -> Any:
    """An option whose value is a duration, in seconds.

    Args:
        about: it, for the help.
        names: of the option, where its parameter is called otherwise.
        least_s, most_s: what it may be.
    """
    return typer.Option(
        *names,
        help=f"{about}, as 90s, 1.5min or 2h.",
        metavar="DURATION",
        parser=partial(_within, least_s, most_s),
    )


def _within(least_s: float, most_s: float, text: str | float) -> float:
    found = float(text) if isinstance(text, int | float) else seconds_of(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration; write it as {FORMS}")
    if not least_s <= found <= most_s:
        most = "" if math.isinf(most_s) else f" and at most {most_s:g} s"
        raise typer.BadParameter(f"{text!r} is {found:g} s; use at least {least_s:g} s{most}")
    return found
