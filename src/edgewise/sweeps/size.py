"""The cheapest hardware that surely meets targets, and where a curve bends.

More hardware is taken to help: with one key by bisection between its ends, with two along the border between
what meets the targets and what does not, which takes at most as many points as both have values. The order
is by what the hardware costs (`price`). The value found and the next cheaper one are both run, so what is
assumed is checked where it matters.

Where a curve bends: how far a target is met, or where the slope breaks.

With targets the knee is the outermost value up to which every one is *surely* met, by the worse end of the
95 % interval over seeds at each value; beside it stands the first value from which one is *surely* missed, by
the better end. What lies between is open: more seeds narrow it. Targets are met up to a load, and from a size
on.

Without a target it is where the slope breaks: the hinge x_k of the least-squares fit

    y = a + b x + c max(0, x - x_k),    x_k among the inner values

of each seed's own curve; its mean over seeds has an interval.
"""

from collections.abc import Sequence
from itertools import product, takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.report.intervals import Interval, chance_above, mean_interval
from edgewise.report.schema import Measure
from edgewise.sweeps.limited import deciding
from edgewise.sweeps.points import Point, Points, price
from edgewise.sweeps.vary import Target, named


class Knee(NamedTuple):
    """Of one curve: a policy, and a value of every varied key but the first.

    Attributes:
        policy, others: which curve.
        kind: "up to" or "from" a value; "all" or "none" of them; "break" of the slope.
        value: of the first key; None for "none".
        missed: the nearest value beyond it at which a target is surely missed; None where none is.
        interval: of the first target's measure at `value`; of a break, of the value itself.
        text: all of it in a sentence.
    """

    policy: str
    others: Point
    kind: str
    value: Any
    missed: Any
    interval: Interval | None
    text: str


def knees(points: Points, targets: Sequence[Target]) -> list[Knee]:
    """The knee of every curve over the first key, by policy and values of the other keys.

    Raises:
        EdgewiseError: without a target, fewer than four numbers.
    """
    others = list(dict.fromkeys(point[1:] for point, _, _ in points.rows))
    curves = [(label, rest) for rest in others for label in points.labels]
    return [_knee(points, targets, label, rest) if targets else _break(points, label, rest)
            for label, rest in curves]  # fmt: skip


def met(points: Points, targets: Sequence[Target], point: Point, label: str) -> bool:
    """Whether every target is surely met at a point."""
    found = [points.interval(point, label, points.column(target)) for target in targets]
    return all(at is not None and target.met(at) for at, target in zip(found, targets, strict=True))


def _missed(points: Points, targets: Sequence[Target], point: Point, label: str) -> bool:
    found = [points.interval(point, label, points.column(target)) for target in targets]
    return any(at is None or target.missed(at) for at, target in zip(found, targets, strict=True))


def _ordered(points: Points) -> list[Any]:
    """Values of the first key, ascending where they are numbers."""
    first = points.vary[0]
    if (numbers := first.numbers) is None:
        return list(first.values)
    return [first.values[k] for k in np.argsort(numbers, kind="stable")]


def _knee(points: Points, targets: Sequence[Target], label: str, rest: Point) -> Knee:
    values = _ordered(points)
    good = [met(points, targets, (value, *rest), label) for value in values]
    bad = [_missed(points, targets, (value, *rest), label) for value in values]
    numeric = points.vary[0].numbers is not None
    kind, value, missed = "none", None, None
    if all(good):
        kind, value = "all", values[-1]
    elif numeric and good[0]:
        count = len(list(takewhile(bool, good)))
        kind, value = "up to", values[count - 1]
        missed = next((values[k] for k in range(count, len(values)) if bad[k]), None)
    elif numeric and good[-1]:
        count = len(list(takewhile(bool, reversed(good))))
        kind, value = "from", values[-count]
        missed = next((values[k] for k in range(len(values) - count - 1, -1, -1) if bad[k]), None)
    elif any(good):
        kind, value = "at", [each for each, fine in zip(values, good, strict=True) if fine]
    shown = value if kind in ("up to", "from", "all") else _best(points, targets[0], values, label, rest)
    interval = points.interval((shown, *rest), label, points.column(targets[0]))
    found = Knee(label, rest, kind, value, missed, interval, "")
    return found._replace(text=_in_words(points, targets, found, shown, values))


def _best(points: Points, target: Target, values: Sequence[Any], label: str, rest: Point) -> Any:
    """The value at which a target's measure is best."""
    sign = 1.0 if target.at_least else -1.0

    def height(value: Any) -> float:
        found = points.interval((value, *rest), label, points.column(target))
        return -np.inf if found is None else sign * found.mean

    return max(values, key=height)


