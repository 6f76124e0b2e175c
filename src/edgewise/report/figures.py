"""Figures of a run, each a `Figure` of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from edgewise.arrays import Floats
from edgewise.errors import RunError
from edgewise.report import over_time
from edgewise.report.intervals import mean_interval
from edgewise.report.records import RecordedRun
from edgewise.report.statistics import PairedComparison, judged
from edgewise.report.style import COLOURS, INK, MARKERS, as_png, legend_below, new_axes, time_axis
from edgewise.report.summary import by_seed, of_applications
from edgewise.report.timeline import timelines

_TIMELINES = 4  # policies at most that have time lines of nodes and links
_BANDS = 4  # so many intervals can still be told apart
_LINES = ("-", "--", ":")
_SHARE_COLOURS = ("#0072B2", "#E69F00", "#BBBBBB", "#56B4E9")  # of parts, what went well first
_VERDICT_COLOURS = {"win": "#0072B2", "loss": "#D55E00", "tie": "#009E73", "inconclusive": "#777777"}
_VERDICT_MARKERS = {"win": "o", "loss": "s", "tie": "^", "inconclusive": "D"}
_LABEL, _WHISKER = -0.09, 0.2  # where in a bar its label and its whisker lie, so that they do not meet
_GRID = "#E3E3E3"


def _empty(figure: Figure, message: str) -> Figure:
    (axes,) = figure.axes
    axes.set_axis_off()
    axes.text(0.5, 0.5, message, ha="center", va="center", color="#777777", transform=axes.transAxes)
    return figure


def _names(axes: Axes, names: Sequence[str], side: str) -> None:
    """Tick labels of names, taken literally: one may hold a dollar sign."""
    if side == "x":
        turn = 30 if max(map(len, names)) * len(names) > 70 else 0
        axes.set_xticks(range(len(names)), names, rotation=turn, ha="right" if turn else "center")
    else:
        axes.set_yticks(range(len(names)), names)
    for text in axes.get_xticklabels() if side == "x" else axes.get_yticklabels():
        text.set_parse_math(False)


def _window_shares(windows: pa.Table, policy: str, part: str, whole: str) -> tuple[Floats, Floats]:
    """Middle of each window in seconds (T,), and part / whole (N, T) with NaN where the whole is none."""
    rows = windows.filter(pc.equal(windows["policy"], policy)).to_pylist()
    _, column = np.unique([row["window"] for row in rows], return_inverse=True)
    _, line = np.unique([row["seed"] for row in rows], return_inverse=True)
    middle = np.zeros(column.max(initial=-1) + 1)
    share = np.full((line.max(initial=-1) + 1, middle.size), np.nan)
    for row, i, t in zip(rows, line, column, strict=True):
        middle[t] = (row["start_s"] + row["end_s"]) / 2
        share[i, t] = row[part] / row[whole] if row[whole] else np.nan
    return middle, share


def _band(share: Floats) -> Floats:
    """Mean, low and high over the seeds of each window, (3, T), NaN where unknown."""
    band = np.full((3, share.shape[1]), np.nan)
    for index, values in enumerate(share.T):
        known = values[~np.isnan(values)]
        if known.size:
            found = mean_interval(known, possible=(0.0, 1.0))
            band[:, index] = [
                found.mean if end is None else end for end in (found.mean, found.low, found.high)
            ]
    return band


def success_over_time(run: RecordedRun) -> Figure:
    """Success per window and policy: mean over seeds, 95 % intervals as bands while they are few."""
    figure, axes = new_axes(8.0, 3.9, "Success over time")
    assert run.work.over_time is not None, "asked of work that has shares over time"
    part, whole = run.work.over_time
    lowest, banded = 1.0, len(run.policies) <= _BANDS
    for index, policy in enumerate(run.policies):
        time_s, share = _window_shares(run.windows, policy, part, whole)
        if np.isnan(share).all():
            continue
        mean, low, high = _band(share)
        turn, colour = index // len(COLOURS), COLOURS[index % len(COLOURS)]
        if banded:
            axes.fill_between(time_s, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(
            time_s,
            mean,
            color=colour,
            linewidth=1.8,
            linestyle=_LINES[turn % len(_LINES)],
            marker=MARKERS[(index + turn) % len(MARKERS)],
            markerfacecolor="white" if turn % 2 else colour,
            markersize=4.5,
            markevery=max(1, len(time_s) // 12),
            label=policy,
        )
        lowest = min(lowest, float(np.nanmin(low if banded else mean)))
    if not axes.lines:
        return _empty(figure, f"no {whole} in any window")
    bottom = max(0.0, np.floor(lowest * 10 - 0.2) / 10)
    axes.set(ylim=(bottom, 1.005), ylabel="answered in time")
    time_axis(axes, float(pc.max(run.windows["end_s"]).as_py()))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.margins(x=0.01)
    legend_below(axes, min(4, len(axes.lines)))
    return figure


def _whisker(
    axes: Axes, values: Floats, where: float, possible: tuple[float, float], scale: float = 1.0
) -> None:
    """95 % interval of values, horizontally, in a scale."""
    found = mean_interval(values, possible=possible)
    if found.low is not None and found.high is not None:
        ends = [[scale * (found.mean - found.low)], [scale * (found.high - found.mean)]]
        axes.errorbar(scale * found.mean, where, xerr=ends, color=INK, linewidth=1.3, capsize=2.5)


def outcome_shares(run: RecordedRun) -> Figure:
    """What became of queries or requests per policy, stacked shares; 95 % interval of success."""
    values = {metric: by_seed(run.summary, metric, run.policies) for metric in run.work.parts}
    success = values[run.work.parts[0]]
    names = list(success)
    figure, axes = new_axes(
        8.0,
        1.5 + 0.5 * max(1, len(names)),
        "What became of the queries" if run.kind == "streams" else "What became of the requests",
    )
    if not names:
        return _empty(figure, "no query was sent")
    left = np.zeros(len(names))
    for metric, colour in zip(run.work.parts, _SHARE_COLOURS, strict=False):
        width = np.array([values[metric][name].mean() for name in names])
        axes.barh(names, width, left=left, height=0.62, color=colour, label=metric, edgecolor="white")
        for index, share in enumerate(width):
            if share >= 0.07:
                ink = "white" if metric == "success" else INK
                where = (left[index] + share / 2, index + _LABEL)
                axes.text(*where, f"{share:.1%}", ha="center", va="center", fontsize=8.5, color=ink)
        left += width
    for index, shares in enumerate(success.values()):
        _whisker(axes, shares, index + _WHISKER, (0.0, 1.0))
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _list_down(axes, names)
    legend_below(axes, len(run.work.parts))
    return figure


def means(run: RecordedRun) -> Figure:
    """The first measure of each policy: mean over seeds and 95 % interval."""
    measure = run.measures[0]
    values = by_seed(run.summary, measure.key, run.policies)
    title = measure.heading[0].upper() + measure.heading[1:]
    figure, axes = new_axes(8.0, 1.5 + 0.5 * max(1, len(values)), title)
    if not values:
        return _empty(figure, "no run has a value")
    for index, x in enumerate(values.values()):
        axes.plot(measure.scale * x.mean(), index, "o", color=COLOURS[0])
        _whisker(axes, x, index, measure.possible, measure.scale)
    axes.set(ylim=(-0.6, len(values) - 0.4), xlabel=f"{measure.heading}, 95 % interval")
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    _list_down(axes, list(values))
    return figure


def _list_down(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows, the first on top."""
    _names(axes, names, "y")
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def success_by_application(run: RecordedRun) -> Figure:
    """Heat map of success per application and policy, mean over seeds."""
    applications = of_applications(run.summary)
    policies = run.policies
    grid = np.full((len(applications), max(1, len(policies))), np.nan)
    for row, parts in enumerate(applications.values()):
        for policy, values in by_seed(parts, "success", policies).items():
            grid[row, policies.index(policy)] = values.mean()
    return heat_map(grid, list(applications), policies, "Success per application")


