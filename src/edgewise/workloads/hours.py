"""Arrivals that are busier at some hours of the day than at others.

What comes evenly is moved in time by the inverse of Λ(t) = ∫ w of the weights w of the hours, whose mean
over a day is 1 (Çinlar 1975, time-change theorem). So a seed's requests are the same ones in the same order,
whatever the shape of the day. Forbidden here: draws.
"""

import math

import numpy as np

from edgewise.arrays import Floats
from edgewise.model.sources import DAY_S, HOUR_S


def evenly_s(at_s: Floats, by_hour: tuple[float, ...] | None, begins_at_s: float = 0.0) -> Floats:
    """Λ: how long what came by each time would take to come evenly, s.

    Args:
        at_s: times of the run.
        by_hour: weight of each hour of the day, in proportion; None: all alike.
        begins_at_s: time of the day at which the run begins.
    """
    if by_hour is None:
        return at_s
    knots_s, sums_s = _curve(float(np.max(at_s, initial=0.0)), by_hour, begins_at_s)
    return np.interp(at_s, knots_s, sums_s)


def at_hours(even_s: Floats, by_hour: tuple[float, ...] | None, begins_at_s: float = 0.0) -> Floats:
    """Λ⁻¹: when what would come evenly comes, s; arguments as of `evenly_s`."""
    if by_hour is None:
        return even_s
    last_s = (
        math.floor(float(np.max(even_s, initial=0.0)) / DAY_S) + 1
    ) * DAY_S  # a day brings as much as evenly
    knots_s, sums_s = _curve(last_s, by_hour, begins_at_s)
    return np.interp(even_s, sums_s, knots_s)


def weights(at_s: Floats, by_hour: tuple[float, ...]) -> Floats:
    """Weight of the hour in which each time lies, s from a midnight, relative to the mean of a day."""
    per_hour = np.array(by_hour)
    found: Floats = per_hour[(at_s // HOUR_S).astype(np.int64) % per_hour.size] / per_hour.mean()
    return found


def _curve(until_s: float, by_hour: tuple[float, ...], begins_at_s: float) -> tuple[Floats, Floats]:
    """Λ at the beginning, at each full hour up to `until_s` and after, in between which it is straight."""
    first, last = math.floor(begins_at_s / HOUR_S), math.ceil((begins_at_s + until_s) / HOUR_S) + 1
    full_s = HOUR_S * np.arange(first, last + 1.0)
    knots_s = np.concatenate([[0.0], full_s[1:] - begins_at_s])
    rise_s = np.diff(knots_s) * weights(full_s[:-1], by_hour)
    return knots_s, np.concatenate([[0.0], np.cumsum(rise_s)])
