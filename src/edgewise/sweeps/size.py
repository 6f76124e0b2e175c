"""The cheapest hardware that surely meets targets.

More hardware is taken to help: with one key by bisection between its ends, with two along the border between
what meets the targets and what does not, which takes at most as many points as both have values. The order
is by what the hardware costs (`price`). The value found and the next cheaper one are both run, so what is
assumed is checked where it matters.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from scipy import special

from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.report.statistics import Interval
from edgewise.sweeps.knee import met, said
from edgewise.sweeps.points import Point, Points
from edgewise.sweeps.vary import Target, price


class Enough(NamedTuple):
    """A point that surely meets every target, though none cheaper beside it does.

    Attributes:
        point: values of the keys.
        cost: of its hardware.
        unit: of the cost.
        intervals: of each target's measure.
        sure: probability that every mean is on the right side, by each one's t-distribution (the least).
    """

    point: Point
    cost: float
    unit: str
    intervals: tuple[Interval | None, ...]
    sure: float


def choices(points: Points, targets: Sequence[Target]) -> list[Enough]:
    """The choices among which none costs more in every key, the cheapest first; empty where none meets.

    Raises:
        EdgewiseError: more than two keys, several policies, or one seed.
    """
    if len(points.vary) > 2:
        raise EdgewiseError("--vary: size takes one or two keys; fix the others by --set")
    if len(points.labels) > 1:
        raise EdgewiseError("--policies: size takes one policy of each decision; run it for each")
    if len(points.seeds) < 2:
        raise EdgewiseError("--seeds: one seed has no interval; give two or more, for example 0:10")
    axes = [_by_cost(points, k) for k in range(len(points.vary))]
    found = _bisected(points, targets, axes[0]) if len(axes) == 1 else _border(points, targets, *axes)
    chosen = [_choice(points, targets, point) for point in found]
    return sorted(chosen, key=lambda choice: choice.cost)


def _by_cost(points: Points, axis: int) -> list[Any]:
    """Values of a key in order of what the hardware costs; ascending where that does not differ."""
    values, numbers = list(points.vary[axis].values), points.vary[axis].numbers
    start = [vary.values[-1] for vary in points.vary]

    def cost(value: Any) -> float:
        try:
            return price(points.scenario((*start[:axis], value, *start[axis + 1 :])))[0]
        except ScenarioError:
            return 0.0  # too little for what it is to hold

    if numbers is None:
        return sorted(values, key=cost)
    values = [value for _, value in sorted(zip(numbers, values, strict=True), key=lambda each: each[0])]
    return values if cost(values[0]) <= cost(values[-1]) else values[::-1]


def _meets(points: Points, targets: Sequence[Target], point: Point) -> bool:
    points.run([point])
    return met(points, targets, point, points.labels[0])


def _bisected(points: Points, targets: Sequence[Target], values: Sequence[Any]) -> list[Point]:
    low, high = -1, len(values) - 1  # low does not meet, high does
    if not _meets(points, targets, (values[high],)):
        return []
    while high - low > 1:
        middle = (low + high) // 2
        if _meets(points, targets, (values[middle],)):
            high = middle
        else:
            low = middle
    return [(values[high],)]


def _border(
    points: Points, targets: Sequence[Target], first: Sequence[Any], second: Sequence[Any]
) -> list[Point]:
    """By values of the first key the least of the second that meets, where more of the first saves some."""
    found, most = [], len(second)
    for value in first:
        least = most
        while least and _meets(points, targets, (value, second[least - 1])):
            least -= 1
        if least < most:
            found.append((value, second[least]))
            most = least
    return found


def _choice(points: Points, targets: Sequence[Target], point: Point) -> Enough:
    label = points.labels[0]
    intervals = tuple(points.interval(point, label, points.column(target)) for target in targets)
    sure = min(_sure(target, at) for target, at in zip(targets, intervals, strict=True) if at)
    return Enough(point, *price(points.scenario(point)), intervals, sure)


def _sure(target: Target, found: Interval) -> float:
    """Probability of Student's t that the mean lies on the target's side."""
    assert found.low is not None, "met by an interval"
    margin = (found.mean - target.value) * (1.0 if target.at_least else -1.0)
    error = (found.mean - found.low) / float(special.stdtrit(found.n - 1, 0.975))
    return 1.0 if error == 0.0 else float(special.stdtr(found.n - 1, margin / error))


def in_words(points: Points, targets: Sequence[Target], found: Sequence[Enough]) -> list[str]:
    """The cheapest choice, how sure it is, and what is next to it; or that there is none."""
    wanted = " and ".join(map(str, targets))
    if not found:
        dearest = tuple(_by_cost(points, axis)[-1] for axis in range(len(points.vary)))
        best = [points.interval(dearest, points.labels[0], points.column(target)) for target in targets]
        at = ", ".join(said(target, each) for target, each in zip(targets, best, strict=True))
        return [f"no value meets {wanted}: with {named(points, dearest)}, the most, it is {at}"]
    cheapest = found[0]
    at = ", ".join(said(target, each) for target, each in zip(targets, cheapest.intervals, strict=True))
    sure = f"sure to {min(cheapest.sure, 0.999):.1%}, {len(points.seeds)} seeds"
    text = (
        f"the cheapest that meets {wanted}: {named(points, cheapest.point)}, "
        f"{cheapest.cost:g} {cheapest.unit} ({at}; {sure})"
    )
    return [text, *_beside(points, targets, cheapest.point)]


def _beside(points: Points, targets: Sequence[Target], point: Point) -> list[str]:
    """Of the next cheaper value of each key what it misses; it is run, if it was not."""
    lines = []
    for axis in range(len(point)):
        values = _by_cost(points, axis)
        if (k := values.index(point[axis])) == 0:
            continue
        less = (*point[:axis], values[k - 1], *point[axis + 1 :])
        what = (
            "does meet them, too: here more does not always help"
            if _meets(points, targets, less)
            else ("cannot be run" if less in points.impossible else "does not surely")
        )
        each = [points.interval(less, points.labels[0], points.column(target)) for target in targets]
        at = ", ".join(said(target, one) for target, one in zip(targets, each, strict=True))
        lines.append(f"{named(points, less)} {what} ({at})")
    return lines or ["it is the cheapest that was allowed: cheaper ones may meet it, too"]


def named(points: Points, point: Point) -> str:
    """Keys and values of a point."""
    return ", ".join(f"{vary.path} = {value}" for vary, value in zip(points.vary, point, strict=True))
