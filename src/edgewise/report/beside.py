"""Two runs side by side on one page: what differs in their scenarios, in their measures, and how both look.

Runs are paired by policy, or, where no name is in both, by the best of each; by seed where they share seeds.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import yaml
from markupsafe import Markup

from edgewise.report import sections
from edgewise.report.html import environment, site_picture
from edgewise.report.intervals import Interval, mean_interval
from edgewise.report.records import RecordedRun
from edgewise.report.schema import Measure
from edgewise.report.statistics import compare
from edgewise.report.style import as_png
from edgewise.report.timeline import timelines

CHANGES = 40
"""So many keys that differ are listed."""


def render(first: RecordedRun, second: RecordedRun) -> str:
    """The page as text."""
    pairs = paired(first, second)
    rows = [row for each in pairs for row in _rows(first, second, *each)]
    changed = list(differences(first.scenario_yaml, second.scenario_yaml))
    shown = pairs[0] if pairs else (next(iter(first.policies), ""), next(iter(second.policies), ""))
    return (
        environment()
        .get_template("beside.html.j2")
        .render(
            runs=(first, second),
            sentences=[_said(row) for row in rows if row["first"]],
            rows=rows,
            changed=changed[:CHANGES],
            more=len(changed) - CHANGES,
            shown=shown,
            sites=[
                Markup(site_picture(run, policy)) for run, policy in zip((first, second), shown, strict=True)
            ],
            lines=[_time_line(run, policy) for run, policy in zip((first, second), shown, strict=True)],
        )
    )


def paired(first: RecordedRun, second: RecordedRun) -> list[tuple[str, str]]:
    """Policies of two runs that are set against each other."""
    both = [(policy, policy) for policy in sections.best_first(first) if policy in second.policies]
    best = [next(iter(sections.best_first(run)), "") for run in (first, second)]
    return both or ([(best[0], best[1])] if all(best) else [])


def differences(first: str, second: str) -> Iterator[tuple[str, str, str]]:
    """Keys of two scenarios whose values differ, as paths, with both values; "" where one has none."""
    one, other = (dict(_flat(yaml.safe_load(text) or {})) for text in (first, second))
    for path in dict.fromkeys([*one, *other]):
        if one.get(path) != other.get(path):
            yield path, str(one.get(path, "")), str(other.get(path, ""))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of YAML by their paths; entries of lists by their names where they have some."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for number, each in enumerate(value):
            name = each.get("name", number) if isinstance(each, dict) else number
            yield from _flat(each, f"{path}.{name}")
    else:
        yield path, value


def _rows(first: RecordedRun, second: RecordedRun, one: str, other: str) -> Iterator[dict[str, Any]]:
    """Measures of all work that both runs have, of a policy of each, and the difference."""
    parts = {part.kind: part for part in (second, *second.beside)}
    for part in (first, *first.beside):
        if part.kind not in parts:
            continue
        for number, measure in enumerate(part.measures):
            a, b = _values(part, measure, one), _values(parts[part.kind], measure, other)
            if not a or not b:
                continue
            yield {
                "first": number == 0,
                "work": part.kind,
                "measure": measure,
                "policies": one if one == other else f"{one}, {other}",
                "cells": [sections.cell(measure, _interval(values, measure)) for values in (a, b)],
                "difference": _difference(a, b, measure),
            }


def _values(run: RecordedRun, measure: Measure, policy: str) -> dict[int, float]:
    """A measure by seed."""
    rows = [
        row for row in run.summary if row["policy"] == run.label(policy) and row.get(measure.key) is not None
    ]
    return {row["seed"]: float(row[measure.key]) for row in rows}


def _interval(values: Mapping[int, float], measure: Measure) -> Interval:
    return mean_interval(np.array(list(values.values())), possible=measure.possible)


def _difference(a: Mapping[int, float], b: Mapping[int, float], measure: Measure) -> tuple[float, bool, bool]:
    """Second less first, over seeds that both have or else of the means; whether it is sure, and paired."""
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        return float(np.mean(list(b.values())) - np.mean(list(a.values()))), False, False
    values = {name: np.array([of[seed] for seed in seeds]) for name, of in (("second", b), ("first", a))}
    (row,) = compare(values, "first", minimum_effect=0.0)
    sure = row.low is not None and row.high is not None and (row.low > 0.0 or row.high < 0.0)
    return row.difference, sure, True


def _said(row: Mapping[str, Any]) -> str:
    """The first measure of a kind of work, in words."""
    measure, (difference, sure, by_seed) = row["measure"], row["difference"]
    better = (difference > 0.0) != measure.lower_is_better
    if difference == 0.0:
        return f"{row['work'].capitalize()}: both have the same {measure.heading} under {row['policies']}."
    how = "surely" if sure else "which so many seeds do not decide" if by_seed else "over different seeds"
    size = measure.shown(abs(difference))
    return (
        f"{row['work'].capitalize()}: the second is {'better' if better else 'worse'} by {size} in "
        f"{measure.heading} under {row['policies']}, {how}."
    )


def _time_line(run: RecordedRun, policy: str) -> str:
    """The time line of nodes of a run's first seed, as text; "" where nothing is known."""
    drawn = timelines(run.use, policy, min(run.manifest["seeds"], default=0)).get("nodes")
    return "" if drawn is None else base64.b64encode(as_png(drawn)).decode("ascii")