def heat_map(grid: Floats, rows: Sequence[str], columns: Sequence[str], title: str) -> Figure:
    """Shares of the queries by (rows, columns), NaN where none was sent."""
    height = 1.5 + 0.42 * max(1, len(rows))
    figure, axes = new_axes(max(5.5, min(10.0, 3.2 + 1.2 * len(columns))), height, title)
    if not rows or np.isnan(grid).all():
        return _empty(figure, "no query was sent")
    image = axes.imshow(grid, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), share in np.ndenumerate(grid):
        known = not np.isnan(share)
        ink = "white" if known and share > 0.65 else INK
        label = f"{share:.1%}" if known else "–"
        axes.text(column, row, label, ha="center", va="center", fontsize=9, color=ink)
    _names(axes, columns, "x")
    _names(axes, rows, "y")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(1, len(columns)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="minor", length=0)
    bar = figure.colorbar(image, ax=axes, format=PercentFormatter(1.0, decimals=0), fraction=0.05, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=0)
    return figure


def forest(comparisons: Sequence[PairedComparison], labels: Sequence[str], title: str) -> Figure:
    """Forest plot: each difference with its interval on a line of its own.

    Differences of shares are shown in points, ratios in percent; the grey zone is that of the
    first row's rule.

    Args:
        comparisons: rows of `statistics.compare`, all by the same rule.
        labels: one for each row.
        title: of the figure.
    """
    figure, axes = new_axes(8.0, 1.7 + 0.42 * max(1, len(comparisons)), title)
    if not comparisons:
        return _empty(figure, "one policy: nothing to compare")
    rule = comparisons[0].rule
    low, high = (100 * end for end in rule.negligible)
    unit = "%" if rule.ratio else "points"
    axes.axvspan(low, high, color="#F0F0F0", zorder=0, label=f"within ±{high:g} {unit}: no win")
    axes.axvline(0.0, color="#888888", linewidth=1.0)
    for index, row in enumerate(comparisons):
        ends = (
            None
            if row.low is None or row.high is None
            else [[100 * (row.difference - row.low)], [100 * (row.high - row.difference)]]
        )
        first = all(other.verdict != row.verdict for other in comparisons[:index])
        axes.errorbar(
            100 * row.difference,
            index,
            xerr=ends,
            fmt=_VERDICT_MARKERS[row.verdict],
            color=_VERDICT_COLOURS[row.verdict],
            markersize=6,
            capsize=3.5,
            linewidth=1.6,
            label=row.verdict if first else None,
        )
    _names(axes, labels, "y")
    axes.set(ylim=(len(comparisons) - 0.4, -0.6), xlabel=f"difference ({unit}), 95 % interval")
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    legend_below(axes, 5)
    return figure