def _in_words(
    points: Points, targets: Sequence[Target], knee: Knee, shown: Any, values: Sequence[Any]
) -> str:
    name, wanted = points.names[0], " and ".join(map(str, targets))
    at = f"{said(targets[0], knee.interval)} at {shown}"
    beyond = (
        f"; surely not at {knee.missed}"
        if knee.missed is not None
        else "; no value that was tried is surely too much"
        if knee.kind == "up to"
        else ""
    )
    if knee.kind == "all":
        text = f"meets {wanted} at every {name} that was tried, {values[0]} to {values[-1]} ({at})"
    elif knee.kind == "none":
        text = f"meets {wanted} at no {name} that was tried; the best is {at}"
    elif knee.kind == "at":
        text = f"meets {wanted} at {name} {', '.join(map(str, knee.value))} (the best is {at})"
    elif knee.kind == "up to":
        text = f"carries {name} up to {knee.value} with {wanted} ({at}){beyond}"
    else:
        text = f"needs {name} of {knee.value} or more for {wanted} ({at}){beyond}"
    return f"{curve_name(points, knee.policy, knee.others)}: {text}"


def said(target: Target, found: Interval | None) -> str:
    """A measure and its interval in words."""
    what, unit = named(target.measure)
    return f"{what} unknown" if found is None else f"{what} {with_ends(target.measure, found, unit)}"


def with_ends(measure: Measure, found: Interval | None, unit: str = "") -> str:
    """A mean and the ends of its interval, where it has some."""
    if found is None or found.low is None or found.high is None:
        return measure.shown(None if found is None else found.mean) + unit
    return f"{measure.shown(found.mean)}{unit} [{measure.shown(found.low)} … {measure.shown(found.high)}]"


def curve_name(points: Points, label: str, rest: Point) -> str:
    """The policy, and the values of the keys but the first."""
    others = [f"{name} {value}" for name, value in zip(points.names[1:], rest, strict=True)]
    return ", ".join([label, *others])


def _break(points: Points, label: str, rest: Point) -> Knee:
    first, measure = points.vary[0], points.measures[0]
    found = [value for value in _ordered(points) if (value, *rest) not in points.impossible]
    if first.numbers is None or len(found) < 4:
        raise EdgewiseError(
            f"--vary {first.path}: without a --target the break of the slope is sought among four numbers or "
            f"more, has {len(found)} that can be run"
        )
    x = [first.numbers[first.values.index(value)] for value in found]
    curves = [
        [points.rows[(value, *rest), label, seed][measure.key] for value in found] for seed in points.seeds
    ]
    inner = sorted(x)[1:-1]
    bend = mean_interval([hinge(x, curve) for curve in curves], possible=(inner[0], inner[-1]))
    ends = "" if bend.low is None else f" [{bend.low:.4g} … {bend.high:.4g}]"
    text = f"the slope of {named(measure)[0]} breaks at {points.names[0]} {bend.mean:.4g}{ends}"
    return Knee(label, rest, "break", bend.mean, None, bend, f"{curve_name(points, label, rest)}: {text}")


def hinge(x: Sequence[float], y: ArrayLike) -> float:
    """The inner value of x at which two joined lines fit y best, by least squares; four values or more."""
    at, found = np.asarray(x, dtype=float), np.asarray(y, dtype=float)

    def misfit(bend: float) -> float:
        columns = np.stack([np.ones_like(at), at, np.maximum(0.0, at - bend)], axis=1)
        fitted = columns @ np.linalg.lstsq(columns, found, rcond=None)[0]
        return float(((found - fitted) ** 2).sum())

    return float(min(at[1:-1], key=misfit))


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
    """Values of a key in order of what the hardware costs; ascending where that does not differ.

    Load comes in the other order: what is sought is the most that meets the targets.
    """
    values, numbers = list(points.vary[axis].values), points.vary[axis].numbers
    start = [vary.values[-1] for vary in points.vary]

    def cost(value: Any) -> float | None:
        try:
            return price(points.scenario((*start[:axis], value, *start[axis + 1 :])))[0]
        except ScenarioError:
            return None  # too little for what it is to hold, or more than there is room for

    if numbers is None:
        return sorted(values, key=lambda value: cost(value) or 0.0)
    if points.vary[axis].is_load:
        return [value for _, value in sorted(zip(numbers, values, strict=True), key=lambda each: -each[0])]
    values = [value for _, value in sorted(zip(numbers, values, strict=True), key=lambda each: each[0])]
    first, last = cost(values[0]), cost(values[-1])
    return values[::-1] if first is not None and last is not None and first > last else values


def _meets(points: Points, targets: Sequence[Target], point: Point) -> bool:
    points.run([point])
    return met(points, targets, point, points.labels[0])


