"""From the YAML form of links to ways, their cables, links between nodes and clusters, and routes.

Forbidden here: I/O, and stopping at the first problem: they are collected in a list.

Routes are a lens on a topology, for runs in which messages share links: directed links, each with its own
rate, and routes as lists of them. Every cable is two links, one each way, or one for both directions; a way
that takes a cable from its far end sends payloads where others send answers. A way over no cable has its own.
In a generated topology every site has two to its network, and every cluster two, as fast as the fastest way
over them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.model.grammar.places import AGAINST, OWN, SITE, LinkSpec
from edgewise.model.grammar.scenario import ScenarioSpec
from edgewise.model.kinds import kinds, meant, names_of, places_named
from edgewise.model.problems import Problems, known, nearest
from edgewise.model.topology import Cable, Cluster, Link, Site, Topology, Way, WayTable


def plain(over: Sequence[str]) -> tuple[str, ...]:
    """Names of cables, whichever end they are taken from."""
    return tuple(name.removeprefix(AGAINST) for name in over)


def build_cables(specs: Sequence[LinkSpec], sites: Sequence[Site], problems: Problems) -> dict[str, Cable]:
    """Cables that have a name, by name; one with `{site}` in it becomes one for each site."""
    found: dict[str, Cable] = {}
    for i, spec in enumerate(specs):
        if spec.name is None:
            continue
        figures = (
            spec.bandwidth_bps, spec.delay_s, spec.deviation_s, spec.buffer_bytes or math.inf,
            spec.shared == "both",
        )  # fmt: skip
        names = [spec.name.replace(SITE, site.name) for site in sites] if SITE in spec.name else [spec.name]
        for name in names:
            if name in found:
                problems.append(f"links[{i}].name: a second cable {name!r}; rename one of them")
            found[name] = Cable(name, *figures)
    return found


def check_over(
    specs: Sequence[LinkSpec], sites: Sequence[Site], cables: dict[str, Cable], problems: Problems
) -> None:
    """Links run over cables that there are, each once, and have no figures that are the cables'."""
    for i, spec in enumerate(specs):
        over = plain(spec.over or ())
        where = f"links[{i}].over"
        for name in dict.fromkeys(over):
            if over.count(name) > 1:
                problems.append(f"{where}: {name!r} twice; a way runs over a cable once")
            here = [site.name for site in meant(spec.site, sites)] if spec.site else []
            named = [name.replace(SITE, site) for site in here] if spec.site and SITE in name else [name]
            if (unknown := next((each for each in named if each not in cables), None)) is not None:
                declared = [each.name for each in specs if each.name is not None]
                problems.append(
                    f"{where}: unknown cable {unknown!r}; {nearest(name, declared)} (a cable is declared "
                    f"among links: {{name: {_quoted(name)}, bandwidth_bps: …}})"
                )
        for key in ({"bandwidth_bps", "buffer_bytes", "shared"} if over else set()) & spec.model_fields_set:
            if getattr(spec, key) != type(spec).model_fields[key].default:
                problems.append(f"links[{i}].{key}: the cables it runs over have it; remove one or the other")


def _quoted(name: str) -> str:
    """As YAML reads it as a string."""
    return f'"{name}"' if SITE in name else name


def unused_of(
    specs: Sequence[LinkSpec], ways: Sequence[Way], links: Sequence[Link], sites: Sequence[Site]
) -> tuple[str, ...]:
    """Names of cables, as they are declared, that nothing runs over."""
    names = [spec.name for spec in specs if spec.name is not None]
    laid = [way.over for way in ways] + [link.over for link in links] if names else []
    used = {name for over in laid for name in plain(over)}
    return tuple(
        name for name in names if used.isdisjoint([name, *(name.replace(SITE, site.name) for site in sites)])
    )


def unused_cables(topology: Topology) -> list[str]:
    """Cables that nothing runs over, in words."""
    return [
        f"links: nothing runs over cable {name!r}; remove it, or name it in `over`"
        for name in topology.unused
    ]


