"""What one kind of work is to a joint run: a part, which knows how long things take, and decides nothing.

*Graphs*: `SplitWorld` knows servers and links, `SplitCore` places queries. Servers hold their part of nodes
for life, so queries ask nothing of the plane. What a dead server had goes elsewhere, whole, once the
scheduler has heard of it; until then it waits there, and is begun anew where the server is back before.
A link between clusters that runs over cables is part of the links that all kinds of work share; any other is
its queries' own.

*Streams*: workers hold their part of nodes for life, too. *Pipelines*: `PipelineWorld` knows how fast they
are, `PlaceCore` where their tasks run. *Pulls*: `Pulls` knows what is reserved of links, `Wires` lets
messages have the rest. A way that goes down is one of pulls: they wait until it is up. Its cables are others'
ways, too, so flows between nodes go on.
"""

import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.state import State
from edgewise.core.place import (
    MovePipeline,
    PipelineEnded,
    PlaceCommand,
    PlacementDue,
    ReroutePipeline,
    StartPipeline,
    StopPipeline,
)
from edgewise.core.place.core import reserving_of
from edgewise.core.pulls import Pulls
from edgewise.core.split.core import ServerChanged
from edgewise.model.pipelines import Network
from edgewise.model.scenario import Scenario
from edgewise.model.topology import LinkChange, Topology
from edgewise.policies.split.layout import LayoutProgram, layout_of
from edgewise.policies.split.program import SplitProgram
from edgewise.sim.images import Images
from edgewise.sim.links.wires import Wires
from edgewise.sim.pipelines import PipelineWorld
from edgewise.sim.simulate import Simulation
from edgewise.sim.stations.leaving import LostQueries
from edgewise.sim.stations.network import StationNetwork
from edgewise.sim.stations.split import SplitWorld, network_of
from edgewise.sim.streams.guests import Guests
from edgewise.sim.streams.tables import Outcome


class Rank(IntEnum):
    """At equal times: what ends gives back first, then changes are heard of, then work comes, then ticks.

    Who waits for room that work of the same kind has left hears of it last, when it is known who else came.
    """

    ENDED, FAILED, NEWS, CLOSED, OPENED, TICK, ROOM = range(7)


class WorkPart(Protocol):
    """One kind of work on the clock of a joint run."""

    @property
    def commands(self) -> tuple[type, ...]:
        """Those that it carries out."""

    def next_s(self) -> float:
        """When it has something to tell next; infinite: never, unless something changes."""

    def advance(self, to_s: float) -> None:
        """Its data plane goes on up to `to_s`, which is not after `next_s`."""

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """A node died or came back; no core has heard of it yet."""

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """What the cores are told now, once each: a rank and an event."""

    def takes(self, command: Any) -> bool:
        """Whether a command of such a kind is for it; the first part that says so gets it."""

    def take(self, command: Any, now_s: float) -> Iterable[Any]:
        """Carry out a command of a core; events that follow of it at once."""

    def finish(self) -> None:
        """The clock has stopped: what is under way is served, or counted as it stands."""


