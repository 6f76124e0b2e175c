"""What a result came to, as tables or JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from edgewise.cli.output import fail, note, out, show, stopping
from edgewise.config import edition
from edgewise.limits import in_words
from edgewise.report import decided, sources, summary as summaries
from edgewise.report.schema import WORK
from edgewise.report.statistics import PairedComparison
from edgewise.report.verdicts import best_first, left_unserved, verdict_in_words
from edgewise.run.result import Comparison, Result, said_alike

if TYPE_CHECKING:
    from edgewise.sweeps.limited import Try


def show_result(
    result: Result,
    comparison: Comparison | None,
    folder: Path,
    as_json: bool,
    tried: "Sequence[Try]" = (),
) -> None:
    """Save a result and say what it came to; exit status 1 where a policy decided nothing itself."""
    summary = result.summary()
    rows = () if comparison is None else comparison.rows
    with stopping(lambda: f"the records in {folder} are not whole; nothing else is kept"):
        result.save(folder)
    note(summaries.warning(summary))
    for line in result.said():
        note([line])
    if as_json:
        names = ("policy", "rival", "mean", "rival_mean", "difference", "low", "high", "p_holm", "verdict")
        found = {
            "scenario": result.scenario.name,
            "edition": edition(result.scenario),
            "settings": result.settings,
            "work": result.work,
            "policies": result.policies,
            "fixed": result.fixed,
            "seeds": result.seeds,
            "summary": summary,
            "delays": {work: rows for work, rows in result.delays().items() if rows},
            "refusals": result.refusals(),
            "sources": result.sources(),
            "use": [one._asdict() for one in result.used()],
            "limits": {policy: [one.as_json() for one in each] for policy, each in result.limits.items()},
            "tried": [each._asdict() for each in tried],
            "beside": {work: each.summary() for work, each in result.beside.items()},
            "decision_s": result.decision_s,
            "decided": decided.as_json(result.all_decided),
            "alike": result.alike,
            "comparison": [
                {name: getattr(row, name) for name in names}
                | {"in_words": verdict_in_words(row, result.measures[0].unit)}
                | {"left_over": left_unserved(result.work, [s for s in summary if s["policy"] == row.policy])}
                for row in rows
            ],
            "folder": str(folder),
        }
        print(json.dumps(found, indent=1))
        return refuse_undecided(result.undecided())
    _print_summary(result, summary, result.fixed if len(result.policies) > 1 else {})
    for each in result.beside.values():
        _print_summary(each, each.summary(), {})
    if comparison is None:
        _print_delays(result)
    if by_source := result.sources():
        show(sources.HEADINGS, sources.shown(by_source), "streams by source")
    if refused := result.refusals():
        show(refused[0], [tuple(map(str, row.values())) for row in refused], "why streams were refused")
    if rows:
        _print_comparison(result, rows)
    for line in said_alike(result.alike):
        out.print(escape(line), highlight=False, soft_wrap=True)
    if len(result.policies) == 1:
        for line in (*in_words(result.limits[result.policies[0]]), *(each.text for each in tried)):
            out.print(escape(line), highlight=False, soft_wrap=True)
    out.print(f"records, figures and report: [bold]{escape(str(folder))}[/bold]")
    refuse_undecided(result.undecided())


def refuse_undecided(found: Sequence[str]) -> None:
    """Say of which policies no decision is their own, and exit with status 1 where there is one.

    It is the last thing that a command says: all that it found is said and kept.
    """
    for line in found:
        fail(line)
    if found:
        raise typer.Exit(1)


def _print_summary(result: Result, summary: Sequence[dict[str, Any]], fixed: Mapping[str, str]) -> None:
    """A row for each policy, the best by the first measure first."""
    caption = "; ".join([WORK[result.work].about, *(f"{one}: {name}" for one, name in fixed.items())])
    setting = result.settings[result.work]
    title = f"{result.work} of scenario {result.scenario.name}, {setting}; means over seeds"
    shares = decided.column(result.decided, result.policies)
    more = [decided.HEADING] if shares else []
    said = dict(zip(result.policies, shares or [""] * len(result.policies), strict=True))
    rows = []
    for policy in best_first(result.work, summary, result.policies, result.measures[0].key):
        mine = [row for row in summary if row["policy"] == policy]
        cells = []
        for measure in result.measures:
            known = [row[measure.key] for row in mine if row[measure.key] is not None]
            cells.append(measure.shown(sum(known) / len(known) if known else None))
        rows.append((policy, *cells, *([said[policy]] if shares else []), str(len(mine))))
    headings = ("policy", *(measure.heading for measure in result.measures), *more, "runs")
    show(headings, rows, title, caption=caption)


def _print_delays(result: Result) -> None:
    """Quantiles of delays of each kind of work that has some."""
    policy = ("policy",) if len(result.policies) > 1 else ()
    columns = ("of", *policy, "count", "p50_s", "p95_s", "p99_s")
    rows = [
        (work, *(f"{row[name]:.3f}" if name.endswith("_s") else str(row[name]) for name in columns))
        for work, found in result.delays().items()
        for row in found
    ]
    if rows:
        show(("delays", "of", *policy, "count", "p50 s", "p95 s", "p99 s"), rows)


def _print_comparison(result: Result, rows: Sequence[PairedComparison]) -> None:
    """Each policy against the rival, the best first, with a verdict in words and what it left unserved."""
    measure, shown, summary = result.measures[0], [], result.summary()
    rival = rows[0].rival
    for row in sorted(rows, key=lambda row: row.difference, reverse=not measure.lower_is_better):
        ends = "–" if row.low is None or row.high is None else f"{100 * row.low:+.2f} … {100 * row.high:+.2f}"
        p = "–" if row.p_holm is None else f"{row.p_holm:.2g}"
        left = left_unserved(result.work, [each for each in summary if each["policy"] == row.policy])
        words = verdict_in_words(row, measure.unit)
        figures = (f"{100 * row.difference:+.2f}", ends, p)
        shown.append((row.policy, *figures, words, *([left] if left else [])))
    left = left_unserved(result.work, [each for each in summary if each["policy"] == rival])
    show(
        ("policy", measure.unit, "95 % interval", "p (Holm)", "verdict", *(["left over"] if left else [])),
        shown,
        f"{measure.heading.removesuffix(' %')} against {rival}" + (f", which left {left}" if left else ""),
    )