def _way(spec: LinkSpec, site: Site, cluster: str, cables: dict[str, Cable]) -> Way:
    """The way of one site: over cables, delays and variances add up, and the least bandwidth is its own."""
    over = tuple(name.replace(SITE, site.name) for name in spec.over or ())
    way = Way(
        site.name, cluster, spec.delay_s, spec.deviation_s, spec.bandwidth_bps, over, spec.shared == "both",
        spec.buffer_bytes or math.inf,
    )  # fmt: skip
    laid = [cables[name] for name in plain(over) if name in cables]
    if not laid:
        return way
    return replace(
        way,
        delay_s=math.fsum([way.delay_s, *(cable.delay_s for cable in laid)]),
        deviation_s=math.hypot(way.deviation_s, *(cable.deviation_s for cable in laid)),
        bandwidth_bps=min(cable.bandwidth_bps for cable in laid),
    )


def build_ways(
    specs: Sequence[LinkSpec],
    sites: Sequence[Site],
    clusters: Sequence[Cluster],
    cables: dict[str, Cable],
    problems: Problems,
) -> tuple[Way, ...]:
    """The way from every site to every cluster, by the link that names them most closely.

    A name goes before a site's own cluster, that before a kind, and a kind before '*'.
    """
    given: dict[tuple[str, str], int] = {}
    for i, spec in enumerate(specs):
        if spec.site is None or spec.cluster is None:
            continue
        places_named(f"links[{i}].site", "site", spec.site, sites, problems, ("*",))
        places_named(f"links[{i}].cluster", "cluster", spec.cluster, clusters, problems, ("*", OWN))
        if (spec.site, spec.cluster) in given:
            problems.append(
                f"links[{i}]: a second link from {spec.site!r} to {spec.cluster!r}; remove one of them"
            )
        given[spec.site, spec.cluster] = i
    ways, of_site, of_cluster = [], kinds(sites), kinds(clusters)
    for site in sites:
        starts = [site.name, of_site[site.name], "*"]
        for cluster in clusters:
            own = [OWN] if cluster.name == site.cluster else []
            ends = [cluster.name, *own, of_cluster[cluster.name], "*"]
            found = next((given[s, c] for s in starts for c in ends if (s, c) in given), None)
            if found is None:
                problems.append(
                    f"links: no link from site {site.name!r} to cluster {cluster.name!r}; "
                    f"add {{site: {site.name}, cluster: {cluster.name}, delay_s: …}}"
                )
                continue
            ways.append(_way(specs[found], site, cluster.name, cables))
    return tuple(ways)


def build_links(
    specs: Sequence[LinkSpec], clusters: Sequence[Cluster], cables: dict[str, Cable], problems: Problems
) -> tuple[Link, ...]:
    """Links between nodes, and between clusters; one between kinds joins each of one with each of the other.

    A cluster twice, or a kind twice, joins the nodes of each to each other.
    """
    nodes = [node.name for c in clusters for node in c.nodes]
    links: list[Link] = []
    for i, spec in enumerate(specs):
        if spec.between is None:
            continue
        where, (one, other) = f"links[{i}].between", spec.between
        if one in names_of(clusters):
            ends = [places_named(where, "cluster", end, clusters, problems) for end in spec.between]
            pairs = [(a.name, b.name) for a in ends[0] for b in ends[1] if one != other or a == b]
        else:
            for end in spec.between:
                known(where, "node", end, nodes, problems)
            if one == other:
                problems.append(f"{where}: joins node {one!r} to itself; name another one")
            pairs = [spec.between]
        for pair in pairs:
            if any(set(link.ends) == set(pair) for link in links):
                problems.append(f"links[{i}]: a second link between {' and '.join(pair)}; remove one")
            figures = (spec.delay_s, spec.deviation_s, spec.bandwidth_bps)
            link = Link(pair, *figures, spec.shared == "both")
            links.append(_laid(link, spec.over, cables) if spec.over else link)
    return tuple(links)


def _laid(link: Link, over: tuple[str, ...], cables: dict[str, Cable]) -> Link:
    """A link between two ends over cables: the least of their bandwidths, in each direction."""
    laid = [cables[name] for name in plain(over) if name in cables]
    bps = min((cable.bandwidth_bps for cable in laid), default=link.bandwidth_bps)
    return replace(link, bandwidth_bps=bps, shared=True, over=over)


