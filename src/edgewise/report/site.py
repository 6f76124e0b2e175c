"""A picture of the places of a run, as SVG: nodes and links, and how full they are.

Clusters stand in rows by tier, the cloud on top, access sites below. Each node is filled by what work holds
of it, and the bar at its foot is as long as its workers are busy; each link is as wide and as red as it is
full. Figures are means over the run and its seeds under one policy. The picture has the colours of the page
around it, light and dark, and the names in it are escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgewise.model.scenario import Scenario
from edgewise.model.topology import Cluster, Topology
from edgewise.model.ways import routes_of
from edgewise.report.records import RecordedRun
from edgewise.report.summary import rate
from edgewise.report.use import Use, use_of

WIDTH, ROW, NODE = 960.0, 128.0, 58.0  # of the picture, a row of clusters, and a node, in pixels
NODES, LINES, WAYS, WIRES, LABELS = 6, 4, 60, 60, 6  # so many side by side, and of all, are drawn
_WIDEST, _NARROWEST, _GAP, _PAD = 150.0, 104.0, 8.0, 10.0
LEAST, WARM, HOT = 0.001, 0.5, 0.8
"""From these shares on a link is named, and what works is drawn as filling up, and as full."""

STYLE = """<style>
.site { --ink: #1d2127; --quiet: #626b78; --panel: #f3f5f8; --line: #c9d0d9; --fill: #cfe4f4; --warm: #e69f00;
  --hot: #d55e00; --paper: #ffffff; font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) { .site { --ink: #e6e9ee; --quiet: #9aa4b2; --panel: #262c34;
  --line: #4a5462; --fill: #2b4a63; --warm: #d19a20; --hot: #e06a20; --paper: #1d2127; } }
.site text { fill: var(--ink); } .site .quiet { fill: var(--quiet); font-size: 10.5px; }
.site .name { font-weight: 600; } .site .panel { fill: var(--panel); stroke: var(--line); }
.site .box { fill: var(--paper); stroke: var(--line); } .site .way { fill: none; stroke: var(--line); }
.site .way.warm { stroke: var(--warm); } .site .way.hot { stroke: var(--hot); }
.site .held { fill: var(--fill); } .site .busy { fill: var(--quiet); } .site .busy.warm { fill: var(--warm); }
.site .busy.hot { fill: var(--hot); }
.site .chip { fill: var(--paper); stroke: var(--line); }
</style>"""


class Filled(NamedTuple):
    """How full something is: shares, in the mean and at most; `says` is the same for people."""

    mean: float
    peak: float
    says: str


@dataclass
class Loads:
    """Of nodes, and of links by their names in `Routes`; `busy`: share in which workers of a node worked."""

    nodes: dict[str, Filled] = field(default_factory=dict)
    links: dict[str, Filled] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)


class _Place(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def picture(scenario: Scenario, run: RecordedRun, policy: str, heading: str = "") -> str:
    """The places of a run under a policy, as SVG; "" where there is no node.

    Args:
        heading: above the picture; none within a page.
    """
    topology = scenario.topology
    if not topology.nodes:
        return ""
    loads = loads_of(topology, run, policy)
    top = 34.0 if heading else 6.0
    panels, boxes, left_out, bottom = _laid_out(topology, loads, top)
    sites = _sites(topology, panels, bottom + 40.0)
    height = bottom + (40.0 + 34.0 if sites else 0.0) + 8.0
    parts = _ways(topology, loads, panels, sites)
    drawn, labels = [one for one, _ in parts], [label for _, label in parts if label]
    drawn += [_panel(cluster, panels[cluster.name], left_out) for cluster in _shown(topology, panels)]
    drawn += _wires(topology, loads, boxes)
    drawn += [_node(name, place, loads) for name, place in boxes.items()]
    drawn += [_site(name, place) for name, place in sites.items()] + labels
    title = f'<text class="name" x="6" y="20" style="font-size: 15px">{escape(heading)}</text>'
    head = (
        f'<svg class="site" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img">'
    )
    return "\n".join([head, STYLE, *([title] if heading else []), *drawn, "</svg>"])


def loads_of(topology: Topology, run: RecordedRun, policy: str) -> Loads:
    """How full nodes and links are under a policy; of links that are not shared what streams send."""
    found = Loads()
    for one in use_of(run.use, policy):
        load = Filled(one.mean, one.peak or one.mean, f"{_percent(one.mean)} of {one.has}")
        if one.what == "cores" or (one.what == "memory" and _instead(found, one)):
            found.nodes[one.name] = load
        elif one.what in ("reserved", "messages"):
            found.links[one.name] = _added(found.links.get(one.name), one, load)
    found.busy = _busy(run.use, policy)
    streams = next((part for part in (run, *run.beside) if part.kind == "streams"), None)
    if "links" not in run.use and streams is not None:
        found.links |= _declared(topology, streams, policy)
    return found


def _instead(loads: Loads, memory: Use) -> bool:
    """Whether the memory of a node says more than its cores, of which nothing is held or known."""
    return memory.name not in loads.nodes or (memory.mean > 0.0 and loads.nodes[memory.name].mean == 0.0)


def _added(before: Filled | None, one: Use, load: Filled) -> Filled:
    if before is None:
        return load
    mean = before.mean + one.mean
    return Filled(mean, max(before.peak, load.peak), f"{_percent(mean)} of {one.has}")


def _busy(use: Mapping[str, pa.Table], policy: str) -> dict[str, float]:
    """Of the workers on each node, share of the time in which they worked."""
    if "workers" not in use:
        return {}
    mine = use["workers"].filter((pc.field("policy") == policy) & pc.field("node").is_valid())
    sums = mine.group_by(["node"], use_threads=False).aggregate([("busy_s", "sum"), ("there_s", "sum")])
    return {
        row["node"]: row["busy_s_sum"] / row["there_s_sum"]
        for row in sums.to_pylist()
        if row["there_s_sum"] > 0.0
    }


def _declared(topology: Topology, streams: RecordedRun, policy: str) -> dict[str, Filled]:
    """Mean share of each way's rate that the queries sent over it take, by "site → cluster"."""
    items = streams.items.filter((pc.field("policy") == policy) & pc.field("cluster").is_valid())
    bits = pc.multiply(
        pc.multiply(items["size_bytes"], 8.0), pc.subtract(items["queries"], items["rejected"])
    )
    sums = items.append_column("bits", bits).group_by(["site", "cluster"], use_threads=False)
    seeds = max(1, len(pc.unique(streams.windows["seed"])))
    end_s = pc.max(streams.windows["end_s"]).as_py() or 1.0
    bps = {(row["site"], row["cluster"]): row["bits_sum"] / seeds / end_s for row in
           sums.aggregate([("bits", "sum")]).to_pylist()}  # fmt: skip
    found = {}
    for way in topology.ways:
        if sent := bps.get((way.site, way.cluster), 0.0):
            share = sent / way.bandwidth_bps
            says = f"{_percent(share)} of {rate(way.bandwidth_bps)}"
            found[f"{way.site} → {way.cluster}"] = Filled(share, share, says)
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 or share == 0.0 else f"{100 * share:.2g} %"


def _warmth(share: float) -> str:
    return " hot" if share >= HOT else " warm" if share >= WARM else ""


def _fullness(cluster: Cluster, loads: Loads) -> float:
    return max(
        (loads.nodes[node.name].mean for node in cluster.nodes if node.name in loads.nodes), default=0.0
    )


def _laid_out(
    topology: Topology, loads: Loads, top: float
) -> tuple[dict[str, _Place], dict[str, _Place], dict[str, str], float]:
    """Places of clusters and nodes, what is left out of each cluster, and where the last row ends."""
    panels: dict[str, _Place] = {}
    boxes: dict[str, _Place] = {}
    left_out: dict[str, str] = {}
    y = top
    for tier in sorted({cluster.tier for cluster in topology.clusters}, reverse=True):
        row = [cluster for cluster in topology.clusters if cluster.tier == tier and cluster.nodes]
        kept = _that_fit(row, loads)
        if not kept:
            continue
        units, lines = sum(min(NODES, len(cluster.nodes)) for cluster in kept), _lines(row)
        room = WIDTH - 12.0 - len(kept) * (2 * _PAD + _GAP)
        width = min(_WIDEST, room / units - _GAP)
        total = units * (width + _GAP) + len(kept) * (2 * _PAD + _GAP) - _GAP
        x = (WIDTH - total) / 2
        for cluster in kept:
            nodes = sorted(cluster.nodes, key=lambda node: -loads.nodes.get(node.name, Filled(0, 0, "")).mean)
            shown = {node.name for node in nodes[: NODES * lines]}
            beside = min(NODES, len(shown))
            high = ROW - 28.0 + (lines - 1) * (NODE + _GAP)
            place = _Place(x, y, beside * (width + _GAP) - _GAP + 2 * _PAD, high)
            for k, node in enumerate(node for node in cluster.nodes if node.name in shown):
                line, column = divmod(k, NODES)
                left, head = x + _PAD + column * (width + _GAP), y + 30.0 + line * (NODE + _GAP)
                boxes[node.name] = _Place(left, head, width, NODE)
            if more := len(cluster.nodes) - len(shown):
                left_out[cluster.name] = f"{more} more"
            panels[cluster.name] = place
            x += place.width + 2 * _GAP
        if more := len(row) - len(kept):
            left_out[kept[-1].name] = f"{more} more"
        y += ROW + (lines - 1) * (NODE + _GAP)
    return panels, boxes, left_out, y - 28.0


def _lines(row: Sequence[Cluster]) -> int:
    """Lines of nodes in the clusters of a tier: several where there is but one."""
    return min(LINES, -(-len(row[0].nodes) // NODES)) if len(row) == 1 else 1


def _that_fit(row: Sequence[Cluster], loads: Loads) -> list[Cluster]:
    """The fullest clusters of a tier that fit side by side, in their order."""
    kept, room = set[str](), WIDTH - 12.0
    for cluster in sorted(row, key=lambda each: -_fullness(each, loads)):
        room -= min(NODES, len(cluster.nodes)) * (_NARROWEST + _GAP) + 2 * _PAD + _GAP
        if kept and room < 0.0:
            break
        kept.add(cluster.name)
    return [cluster for cluster in row if cluster.name in kept]


def _shown(topology: Topology, panels: Mapping[str, _Place]) -> Iterable[Cluster]:
    return (cluster for cluster in topology.clusters if cluster.name in panels)


def _sites(topology: Topology, panels: Mapping[str, _Place], y: float) -> dict[str, _Place]:
    """Access sites side by side, each near its own cluster where it has one that is drawn."""
    wanted = [
        (_middle(panels[own]), site.name)
        for site in topology.sites
        if (own := _own(topology, site.name)) in panels
    ]
    wanted = sorted(wanted)[: int(WIDTH // 70)]
    width = min(130.0, WIDTH / max(1, len(wanted)) - _GAP)
    places, least = {}, 4.0
    for n, (x, name) in enumerate(wanted):
        most = WIDTH - 4.0 - (len(wanted) - n) * (width + _GAP)
        left = min(max(least, x - width / 2), most)
        places[name] = _Place(left, y, width, 26.0)
        least = left + width + _GAP
    return places


def _own(topology: Topology, site: str) -> str:
    """The cluster of a site, or else the nearest one."""
    declared = next((one.cluster for one in topology.sites if one.name == site), "")
    ways = [way for way in topology.ways if way.site == site] if not declared else []
    return declared or min(ways, key=lambda way: way.delay_s).cluster if ways or declared else ""


def _middle(place: _Place) -> float:
    return place.x + place.width / 2


def _ways(
    topology: Topology, loads: Loads, panels: Mapping[str, _Place], sites: Mapping[str, _Place]
) -> list[tuple[str, str]]:
    """Ways from sites to clusters with the load of their fullest link, the emptiest first; and its label."""
    if not sites:
        return []
    routes, found = routes_of(topology), []
    for n, way in enumerate(topology.ways):
        if way.site not in sites or way.cluster not in panels:
            continue
        names = [routes.names[k] for k in routes.link[n] if k >= 0] + [f"{way.site} → {way.cluster}"]
        name = max(names, key=lambda each: loads.links.get(each, Filled(-1.0, 0.0, "")).mean)
        found.append((loads.links.get(name, Filled(0.0, 0.0, "")), name, way.site, way.cluster))
    found = sorted(found, key=lambda each: each[0].mean)[-WAYS:]
    drawn, named, taken = [], set[str](), list[tuple[float, float, float]]()
    for load, name, site, cluster in reversed(found):
        fresh = bool(load.says) and load.mean >= LEAST and name not in named
        named.add(name)
        drawn.append(_way(load, name if fresh else "", sites[site], panels[cluster], taken))
    return drawn[::-1]


def _way(
    load: Filled, name: str, start: _Place, end: _Place, taken: list[tuple[float, float, float]]
) -> tuple[str, str]:
    """A line from a site to a cluster and its label, if it has a name and there is room for it."""
    x, y, to_x, to_y = _middle(start), start.y, _middle(end), end.y + end.height
    line = (
        f'<path class="way{_warmth(load.mean)}" stroke-width="{1.2 + 6.0 * min(1.0, load.mean):.1f}" '
        f'd="M {x:.1f} {y:.1f} C {x:.1f} {y - 40:.1f} {to_x:.1f} {to_y + 40:.1f} {to_x:.1f} {to_y:.1f}"/>'
    )
    text, at_y = f"{name}: {load.says}", to_y + 14.0
    width = 5.9 * len(text) + 10.0
    at_x = min(max(0.3 * x + 0.7 * to_x, width / 2 + 2.0), WIDTH - width / 2 - 2.0)
    meets = any(at_y == y and abs(at_x - x) < (width + w) / 2 + 4.0 for x, y, w in taken)
    if not name or meets or len(taken) == LABELS:
        return line, ""
    taken.append((at_x, at_y, width))
    return line, _chip(at_x, at_y, width, text)


def _chip(x: float, y: float, width: float, text: str) -> str:
    return (
        f'<rect class="chip" x="{x - width / 2:.1f}" y="{y - 9:.1f}" width="{width:.1f}" height="17" rx="8"/>'
        f'<text class="quiet" x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle">{escape(text)}</text>'
    )


def _panel(cluster: Cluster, place: _Place, left_out: Mapping[str, str]) -> str:
    more = f" + {left_out[cluster.name]}" if cluster.name in left_out else ""
    return (
        f'<rect class="panel" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="9"/><text class="name" x="{place.x + _PAD:.1f}" '
        f'y="{place.y + 20:.1f}">{escape(cluster.name)}<tspan class="quiet">{escape(more)}</tspan></text>'
    )


def _node(name: str, place: _Place, loads: Loads) -> str:
    """A box that is filled from its left as far as its node is held, with what that is, and a bar below."""
    load, busy = loads.nodes.get(name, Filled(0.0, 0.0, "")), loads.busy.get(name)
    width = place.width * min(1.0, load.mean)
    lines = [load.says or "holds nothing", "" if busy is None else f"busy {_percent(busy)}"]
    foot = f'x="{place.x + 2:.1f}" y="{place.y + place.height - 5:.1f}" height="3" rx="1.5"'
    title = escape(_short(name, place.width))
    worked = (place.width - 4.0) * min(1.0, busy or 0.0)
    texts = "".join(
        f'<text class="quiet" x="{place.x + 6:.1f}" y="{place.y + 32 + 15 * k:.1f}">{escape(line)}</text>'
        for k, line in enumerate(lines)
    )
    shape = f'x="{place.x:.1f}" y="{place.y:.1f}" height="{place.height:.1f}" rx="5"'
    return (
        f'<rect class="box" {shape} width="{place.width:.1f}"/>'
        f'<rect class="held" {shape} width="{width:.1f}"/>'
        f'<rect class="busy{_warmth(busy or 0.0)}" {foot} width="{worked:.1f}"/>'
        f'<text x="{place.x + 6:.1f}" y="{place.y + 16:.1f}">{title}</text>{texts}'
        f"<title>{escape(name)}: {escape(load.says)}, at most {_percent(load.peak)}</title>"
    )


def _short(name: str, width: float) -> str:
    most = int((width - 8.0) / 6.4)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _site(name: str, place: _Place) -> str:
    return (
        f'<rect class="panel" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="13"/><text x="{_middle(place):.1f}" y="{place.y + 17:.1f}" '
        f'text-anchor="middle">{escape(_short(name, place.width))}</text>'
    )


def _wires(topology: Topology, loads: Loads, boxes: Mapping[str, _Place]) -> list[str]:
    """Links between nodes that are drawn, the fullest on top."""
    found: list[tuple[float, Any]] = []
    for link in topology.links:
        if boxes.keys() >= set(link.ends):
            name = " – ".join(link.ends)
            found.append((loads.links.get(name, Filled(0.0, 0.0, "")).mean, link.ends))
    lines = []
    for share, ends in sorted(found, key=lambda each: each[0])[-WIRES:]:
        (x, y), (to_x, to_y) = ((_middle(boxes[end]), boxes[end].y + NODE / 2) for end in ends)
        sag = 0.0 if y != to_y else float(np.hypot(to_x - x, 0.0)) * 0.06 + NODE / 2 + 4.0
        middle_x, middle_y = (x + to_x) / 2, (y + to_y) / 2 + sag
        lines.append(
            f'<path class="way{_warmth(share)}" stroke-width="{1.2 + 6.0 * min(1.0, share):.1f}" '
            f'd="M {x:.1f} {y:.1f} Q {middle_x:.1f} {middle_y:.1f} {to_x:.1f} {to_y:.1f}"><title>'
            f"{escape(' – '.join(ends))}: {_percent(share)}</title></path>"
        )
    return lines
