"""Figures over time: how late answers were, what was refused and why, and when each job ran."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from edgewise.arrays import Floats
from edgewise.report.records import RecordedRun
from edgewise.report.style import COLOURS, INK, MARKERS, legend_below, new_axes, new_panels, time_axis
from edgewise.report.summary import FOR_A_WHILE

STEPS = 24
"""So many steps of a run are counted in."""
PANELS, GANTT = 3, 40  # policies side by side, and jobs below each other, at most
_WAITS, _GONE = "#BBBBBB", "#D55E00"


_LOST = {
    "services": ("arrival_s", "", pc.field("outcome").isin(["late", "dropped"])),
    "pipelines": ("arrival_s", "no frame was done", pc.field("frames") == 0.0),
    "graphs": ("sent_s", "waits for a server", pc.field("time_s").is_null()),
    "jobs": ("submitted_s", "never started", pc.field("started_s").is_null()),
}
"""Of a kind of work: when a piece of it begins, why it was lost, and which are."""


class Lost(NamedTuple):
    """Work that came to nothing: (N,) from when to when it was asked for, why, and how many pieces it was."""

    at_s: Floats
    until_s: Floats
    why: Sequence[str]
    weight: Floats

    def in_steps(self, why: str, edges: Floats) -> Floats:
        """(STEPS,) pieces that were lost for a reason in each step; what lasts is spread evenly."""
        mine = np.array([each == why for each in self.why], dtype=bool)
        at_s, until_s, weight = self.at_s[mine], self.until_s[mine], self.weight[mine]
        lasts = until_s > at_s
        found: Floats = np.histogram(at_s[~lasts], edges, weights=weight[~lasts])[0].astype(np.float64)
        begin_s, end_s = at_s[lasts, None], until_s[lasts, None]
        there_s = (np.minimum(end_s, edges[1:]) - np.maximum(begin_s, edges[:-1])).clip(0.0)
        found += (weight[lasts, None] * there_s / (end_s - begin_s)).sum(axis=0)
        return found


def lost_work(kind: str, items: pa.Table) -> Lost:
    """What was refused, dropped, or not served of a kind of work, and why; in the words of its records.

    Streams are counted by their queries, all else by pieces of work. A stream that has a worker in the end
    was refused from its opening on, for as long as its queries took to come.
    """
    if kind == "streams":
        refused = items.filter(pc.field("reason").is_valid() | (pc.field("rejected") > 0))
        at_s, end_s, rate, weight = (
            _column(refused, name) for name in ("open_s", "close_s", "rate_qps", "rejected")
        )
        until_s = np.minimum(end_s, at_s + weight / np.maximum(rate, 1e-9))
        return Lost(at_s, until_s, [why or FOR_A_WHILE for why in refused["reason"].to_pylist()], weight)
    began, why, mask = _LOST[kind]
    lost = items.filter(mask)
    reasons = lost["outcome"].to_pylist() if kind == "services" else [why] * lost.num_rows
    return Lost(_column(lost, began), _column(lost, began), reasons, np.ones(lost.num_rows))


def _column(table: pa.Table, name: str) -> Floats:
    values: Floats = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return values


def _end_s(run: RecordedRun) -> float:
    return float(pc.max(run.windows["end_s"]).as_py() or 1.0)


def refused_over_time(run: RecordedRun) -> Figure | None:
    """What was lost in each step by reason, a panel for each policy; None where nothing was."""
    policies = run.policies[:PANELS]
    lost = {
        policy: lost_work(run.kind, run.items.filter(pc.field("policy") == policy)) for policy in policies
    }
    weights: dict[str, float] = {}
    for one in lost.values():
        for why, weight in zip(one.why, one.weight, strict=True):
            weights[why] = weights.get(why, 0.0) + float(weight)
    if not any(weights.values()):  # streams that were refused may have had no query to ask
        return None
    edges, seeds = np.linspace(0.0, _end_s(run), STEPS + 1), max(1, len(run.manifest["seeds"]))
    figure, panels = new_panels(9.6, 3.2, [*policies])
    reasons, most = sorted(weights, key=lambda why: -weights[why]), 0.0
    for axes, one in zip(panels, lost.values(), strict=True):
        floor = np.zeros(STEPS)
        for number, why in enumerate(reasons):
            count = one.in_steps(why, edges) / seeds
            axes.bar(edges[:-1], count, np.diff(edges), floor, align="edge", label=why,
                     color=COLOURS[(number + 1) % len(COLOURS)], linewidth=0)  # fmt: skip
            floor += count
        most = max(most, float(floor.max()))
        time_axis(axes, float(edges[-1]))
        axes.yaxis.set_major_locator(MaxNLocator(5))
    for axes in panels:
        axes.set_ylim(0.0, 1.05 * most)
    what = "queries" if run.kind == "streams" else run.kind
    panels[0].set_ylabel(f"{what} a step and run")
    legend_below(panels[0], min(3, len(reasons)))
    return figure


def late_over_time(run: RecordedRun) -> Figure | None:
    """How much of their deadline answers took, by when they were asked for; None where nothing ended.

    Of streams the mean over their queries, of requests and jobs the 95 % quantile of each step. Split models
    and pipelines have no deadlines: of queries the time itself is shown, of pipelines how long they waited.
    """
    edges, (what, of, scale) = np.linspace(0.0, _end_s(run), STEPS + 1), _LATE[run.kind]
    middle, lines = (edges[:-1] + edges[1:]) / 2, dict[str, Floats]()
    for policy in run.policies:
        lines[policy] = scale * of(run.items.filter(pc.field("policy") == policy), edges)
    if all(np.isnan(line).all() for line in lines.values()):
        return None
    figure, axes = new_axes(8.0, 3.6, what)
    for number, (policy, line) in enumerate(lines.items()):
        axes.plot(middle, line, color=COLOURS[number % len(COLOURS)], label=policy, linewidth=1.8,
                  marker=MARKERS[number % len(MARKERS)], markersize=4, markevery=3)  # fmt: skip
    if scale == _OF_DEADLINE:
        axes.axhline(100.0, color=_GONE, linewidth=1.2, linestyle="--", label="the deadline")
    axes.set_ylabel({_OF_DEADLINE: "% of the deadline", 1e3: "ms"}.get(scale, "s"))
    most = max(float(np.nanmax(line, initial=0.0)) for line in lines.values())
    axes.set_ylim(0.0, 1.08 * max(most, 100.0 if scale == _OF_DEADLINE else 0.0) or 1.0)
    time_axis(axes, float(edges[-1]))
    axes.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    legend_below(axes, min(4, len(lines) + 1))
    return figure


def _of_streams(items: pa.Table, edges: Floats) -> Floats:
    """(STEPS,) mean of delay / deadline over the queries of streams that are open in a step."""
    served = items.filter(pc.field("delay_mean_s").is_valid())
    start_s, end_s, rate, took, within = (
        _column(served, name) for name in ("open_s", "close_s", "rate_qps", "delay_mean_s", "deadline_s")
    )
    there_s = np.minimum(end_s[:, None], edges[1:]) - np.maximum(start_s[:, None], edges[:-1])
    weight = rate[:, None] * there_s.clip(0.0)
    sums = weight.sum(axis=0)
    share = ((took / within)[:, None] * weight).sum(axis=0)
    mean: Floats = np.divide(share, sums, out=np.full(STEPS, np.nan), where=sums > 0.0)
    return mean


def _of_requests(items: pa.Table, edges: Floats) -> Floats:
    """(STEPS,) time taken / time allowed of the requests that arrive in a step."""
    ended = items.filter(pc.field("end_s").is_valid())
    arrival_s, deadline_s, end_s = (_column(ended, name) for name in ("arrival_s", "deadline_s", "end_s"))
    return _most(arrival_s, (end_s - arrival_s) / np.maximum(deadline_s - arrival_s, 1e-9), edges)


def _of_jobs(items: pa.Table, edges: Floats) -> Floats:
    """(STEPS,) time until the end / until the latest start and duration of jobs submitted in a step."""
    ended = items.filter(pc.field("ended_s").is_valid())
    names = ("submitted_s", "latest_s", "duration_s", "ended_s")
    submitted_s, latest_s, duration_s, ended_s = (_column(ended, name) for name in names)
    allowed_s = np.maximum(latest_s + duration_s - submitted_s, 1e-9)
    return _most(submitted_s, (ended_s - submitted_s) / allowed_s, edges)


def _of_queries(items: pa.Table, edges: Floats) -> Floats:
    """(STEPS,) time until the answer of queries sent in a step."""
    answered = items.filter(pc.field("time_s").is_valid())
    return _most(_column(answered, "sent_s"), _column(answered, "time_s"), edges)


def _of_pipelines(items: pa.Table, edges: Floats) -> Floats:
    """(STEPS,) time until the start of pipelines that are submitted in a step."""
    began = items.filter(pc.field("start_s").is_valid())
    arrival_s = _column(began, "arrival_s")
    return _most(arrival_s, _column(began, "start_s") - arrival_s, edges)


def _most(at_s: Floats, values: Floats, edges: Floats) -> Floats:
    """(STEPS,) 95 % quantile of what falls into a step; NaN where nothing does."""
    step = np.digitize(at_s, edges) - 1
    found = [values[step == k] for k in range(STEPS)]
    return np.array([np.quantile(one, 0.95) if one.size else np.nan for one in found])


_OF_DEADLINE = 100.0
_LATE = {
    "streams": ("Delay as a share of the deadline, mean", _of_streams, _OF_DEADLINE),
    "services": ("Delay as a share of the deadline, 95 % quantile", _of_requests, _OF_DEADLINE),
    "jobs": ("Time until the end as a share of the time allowed, 95 % quantile", _of_jobs, _OF_DEADLINE),
    "graphs": ("Time of queries of split models, 95 % quantile", _of_queries, 1e3),
    "pipelines": ("How long pipelines waited, 95 % quantile", _of_pipelines, 1.0),
}
"""What is shown of each kind of work over time: title, values of each step, and their scale."""


def gantt(run: RecordedRun, use: Mapping[str, pa.Table], policy: str, seed: int) -> Figure | None:
    """When each job of one run might start, and when it ran; those that were lost or gave way above all.

    Args:
        policy: as the run's other work and `use` call it.
        use: of the run, where its `holds` tell when a job ran from when it gave way.
    """
    mine = run.label(policy)
    jobs = run.items.filter((pc.field("policy") == mine) & (pc.field("seed") == seed)).to_pylist()
    if run.kind != "jobs" or not jobs:
        return None
    shown = _shown(jobs)
    more = f", {len(shown)} of {len(jobs)} jobs, half of them in trouble" if len(shown) < len(jobs) else ""
    figure, axes = new_axes(9.0, 1.5 + 0.2 * len(shown), f"When jobs ran: {mine}, seed {seed}{more}")
    spans, end_s = _spans(use, policy, seed), _end_s(run)
    for row, job in enumerate(shown):
        latest_s = min(end_s, job["latest_s"])
        axes.plot([job["submitted_s"], latest_s], [row, row], color=_WAITS, linewidth=1.2, zorder=1)
        axes.plot([latest_s], [row], marker="|", color=INK, markersize=7, zorder=3)
        for start_s, stop_s in _ran(job, spans, end_s):
            axes.barh(row, stop_s - start_s, 0.62, start_s, color=_colour(job), zorder=2)
    axes.set_yticks(range(len(shown)), [f"job {job['job']}" for job in shown], fontsize=7)
    axes.set(ylim=(len(shown) - 0.4, -0.6), xlim=(0.0, end_s))
    for label, colour in (("ran", COLOURS[0]), ("ran, gave way or began anew", COLOURS[4]),
                          ("not done by the end", _GONE), ("may wait until the mark", _WAITS)):  # fmt: skip
        axes.add_patch(Rectangle((0.0, 0.0), 0.0, 0.0, facecolor=colour, label=label))
    time_axis(axes, end_s)
    legend_below(axes, 4)
    return figure


def _shown(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Jobs that are drawn, from all over the run: half of them lost or put off if so many are."""
    ordered = sorted(jobs, key=lambda job: (job["submitted_s"], job["job"]))
    trouble = [job for job in ordered if _colour(job) != COLOURS[0]]
    calm = [job for job in ordered if _colour(job) == COLOURS[0]]
    some = min(len(trouble), max(GANTT // 2, GANTT - len(calm)))
    kept = [*_spread(trouble, some), *_spread(calm, min(len(calm), GANTT - some))]
    return sorted(kept, key=lambda job: (job["submitted_s"], job["job"]))


def _spread(jobs: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return [jobs[k] for k in np.linspace(0, len(jobs) - 1, count).astype(int)] if count else []


def _colour(job: Mapping[str, Any]) -> str:
    if job["ended_s"] is None:
        return _GONE
    return COLOURS[4] if job["suspended_s"] or job["redone_s"] else COLOURS[0]


def _spans(use: Mapping[str, pa.Table], policy: str, seed: int) -> dict[str, list[tuple[float, float]]]:
    """When each owner held cores for jobs."""
    if "holds" not in use:
        return {}
    mine = use["holds"].filter(
        (pc.field("policy") == policy) & (pc.field("seed") == seed) & (pc.field("work") == "jobs")
    )
    found: dict[str, list[tuple[float, float]]] = {}
    for row in mine.filter(pc.field("cores") > 0.0).to_pylist():
        found.setdefault(row["owner"], []).append((row["start_s"], row["end_s"]))
    return found


def _ran(
    job: Mapping[str, Any], spans: Mapping[str, Sequence[tuple[float, float]]], end_s: float
) -> Sequence[tuple[float, float]]:
    """From when to when a job ran: as its node's ledger has it, or else from its last start to its end."""
    if (held := spans.get(f"job {job['job']}") or spans.get(str(job["job"]))) is not None:
        return held
    if job["started_s"] is None:
        return []
    return [(job["started_s"], end_s if job["ended_s"] is None else job["ended_s"])]
