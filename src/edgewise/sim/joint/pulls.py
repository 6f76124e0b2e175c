"""Reserved rates in a joint run: flows of pipelines and image pulls on the links that messages share.

`Pulls` knows what is reserved, `Wires` lets messages have the rest. Forbidden here: who gets what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.pulls import Pulls
from edgewise.model.network import Network
from edgewise.model.scenario import Scenario
from edgewise.sim.joint.parts import Bystander, Rank
from edgewise.sim.links.wires import Wires
from edgewise.sim.replica_queues import Images


class PullsPart(Bystander):
    """Pulls end.

    Args:
        wires: the links.
    Attributes:
        pulls: of which it tells the moments.
    """

    def __init__(self, scenario: Scenario, wires: Wires) -> None:
        self.pulls = Pulls(wires.net.links.capacity_bps, self._reserve)
        self._wires, self._scenario = wires, scenario

    def next_s(self) -> float:
        """The next end."""
        return self.pulls.next_s()

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Whoever waits for what has ended knows by itself; nothing for the cores."""
        self.pulls.end(now_s)
        return ()

    def images(self, site_of: Ints) -> Images:
        """Images come to nodes by the ways back from the cloud to their sites, (N,)."""
        assert self._scenario.spec.services is not None, "who pulls images has services"
        clusters = [cluster.name for cluster in self._scenario.topology.clusters]
        cloud, wires = clusters.index(self._scenario.spec.services.cloud), self._wires
        return Images(
            self.pulls, tuple(wires.links_of(wires.way(b, cloud, back=True)) for b in site_of.tolist())
        )

    def flows_on(self, network: Network) -> Callable[[float, Floats], None]:
        """Is to be told what flows have of each link of a network, in each direction, see `PlaceCore`."""
        carried = np.zeros((2, len(network.ends), len(self._wires.names)))
        for k, (one, other) in enumerate(network.ends.tolist()):
            for back, ends in enumerate(((one, other), (other, one))):
                route = self._wires.routes.between.get((network.names[ends[0]], network.names[ends[1]]))
                if route is not None:
                    carried[back, k, self._wires.links_of(route)] = 1.0
        return lambda now_s, bps: self.pulls.set_flows(now_s, np.tensordot(bps, carried, 2))

    def _reserve(self, now_s: float, bps: Floats) -> None:
        for link in np.flatnonzero(bps != self._wires.net.links.reserved_bps).tolist():
            self._wires.reserve(link, now_s, float(bps[link]))
