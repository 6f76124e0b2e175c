"""Curves of ENTS over nodes, pipelines and bandwidth."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from edgewise.arrays import Floats
from edgewise_studies.run import chart, whiskers

_LABELS = {"nodes": "edge nodes", "pipelines": "submitted pipelines", "megabits": "mean bandwidth (Mbit/s)"}
_WHAT = {
    "fps": "average throughput (frames/s)",
    "median_fps": "throughput of the median pipeline (frames/s)",
    "overall_fps": "frames / time since submission (frames/s)",
    "waiting_s": "average waiting time (s)",
    "unserved": "share of the submitted pipelines without a frame",
}
_STYLE = (("#999999", "v"), ("#B8A800", "^"), ("#E69F00", "s"), ("#56B4E9", "D"), ("#0072B2", "P"),
          ("#009E73", "o"), ("#D55E00", "*"))  # fmt: skip


def curves(
    found: Mapping[Any, Mapping[str, Mapping[str, Floats]]],
    points: Sequence[Any],
    axis: str,
    field: str,
) -> Figure:
    """One curve for each policy with its 95 % intervals, as in the paper's fig. 11.

    Args:
        found: point → field → policy → (seeds,).
        axis: attribute of the points to draw over.
    """
    x = [getattr(point, axis) for point in points]
    with chart(6.4, 4.4, f"{_WHAT[field]} over {_LABELS[axis]}", _LABELS[axis], _WHAT[field], columns=4) as (
        drawn,
        axes,
    ):
        for policy, (colour, marker) in zip(found[points[0]][field], _STYLE, strict=True):
            rows = [found[point][field][policy] for point in points]
            whiskers(axes, x, rows, marker=marker, color=colour, label=policy)
        if field == "waiting_s":
            axes.set_yscale("symlog", linthresh=1.0)
    return drawn
