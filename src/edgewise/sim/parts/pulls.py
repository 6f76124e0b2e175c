"""Image pulls in a joint run: `Pulls` knows what is reserved of links, `Wires` lets messages have the rest.

A way that goes down is one of pulls: they wait until it is up. Its cables are others' ways, too, so flows
between nodes go on.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.place.core import reserving_of
from edgewise.core.pulls import Pulls
from edgewise.model.pipelines import Network, carried_over
from edgewise.model.scenario import Scenario
from edgewise.model.topology import LinkChange
from edgewise.sim.images import Images
from edgewise.sim.links.wires import Wires
from edgewise.sim.parts.part import Bystander, Rank


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
        carried = carried_over(network, self._wires.routes)
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
