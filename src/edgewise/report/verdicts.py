"""What a comparison came to in words, and what each policy left unserved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgewise.report.schema import WORK

if TYPE_CHECKING:
    from edgewise.report.statistics import PairedComparison  # its import takes long

SMALL = 1.0  # of points or percent: the least effect that counts


def verdict_in_words(row: PairedComparison, unit: str) -> str:
    """Who is ahead, by how much, and whether that may be luck; from the side of `row.policy`.

    Args:
        unit: of differences, "points" or "%".
    """
    size = 100.0 * row.difference
    better = (size > 0) != row.rule.lower_is_better
    side, one = ("ahead" if better else "behind"), ("point" if unit == "points" else "%")
    by = f"{abs(size):.1f} {unit}"
    if row.verdict in ("win", "loss"):
        return f"{side} by {by}"
    if row.p_holm is None:
        return f"{side} by {by} with one seed, which cannot tell" if size else "level, with one seed"
    if row.verdict == "tie":
        sure = row.p_holm < row.rule.alpha and size != 0.0
        return f"{side}, by less than {SMALL:g} {one}" if sure else f"level within {SMALL:g} {one}"
    if row.p_holm < row.rule.alpha:
        return f"{side}, maybe by less than {SMALL:g} {one}"
    return f"{side} by {by}, maybe by chance" if abs(size) >= SMALL else "level, or too few seeds to tell"


def left_unserved(work: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """How much of its work a policy left without an answer, in the mean of its runs; "" where none can be.

    Args:
        work: its kind.
        rows: of the runs' summary under one policy.
    """
    known = list(rows)

    def mean(key: str) -> float:
        values = [row[key] for row in known if row.get(key) is not None]
        return float(sum(values) / len(values)) if values else 0.0

    if work == "streams":
        return f"{100 * mean('rejected'):.1f} % refused"
    if work == "services":
        return f"{100 * (mean('dropped') + mean('waiting')):.1f} % dropped or waiting"
    if work == "pipelines":
        return f"{mean('unserved'):.3g} of {mean('pipelines'):.3g} starve"
    if work == "jobs":
        return f"{mean('lost'):.4g} of {mean('jobs'):.4g} lost"
    return ""


def best_first(
    work: str, summary: Iterable[Mapping[str, Any]], policies: Iterable[str], key: str
) -> list[str]:
    """Policies by the mean of a measure, the best first; those without a value last, equals as they were.

    Args:
        work: its kind.
        summary: rows of the runs.
        key: of the measure.
    """
    measure = next(each for each in WORK[work].measures if each.key == key)
    rows = list(summary)

    def place(policy: str) -> tuple[bool, float]:
        known = [row[key] for row in rows if row["policy"] == policy and row[key] is not None]
        if not known:
            return True, 0.0
        mean = sum(known) / len(known)
        return False, mean if measure.lower_is_better else -mean

    return sorted(policies, key=place)
