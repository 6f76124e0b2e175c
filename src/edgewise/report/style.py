"""The style of all figures: axes, colours, labels of time, and PNG; no pyplot, no global state.

Colours are those of Okabe and Ito, told apart by all common kinds of colour blindness;
policies also differ by marker, so a grey print still reads.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D", "#B8A800")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK = "#222222"
_DPI = 160
_UNITS = ((86400.0, "days", 3), (3600.0, "h", 3), (60.0, "min", 10), (1.0, "s", 0))
"""Units of time: seconds, name, and from how many of them on it is used."""


def new_panels(width: float, height: float, titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """A figure of axes beside each other, in the style of all figures; width and height in inches."""
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=10, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#888888")
        axes.tick_params(colors=INK, labelsize=9, length=3, color="#888888")
        axes.set_axisbelow(True)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set(fontsize=9, color=INK)
    return figure, panels


def new_axes(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """`new_panels` of one pair of axes."""
    figure, (axes,) = new_panels(width, height, (title,))
    return figure, axes


def time_axis(axes: Axes, end_s: float) -> None:
    """Label a horizontal axis in seconds by what people count such a span in."""
    unit_s, unit = next(each for each in _UNITS if end_s >= each[0] * each[2] or each[0] == 1.0)[:2]
    axes.xaxis.set_major_locator(MultipleLocator(unit_s * _step(end_s / unit_s)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time_s, _: f"{time_s / unit_s:g}"))
    axes.set_xlabel(f"time ({unit})")


def _step(span: float) -> float:
    """Distance of ticks, of which there are about seven: 1, 2, 3, 5, 6 or 10 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(span / 7.0))
    return float(next(step * power for step in (1, 2, 3, 5, 6, 10) if step * power >= span / 7.0))


def legend_below(axes: Axes, columns: int) -> None:
    """Legend below the axes; names are taken literally."""
    legend = axes.figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def png(figure: Figure, target: Any) -> None:
    """Write a figure as PNG to a path or binary file; no version or time goes into it."""
    figure.set_dpi(_DPI)  # `figure.savefig` would lay it out and draw it twice
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(target, metadata={"Software": None})


def as_png(figure: Figure) -> bytes:
    """A figure's file."""
    buffer = io.BytesIO()
    png(figure, buffer)
    return buffer.getvalue()
