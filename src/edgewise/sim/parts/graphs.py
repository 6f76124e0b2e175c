"""Queries of split models in a joint run.

`SplitWorld` knows servers and links, `SplitCore` places queries. Servers hold their part of nodes for life,
so queries ask nothing of the plane. What a dead server had goes elsewhere, whole, once the scheduler has
heard of it; until then it waits there, and is begun anew where the server is up again before. A link between
clusters that runs over cables is part of the links that all kinds of work share; any other is its queries'
own.
"""

import math
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgewise.arrays import Floats, Ints
from edgewise.core.split.core import ServerChanged
from edgewise.model.topology import Topology
from edgewise.policies.split.layout import LayoutProgram, layout_of
from edgewise.policies.split.program import SplitProgram
from edgewise.sim.links.wires import Wires
from edgewise.sim.parts.part import Bystander, Rank, StartTimes
from edgewise.sim.stations.leaving import LostQueries
from edgewise.sim.stations.network import StationNetwork
from edgewise.sim.stations.split import SplitWorld, network_of


class GraphsPart(Bystander):
    """Queries on their way through servers and links, decided in their own event loop.

    Nobody looks at them on the way, so they go on when something changes, or at the end.

    Args:
        world: before its first query.
        nodes: (S,) names of the servers' nodes.
        end_s: of the run; queries that are under way then go on.
        delays_s: after which the scheduler hears that a server went down or came up; in which one starts on a
            node that is back.
        wires: links that others use too, with the route over them that each station of the world stands for.
    Attributes:
        busy_s: (S,) seconds of the run in which servers worked, once it is over.
    """

    busy_s: Floats

    def __init__(
        self,
        world: SplitWorld,
        nodes: Sequence[str],
        end_s: float,
        delays_s: tuple[float, float],
        wires: tuple[Wires, dict[str, int]] | None = None,
    ) -> None:
        self.world, self._nodes, self._end_s, (self._lag_s, self._start_s) = world, nodes, end_s, delays_s
        self._starting = StartTimes()  # servers on nodes that are back
        self._over, self._lost = False, LostQueries(world)
        self._news: deque[ServerChanged] = deque()
        self._wire = None
        if wires is not None:
            engine = world.engine
            self._wire = wires[0].wire(self._go_on, engine.come_back)
            self._route = {engine.network.index(name): route for name, route in wires[1].items()}
            engine.wire(list(wires[1]), self._send)

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """The server there stops; or starts, and begins anew what it had."""
        for server in [s for s, name in enumerate(self._nodes) if name == node]:
            if up and self._start_s > 0.0:
                self._starting[server] = now_s + self._start_s
            else:
                self._starting.pop(server, None)
                self._change(server, up, now_s)

    def next_s(self) -> float:
        """When a server has started."""
        return self._starting.next_s()

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Servers that have started; nothing for the cores."""
        for server in self._starting.up(now_s):
            self._change(server, True, now_s)
        return ()

    def _change(self, server: int, up: bool, now_s: float) -> None:
        self._bring_up(now_s)
        engine = self.world.engine
        engine.change(now_s, engine.network.stations[server].name, up=up)
        self._news.append(ServerChanged(now_s + self._lag_s, server, up))

    def finish(self) -> None:
        """To the last query that can end."""
        self._bring_up(math.inf)

    def _bring_up(self, to_s: float) -> None:
        if self._wire is None:
            self._go_on(to_s)
        else:
            self._wire.wires.advance(to_s)

    def _go_on(self, to_s: float) -> None:
        """Up to there, or to where a tensor may come."""
        while self._news and self._news[0].time_s <= to_s:
            if not self._reach(self._news[0].time_s):
                return
            news = self._news.popleft()
            self.world.core.handle(news)
            if not news.up:
                self._lost.heard(news.server)
        self._reach(to_s)

    def _reach(self, to_s: float) -> bool:
        """Whether `to_s` is reached, and no tensor comes before."""
        if to_s > self._end_s and not self._over:
            if not self._reach(self._end_s):
                return False
            self._over = True
            self.busy_s = self.world.engine.tallies()["busy_s"][: self.world.servers]
        self.world.run(min(to_s, self._before_s()))
        return self._before_s() >= to_s

    def _before_s(self) -> float:
        """The last moment before a tensor may come."""
        next_s = math.inf if self._wire is None else self._wire.next_s()
        return next_s if next_s == math.inf else math.nextafter(next_s, -math.inf)

    def _send(self, items: Ints, stations: Ints, bits: Floats) -> float:
        assert self._wire is not None, "who sends has links"
        now_s, found = self.world.engine.now_s, (items, stations, bits)
        for item, station, size_bits in zip(*(column.tolist() for column in found), strict=True):
            self._wire.send(self._route[station], now_s, size_bits, item)
        return self._before_s()


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
