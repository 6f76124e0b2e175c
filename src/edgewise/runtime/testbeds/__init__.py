"""Where pipelines run: nodes and links on this machine; what a test bed gives, and `local`.

spaces  the namespaces of a system, with real shaping and routing (`SpaceTestbed`); needs root
local   everything on localhost; senders pace themselves, so rates are real and paths are not. A flow over a
        link that is down stops, as it would; which links carried what is not measured there.

A test bed gives addresses, a way to run processes, shaped and routed flows.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edgewise.arrays import Ints
from edgewise.model.pipelines import Network
from edgewise.runtime.http.ports import free_port

MOST_GIVEN = 1000  # ports that are remembered until their flows are there


@dataclass(frozen=True, slots=True)
class Flow:
    """One edge of a pipeline between two nodes, as the plan wants it.

    Attributes:
        port: of the receiving task; no two flows of a backend share one, so it names the flow.
        source, target: nodes.
        path: links from source to target; none when they are the same node.
        rate_bps: payload bits per second; 0: it may not send. Infinite within a node.
    """

    port: int
    source: int
    target: int
    path: tuple[int, ...]
    rate_bps: float


class Testbed(Protocol):
    """Nodes and links that are really there."""

    name: str
    shapes: bool
    """Whether the backend holds flows to their rates; otherwise the senders must."""
    network: Network

    def address(self, node: int) -> str:
        """IP address of a node."""

    def port(self) -> int:
        """A port that no flow has had."""

    def command(self, node: int, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on a node."""

    def apply(self, flows: Sequence[Flow]) -> int:
        """Make these the flows there are, whatever was before; returns how many commands it took."""

    def set_link(self, link: int, up: bool) -> None:
        """Cut a link, or mend it."""

    def link_bytes(self) -> Ints:
        """(L,) bytes that each link has carried, both ways together, of whoever shares it."""

    def close(self) -> None:
        """Leave nothing behind."""


def nodes_on(network: Network, flow: Flow) -> list[int]:
    """Nodes along a flow's path.

    Raises:
        ValueError: the path does not lead from source to target.
    """
    at, passed = flow.source, [flow.source]
    for link in flow.path:
        ends = network.ends[link].tolist()
        if at not in ends:
            raise ValueError(f"flow to port {flow.port}: link {link} does not continue its path")
        at = ends[1 - ends.index(at)]
        passed.append(at)
    if at != flow.target:
        raise ValueError(f"flow to port {flow.port}: its path ends at node {at}, not at {flow.target}")
    return passed


class LocalTestbed:
    """Every node is 127.0.0.1; see `Testbed`.

    Args:
        planned: ports at which others are to listen.
    """

    name = "local"
    shapes = False

    def __init__(self, network: Network, planned: Callable[[], Collection[int]] = tuple) -> None:
        self.network, self._planned = network, planned
        self.flows: dict[int, Flow] = {}
        self._down: set[int] = set()
        self._given = deque[int](maxlen=MOST_GIVEN)

    def address(self, node: int) -> str:
        """Localhost, whatever the node."""
        return "127.0.0.1"

    def port(self) -> int:
        """A port that is free now, and was not given just before."""
        self._given.append(free_port({*self.flows, *self._given, *self._planned()}))
        return self._given[-1]

    def command(self, node: int, argv: Sequence[str]) -> list[str]:
        """As it is."""
        return list(argv)

    def apply(self, flows: Sequence[Flow]) -> int:
        """Note the flows; the session tells the senders their rates."""
        for flow in flows:
            nodes_on(self.network, flow)
        wanted = {flow.port: flow for flow in flows}
        changed = sum(self.flows.get(port) != flow for port, flow in wanted.items())
        changed += len(self.flows.keys() - wanted.keys())
        self.flows = wanted
        return changed

    def sender_rate_bps(self, port: int) -> float:
        """What the sender of a flow may send now; infinite for a flow that is not planned."""
        flow = self.flows.get(port)
        if flow is None:
            return math.inf
        return 0.0 if self._down.intersection(flow.path) else flow.rate_bps

    def set_link(self, link: int, up: bool) -> None:
        """Flows over a link that is down get nothing."""
        (self._down.discard if up else self._down.add)(link)

    def link_bytes(self) -> Ints:
        """Nothing is known: all zero."""
        return np.zeros(len(self.network.bandwidth_bps), dtype=np.int64)

    def close(self) -> None:
        """Nothing to remove."""
