"""What limits at a point, and cures that are tried by simulation, one after the other, with few seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from edgewise.errors import EdgewiseError
from edgewise.limits import Limit, in_words
from edgewise.model.scenario import Scenario
from edgewise.report.intervals import Interval, mean_interval
from edgewise.run.result import Result
from edgewise.sweeps.points import Point, Points
from edgewise.sweeps.vary import Target, named

SEEDS, ROUNDS = 3, 3  # of a cure that is tried; cures in a row, each for what limits after the one before
MOST_SEEDS = 10_000  # beyond them more do not decide


class Try(NamedTuple):
    """A cure that was tried.

    Attributes:
        text: in words: what was changed, with how many seeds, and what came of it.
        changes: all that was set, by path.
        found: the mean of each target's measure.
        met: every target is met in the mean; None: there is no target.
    """

    text: str
    changes: Mapping[str, Any]
    found: tuple[float | None, ...]
    met: bool | None


class LimitedPoint(NamedTuple):
    """What limits at a point.

    Attributes:
        point, policy: where.
        limits: the first to break first.
        tried: cures.
        lines: all of it in words.
    """

    point: Point
    policy: str
    limits: tuple[Limit, ...]
    tried: tuple[Try, ...]
    lines: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "point": list(self.point),
            "policy": self.policy,
            "limits": [each.as_json() for each in self.limits],
            "tried": [each._asdict() for each in self.tried],
        }


def limited(points: Points, targets: Sequence[Target], point: Point, label: str, cure: bool) -> LimitedPoint:
    """Run a point once more, with few seeds, and say what limits it; `cure`: try what would help."""
    seeds = points.seeds[:SEEDS]
    result = points.result(points.scenario(point), label, seeds)
    found = tuple(result.limits[result.policies[0]])
    lines = list(in_words(found))
    tries: tuple[Try, ...] = ()
    if cure:
        tries = tuple(
            tried(
                result,
                lambda changes: points.scenario(point, changes),
                lambda scenario: points.result(scenario, label, seeds),
                targets,
            )
        )
        lines += [each.text for each in tries]
    return LimitedPoint(point, label, found, tries, tuple(lines))


def tried(
    result: Result,
    load: Callable[[Mapping[str, Any]], Scenario],
    run: Callable[[Scenario], Result],
    targets: Sequence[Target] = (),
) -> list[Try]:
    """Try the cure of what breaks first; where that does not reach the targets, the next one beside it.

    Args:
        result: with what limits it.
        load: the scenario with changes, by path.
        run: it, with few seeds.
    """
    asked = targets or (
        Target(result.work, result.measures[0], not result.measures[0].lower_is_better, math.nan),
    )
    changes: dict[str, Any] = {}
    found, texts = list[Try](), list[str]()
    before = [_interval(result, target) for target in asked]
    now = result
    for _ in range(ROUNDS):
        limits = now.limits[now.policies[0]]
        cures = [each for one in limits if one.lost > 0.0 for each in one.cures if each.changes]
        new = (each for each in cures if any(changes.get(path) != value for path, value in each.changes))
        cure = next(new, None)
        if cure is None:
            break
        changes |= dict(cure.changes)
        texts.append(cure.text)
        what = " and ".join(texts)
        try:
            now = run(load(changes))
        except EdgewiseError as error:
            found.append(Try(f"tried {what}: cannot be run: {error}", dict(changes), (), False))
            break
        after = [_interval(now, target) for target in asked]
        said = [_came_to(*each, bool(targets)) for each in zip(asked, before, after, strict=True)]
        met = all(_meets(target, one) for target, one in zip(asked, after, strict=True)) if targets else None
        text = f"tried with {len(now.seeds)} seeds: {what}: {', '.join(said)}"
        means = tuple(None if one is None else one.mean for one in after)
        found.append(Try(text, dict(changes), means, met))
        if met or not targets:
            break
    return found


def _interval(result: Result, target: Target) -> Interval | None:
    of = {result.work: result, **result.beside}.get(target.work)
    rows = [] if of is None else [row for row in of.summary() if row["seed"] in of.seeds[:SEEDS]]
    known = [row[target.measure.key] for row in rows if row[target.measure.key] is not None]
    return mean_interval(known, possible=target.measure.possible) if known else None


def _meets(target: Target, found: Interval | None) -> bool:
    if found is None:
        return False
    return found.mean >= target.value if target.at_least else found.mean <= target.value


def _came_to(target: Target, before: Interval | None, after: Interval | None, aimed: bool) -> str:
    """What a measure came to; by how much it fails a target."""
    measure = target.measure
    what, unit = named(measure)
    mean = None if after is None else after.mean
    said = f"{what} {measure.shown(mean)}{unit}"
    was = f"{measure.shown(None if before is None else before.mean)}{unit}"
    if not aimed:
        return f"{said} instead of {was}"
    if after is None:
        return f"{said}, fails {target}"
    if target.met(after):
        return f"{said}, meets {target}"
    if _meets(target, after):
        return f"{said}, meets {target} in the mean; more seeds say how surely"
    short = abs(after.mean - target.value)
    amount = f"{100.0 * short:.1f} points" if measure.share else f"{measure.shown(short)}{unit}"
    return f"{said} (it was {was}), fails {target} by {amount}"


def deciding(points: Points, targets: Sequence[Target], point: Point, label: str) -> str | None:
    """How many more seeds would say whether an open point meets its targets; None: it is not open.

    The interval shrinks as one over the root of the number of seeds; that they spread alike is assumed.
    """
    most, count = 0, len(points.seeds)
    for target in targets:
        found = points.interval(point, label, points.column(target))
        if found is None or found.low is None or found.high is None or target.missed(found):
            return None
        if not target.met(found):
            end = found.low if found.mean > target.value else found.high
            margin = abs(found.mean - target.value)
            needed = count * (abs(found.mean - end) / margin) ** 2 if margin > 0.0 else math.inf
            most = max(most, MOST_SEEDS + 1 if needed > MOST_SEEDS else math.ceil(needed * 1.1))
    if not most:
        return None
    if most > MOST_SEEDS:
        return f"is so near the target that {MOST_SEEDS:,} seeds would not decide"
    first = points.seeds[0]
    span = f" (--seeds {first}:{first + most})" if points.seeds == tuple(range(first, first + count)) else ""
    return f"is open: about {max(most - count, 1)} more seeds would decide{span}"
