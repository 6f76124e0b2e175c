"""One self-contained page per run: tables, comparisons, figures inlined.

Every name in a run may come from a user's scenario, so the template escapes all of them;
the page loads nothing and runs no script.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from edgewise.report import decided, figures, sources
from edgewise.report.records import RecordedRun
from edgewise.report.schema import WORK, Measure
from edgewise.report.statistics import Interval, mean_interval
from edgewise.report.summary import by_seed, of_applications, refusals, warning
from edgewise.report.use import delays_of, use_of

_CAPTIONS = {
    "outcome-shares": "Shares of all, mean over seeds. The whisker is the 95 % interval of success.",
    "means": "Mean over seeds. The whisker is its 95 % interval.",
    "success-over-time": "Share that was answered in time, by window. "
    "Line: mean over seeds; band, with up to four policies: 95 % interval.",
    "success-by-application": "Share of each application's queries answered in time, mean over seeds.",
    "time-line-of-nodes": "One run: share of each node's cores and memory that each kind of work holds. "
    "At the right the mean over the run of what is held, and the most. Steps last 1/400 of the run.",
    "time-line-of-links": "One run: share of each link's rate that is reserved, and that messages use.",
    "paired-differences": "Difference under the same seeds. The grey zone is too small to count as a win.",
}


def _percent(share: float | None, decimals: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{decimals}f}"


def _points(difference: float | None) -> str:
    return "–" if difference is None else f"{100 * difference:+.2f}".replace("-", "−")


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _seeds(seeds: Any) -> str:
    """Seeds in few words: 1, 2, 3 as 1–3."""
    if not isinstance(seeds, list) or not all(isinstance(seed, int) for seed in seeds):
        return str(seeds)
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}–{seeds[-1]} ({len(seeds)})"
    return ", ".join(map(str, seeds))


SHOWN = 3  # limits of a policy


def environment() -> Environment:
    """Templates of pages, with the filters that they use."""
    environment = Environment(
        loader=PackageLoader("edgewise.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=_percent, points=_points, p=_p, seeds=_seeds, seconds=_seconds)
    return environment


def _intervals(
    summary: Sequence[dict[str, Any]], measure: Measure, policies: Sequence[str]
) -> dict[str, Interval]:
    values = by_seed(summary, measure.key, policies)
    return {name: mean_interval(x, possible=measure.possible) for name, x in values.items()}


def _policy_rows(run: RecordedRun) -> list[dict[str, Any]]:
    """Of each policy its measures as text: the mean, and the ends of its interval or None."""
    table = [(measure, _intervals(run.summary, measure, run.policies)) for measure in run.measures]
    rows = []
    for policy in run.policies:
        cells = []
        for measure, intervals in table:
            found = intervals.get(policy)
            known = found is not None and found.low is not None
            ends = [measure.shown(end) for end in (found.low, found.high)] if found and known else None
            cells.append((measure.shown(found.mean if found else None), ends))
        rows.append({"policy": policy, "cells": cells, "fallback": None})
    for row, share in zip(rows, decided.column(run.decided, run.policies) or [], strict=False):
        row["fallback"] = share
    return rows


def _application_rows(run: RecordedRun) -> list[dict[str, Any]]:
    found = {
        name: _intervals(parts, run.measures[0], run.policies)
        for name, parts in of_applications(run.summary).items()
    }
    return [
        {"application": name, "cells": [cells.get(policy) for policy in run.policies]}
        for name, cells in found.items()
    ]


def _source_rows(run: RecordedRun) -> list[tuple[str, ...]]:
    streams = next((part for part in (run, *run.beside) if part.kind == "streams"), None)
    return [] if streams is None else sources.shown(sources.by_source(streams.items))


def _seconds(value: float) -> str:
    """A time in the unit that fits."""
    for unit_s, name in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if value >= (3 if unit_s > 1.0 else 1) * unit_s:
            return f"{value / unit_s:.3g} {name}"
    return f"{1e3 * value:.3g} ms"


def _use_tables(run: RecordedRun) -> list[tuple[str, list[dict[str, Any]]]]:
    """Title and rows of the use of nodes, links and workers: a cell for each policy."""
    found = {policy: use_of(run.use, policy) for policy in run.policies}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for policy, uses in found.items():
        for one in uses:
            row = rows.setdefault((one.name, one.what), {"name": one.name, "what": one.what, "cells": {}})
            row["has"] = one.has
            row["cells"][policy] = one
    kinds = {"Nodes": ("cores", "memory"), "Links": ("reserved", "messages"), "Workers": tuple(WORK)}
    tables = [(title, [row for row in rows.values() if row["what"] in of]) for title, of in kinds.items()]
    return [each for each in tables if each[1]]


def _limits(run: RecordedRun) -> list[dict[str, Any]]:
    """Of each policy what limits it, the first to break first; older runs do not say it."""
    known = run.manifest.get("limits", {})
    return [{"policy": policy, **one} for policy in run.policies for one in known.get(policy, [])[:SHOWN]]


def render(run: RecordedRun, rival: str | None = None, images: Mapping[str, bytes] | None = None) -> str:
    """The page as text.

    Args:
        run: the run.
        rival: as for `figures.comparisons_of`.
        images: as `figures.drawn`, where it was called before.
    Raises:
        PolicyError: the rival has no records in the run.
    """
    command = run.manifest["command"]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            unit=run.measures[0].unit,
            scenario=run.manifest.get("scenario", run.name),
            command=" ".join(map(str, command)) if isinstance(command, list) else str(command),
            links=warning(run.summary),
            limits=_limits(run),
            stood_in=[*decided.nothing(run.all_decided), *decided.lines(run.all_decided)],
            settings=run.manifest.get("settings", {}),
            tables=[(part, _policy_rows(part)) for part in (run, *run.beside)],
            policies=run.policies,
            comparisons=figures.comparisons_of(run, rival),
            delays=[
                (part.kind, found)
                for part in (run, *run.beside)
                if (found := delays_of(part.kind, part.items, run.use.get("delays")))
            ],
            use=_use_tables(run),
            applications=_application_rows(run) if run.kind == "streams" else None,
            sources=_source_rows(run),
            source_headings=sources.HEADINGS,
            sources_about=sources.ABOUT.capitalize(),
            refusals=refusals(run.items) if run.kind == "streams" else None,
            images=[
                {"caption": _CAPTIONS[stem.rstrip("-234")], "data": base64.b64encode(image).decode("ascii")}
                for stem, image in (figures.drawn(run, rival) if images is None else images).items()
            ],
        )
    )
