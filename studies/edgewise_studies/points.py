"""What a figure shows, as rows: whoever draws it anew needs the points and not the picture."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

COLUMNS = ("series", "x", "y", "low", "high")


def rows(figure: Figure) -> list[tuple[Any, ...]]:
    """Of every named curve its points, with intervals where it has them; of a table in colours its cells."""
    return [row for axes in figure.axes for row in (*_whiskers(axes), *_lines(axes), *_cells(axes))]


def _whiskers(axes: Axes) -> Iterator[tuple[Any, ...]]:
    names = {
        place: text.get_text() for place, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    }
    for container in axes.containers:
        if not isinstance(container, ErrorbarContainer):
            continue
        line, _, bars = container.lines
        points = [] if line is None else _points_of(line)
        if not bars:  # one run has no interval
            yield from ((container.get_label(), x, y, "", "") for x, y in points)
            continue
        for (x, y), (low, high) in zip(points, bars[0].get_segments(), strict=True):
            if container.has_xerr:  # a row of its own, which has the name
                yield names.get(y, y), "", x, low[0], high[0]
            else:
                yield container.get_label(), x, y, low[1], high[1]


def _lines(axes: Axes) -> Iterator[tuple[Any, ...]]:
    for line in axes.get_lines():
        if not str(line.get_label()).startswith("_"):
            yield from ((line.get_label(), x, y, "", "") for x, y in _points_of(line))


def _points_of(line: Line2D) -> list[list[float]]:
    return [np.asarray(values, dtype=np.float64).tolist() for values in np.asarray(line.get_xydata())]


def _cells(axes: Axes) -> Iterator[tuple[Any, ...]]:
    for image in axes.images:
        names, across = ([text.get_text() for text in a.get_ticklabels()] for a in (axes.yaxis, axes.xaxis))
        for name, row in zip(names, np.asarray(image.get_array()), strict=False):
            yield from ((name, x, float(y), "", "") for x, y in zip(across, row, strict=False))


def write(figure: Figure, path: Path) -> None:
    """Write them as CSV; nothing where a figure has none."""
    found = rows(figure)
    if found:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([COLUMNS, *found])
