"""From the YAML form of links to ways, the cables they run over, and links between nodes and clusters.

Forbidden here: I/O, and stopping at the first problem: they are collected in a list.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from edgewise.model.grammar.places import OWN, SITE, LinkSpec
from edgewise.model.grammar.scenario import ScenarioSpec
from edgewise.model.problems import Problems, known
from edgewise.model.topology import Cable, Cluster, Link, Site, Topology, Way, WayTable


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


def _way(
    i: int, spec: LinkSpec, site: Site, cluster: str, cables: dict[str, Cable], problems: Problems
) -> Way:
    """The way of one site: over cables, delays and variances add up, and the least bandwidth is its own."""
    over = tuple(name.replace(SITE, site.name) for name in spec.over or ())
    way = Way(
        site.name, cluster, spec.delay_s, spec.deviation_s, spec.bandwidth_bps, over, spec.shared == "both",
        spec.buffer_bytes or math.inf,
    )  # fmt: skip
    laid = [cables[name] for name in over if name in cables]
    if not laid and len(over) < 2:
        return way
    _known(i, over, cables, problems)
    _own(i, spec, problems)
    return replace(
        way,
        delay_s=math.fsum([way.delay_s, *(cable.delay_s for cable in laid)]),
        deviation_s=math.hypot(way.deviation_s, *(cable.deviation_s for cable in laid)),
        bandwidth_bps=min((cable.bandwidth_bps for cable in laid), default=way.bandwidth_bps),
    )


def build_ways(
    specs: Sequence[LinkSpec],
    sites: Sequence[Site],
    clusters: Sequence[Cluster],
    cables: dict[str, Cable],
    problems: Problems,
) -> tuple[Way, ...]:
    """The way from every site to every cluster, by the link that names them most closely."""
    cluster_names = [cluster.name for cluster in clusters]
    given: dict[tuple[str, str], int] = {}
    for i, spec in enumerate(specs):
        if spec.site is None or spec.cluster is None:
            continue
        known(f"links[{i}].site", "site", spec.site, ["*", *(site.name for site in sites)], problems)
        known(f"links[{i}].cluster", "cluster", spec.cluster, ["*", OWN, *cluster_names], problems)
        if (spec.site, spec.cluster) in given:
            problems.append(
                f"links[{i}]: a second link from {spec.site!r} to {spec.cluster!r}; remove one of them"
            )
        given[spec.site, spec.cluster] = i
    ways, new = [], set(given.values())
    for site in sites:
        for cluster in cluster_names:
            ends = [cluster, OWN, "*"] if cluster == site.cluster else [cluster, "*"]
            found = next((given[s, c] for s in (site.name, "*") for c in ends if (s, c) in given), None)
            if found is None:
                problems.append(
                    f"links: no link from site {site.name!r} to cluster {cluster!r}; "
                    f"add {{site: {site.name}, cluster: {cluster}, delay_s: …}}"
                )
                continue
            ways.append(_way(found, specs[found], site, cluster, cables, problems if found in new else []))
            new.discard(found)
    for cable in sorted({way.over[0] for way in ways if way.over} - cables.keys()):
        rates = {way.bandwidth_bps for way in ways if way.over == (cable,)}
        if len(rates) > 1:
            problems.append(
                f"links: {cable!r} has bandwidths {', '.join(f'{x:g}' for x in sorted(rates))}; give one"
            )
        if len({way.shared for way in ways if way.over == (cable,)}) > 1:
            problems.append(f"links: {cable!r} is shared by 'each' direction and by 'both'; say one of them")
    return tuple(ways)


def build_links(
    specs: Sequence[LinkSpec], clusters: Sequence[Cluster], cables: dict[str, Cable], problems: Problems
) -> tuple[Link, ...]:
    """Links between nodes, and between clusters."""
    nodes, names = [node.name for c in clusters for node in c.nodes], [cluster.name for cluster in clusters]
    links: list[Link] = []
    for i, spec in enumerate(specs):
        if spec.between is None:
            continue
        inside = names if spec.between[0] in names else nodes
        for end in spec.between:
            known(f"links[{i}].between", "cluster" if inside is names else "node", end, inside, problems)
        if inside is nodes and spec.between[0] == spec.between[1]:
            problems.append(f"links[{i}].between: joins node {spec.between[0]!r} to itself; name another one")
        if any(set(link.ends) == set(spec.between) for link in links):
            problems.append(f"links[{i}]: a second link between {' and '.join(spec.between)}; remove one")
        figures = (spec.delay_s, spec.deviation_s, spec.bandwidth_bps)
        link = Link(spec.between, *figures, spec.shared == "both")
        links.append(_laid(i, spec, link, cables, problems) if spec.over else link)
    return tuple(links)


def _laid(i: int, spec: LinkSpec, link: Link, cables: dict[str, Cable], problems: Problems) -> Link:
    """A link between two ends over cables: the least of their bandwidths, in each direction."""
    over = spec.over or ()
    _known(i, over, cables, problems)
    _own(i, spec, problems)
    laid = [cables[name] for name in over if name in cables]
    bps = min((cable.bandwidth_bps for cable in laid), default=link.bandwidth_bps)
    return replace(link, bandwidth_bps=bps, shared=True, over=over)


def _known(i: int, over: tuple[str, ...], cables: dict[str, Cable], problems: Problems) -> None:
    for name in over:
        known(f"links[{i}].over", "cable", name, cables, problems)
        if over.count(name) > 1:
            problems.append(f"links[{i}].over: {name!r} twice; a way runs over a cable once")


def _own(i: int, spec: LinkSpec, problems: Problems) -> None:
    """A link over named cables has no figures that are theirs."""
    for key in {"bandwidth_bps", "buffer_bytes", "shared"} & spec.model_fields_set:
        if getattr(spec, key) != type(spec).model_fields[key].default:
            problems.append(f"links[{i}].{key}: the cables it runs over have it; remove one or the other")


def check_shared(spec: ScenarioSpec, topology: Topology, problems: Problems) -> None:
    """What shared links cannot be asked for: a change of several at once."""
    for i, change in enumerate(spec.timeline):
        if change.link is not None and change.bandwidth_bps is not None:
            several = isinstance(topology.ways, WayTable) or any(
                way.over and way.cluster == change.link.cluster for way in topology.ways
            )
            if several:
                problems.append(
                    f"timeline[{i}].bandwidth_bps: this way runs over links that others share; change the "
                    "bandwidth of ways without `over` only, or write sharing: none"
                )