def check_shared(spec: ScenarioSpec, topology: Topology, problems: Problems) -> None:
    """What shared links cannot be asked for: a change of several at once."""
    for i, change in enumerate(spec.timeline):
        if change.link is not None and change.bandwidth_bps is not None:
            changed = {cluster.name for cluster in meant(change.link.cluster, topology.clusters)}
            several = isinstance(topology.ways, WayTable) or any(
                way.over and way.cluster in changed for way in topology.ways
            )
            if several:
                problems.append(
                    f"timeline[{i}].bandwidth_bps: this way runs over links that others share; change the "
                    "bandwidth of ways without `over` only, or write sharing: none"
                )


# Names of the links of a cable.
EACH, BOTH = ("up", "down"), ("both",)
NOWHERE = -1  # behind the last link of a route


class Routes(NamedTuple):
    """L links, and R routes: of W ways from each site to each cluster, then back, sites first; then others.

    Attributes:
        names: (L,) of links.
        rate_bps, buffer_bytes: (L,)
        link: (R, K) links of each route in order; -1 where it has fewer.
        before: (R, K) share of the route's delay that lies before each of its links.
        back: (L,) whether what goes back has it for itself; of no cable that some take from its far end.
        between: the routes from one node or cluster to another, where a link between them runs over cables.
    """

    names: tuple[str, ...]
    rate_bps: Floats
    buffer_bytes: Floats
    link: Ints
    before: Floats
    between: Mapping[tuple[str, str], int] = MappingProxyType({})
    back: Bools = np.zeros(0, dtype=np.bool_)


def routes_of(topology: Topology) -> Routes:
    """The links of a topology's ways, and the routes over them.

    From the first end of a link between nodes or clusters a message takes cables as payloads do, from the
    second one as answers.
    """
    cables, way, delay_s = _table(topology) if isinstance(topology.ways, WayTable) else _links_laid(topology)
    laid, count = [link for link in topology.links if link.over], len(way)
    number = {cable.name: n for n, cable in enumerate(cables)}
    over = _padded([[_numbered(name, number) for name in link.over] for link in laid], NOWHERE)
    width = max(way.shape[1], over.shape[1])
    way, delay_s = (
        np.concatenate([_wide(a, width, fill), _wide(b, width, fill)])
        for a, b, fill in ((way, over.astype(np.int64), NOWHERE), (delay_s, np.zeros(over.shape), 0.0))
    )
    back = _turned(way != NOWHERE)
    back_s = np.take_along_axis(delay_s, np.where(back >= 0, back, 0), axis=1)
    turned = np.where(back >= 0, np.take_along_axis(way, np.where(back >= 0, back, 0), axis=1), NOWHERE)
    links = np.array([1 if cable.shared else 2 for cable in cables], dtype=np.int64)
    last = np.cumsum(links) - 1  # of each cable: the link back
    there, home = _directed(way, last - links + 1, last), _directed(turned, last, last - links + 1)
    there_share, home_share = _before(delay_s), _before(np.where(back >= 0, back_s, 0.0))
    between: dict[tuple[str, str], int] = {}
    for n, link in enumerate(laid):
        between[link.ends[::-1]] = 2 * count + len(laid) + n
        between[link.ends] = 2 * count + n
    one_way = (links == 2) & ~np.isin(np.arange(len(cables)), NOWHERE - 1 - way[way < NOWHERE])
    return Routes(
        tuple(f"{cable.name}:{way}" for cable in cables for way in (BOTH if cable.shared else EACH)),
        np.repeat([cable.bandwidth_bps for cable in cables], links),
        np.repeat([cable.buffer_bytes for cable in cables], links),
        np.concatenate([there[:count], home[:count], there[count:], home[count:]]),
        np.concatenate([there_share[:count], home_share[:count], there_share[count:], home_share[count:]]),
        between,
        np.repeat(one_way, links) & (np.arange(links.sum()) == np.repeat(last, links)),
    )


def _numbered(name: str, number: Mapping[str, int]) -> int:
    """A cable of a way: its number, or below `NOWHERE` the number of one that is taken from its far end."""
    return number[name] if not name.startswith(AGAINST) else NOWHERE - 1 - number[name.removeprefix(AGAINST)]


def _directed(way: Ints, first: Ints, second: Ints) -> Ints:
    """(W, K) the first link of each cable of a way, the second of those taken from their far end, else -1."""
    found = np.where(way >= 0, first[np.maximum(way, 0)], NOWHERE)
    return np.where(way < NOWHERE, second[np.maximum(NOWHERE - 1 - way, 0)], found)