def _bisected(points: Points, targets: Sequence[Target], values: Sequence[Any]) -> list[Point]:
    values = values[: _fitting(points, (), values)]  # nodes have no room for more
    low, high = -1, len(values) - 1  # low does not meet, high does
    if not values or not _meets(points, targets, (values[high],)):
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
        top = least = _fitting(points, (value,), second[:most])
        while least and _meets(points, targets, (value, second[least - 1])):
            least -= 1
        if least < top:
            found.append((value, second[least]))
            most = least
    return found


def _choice(points: Points, targets: Sequence[Target], point: Point) -> Enough:
    label = points.labels[0]
    intervals = tuple(points.interval(point, label, points.column(target)) for target in targets)
    sure = min(_sure(target, points.values(point, label, points.column(target))) for target in targets)
    return Enough(point, *price(points.scenario(point)), intervals, sure)


def _sure(target: Target, values: Sequence[float]) -> float:
    """Probability of Student's t that the mean lies on the target's side; met, so at the least that."""
    above = chance_above(values, target.value, target.measure.possible)
    same = min(values) == max(values)
    return above if target.at_least else 1.0 if same else 1.0 - above


def in_words(points: Points, targets: Sequence[Target], found: Sequence[Enough]) -> list[str]:
    """The cheapest choice, how sure it is, and what is next to it; or that there is none."""
    wanted = " and ".join(map(str, targets))
    if not found:
        dearest = most_of(points)
        best = [points.interval(dearest, points.labels[0], points.column(target)) for target in targets]
        at = ", ".join(said(target, each) for target, each in zip(targets, best, strict=True))
        end = "least" if len(points.vary) == 1 and points.vary[0].is_load else "most"
        said_open = deciding(points, targets, dearest, points.labels[0])
        more = f"; it {said_open}" if said_open else ""
        lines = [f"no value meets {wanted}: with {as_text(points, dearest)}, the {end}, it is {at}{more}"]
        return [*lines, *cannot_be(points)]
    cheapest = found[0]
    at = ", ".join(said(target, each) for target, each in zip(targets, cheapest.intervals, strict=True))
    sure = f"sure to {min(cheapest.sure, 0.999):.1%}, {len(points.seeds)} seeds"
    what = "most" if len(points.vary) == 1 and points.vary[0].is_load else "cheapest"
    cost = "" if what == "most" else f", {cheapest.cost:g} {cheapest.unit}"
    text = f"the {what} that meets {wanted}: {as_text(points, cheapest.point)}{cost} ({at}; {sure})"
    return [text, *_beside(points, targets, cheapest.point)]


def most_of(points: Points) -> Point:
    """The dearest point that there can be."""
    *others, last = [_by_cost(points, axis) for axis in range(len(points.vary))]
    for before in product(*(reversed(axis) for axis in others)):
        if many := _fitting(points, before, last):
            return (*before, last[many - 1])
    return (*(axis[-1] for axis in others), last[-1])


def _fitting(points: Points, before: Point, values: Sequence[Any]) -> int:
    """How many values of the last key there can be, from the cheapest on: nodes may have no room for more."""
    if not values or points.possible((*before, values[-1])):
        return len(values)
    low, high = 0, len(values) - 1  # so many do, if any; more do not
    while low < high:
        middle = (low + high + 1) // 2
        if points.possible((*before, values[middle - 1])):
            low = middle
        else:
            high = middle - 1
    return low


def cannot_be(points: Points) -> list[str]:
    """The first point beyond those that there can be, and why there cannot; nothing where all can."""
    places = [vary.values for vary in points.vary]
    order = {
        each: [all_.index(v) for all_, v in zip(places, each, strict=True)] for each in points.impossible
    }
    first = sorted(order, key=order.__getitem__)[:1]
    return [f"{as_text(points, each)} cannot be: {points.impossible[each]}" for each in first]


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
        said_open = None if less in points.impossible else deciding(points, targets, less, points.labels[0])
        each = [points.interval(less, points.labels[0], points.column(target)) for target in targets]
        at = ", ".join(said(target, one) for target, one in zip(targets, each, strict=True))
        lines.append(f"{as_text(points, less)} {what} ({at})" + (f"; it {said_open}" if said_open else ""))
    if not lines and len(points.vary) == 1 and points.vary[0].is_load:
        return ["it is the most that was allowed: more may meet it, too"]
    return lines or ["it is the cheapest that was allowed: cheaper ones may meet it, too"]


def as_text(points: Points, point: Point) -> str:
    """Keys and values of a point."""
    return ", ".join(f"{vary.path} = {value}" for vary, value in zip(points.vary, point, strict=True))
