"""What stands in the sections of a page: rows of its tables, as text, with the bars that go with them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgewise.arrays import Floats
from edgewise.report import decided, verdicts
from edgewise.report.intervals import Interval, mean_interval
from edgewise.report.over_time import lost_work
from edgewise.report.records import RecordedRun
from edgewise.report.schema import WORK, Measure
from edgewise.report.summary import by_seed, of_applications
from edgewise.report.use import delays_of, use_of

BESIDE = 4
"""So many policies have columns side by side; more are rows."""
FOLDED = 12  # rows of a long table that are shown at once


class Cell(NamedTuple):
    """A figure as text: its mean, the ends of its interval, a bar of (0 … 1) and whether it is too much."""

    mean: str
    ends: tuple[str, str] | None = None
    bar: float | None = None
    over: bool = False


def intervals(
    summary: Sequence[dict[str, Any]], measure: Measure, policies: Sequence[str]
) -> dict[str, Interval]:
    """Mean and interval of a measure by policy."""
    values = by_seed(summary, measure.key, policies)
    return {name: mean_interval(x, possible=measure.possible) for name, x in values.items()}


def best_first(run: RecordedRun) -> list[str]:
    """Policies of a run by its first measure."""
    return verdicts.best_first(run.kind, run.summary, run.policies, run.measures[0].key)


def cell(measure: Measure, found: Interval | None, bar: float | None = None) -> Cell:
    """A measure's mean, and its interval where it has a width."""
    if found is None:
        return Cell("–")
    mean, ends = measure.shown(found.mean), None
    if found.low is not None and found.high is not None and found.low != found.high:
        ends = (measure.shown(found.low), measure.shown(found.high))
    return Cell(mean, ends, bar)


def overview(run: RecordedRun) -> tuple[list[str], list[tuple[str, list[Cell]]]]:
    """All kinds of work in one grid: headings, and by policy the first measure of each kind, best first."""
    parts = (run, *run.beside)
    policies = best_first(run)
    found = [intervals(part.summary, part.measures[0], part.policies) for part in parts]
    most = [max((abs(one.mean) for one in each.values()), default=0.0) for each in found]
    rows = []
    for policy in policies:
        cells = []
        for part, each, top in zip(parts, found, most, strict=True):
            measure, one = part.measures[0], each.get(part.label(policy))
            whole = 1.0 if measure.share else top
            bar = abs(one.mean) / whole if one is not None and whole else None
            cells.append(cell(measure, one, bar))
        rows.append((policy, cells))
    return [f"{part.kind}: {part.measures[0].heading}" for part in parts], rows


def measures(part: RecordedRun) -> tuple[list[str], list[tuple[str, list[Cell]]]]:
    """The measures of a kind of work: a row for each, or for each policy where these are many."""
    policies = best_first(part)
    table = [(one, intervals(part.summary, one, policies)) for one in part.measures]
    shares = decided.column(part.decided, policies)
    if len(policies) <= BESIDE:
        rows = [(one.heading, [cell(one, found.get(policy)) for policy in policies]) for one, found in table]
        rows += [(decided.HEADING, [Cell(share) for share in shares])] if shares else []
        return policies, rows
    rows = []
    for number, policy in enumerate(policies):
        cells = [cell(one, found.get(policy)) for one, found in table]
        cells = [cells[0], *(each._replace(ends=None) for each in cells[1:])]
        rows.append((policy, cells + ([Cell(shares[number])] if shares else [])))
    return [one.heading for one, _ in table] + ([decided.HEADING] if shares else []), rows


def timed(part: RecordedRun, delays: pa.Table | None) -> list[dict[str, Any]]:
    """Quantiles of delays by application and policy, beside the deadline, the tightest first.

    Returns:
        rows of `delays_of` with `within`, the deadlines as text, and `share`: p95 over the longest of them;
        both None where there are none.
    """
    longest = _deadlines(part)
    rows = []
    for row in delays_of(part.kind, part.items, delays):
        least_s, most_s = longest.get(row["of"], (None, None))
        within = None if least_s is None or most_s is None else _range(least_s, most_s)
        share = row["p95_s"] / most_s if most_s else None
        rows.append({**row, "within": within, "share": share})
    return sorted(rows, key=lambda row: (-_tightest(rows, row["of"]), row["of"]))