def levels(links: int, routes: Ints) -> tuple[Ints, Bools]:
    """Order links by "precedes on a route".

    Args:
        routes: (W, K) links of each route in order; -1 where it has fewer.
    Returns:
        (L,) level of each link, above those of all that precede it; links in a loop have one level together,
        and nobody else has it. (L,) whether it is in a loop.
    """
    from scipy.sparse import coo_array  # slow to import, and most processes share no links
    from scipy.sparse.csgraph import connected_components

    pairs = np.concatenate([routes[:, k : k + 2] for k in range(routes.shape[1] - 1)] or [routes[:0, :2]])
    pairs = np.unique(pairs[(pairs >= 0).all(axis=1)].reshape(-1, 2), axis=0)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(links, links))
    groups, group = connected_components(graph, connection="strong")
    loop = np.bincount(group, minlength=groups) > 1
    loop[group[pairs[pairs[:, 0] == pairs[:, 1], 0]]] = True
    ends = group[pairs]
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]].reshape(-1, 2), axis=0)
    level, at, left = np.full(groups, -1), 0, np.arange(groups)
    while left.size:
        ready = left[~np.isin(left, ends[level[ends[:, 0]] < 0][:, 1])]
        here = ready[~loop[ready]] if not loop[ready].all() else ready[:1]
        level[here] = at
        left, at = np.setdiff1d(left, here), at + 1
    return level[group], loop[group]


def _table(topology: Topology) -> tuple[list[Cable], Ints, Floats]:
    """Cables of a generated topology, and for each way its cables in order with the delay of each."""
    assert isinstance(topology.ways, WayTable)
    bps, (sites, clusters) = topology.ways.bandwidth_bps, topology.ways.bandwidth_bps.shape
    cables = [Cable(name, float(bps[s].max())) for s, name in enumerate(topology.ways.sites)]
    cables += [Cable(name, float(bps[:, c].max())) for c, name in enumerate(topology.ways.clusters)]
    way = np.stack([np.repeat(np.arange(sites), clusters), sites + np.tile(np.arange(clusters), sites)], 1)
    delay_s = topology.ways.delay_s.ravel()
    return cables, way, np.stack([np.zeros_like(delay_s), delay_s], axis=1)


def _links_laid(topology: Topology) -> tuple[list[Cable], Ints, Floats]:
    """The same of ways given one by one; what a way has beside its cables lies at the last of them."""
    named = {cable.name: cable for cable in topology.cables}
    number: dict[str, int] = {}
    cables: list[Cable] = []
    ways, delays = [], []
    for way in topology.ways:
        over = way.over or (f"{way.site}-{way.cluster}",)
        for name in plain(over):
            if name not in number:
                number[name] = len(cables)
                own = Cable(name, way.bandwidth_bps, buffer_bytes=way.buffer_bytes, shared=way.shared)
                cables.append(named[name] if way.over else own)
        own_s = [named[name].delay_s for name in plain(over)] if way.over else [0.0]
        own_s[-1] = way.delay_s - math.fsum(own_s[:-1])
        ways.append([_numbered(name, number) for name in over])
        delays.append(own_s)
    for link in topology.links:
        for name in plain(link.over):
            if name not in number:
                number[name] = len(cables)
                cables.append(named[name])
    return cables, _padded(ways, NOWHERE).astype(np.int64), _padded(delays, 0.0)


def _padded(rows: Sequence[Sequence[float]], fill: float) -> Floats:
    most = max(map(len, rows), default=1)
    return np.array([[*row, *[fill] * (most - len(row))] for row in rows], dtype=np.float64).reshape(-1, most)


def _wide(rows: Any, width: int, fill: float) -> Any:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=fill)


def _turned(there: Bools) -> Ints:
    """(W, K) where each entry of a route counted from its other end is, -1 beyond it."""
    count = there.sum(axis=1, keepdims=True)
    return np.asarray(np.maximum(count - 1 - np.arange(there.shape[1]), -1))


def _before(delay_s: Floats) -> Floats:
    """What a link itself takes lies behind it."""
    total = delay_s.sum(axis=1, keepdims=True)
    sums = np.cumsum(delay_s, axis=1) - delay_s
    return np.where(total > 0.0, sums / np.where(total > 0.0, total, 1.0), 0.0)
