"""Figures of a sweep or a sizing: a measure over a key, and what was tried of two."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgewise.report.intervals import Interval
from edgewise.report.schema import Measure
from edgewise.report.style import COLOURS, INK, MARKERS, legend_below, new_axes


class Curve(NamedTuple):
    """A measure over the values of a key.

    Attributes:
        label: of the curve.
        values: of the key, as they are shown.
        at: where they lie on the axis.
        found: the measure at each.
        knee: where on the axis its knee lies; None: nowhere.
        chosen: where on the axis the value lies that is the answer; None: nowhere.
    """

    label: str
    values: Sequence[str]
    at: Sequence[float]
    found: Sequence[Interval]
    knee: float | None
    chosen: float | None = None


def curves(drawn: Sequence[Curve], key: str, measure: Measure, target: float | None) -> Figure:
    """Means with 95 % intervals over the values of a key, the target as a line, knees as vertical ones."""
    figure, axes = new_axes(8.0, 4.2, f"{measure.heading} over {key}")
    for number, curve in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        mean = [measure.scale * one.mean for one in curve.found]
        low, high = (
            [
                measure.scale * (one.mean if end is None else end)
                for one, end in zip(curve.found, ends, strict=True)
            ]
            for ends in ([one.low for one in curve.found], [one.high for one in curve.found])
        )
        axes.fill_between(curve.at, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(curve.at, mean, color=colour, marker=MARKERS[number % len(MARKERS)], markersize=5,
                  linewidth=1.8, label=curve.label)  # fmt: skip
        if curve.knee is not None:
            axes.axvline(curve.knee, color=colour, linewidth=1.0, linestyle=":")
            _mark(axes, f"knee: {curve.knee:.4g}", curve.knee, colour, number)
        if curve.chosen is not None:
            there = mean[list(curve.at).index(curve.chosen)]
            axes.plot([curve.chosen], [there], "*", color=INK, markersize=14, label="chosen")
            _mark(
                axes, f"chosen: {curve.values[list(curve.at).index(curve.chosen)]}", curve.chosen, INK, number
            )
    if target is not None:
        axes.axhline(measure.scale * target, color=INK, linewidth=1.0, linestyle="--", label="target")
    shown = {at: text for curve in drawn for at, text in zip(curve.at, curve.values, strict=True)}
    if len(shown) <= 12:
        axes.set_xticks(list(shown), list(shown.values()))
    axes.set(xlabel=key, ylabel=measure.heading)
    axes.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    legend_below(axes, 3)
    return figure


def _mark(axes: Axes, text: str, at: float, colour: str, line: int) -> None:
    """Say at the top of a figure what lies at a value, each on a line of its own."""
    place = (at, 0.98 - 0.055 * line)
    axes.annotate(text, place, (4, 0), xycoords=axes.get_xaxis_transform(), textcoords="offset points",
                  fontsize=8.5, color=colour, va="top", parse_math=False)  # fmt: skip


def border(
    tried: Mapping[tuple[Any, Any], bool],
    chosen: Sequence[tuple[Any, Any]],
    keys: Sequence[str],
    values: Sequence[Sequence[Any]],
) -> Figure:
    """What was tried of two keys, whether it met the targets, and the frontier; values in order."""
    figure, axes = new_axes(6.4, 4.6, "what meets the targets")
    places = [{value: k for k, value in enumerate(each)} for each in values]
    for fine, label, marker in ((True, "meets", "o"), (False, "does not surely", "x")):
        at = [(places[0][a], places[1][b]) for (a, b), good in tried.items() if good == fine]
        if at:
            axes.scatter(*zip(*at, strict=True), marker=marker, color=COLOURS[0 if fine else 1], label=label)
    if chosen:
        at = sorted((places[0][a], places[1][b]) for a, b in chosen)
        axes.plot(*zip(*at, strict=True), "*:", color=INK, linewidth=1.0, markersize=14, label="chosen")
    axes.set_xticks(list(places[0].values()), [str(value) for value in places[0]])
    axes.set_yticks(list(places[1].values()), [str(value) for value in places[1]])
    axes.set(xlabel=keys[0], ylabel=keys[1])
    legend_below(axes, 3)
    return figure