def _tightest(rows: Sequence[Mapping[str, Any]], of: str) -> float:
    return max((row["share"] or 0.0 for row in rows if row["of"] == of), default=0.0)


def _deadlines(part: RecordedRun) -> dict[str, tuple[float, float]]:
    """The shortest and the longest deadline by application of streams, or by service."""
    if part.kind == "streams":
        names, within = part.items["application"], part.items["deadline_s"]
    elif part.kind == "services":
        names = part.items["service"]
        within = pc.subtract(part.items["deadline_s"], part.items["arrival_s"])
    else:
        return {}
    grouped = pa.table({"of": names, "s": within}).group_by(["of"], use_threads=False)
    found = grouped.aggregate([("s", "min"), ("s", "max")]).to_pylist()
    return {row["of"]: (row["s_min"], row["s_max"]) for row in found}


def _range(low_s: float, high_s: float) -> str:
    low, high = seconds(low_s), seconds(high_s)
    return low if low == high else f"{low} to {high}"


def seconds(value: float) -> str:
    """A time in the unit that fits."""
    for unit_s, name in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if value >= (3 if unit_s > 1.0 else 1) * unit_s:
            return f"{value / unit_s:.3g} {name}"
    return f"{1e3 * value:.3g} ms"


def applications(part: RecordedRun) -> list[tuple[str, list[Cell]]]:
    """Success of each application of streams by policy, the worst application first."""
    policies = best_first(part)
    found = [
        (name, intervals(rows, part.measures[0], policies))
        for name, rows in of_applications(part.summary).items()
    ]
    found = sorted(found, key=lambda each: min((one.mean for one in each[1].values()), default=1.0))
    return [
        (name, [_of_share(part.measures[0], cells.get(each)) for each in policies]) for name, cells in found
    ]


def _of_share(measure: Measure, found: Interval | None) -> Cell:
    return cell(measure, found, None if found is None else found.mean)


def refused(part: RecordedRun) -> list[dict[str, Any]]:
    """What was lost of a kind of work, and why, over all seeds: rows of policy, reason, count; most first."""
    rows: list[dict[str, Any]] = []
    for policy in part.policies:
        lost = lost_work(part.kind, part.items.filter(pc.field("policy") == policy))
        reasons = np.array(lost.why, dtype=object)
        for why in dict.fromkeys(lost.why):
            mine: Floats = lost.weight[reasons == why]
            rows.append({"policy": policy, "reason": why, "items": mine.size, "queries": int(mine.sum())})
    top = max((row["queries"] for row in rows), default=0) or 1
    ordered = sorted(rows, key=lambda row: (row["policy"], -row["queries"], row["reason"]))
    return [{**row, "bar": row["queries"] / top} for row in ordered]


def use_tables(run: RecordedRun) -> list[tuple[str, list[dict[str, Any]]]]:
    """Title and rows of the use of nodes, links and workers, the busiest first: a cell for each policy."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for policy in run.policies:
        for one in use_of(run.use, policy):
            row = rows.setdefault((one.name, one.what), {"name": one.name, "what": one.what, "cells": {}})
            row["has"] = one.has
            row["cells"][policy] = one
    kinds = {
        "Nodes": ("cores", "memory", "accelerators"),
        "Links": ("reserved", "messages"),
        "Workers": tuple(WORK),
    }
    tables = []
    for title, of in kinds.items():
        mine = [row for row in rows.values() if row["what"] in of]
        busiest = sorted(mine, key=lambda row: -max(one.mean for one in row["cells"].values()))
        tables.append((title, busiest))
    return [each for each in tables if each[1]]
