"""Figures and the page of a sweep: a measure over the values of a key, or what was tried of two keys."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from edgewise.report.html import environment
from edgewise.report.records import write_whole
from edgewise.report.schema import Measure
from edgewise.report.statistics import Interval
from edgewise.report.style import COLOURS, INK, MARKERS, legend_below, new_axes, png


class Curve(NamedTuple):
    """A measure over the values of a key.

    Attributes:
        label: of the curve.
        values: of the key, as they are shown.
        at: where they lie on the axis.
        found: the measure at each.
        knee: where on the axis its knee lies; None: nowhere.
    """

    label: str
    values: Sequence[str]
    at: Sequence[float]
    found: Sequence[Interval]
    knee: float | None


def curves(drawn: Sequence[Curve], key: str, measure: Measure, target: float | None) -> Figure:
    """Means with 95 % intervals over the values of a key, the target as a line, knees as vertical ones."""
    figure, axes = new_axes(8.0, 4.2, f"{measure.heading} over {key}")
    for number, curve in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        mean = [measure.scale * one.mean for one in curve.found]
        ends = [one.ends(measure.share) or (one.mean, one.mean) for one in curve.found]
        low, high = ([measure.scale * end for end in side] for side in zip(*ends, strict=True))
        axes.fill_between(curve.at, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(curve.at, mean, color=colour, marker=MARKERS[number % len(MARKERS)], markersize=5,
                  linewidth=1.8, label=curve.label)  # fmt: skip
        if curve.knee is not None:
            axes.axvline(curve.knee, color=colour, linewidth=1.0, linestyle=":")
    if target is not None:
        axes.axhline(measure.scale * target, color=INK, linewidth=1.0, linestyle="--", label="target")
    shown = {at: text for curve in drawn for at, text in zip(curve.at, curve.values, strict=True)}
    if len(shown) <= 12:
        axes.set_xticks(list(shown), list(shown.values()))
    axes.set(xlabel=key, ylabel=measure.heading)
    axes.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    legend_below(axes, 3)
    return figure


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
        axes.plot(*zip(*at, strict=True), color=INK, linewidth=1.0, linestyle=":", label="frontier")
    axes.set_xticks(list(places[0].values()), [str(value) for value in places[0]])
    axes.set_yticks(list(places[1].values()), [str(value) for value in places[1]])
    axes.set(xlabel=keys[0], ylabel=keys[1])
    legend_below(axes, 3)
    return figure


def as_png(figure: Figure) -> bytes:
    """A figure's file."""
    buffer = io.BytesIO()
    png(figure, buffer)
    return buffer.getvalue()


def write_page(path: Path, image: bytes, **found: Any) -> None:
    """Write the page of a sweep, whole or not at all.

    Args:
        image: PNG of its figure.
        found: title, sentences, headings, rows, facts and scenario, as the template names them.
    Raises:
        RunError: it cannot be written.
    """
    data = base64.b64encode(image).decode("ascii")
    write_whole(path, environment().get_template("sweep.html.j2").render(image=data, **found), "report")
