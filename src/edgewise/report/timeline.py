"""Who held what, over time: a track for each node and link, a band for each kind of work.

Spans are averaged over some hundred steps of the run, so that a day looks as calm as two minutes; what is
drawn is a share of what the node or link has. Colours are one for each kind of work, in every figure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, StepPatch

from edgewise.arrays import Floats
from edgewise.core.holders import GONE
from edgewise.report.style import INK, new_panels, time_axis
from edgewise.report.summary import rate
from edgewise.report.use import HELD, by_place

BANDS = {
    "streams": ("workers", "#0072B2"),
    "graphs": ("split servers", "#56B4E9"),
    "services": ("replicas", "#009E73"),
    "pipelines": ("pipelines", "#CC79A7"),
    "jobs": ("jobs", "#E69F00"),
    "other": ("other work", "#BBBBBB"),
    "messages": ("messages", "#4D4D4D"),
    "reserved": ("reserved: flows, images", "#D55E00"),
    GONE: ("not there", "#FFFFFF"),
}
"""By kind of work its name and its colour, from the bottom of a track upwards."""
STEPS, TRACKS = 400, 24
_HEIGHT = 0.8  # of a track; the next begins at 1
_FREE = "#F1F1F1"


class Track(NamedTuple):
    """A node or link over time.

    Attributes:
        name: of it.
        has: what it has in all, for people.
        bands: (STEPS,) share of it that each kind of work holds.
    """

    name: str
    has: str
    bands: Mapping[str, Floats]

    @property
    def share(self) -> Floats:
        """(STEPS,) that anybody holds."""
        return sum((band for work, band in self.bands.items() if work != GONE), np.zeros(STEPS))


def tracks_of(use: Mapping[str, pa.Table], policy: str, seed: int) -> tuple[dict[str, list[Track]], Floats]:
    """Tracks of one run by what is held, of `HELD`, rates as "links"; and the (STEPS + 1,) edges of steps."""
    found: dict[str, list[Track]] = {"cores": [], "memory": [], "accelerators": [], "links": []}
    mine = {
        name: table.filter((pc.field("policy") == policy) & (pc.field("seed") == seed))
        for name, table in use.items()
        if name in ("holds", "links")
    }
    ends_s = [pc.max(table["end_s"]).as_py() for table in mine.values() if table.num_rows]
    edges = np.linspace(0.0, max(ends_s, default=1.0), STEPS + 1)
    if "holds" in mine:
        for place, (total, held) in by_place(mine["holds"].to_pylist()).items():
            for what, (key, says) in HELD.items():
                if total[key] > 0.0:
                    track = Track(place, says(total[key]), _bands(held, key, total[key], edges))
                    found["links" if what == "reserved" else what].append(track)
    if "links" in mine:
        found["links"] += _of_messages(mine["links"], edges)
    return {what: tracks for what, tracks in found.items() if tracks}, edges


def _bands(held: Sequence[Mapping[str, Any]], key: str, has: float, edges: Floats) -> dict[str, Floats]:
    spans: dict[str, list[tuple[float, float, float]]] = {}
    for row in held:
        if row[key] > 0.0:
            spans.setdefault(row["work"], []).append((row["start_s"], row["end_s"], row[key] / has))
    arrays = {work: np.array(spans[work]).T for work in BANDS if work in spans}
    return {work: mean_in_steps(one[0], one[1], one[2], edges) for work, one in arrays.items()}


def _of_messages(links: pa.Table, edges: Floats) -> list[Track]:
    tracks = []
    for link in dict.fromkeys(links["link"].to_pylist()):
        one = links.filter(pc.field("link") == link)
        names = ("start_s", "end_s", "capacity_bps", "reserved_bps", "sent_bits")
        start_s, end_s, capacity, reserved, sent = (one[name].to_numpy() for name in names)
        could = np.maximum(capacity, 1e-9)
        bands = {"reserved": reserved / could, "messages": sent / could / (end_s - start_s)}
        shares = {
            work: mean_in_steps(start_s, end_s, share, edges) for work, share in bands.items() if share.any()
        }
        tracks.append(Track(link, rate(float(capacity.max())), shares))
    return tracks


def mean_in_steps(start_s: Floats, end_s: Floats, amount: Floats, edges: Floats) -> Floats:
    """(STEPS,) mean in each step of the sum of what spans hold."""
    times, change = np.concatenate([start_s, end_s]), np.concatenate([amount, -amount])
    order = np.argsort(times, kind="stable")
    area = np.cumsum(np.cumsum(change[order])[:-1] * np.diff(times[order]))
    mean: Floats = np.diff(np.interp(edges, times[order], np.concatenate([[0.0], area]))) / np.diff(edges)
    return mean.clip(0.0)


def timelines(use: Mapping[str, pa.Table], policy: str, seed: int) -> dict[str, Figure]:
    """Figures of one run: "nodes", cores beside memory, and "links"; of what is known and held."""
    tracks, edges = tracks_of(use, policy, seed)
    about = f"{policy}, seed {seed}"
    nodes: dict[str, Sequence[Track]] = {what: tracks[what] for what in ("cores", "memory") if what in tracks}
    held = {what: of for what, of in nodes.items() if any(track.bands for track in of)}
    figures = {}
    if nodes:
        figures["nodes"] = _drawn(held or nodes, edges, f"Who holds what of each node: {about}")
    if "links" in tracks:
        figures["links"] = _drawn({"": tracks["links"]}, edges, f"What each link carries: {about}")
    return figures


def _drawn(panels: Mapping[str, Sequence[Track]], edges: Floats, about: str) -> Figure:
    most = max(map(len, panels.values()))
    shown = {what: _busiest(tracks) for what, tracks in panels.items()}
    rows = max(map(len, shown.values()))
    more = f"; the {rows} busiest of {most}" if rows < most else ""
    names = tuple(shown) if len(shown) > 1 else (about + more,)
    figure, several = new_panels(10.0, 1.9 + 0.4 * rows, names)
    first = next(iter(shown.values()))
    for axes, tracks in zip(several, shown.values(), strict=True):
        for row, track in enumerate(tracks):
            _draw(axes, track, row, edges)
        axes.set(xlim=(0.0, edges[-1]), ylim=(rows - 1 + _HEIGHT + 0.1, -0.1))
        same = axes is not several[0] and [t.name for t in tracks] == [t.name for t in first]
        labels = [] if same else [track.name for track in tracks]
        axes.set_yticks([row + _HEIGHT / 2 for row in range(len(labels))], labels)
        for text in axes.get_yticklabels():
            text.set_parse_math(False)
        axes.spines[["left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        time_axis(axes, float(edges[-1]))
    if len(shown) > 1:
        figure.suptitle(about + more, x=0.01, ha="left", fontsize=10, color=INK, parse_math=False)
    works = {work for tracks in shown.values() for track in tracks for work in track.bands}
    _legend(figure, [work for work in BANDS if work in works])
    return figure


def _busiest(tracks: Sequence[Track]) -> list[Track]:
    kept = sorted(tracks, key=lambda track: -track.share.mean())[:TRACKS]
    return [track for track in tracks if any(track is one for one in kept)]


def _draw(axes: Axes, track: Track, row: int, edges: Floats) -> None:
    floor = np.full(STEPS, row + _HEIGHT)  # the axis points down

    def fill(top: Floats, **style: Any) -> None:  # as `stairs`, which looks at all points for the limits
        below: Any = floor
        axes.add_artist(StepPatch(top, edges, baseline=below, fill=True, **style))

    fill(floor - _HEIGHT, color=_FREE, linewidth=0)
    for work, band in track.bands.items():
        top = np.maximum(floor - _HEIGHT * band, row)
        fill(top, **_style(work))
        floor = top
    mean, most = 100 * track.share.mean(), 100 * track.share.max()
    says = f"{_percent(mean)} of {track.has}" + (f"\nat most {_percent(most)}" if most > mean * 1.01 else "")
    axes.annotate(says, (1.0, row + _HEIGHT / 2), (4, 0), xycoords=axes.get_yaxis_transform(),
                  textcoords="offset points", va="center", fontsize=7, color="#666666")  # fmt: skip


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 9.95 or value == 0.0 else f"{value:.2g} %"


def _style(work: str) -> dict[str, Any]:
    colour = BANDS[work][1]
    if work == GONE:
        return {"facecolor": colour, "edgecolor": "#999999", "hatch": "////", "linewidth": 0.0}
    return {"color": colour, "linewidth": 0}


def _legend(figure: Figure, works: Sequence[str]) -> None:
    handles = [Patch(label=BANDS[work][0], **_style(work)) for work in works]
    handles.append(Patch(label="free", color=_FREE))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