class Bystander:
    """A part to which nothing happens: base of those that do not need every method."""

    commands: tuple[type, ...] = ()

    def next_s(self) -> float:
        """Never."""
        return math.inf

    def advance(self, to_s: float) -> None:
        """Nothing is done on the way."""

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Nodes are nothing to it, or it knows of the timeline by itself."""

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Nothing."""
        return ()

    def takes(self, command: Any) -> bool:
        """All of its kinds are."""
        return True

    def take(self, command: Any, now_s: float) -> Iterable[Any]:
        """No command is for it."""
        raise AssertionError(command)

    def finish(self) -> None:
        """There is nothing left."""


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
        self._starting: dict[int, float] = {}  # when servers on nodes that are back will be up
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
        return min(self._starting.values(), default=math.inf)

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Servers that have started; nothing for the cores."""
        for server in [s for s, at_s in self._starting.items() if at_s <= now_s]:
            del self._starting[server]
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


class StreamsPart(Bystander):
    """Streams on workers.

    Args:
        simulation: before its first stream.
    Attributes:
        outcome: what it left behind, once it is finished.
    """

    outcome: Outcome

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def host(self, names: Sequence[str]) -> Guests:
        """Requests at workers of these names."""
        run, world = self.simulation, self.simulation.world
        at = {name: world.worker_names.index(name) for name in names}
        nodes = {name: world.node_names[int(world.node[w])] for name, w in at.items()}
        return Guests(run.carrier, at, nodes, State.of(run.core.view()).real, run.measured_requests)

    def advance(self, to_s: float) -> None:
        """Take all events before a time."""
        self.simulation.run_until(to_s)

    def finish(self) -> None:
        """To the end of the scenario, and what is under way then."""
        self.outcome = self.simulation.run()


class PipelinesPart(Bystander):
    """Pipelines on nodes and links.

    Progress is counted only where it changes, so that other work's moments leave it to the last digit.

    Args:
        world: before its first pipeline; its core is read only here.
        tell: is told what flows have of links from now on, if anybody shares these.
    """

    commands = (StartPipeline, MovePipeline, ReroutePipeline, StopPipeline)

    def __init__(self, world: PipelineWorld, tell: Callable[[float, Floats], None] | None = None) -> None:
        self.world, self._tell = world, tell
        self._now_s = 0.0
        self._ended: list[Any] = []  # and was not told yet
        self._changed = False  # rates are those of earlier placements
        self._untold = False  # and so are those of flows
        self._cores = world.core.network.cores  # that other work left when rates were found

    def next_s(self) -> float:
        """When a pipeline comes or ends, or at once: those that wait may find room on changed nodes."""
        if (cores := self.world.core.network.cores) is not self._cores:
            self._bring_up(self._now_s)
            self._cores, self._changed = cores, True
        if self._changed:
            self.world.settle()
            self._changed = False
        if self._untold and self._tell is not None:
            self._tell(self._now_s, self.world.core.flows_bps())
        self._untold = False
        if self._ended or self.world.core.due:
            return self._now_s
        return self.world.next_s()

    def advance(self, to_s: float) -> None:
        """Ends are known; nothing is done on the way."""
        self._now_s = to_s

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Pipelines with a task on a dead node stand still."""
        if node in (names := self.world.core.network.names):
            self._bring_up(now_s)
            self.world.change_node(names.index(node), up, now_s)
            self._changed = True

    def image_came(self, image: str, node: int, there_s: float) -> None:
        """See `NodeImages`; this is heard at the moment at which its last byte is sent."""
        self._bring_up(self._now_s)
        self.world.image_came(image, node, there_s)
        self._changed = True

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Ends, submissions, and the decision on them."""
        if self.next_s() > now_s:
            return
        self._untold = self._changed = True  # who goes on may have cores of one that has ended
        for event in (*self._ended, *self.world.happened(now_s)):
            yield Rank.ENDED if isinstance(event, PipelineEnded) else Rank.OPENED, event
        yield Rank.TICK, PlacementDue(now_s)
        self._ended = []

    def take(self, command: PlaceCommand, now_s: float) -> Iterable[Any]:
        """Carry a command out; tasks that move stand still for a while."""
        self._bring_up(now_s)
        self.world.take(command, now_s)
        self._changed = self._untold = True
        return ()

    def _bring_up(self, now_s: float) -> None:
        if self.world.now_s < now_s:
            self._ended += self.world.bring_up(now_s)


class PullsPart(Bystander):
    """Pulls end, and their ways go down and come up.

    Args:
        wires: the links.
    Attributes:
        pulls: of which it tells the moments.
    """

    def __init__(self, scenario: Scenario, wires: Wires) -> None:
        self.pulls = Pulls(wires.net.links.capacity_bps, reserving_of(scenario).kept, self._reserve)
        self._wires, self._scenario = wires, scenario
        self._changes = deque[LinkChange]()  # of ways that are pulled over, down or up

    def next_s(self) -> float:
        """The next end or change."""
        return min(self.pulls.next_s(), self._changes[0].at_s if self._changes else math.inf)

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Whoever waits for what has ended knows by itself; nothing for the cores."""
        self.pulls.end(now_s)
        while self._changes and self._changes[0].at_s <= now_s:
            self._change(self._changes.popleft(), now_s)
        return ()

    def images(self, site_of: Ints, cloud: str) -> Images:
        """Images come to nodes by the ways back from a cluster to their sites, (N,)."""
        clusters = [cluster.name for cluster in self._scenario.topology.clusters]
        wires = self._wires
        changes = [each for each in self._scenario.timeline if isinstance(each, LinkChange)]
        self._changes = deque(each for each in changes if each.cluster == cloud and each.up is not None)
        ways = tuple(wires.way(b, clusters.index(cloud), back=True) for b in site_of.tolist())
        return Images(self.pulls, ways, tuple(wires.links_of(way) for way in ways))

    def flows_on(self, network: Network) -> Callable[[float, Floats], None]:
        """Is to be told what flows have of each link of a network, in each direction, see `PlaceCore`."""
        carried = np.zeros((2, len(network.ends), len(self._wires.names)))
        for k, (one, other) in enumerate(network.ends.tolist()):
            for back, ends in enumerate(((one, other), (other, one))):
                route = self._wires.routes.between.get((network.names[ends[0]], network.names[ends[1]]))
                if route is not None:
                    carried[back, k, self._wires.links_of(route)] = 1.0
        return lambda now_s, bps: self.pulls.set_flows(now_s, np.tensordot(bps, carried, 2))

    def _change(self, change: LinkChange, now_s: float) -> None:
        topology = self._scenario.topology
        site = [site.name for site in topology.sites].index(change.site)
        cluster = [cluster.name for cluster in topology.clusters].index(change.cluster)
        for back in (False, True):
            self.pulls.change(now_s, self._wires.way(site, cluster, back=back), bool(change.up))

    def _reserve(self, now_s: float, bps: Floats) -> None:
        for link in np.flatnonzero(bps != self._wires.net.links.reserved_bps).tolist():
            self._wires.reserve(link, now_s, float(bps[link]))
