"""What a point came to in words, beside its figures; and its policies, the best first."""

from collections.abc import Sequence

from edgewise.report.verdicts import left_unserved
from edgewise.sweeps.points import Point, Points
from edgewise.sweeps.vary import Target

Tried = tuple[Point, str]  # a point and the label of a policy


def in_words(points: Points, targets: Sequence[Target], tried: Tried) -> str:
    """Whether targets are met, surely; "" where there are none. Of a point that there cannot be, just so."""
    if tried[0] in points.impossible:
        return "cannot be"
    found = [(target, points.interval(*tried, points.column(target))) for target in targets]
    if any(interval is not None and target.missed(interval) for target, interval in found):
        return "surely not"
    if not all(interval is not None and target.met(interval) for target, interval in found):
        return "not surely"
    return ("meets it" if len(found) == 1 else "meets all") if found else ""


def left_over(points: Points, tried: Tried) -> str:
    """How much of its work was left without an answer, of the kind that is judged; "" where nothing ran."""
    if tried[0] in points.impossible:
        return ""
    rows = [points.rows[(*tried, seed)] for seed in points.seeds if (*tried, seed) in points.rows]
    return left_unserved(points.work, rows)


def best_first(points: Points, tried: Sequence[Tried], column: str) -> list[Tried]:
    """The points as they were, and at each of them its policies by a measure."""
    places = {point: k for k, point in enumerate(dict.fromkeys(point for point, _ in tried))}
    lower = points.columns[column].lower_is_better

    def place(each: Tried) -> tuple[int, bool, float]:
        found = points.interval(*each, column)
        if found is None:
            return places[each[0]], True, 0.0
        return places[each[0]], False, found.mean if lower else -found.mean

    return sorted(tried, key=place)
