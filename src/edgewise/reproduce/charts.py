"""What the figures of reproductions have in common: labels, whiskers, bands, boxes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from edgewise.arrays import Floats
from edgewise.report.statistics import mean_interval
from edgewise.report.style import legend_below, new_axes


@contextmanager
def chart(
    width: float, height: float, title: str, x: str = "", y: str = "", columns: int = 0
) -> Iterator[tuple[Figure, Axes]]:
    """Axes to draw on, which then get labels, a grid, and names below in so many columns (0: none)."""
    drawn, axes = new_axes(width, height, title)
    yield drawn, axes
    axes.set(xlabel=x, ylabel=y)
    axes.grid(color="#E3E3E3", linewidth=0.8)
    if columns:
        legend_below(axes, columns)


def whiskers(axes: Axes, x: Sequence[float], values: Sequence[ArrayLike], **style: Any) -> None:
    """The mean of each set of values with its 95 % interval."""
    found = [mean_interval(each) for each in values]
    error = [0.0 if one.high is None else one.high - one.mean for one in found]
    axes.errorbar(x, [one.mean for one in found], yerr=error, capsize=3, **style)


def band(axes: Axes, x: ArrayLike, curves: Floats, label: str) -> None:
    """The mean of (N, T) curves, and all between the least and the greatest."""
    (line,) = axes.plot(np.asarray(x), curves.mean(axis=0), label=label)
    low, high = curves.min(axis=0), curves.max(axis=0)
    axes.fill_between(np.asarray(x), low, high, color=line.get_color(), alpha=0.15, lw=0)


def boxes(values: Mapping[str, Floats], title: str, y: str = "", width: float = 6.4) -> Figure:
    """A box for each name's values."""
    with chart(width, 3.8, title, y=y) as (drawn, axes):
        axes.boxplot(list(values.values()), tick_labels=list(values))
        axes.tick_params(axis="x", labelrotation=30 if len(values) > 4 else 0)
    return drawn
