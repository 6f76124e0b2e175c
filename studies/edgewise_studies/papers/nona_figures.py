"""Figures of the reproduction of Nona."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from edgewise.arrays import Floats
from edgewise_studies.run import chart, whiskers

COLOURS = {
    "nona": "#0072B2", "nona-queues": "#56B4E9", "nona-free": "#D55E00", "whole-random": "#BBBBBB",
    "whole-round-robin": "#999999", "whole-shortest-queue": "#777777", "whole-two-choices": "#555555",
    "whole-least-loaded": "#000000", "scatter": "#CC79A7", "equal": "#F0E442", "blind": "#E69F00",
    "earliest-finish": "#009E73",
}  # fmt: skip


def load_figure(
    name: str,
    loads: Sequence[float],
    means: Mapping[tuple[str, float], Floats],
    predicted: Mapping[tuple[str, float], float],
    policies: Sequence[str],
    what: str = "mean",
) -> Figure:
    """Completion time over load, `what` of each run, with 95 % intervals; predicted dotted; log scale."""
    below, beside = (
        "work that arrives over what the servers can do",
        "seconds; beyond the top: the link is full",
    )
    lowest = min(float(values.mean()) for values in means.values())
    with chart(7.5, 5.0, f"{name}: completion time over load, {what}", below, beside, columns=4) as (
        figure,
        axes,
    ):
        for policy in policies:
            style = {"color": COLOURS[policy], "marker": "o", "markersize": 3, "label": policy}
            whiskers(axes, loads, [means[policy, load] for load in loads], **style)
            if policy in ("nona", "nona-queues") and predicted:
                formula = [predicted[policy, load] for load in loads]
                axes.plot(loads, formula, color=COLOURS[policy], linestyle=":")
        axes.set_yscale("log")
        axes.set_ylim(lowest * 0.9, lowest * 30)
    return figure


def link_figure(
    links: Floats, value: Floats, sent: Floats, chosen: Floats, simulated: Sequence[Floats]
) -> Figure:
    """Optimum over the time on one server and data sent, over the link's capacity; simulated ratio."""
    with chart(
        7.0,
        4.2,
        "inception-v1 at load 0.1: from local to distributed",
        "capacity of the link (bit/s)",
        columns=3,
    ) as (figure, axes):
        axes.plot(links, value, color="#0072B2", label="predicted time / time on one server")
        axes.plot(links, sent, color="#D55E00", linestyle="--", label="data sent / most data sent")
        ratio = [float(values.mean()) for values in simulated]
        axes.plot(chosen, ratio, "s", color="#009E73", label="simulated, nona-free / whole-least-loaded")
        axes.set_xscale("log")
    return figure