def comparisons_of(run: RecordedRun, rival: str | None = None) -> list[PairedComparison]:
    """A run's policies by the first measure of its work, paired by seed.

    Args:
        run: the run.
        rival: the policy others are compared with; None takes `rival` of the manifest and, where
            that has none, compares every pair.
    Raises:
        PolicyError: the rival has no records in the run.
    """
    chosen = run.manifest.get("rival") if rival is None else rival
    return judged(run.kind, run.summary, run.policies, chosen)


def figures_of(run: RecordedRun, rival: str | None = None) -> dict[str, Figure]:
    """Every figure of a run by the stem of its file name.

    Raises:
        PolicyError: the rival has no records in the run.
    """
    what = run.measures[0].heading.removesuffix(" %")
    drawn = {"outcome-shares": outcome_shares(run)} if run.work.parts else {"means": means(run)}
    if run.work.over_time:
        drawn["success-over-time"] = success_over_time(run)
    if run.kind == "streams":
        drawn["success-by-application"] = success_by_application(run)
    pairs = comparisons_of(run, rival)
    labels = [f"{row.policy} − {row.rival}" for row in pairs]
    if pairs:
        drawn["paired-differences"] = forest(pairs, labels, f"Paired difference of {what}")
    for part in (run, *run.beside):
        drawn |= _over_time(run, part)
    seed = min(run.manifest["seeds"], default=0)
    for number, policy in enumerate(run.policies[:_TIMELINES], 1):
        for what, figure in timelines(run.use, policy, seed).items():
            drawn[f"time-line-of-{what}" + (f"-{number}" if number > 1 else "")] = figure
    return drawn


def _over_time(run: RecordedRun, part: RecordedRun) -> dict[str, Figure]:
    """Lateness, what was lost and why, and when jobs ran, of one kind of work; those that say something."""
    seed = min(run.manifest["seeds"], default=0)
    found = {
        "late": over_time.late_over_time(part),
        "lost": over_time.refused_over_time(part),
        "gantt": over_time.gantt(part, run.use, run.policies[0], seed) if run.policies else None,
    }
    return {f"{part.kind}-{what}": figure for what, figure in found.items() if figure is not None}


def drawn(run: RecordedRun, rival: str | None = None) -> dict[str, bytes]:
    """Every figure as PNG, by file stem.

    Raises:
        PolicyError: the rival has no records in the run.
    """
    return {stem: as_png(figure) for stem, figure in figures_of(run, rival).items()}


def save_all(
    run: RecordedRun,
    folder: str | Path | None = None,
    rival: str | None = None,
    images: Mapping[str, bytes] | None = None,
) -> list[Path]:
    """Write every figure as PNG into folder/figures.

    Args:
        run: the run.
        folder: where `figures` goes; None takes the run's own folder.
        rival: as for `comparisons_of`.
        images: as `drawn`, where it was called before; drawing takes most of the time.
    Returns:
        the files written.
    Raises:
        RunError: the folder cannot be written.
        PolicyError: the rival has no records in the run.
    """
    place = (run.folder if folder is None else Path(folder)) / "figures"
    paths = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        for stem, image in (drawn(run, rival) if images is None else images).items():
            paths.append(place / f"{stem}.png")
            paths[-1].write_bytes(image)
    except OSError as error:
        raise RunError(f"cannot write figures to {place}: {error}; check the path and its rights") from error
    return paths
