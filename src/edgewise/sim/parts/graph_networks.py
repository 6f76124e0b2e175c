"""Servers of split models and their links as stations, alone or beside other work on the same links."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from edgewise.model.topology import Topology
from edgewise.policies.split.layout import Layout, LayoutProgram, layout_of
from edgewise.policies.split.program import SplitProgram
from edgewise.sim.links.wires import Wires
from edgewise.sim.stations.network import Station, StationNetwork


def network_of(layout: Layout) -> StationNetwork:
    """The servers of a layout and its links as stations."""
    names = [(g, f"{group.name}.{i}") for g, group in enumerate(layout.groups) for i in range(group.servers)]
    nodes = [
        Station(name, layout.groups[g].power_ops, discipline="oldest", on_down="restart") for g, name in names
    ]
    links = list(layout.links)
    if len(layout.groups) == 1:
        routes = {("*", "*"): [links[i] for i in layout.route(0, 0)]}
    else:
        routes = {
            (one, other): [links[i] for i in layout.route(a, b)]
            for a, one in names
            for b, other in names
            if one != other
        }
    return StationNetwork(nodes, [Station(name, bps) for name, bps in layout.links.items()], routes)


def shared_network(
    program: SplitProgram | LayoutProgram, topology: Topology, wires: Wires
) -> tuple[StationNetwork, dict[str, int]]:
    """Servers and links of a program, and which stations stand for routes over links that others use too.

    A link over cables is two stations, one from its first cluster to its second, and one back.
    """
    layout, alone = layout_of(program), isinstance(program, SplitProgram)
    network, clusters = network_of(layout), {node.cluster for node in topology.nodes if node.speed_ops > 0}
    joined = [link for link in topology.links if not alone or clusters.issuperset(link.ends)]
    links = {"link" if alone else "-".join(link.ends): link for link in joined}
    ends = {name: links[name].ends for name in layout.links}
    wired = {name: ends[name] for name in ends if links[name].over}
    stations = []
    for link in network.links:
        own = replace(link, discipline="ps") if wires.sharing == "ps" else link
        stations += [replace(link, name=new) for new in _both(link.name)] if link.name in wired else [own]
    groups = {f"{g.name}.{i}": g.name for g in layout.groups for i in range(g.servers)}
    routes = {
        (one, other): _directed(next(iter(ends.values()))[0] if alone else groups[one], route, ends, wired)
        for (one, other), route in network.routes.items()
    }
    between = wires.routes.between
    found = {
        new: between[pair]
        for name, (a, b) in wired.items()
        for new, pair in zip(_both(name), ((a, b), (b, a)), strict=True)
    }
    return StationNetwork(network.nodes, stations, routes), found


def _both(name: str) -> tuple[str, str]:
    """A link there, and back."""
    return name, f"{name} back"


def _directed(
    at: str, route: Sequence[str], ends: Mapping[str, tuple[str, str]], wired: Container[str]
) -> list[str]:
    """The stations of a route that begins in cluster `at`; a route may be listed from its other end."""
    found = []
    for name in route if not route or at in ends[route[0]] else reversed(route):
        back = at != ends[name][0]
        at = ends[name][not back]
        found.append(_both(name)[back and name in wired])
    return found
